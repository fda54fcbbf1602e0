"""Outlets and how far each has come; see `kilonova.model.outlet`.

One server at a time serves an outlet, under a lease: a standing is written down only by who holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, insert, or_, select, update

from kilonova.catalog import codec, events, tables
from kilonova.catalog.bindings import binding_id
from kilonova.catalog.database import Transaction
from kilonova.errors import DeclarationError, UnknownName, closest
from kilonova.model.outlet import LINEAGE, Lineage, Outlet, Standing, Webhook

_TABLE = tables.outlet


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An outlet as the catalog keeps it.

    Attributes:
        outlet: the outlet.
        created: when it was made.
        standing: how far it has come.
        holder: who serves it.
        lease_until: until when.
    """

    outlet: Outlet
    created: datetime
    standing: Standing
    holder: str | None
    lease_until: datetime | None


def add(tx: Transaction, webhook: Webhook) -> None:
    """Tell a webhook of what happens from now on.

    Raises:
        DeclarationError: there is a webhook of that name.
        UnknownName: there is no such binding.
    """
    if webhook.binding is not None:
        binding_id(tx, webhook.binding)
    if tx.connection.execute(select(_TABLE.c.name).where(_TABLE.c.name == webhook.name)).first() is not None:
        raise DeclarationError(
            f"there is a webhook {webhook.name} already", hint="Remove it first, or choose another name"
        )
    _insert(tx, webhook)


def add_lineage(tx: Transaction) -> None:
    """Tell OpenLineage of what happens from now on, unless it is told already."""
    if tx.connection.execute(select(_TABLE.c.name).where(_TABLE.c.name == LINEAGE)).first() is None:
        _insert(tx, Lineage())


def _insert(tx: Transaction, outlet: Outlet) -> None:
    tx.connection.execute(
        insert(_TABLE).values(
            name=outlet.name,
            definition=codec.outlet_to_json(outlet),
            created=tx.now,
            cursor=events.newest(tx),
            attempts=0,
            problem="",
        )
    )


def remove(tx: Transaction, name: str) -> None:
    """Tell a webhook of nothing more.

    Raises:
        UnknownName: there is no such webhook.
    """
    webhook(tx, name)
    tx.connection.execute(delete(_TABLE).where(_TABLE.c.name == name))


def webhook(tx: Transaction, name: str) -> Webhook:
    """A webhook.

    Raises:
        UnknownName: there is no such webhook.
    """
    found = {each.outlet.name: each.outlet for each in outlets(tx) if isinstance(each.outlet, Webhook)}
    if name not in found:
        raise UnknownName(f"there is no webhook {name}", hint=closest(name, list(found)))
    return found[name]


def outlets(tx: Transaction) -> list[Installed]:
    """The outlets, by name."""
    return [_installed(row) for row in tx.connection.execute(select(_TABLE).order_by(_TABLE.c.name))]


def _installed(row: Row[Any]) -> Installed:
    return Installed(
        outlet=codec.outlet_from_json(row.name, row.definition),
        created=row.created,
        standing=Standing(
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


def claim(tx: Transaction, known: Installed, holder: str, lease: timedelta) -> Standing | None:
    """Serve an outlet that nobody serves.

    Args:
        tx: a writing transaction.
        known: the outlet as it was when it was looked at.
        holder: who serves it.
        lease: for how long, without renewal.

    Returns:
        How far it has come; None if somebody else serves it, or it is not there any more.
    """
    free = or_(_TABLE.c.holder.is_(None), _TABLE.c.holder == holder, _TABLE.c.lease_until < tx.now)
    this = _TABLE.c.name == known.outlet.name, _TABLE.c.created == known.created
    result = tx.connection.execute(update(_TABLE).where(*this, free).values(holder=holder, lease_until=tx.now + lease))
    if not result.rowcount:
        return None
    return _installed(tx.connection.execute(select(_TABLE).where(*this)).one()).standing


def renew(tx: Transaction, holder: str, lease: timedelta) -> None:
    """Go on serving what one serves."""
    tx.connection.execute(update(_TABLE).where(_TABLE.c.holder == holder).values(lease_until=tx.now + lease))


def record(tx: Transaction, known: Installed, holder: str, standing: Standing) -> bool:
    """Write down how far an outlet has come.

    Returns:
        Whether it is still this holder's to serve; otherwise nothing was written.
    """
    result = tx.connection.execute(
        update(_TABLE)
        .where(_TABLE.c.name == known.outlet.name, _TABLE.c.created == known.created, _TABLE.c.holder == holder)
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


def release(tx: Transaction, known: Installed, holder: str) -> None:
    """Let others serve an outlet."""
    tx.connection.execute(
        update(_TABLE)
        .where(_TABLE.c.name == known.outlet.name, _TABLE.c.holder == holder)
        .values(holder=None, lease_until=None)
    )
