"""Bounds in the catalog: declared by workflows, changed at run time, and enforced when points are published.

A limit that is set at run time stays until the workflow declares another one; see `kilonova.model.bound` for what a
bound means. No point becomes readable that violates a bound on inconsistency: the run that would write it fails. The
inconsistency of a point never grows afterwards, because what ends later ends after all that the point reflects began
(T⁻ of a validity that has not ended will be later than T⁺). So only a bound that is set or tightened can find points
that violate it: these are *withheld* from readers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from kilonova.catalog import events, tables
from kilonova.catalog.channel_store import channel_id, channel_states, mark_changed
from kilonova.catalog.database import Transaction, is_among
from kilonova.catalog.temporal_provenance import temporal_provenances
from kilonova.errors import InvalidState, NotFound
from kilonova.model.bound import Bound, InconsistencyBound, StalenessBound, inconsistency_state
from kilonova.model.bound_phase import BoundPhase
from kilonova.model.channel import PointState
from kilonova.model.event import EventKind
from kilonova.model.schedule import duration
from kilonova.model.version import Path
from kilonova.model.workflow_path import SEPARATOR, describe_path


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredBound:
    """Registered bound of a channel.

    Attributes:
        channel: the channel.
        path: the path of a bound on staleness, in its declared form; empty for one on inconsistency.
        declared: the limit that the workflow declares; None if it declares none.
        limit: the limit that applies; None if the bound was removed at run time.
        changed: when the limit was set at run time; None if it is as declared.
        changed_by: the user who set it.
        phase: the recorded phase.
        since: when that began.
    """

    channel: str
    path: Path
    declared: timedelta | None
    limit: timedelta | None
    changed: datetime | None
    changed_by: str | None
    phase: BoundPhase
    since: datetime

    @property
    def bound(self) -> Bound | None:
        """The bound that applies; None if it was removed at run time."""
        return None if self.limit is None else bound_of(self.channel, self.path, self.limit)

    @property
    def name(self) -> str:
        """A name of the bound for users: its kind, its channel and its path."""
        return bound_name(self.channel, self.path)


def bound_of(channel: str, path: Path, limit: timedelta) -> Bound:
    """Return a bound on staleness along a path; on inconsistency if the path is empty.

    Raises:
        DeclarationError: the limit is negative.
    """
    if path:
        return StalenessBound(channel=channel, path=path, limit=limit)
    return InconsistencyBound(channel=channel, limit=limit)


def bound_name(channel: str, path: Path) -> str:
    """Return a name of a bound for users."""
    return f"staleness of {channel} along {describe_path(path)}" if path else f"inconsistency of {channel}"


def bounds(tx: Transaction, channels: Collection[str] | None = None) -> list[RegisteredBound]:
    """Return the bounds of channels, by channel and path; of all channels if none are given."""
    channel, bound = tables.channel, tables.bound
    query = select(bound, channel.c.name).join(channel, channel.c.id == bound.c.channel_id)
    if channels is not None:
        query = query.where(is_among(tx, channel.c.name, channels))
    return [_bound(row) for row in tx.connection.execute(query.order_by(channel.c.name, bound.c.path))]


def _bound(row: Row[Any]) -> RegisteredBound:
    return RegisteredBound(
        channel=row.name,
        path=tuple(row.path.split(SEPARATOR)) if row.path else (),
        declared=_span(row.declared),
        limit=_span(row.seconds),
        changed=row.changed,
        changed_by=row.changed_by,
        phase=BoundPhase(row.phase),
        since=row.since,
    )


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _find(tx: Transaction, channel: str, path: Path) -> RegisteredBound | None:
    return next((each for each in bounds(tx, [channel]) if each.path == path), None)


def declare(tx: Transaction, channel: str, path: Path, limit: timedelta) -> None:
    """Register the declared limit of a bound; if that has changed, it replaces the one that was set at run time."""
    known = _find(tx, channel, path)
    if known is None or known.declared != limit:
        _put(tx, channel, path, known, {"declared": limit.total_seconds(), **_as_declared(limit)})


def drop(tx: Transaction, channel: str, path: Path) -> None:
    """Delete a bound, whether it is declared or was set at run time."""
    table = tables.bound
    mine = table.c.channel_id == channel_id(tx, channel), table.c.path == SEPARATOR.join(path)
    tx.connection.execute(delete(table).where(*mine))
    if not path:
        _withhold(tx, channel)


def set_limit(tx: Transaction, channel: str, path: Path, limit: timedelta | None, who: str) -> None:
    """Set the limit of a bound at run time.

    Args:
        tx: a writing transaction.
        channel: the channel.
        path: the path of a bound on staleness, in its declared form; empty for one on inconsistency.
        limit: the limit; None removes the bound.
        who: the user.

    Raises:
        DeclarationError: the limit is negative.
        NotFound: there is no such channel, or no such bound to remove.
    """
    known, name = _find(tx, channel, path), bound_name(channel, path)
    if limit is None:
        if known is None or known.limit is None:
            raise _unknown(tx, channel, path)
        if known.declared is None:
            drop(tx, channel, path)
        else:
            _put(tx, channel, path, known, {"seconds": None, "changed": tx.now, "changed_by": who})
    else:
        bound_of(channel, path, limit)
        changed = {"seconds": limit.total_seconds(), "changed": tx.now, "changed_by": who}
        same = known is not None and known.declared == limit
        _put(tx, channel, path, known, _as_declared(limit) if same else changed)
    to = "" if limit is None else duration(round(limit.total_seconds()))
    text = f"the {name} is bounded by {to}" if to else f"the {name} is no longer bounded"
    events.record(tx, EventKind.BOUND_CHANGED, channels=[channel], text=f"{text}, by {who}")


def reset_limit(tx: Transaction, channel: str, path: Path, who: str) -> timedelta:
    """Set the limit of a bound back to the declared one, and return that.

    Raises:
        NotFound: there is no such bound.
        InvalidState: the workflow declares no such bound.
    """
    known = _find(tx, channel, path)
    if known is None:
        raise _unknown(tx, channel, path)
    if known.declared is None:
        raise InvalidState(
            f"no workflow declares a bound on the {bound_name(channel, path)}",
            channel=channel,
            hint="Remove it with: kilonova bound remove",
        )
    set_limit(tx, channel, path, known.declared, who)
    return known.declared


def _as_declared(limit: timedelta) -> dict[str, Any]:
    return {"seconds": limit.total_seconds(), "changed": None, "changed_by": None}


def _unknown(tx: Transaction, channel: str, path: Path) -> NotFound:
    channel_id(tx, channel)
    known = [each.name for each in bounds(tx, [channel]) if each.limit is not None]
    hint = f"There are: {', '.join(known)}" if known else "The channel has no bounds"
    return NotFound(f"there is no bound on the {bound_name(channel, path)}", channel=channel, hint=hint)


def _put(tx: Transaction, channel: str, path: Path, known: RegisteredBound | None, values: dict[str, Any]) -> None:
    number, table = channel_id(tx, channel), tables.bound
    named = {"channel_id": number, "path": SEPARATOR.join(path)}
    if known is None:
        first = {"phase": BoundPhase.KEPT.value, "since": tx.now}
        tx.connection.execute(insert(table).values(**named, **first, **values))
    else:
        mine = table.c.channel_id == number, table.c.path == named["path"]
        tx.connection.execute(update(table).where(*mine).values(**values))
    if not path:
        _withhold(tx, channel)


def record_phases(tx: Transaction, changes: Iterable[tuple[RegisteredBound, BoundPhase]]) -> None:
    """Record the new phases of bounds."""
    table = tables.bound
    for each, phase in changes:
        mine = table.c.channel_id == channel_id(tx, each.channel), table.c.path == SEPARATOR.join(each.path)
        tx.connection.execute(update(table).where(*mine).values(phase=phase.value, since=tx.now))


def inconsistency_limits(tx: Transaction) -> dict[str, timedelta]:
    """Return the bounds on inconsistency that apply, by channel."""
    known = tx.definitions("inconsistency_limits")
    if None not in known:
        channel, bound = tables.channel, tables.bound
        query = (
            select(channel.c.name, bound.c.seconds)
            .join(channel, channel.c.id == bound.c.channel_id)
            .where(bound.c.path == "", bound.c.seconds.is_not(None))
        )
        known[None] = {row.name: timedelta(seconds=row.seconds) for row in tx.connection.execute(query)}
    found: dict[str, timedelta] = known[None]
    return found


def _withhold(tx: Transaction, channel: str) -> None:
    """Withhold the points of a channel from readers that violate its bound on inconsistency, and no others."""
    tx.mark_registry_changed()  # which limits apply is cached with the registered tasks
    number, limit = channel_id(tx, channel), inconsistency_limits(tx).get(channel)
    violating: list[int] = []
    if limit is not None:
        bound = InconsistencyBound(channel=channel, limit=limit)
        states = channel_states(tx, [channel])
        points = ((channel, point.number) for point in states[channel].points if point.state is PointState.FILLED)
        for (_, place), found in temporal_provenances(tx, states, points).items():
            if inconsistency_state(bound, found.start, found.end).violated:
                violating.append(place)
    point = tables.point
    here = point.c.channel_id == number
    tx.connection.execute(update(point).where(here, point.c.withheld).values(withheld=None))
    tx.connection.execute(update(point).where(here, is_among(tx, point.c.number, violating)).values(withheld=True))
    mark_changed(tx, [number])
