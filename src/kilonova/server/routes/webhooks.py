"""The routes of webhooks. Who may only look sees where they go to, but not the whole URL: that may be a secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter

from kilonova.catalog.outlets import Installed
from kilonova.model.outlet import Webhook
from kilonova.server.routes.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """A webhook to be.

    Attributes:
        name: its name.
        url: where events are sent.
        on: the kinds of events.
        binding: a binding, to tell of its events only.
        secret_env: the variable in the servers' environment that holds its secret.
    """

    name: str
    url: str
    on: list[str]
    binding: str | None = None
    secret_env: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookShown:
    """A webhook.

    Attributes:
        name: its name.
        origin: where events are sent, without the path.
        on: the kinds of events.
        binding: the binding of whose events it is told; of all if None.
        signed: whether messages are signed.
        delivered: when it took an event for the last time.
        attempts: how often it has been told of the next event in vain.
        retry: when that is tried again.
        problem: what went wrong the last time that something did.
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


def webhook_routes(context: Context) -> APIRouter:
    """The routes of webhooks."""
    router = APIRouter(tags=["webhooks"])
    project = context.project

    @router.get("/webhooks", dependencies=context.read)
    def webhooks() -> list[WebhookShown]:
        """The webhooks, and how far each has come."""
        found = ((each.outlet, each) for each in project.outlets())
        return [_shown(outlet, each) for outlet, each in found if isinstance(outlet, Webhook)]

    @router.post("/webhooks", dependencies=context.admin)
    def add(webhook: NewWebhook) -> dict[str, str]:
        """Tell an HTTP endpoint of chosen events from now on."""
        project.add_webhook(webhook.name, webhook.url, webhook.on, webhook.binding, webhook.secret_env)
        return {"webhook": webhook.name}

    @router.delete("/webhooks/{name}", dependencies=context.admin)
    def remove(name: str) -> dict[str, str]:
        """Tell a webhook of nothing more."""
        project.remove_webhook(name)
        return {"webhook": name}

    return router


def _shown(webhook: Webhook, installed: Installed) -> WebhookShown:
    standing = installed.standing
    return WebhookShown(
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
