"""Routes of webhooks. The role read sees their origins, but not the whole URLs, which may be secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter

from kilonova.api.routes.context import RouteContext
from kilonova.catalog.subscriptions import RegisteredSubscription
from kilonova.model.subscription import Webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A webhook to add.

    Attributes:
        name: its name.
        url: where events are sent.
        on: the kinds of events.
        binding: a binding, to send only its events.
        secret_env: the variable in the servers' environment that holds its secret.
    """

    name: str
    url: str
    on: list[str]
    binding: str | None = None
    secret_env: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookResponse:
    """A webhook.

    Attributes:
        name: its name.
        origin: where events are sent, without the path.
        on: the kinds of events.
        binding: the binding whose events are sent; None for all.
        signed: whether messages are signed.
        delivered: time of the last successful delivery.
        attempts: number of failed attempts to deliver the next event.
        retry: time of the next attempt.
        problem: the last problem.
    """

    name: str
    origin: str
    on: list[str]
    binding: str | None
    signed: bool
    delivered: datetime | None
    attempts: int
    retry: datetime | None
    problem: str


def webhook_routes(context: RouteContext) -> APIRouter:
    """Return the routes of webhooks."""
    router = APIRouter(tags=["webhooks"])
    project = context.project

    @router.get("/webhooks", dependencies=context.read)
    def webhooks() -> list[WebhookResponse]:
        """List the webhooks, with the delivery state of each."""
        found = ((each.subscription, each) for each in project.subscriptions())
        return [_shown(subscription, each) for subscription, each in found if isinstance(subscription, Webhook)]

    @router.post("/webhooks", dependencies=context.admin)
    def add(webhook: WebhookRequest) -> dict[str, str]:
        """Add a webhook: an HTTP endpoint that is notified of chosen events from now on."""
        project.add_webhook(webhook.name, webhook.url, webhook.on, webhook.binding, webhook.secret_env)
        return {"webhook": webhook.name}

    @router.delete("/webhooks/{name}", dependencies=context.admin)
    def remove(name: str) -> dict[str, str]:
        """Remove a webhook."""
        project.remove_webhook(name)
        return {"webhook": name}

    return router


def _shown(webhook: Webhook, installed: RegisteredSubscription) -> WebhookResponse:
    standing = installed.standing
    return WebhookResponse(
        name=webhook.name,
        origin=webhook.origin,
        on=sorted(kind.value for kind in webhook.kinds),
        binding=webhook.binding,
        signed=webhook.secret is not None,
        delivered=standing.delivered,
        attempts=standing.attempts,
        retry=standing.retry,
        problem=standing.problem,
    )
