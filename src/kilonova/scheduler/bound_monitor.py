"""Monitor of bounds: records their phases and the events about changes of them, each once per episode.

A server evaluates all bounds after events that may change them, and at the next time at which one is at risk or
violated if nothing runs. The phases are in the catalog, and change in the transaction that records the event: of many
servers one announces a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kilonova.catalog import events
from kilonova.catalog.bound_status import BoundStatus, bound_statuses
from kilonova.catalog.bounds import record_phases
from kilonova.catalog.database import Catalog
from kilonova.model.bound import describe_bound
from kilonova.model.bound_phase import BoundPhase, next_phase
from kilonova.model.event import Event, EventKind
from kilonova.service.formatting import seconds

_CONCERNED = frozenset(
    {EventKind.SUCCEEDED, EventKind.APPLIED, EventKind.BOUND_CHANGED, EventKind.RECOVERED, EventKind.CANCELLED}
    | {EventKind.FAILED, EventKind.ABANDONED}
)
"""Kinds of events after which bounds may have another phase; when a run fails, points that waited for it are read."""


class BoundMonitor:
    """Monitor of the bounds of a catalog.

    Args:
        catalog: the catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._changed = True
        self.next_check: datetime | None = None

    def note(self, event: Event) -> None:
        """Note an event, after which `check` may have to evaluate the bounds again."""
        self._changed = self._changed or event.kind in _CONCERNED

    def check(self, *, exist: bool) -> None:
        """Evaluate the bounds, if something may have changed, and record changes of their phases.

        `next_check` is the time at which the next phase begins if nothing happens until then.

        Args:
            exist: whether there are bounds; the catalog is not read if there are none.
        """
        if not exist:
            self._changed, self.next_check = True, None
            return
        with self._catalog.reading() as tx:
            if not self._changed and (self.next_check is None or tx.now < self.next_check):
                return
            found = bound_statuses(tx)
        if any(_recorded(each) is not each.registered.phase for each in found):
            with self._catalog.writing() as tx:
                found = bound_statuses(tx)
                changed = [each for each in found if _recorded(each) is not each.registered.phase]
                record_phases(tx, ((each.registered, _recorded(each)) for each in changed))
                for each in changed:
                    if (kind := _kind(each)) is not None:
                        events.record(tx, kind, channels=[each.registered.channel], text=_text(each))
        self._changed, self.next_check = False, _first(found)


def _first(found: Iterable[BoundStatus]) -> datetime | None:
    return min((each.next_change for each in found if each.next_change is not None), default=None)


def _recorded(each: BoundStatus) -> BoundPhase:
    """Return the phase to record for a bound."""
    return next_phase(each.registered.phase, each.phase)


def _kind(each: BoundStatus) -> EventKind | None:
    """Return the kind of the event about the change of a bound's phase; None if it is not announced."""
    match _recorded(each):
        case BoundPhase.AT_RISK:
            return EventKind.BOUND_AT_RISK
        case BoundPhase.VIOLATED:
            return EventKind.BOUND_VIOLATED
        case BoundPhase.KEPT:
            return EventKind.BOUND_RESTORED if each.registered.phase is BoundPhase.VIOLATED else None


def _text(each: BoundStatus) -> str:
    amount = seconds(each.amount.total_seconds())
    kept = "" if each.kept is None else f"; readers get point {each.kept}"
    return (
        f"{describe_bound(each.bound)}; it is {'behind' if each.registered.path else 'inconsistent'} by {amount}{kept}"
    )
