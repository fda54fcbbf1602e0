"""Event subscriptions and their delivery states; see `kilonova.model.subscription`.

One server at a time serves a subscription, under a lease: only the lease holder records its delivery state.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, insert, or_, select, update

from kilonova.catalog import codec, events, tables
from kilonova.catalog.bindings import binding_id
from kilonova.catalog.database import Transaction
from kilonova.errors import DeclarationError, NotFound, closest_name
from kilonova.model.subscription import LINEAGE, DeliveryState, Lineage, Subscription, Webhook

_TABLE = tables.subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSubscription:
    """Subscription with its delivery state and lease.

    Attributes:
        subscription: the subscription.
        created: the time of its creation.
        standing: its delivery state.
        holder: the server that serves it; None if none does.
        lease_until: the time when the lease of the holder expires.
    """

    subscription: Subscription
    created: datetime
    standing: DeliveryState
    holder: str | None
    lease_until: datetime | None

    @property
    def key(self) -> tuple[str, datetime]:
        """Its name and creation time: another one of the same name may be added later."""
        return self.subscription.name, self.created


def add(tx: Transaction, webhook: Webhook) -> None:
    """Add a webhook, which is notified of events from now on.

    Raises:
        DeclarationError: there is already a webhook of that name.
        NotFound: there is no such binding.
    """
    if webhook.binding is not None:
        binding_id(tx, webhook.binding)
    if tx.connection.execute(select(_TABLE.c.name).where(_TABLE.c.name == webhook.name)).first() is not None:
        raise DeclarationError(
            f"a webhook {webhook.name} already exists", hint="Remove it first, or choose another name"
        )
    _insert(tx, webhook)


def add_lineage(tx: Transaction) -> None:
    """Add the OpenLineage subscription, which receives events from now on, unless it exists."""
    if tx.connection.execute(select(_TABLE.c.name).where(_TABLE.c.name == LINEAGE)).first() is None:
        _insert(tx, Lineage())


def _insert(tx: Transaction, subscription: Subscription) -> None:
    tx.connection.execute(
        insert(_TABLE).values(
            name=subscription.name,
            definition=codec.subscription_to_json(subscription),
            created=tx.now,
            cursor=events.newest(tx),
            attempts=0,
            problem="",
        )
    )


def remove(tx: Transaction, name: str) -> None:
    """Remove a webhook.

    Raises:
        NotFound: there is no such webhook.
    """
    webhook(tx, name)
    tx.connection.execute(delete(_TABLE).where(_TABLE.c.name == name))


def webhook(tx: Transaction, name: str) -> Webhook:
    """Return a webhook.

    Raises:
        NotFound: there is no such webhook.
    """
    found = {
        each.subscription.name: each.subscription
        for each in subscriptions(tx)
        if isinstance(each.subscription, Webhook)
    }
    if name not in found:
        raise NotFound(f"there is no webhook {name}", hint=closest_name(name, list(found)))
    return found[name]


def subscriptions(tx: Transaction) -> list[RegisteredSubscription]:
    """Return the subscriptions, by name."""
    return [_registered(row) for row in tx.connection.execute(select(_TABLE).order_by(_TABLE.c.name))]


def _registered(row: Row[Any]) -> RegisteredSubscription:
    return RegisteredSubscription(
        subscription=codec.subscription_from_json(row.name, row.definition),
        created=row.created,
        standing=DeliveryState(
            cursor=row.cursor,
            attempts=row.attempts,
            failing=row.failing,
            retry=row.retry,
            problem=row.problem,
            delivered=row.delivered,
        ),
        holder=row.holder,
        lease_until=row.lease_until,
    )


def claim(tx: Transaction, known: RegisteredSubscription, holder: str, lease: timedelta) -> DeliveryState | None:
    """Claim the lease of a subscription that no other server holds.

    Args:
        tx: a writing transaction.
        known: the subscription as it was read before.
        holder: the server that claims it.
        lease: the duration of the lease.

    Returns:
        Its delivery state; None if another server holds the lease, or the subscription was removed.
    """
    free = or_(_TABLE.c.holder.is_(None), _TABLE.c.holder == holder, _TABLE.c.lease_until < tx.now)
    this = _TABLE.c.name == known.subscription.name, _TABLE.c.created == known.created
    result = tx.connection.execute(update(_TABLE).where(*this, free).values(holder=holder, lease_until=tx.now + lease))
    if not result.rowcount:
        return None
    return _registered(tx.connection.execute(select(_TABLE).where(*this)).one()).standing


def renew(tx: Transaction, holder: str, lease: timedelta) -> None:
    """Renew all subscription leases of a holder."""
    tx.connection.execute(update(_TABLE).where(_TABLE.c.holder == holder).values(lease_until=tx.now + lease))


def record(tx: Transaction, known: RegisteredSubscription, holder: str, standing: DeliveryState) -> bool:
    """Record the delivery state of a subscription.

    Returns:
        Whether the holder still has the lease; otherwise nothing was written.
    """
    result = tx.connection.execute(
        update(_TABLE)
        .where(_TABLE.c.name == known.subscription.name, _TABLE.c.created == known.created, _TABLE.c.holder == holder)
        .values(
            cursor=standing.cursor,
            attempts=standing.attempts,
            failing=standing.failing,
            retry=standing.retry,
            problem=standing.problem,
            delivered=standing.delivered,
        )
    )
    return bool(result.rowcount)


def release(tx: Transaction, known: RegisteredSubscription, holder: str) -> None:
    """Release the lease of a subscription."""
    tx.connection.execute(
        update(_TABLE)
        .where(_TABLE.c.name == known.subscription.name, _TABLE.c.holder == holder)
        .values(holder=None, lease_until=None)
    )
