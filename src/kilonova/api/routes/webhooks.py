"""Routes of webhooks. The role read sees their origins, but not the whole URLs, which may be secret."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BeforeValidator

from kilonova.api.response_models import ResponseModel, attribute
from kilonova.api.routes.context import ADMIN, READ, CurrentProject
from kilonova.catalog.subscriptions import RegisteredSubscription
from kilonova.model.event import EventKind
from kilonova.model.subscription import Webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A webhook to add, to which events of the kinds `on` are sent: all, or those of a binding.

    Attributes:
        secret_env: the variable in the servers' environment that holds its secret.
    """

    name: str
    url: str
    on: list[str]
    binding: str | None = None
    secret_env: str | None = None


def _kinds(kinds: Iterable[EventKind]) -> list[str]:
    return sorted(kind.value for kind in kinds)


class WebhookResponse(ResponseModel):
    """A webhook, and its delivery state.

    Attributes:
        origin: where events are sent, without the path.
        on: the kinds of events.
        binding: the binding whose events are sent; None for all.
        delivered: time of the last successful delivery.
        attempts: number of failed attempts to deliver the next event.
        retry: time of the next attempt.
    """

    name: str = attribute("subscription", "name")
    origin: str = attribute("subscription", "origin")
    on: Annotated[list[str], BeforeValidator(_kinds)] = attribute("subscription", "kinds")
    binding: str | None = attribute("subscription", "binding")
    signed: Annotated[bool, BeforeValidator(bool)] = attribute("subscription", "secret")
    delivered: datetime | None = attribute("standing", "delivered")
    attempts: int = attribute("standing", "attempts")
    retry: datetime | None = attribute("standing", "retry")
    problem: str = attribute("standing", "problem")


router = APIRouter(tags=["webhooks"])


@router.get("/webhooks", dependencies=READ, response_model=list[WebhookResponse])
def webhooks(project: CurrentProject) -> list[RegisteredSubscription]:
    """List the webhooks, with the delivery state of each."""
    return [each for each in project.reader.subscriptions() if isinstance(each.subscription, Webhook)]


@router.post("/webhooks", dependencies=ADMIN)
def add(project: CurrentProject, webhook: WebhookRequest) -> dict[str, str]:
    """Add a webhook: an HTTP endpoint that is notified of chosen events from now on."""
    project.operator.add_webhook(webhook.name, webhook.url, webhook.on, webhook.binding, webhook.secret_env)
    return {"webhook": webhook.name}


@router.delete("/webhooks/{name}", dependencies=ADMIN)
def remove(project: CurrentProject, name: str) -> dict[str, str]:
    """Remove a webhook."""
    project.operator.remove_webhook(name)
    return {"webhook": name}
