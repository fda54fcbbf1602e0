"""Planner of runs that keep bounds: plans after events that may change a plan, and when the next run is due.

Plans are made without the writers' lock. They are stored in the transaction that starts their runs, if no event has
been recorded meanwhile that may change them; else they are made again.
"""

from __future__ import annotations

from datetime import datetime

from kilonova.catalog import events
from kilonova.catalog.bound_observation import implicit_bindings, observe_bounds, without_repeated
from kilonova.catalog.database import Catalog, Transaction
from kilonova.model.event import Event, EventKind
from kilonova.schedule.bound_planning.bound_run import BoundRun

_CONCERNED = frozenset(
    {
        EventKind.SUCCEEDED,
        EventKind.FAILED,
        EventKind.CANCELLED,
        EventKind.ABANDONED,
        EventKind.SKIPPED,
        EventKind.APPLIED,
        EventKind.BOUND_CHANGED,
        EventKind.RECOVERED,
        EventKind.PAUSED,
        EventKind.RESUMED,
    }
)
"""Kinds of events that may change a plan: points, cursors, running bindings, tasks or bounds are others then."""


class BoundPlanner:
    """Planner of runs that keep bounds.

    Args:
        catalog: the catalog.

    Attributes:
        next_check: the time at which the next run is due if nothing happens until then; None if none is.
        bounded: the bindings that bounds start, so that new input does not.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._changed = True
        self._seen = 0
        self._runs: tuple[BoundRun, ...] = ()
        self.next_check: datetime | None = None
        self.bounded: frozenset[str] = frozenset()

    @property
    def waiting(self) -> bool:
        """Return whether there are runs to start."""
        return bool(self._runs)

    def note(self, event: Event) -> None:
        """Note an event, after which `check` may have to plan again."""
        self._changed = self._changed or event.kind in _CONCERNED

    def check(self, *, exist: bool) -> None:
        """Plan again, if something may have changed, or the next run is due.

        Args:
            exist: whether there are bounds; the catalog is not read if there are none.
        """
        if not exist:
            self._changed, self._runs, self.next_check, self.bounded = True, (), None, frozenset()
            return
        with self._catalog.reading() as tx:
            if not self._changed and (self.next_check is None or tx.now < self.next_check):
                return
            self._seen = events.newest(tx)
            observed = observe_bounds(tx)
            if observed is None:
                self._changed, self._runs, self.next_check, self.bounded = False, (), None, frozenset()
                return
        from kilonova.schedule.bound_planning.bound_decision import decide_bound_runs  # numpy takes a while

        decision = decide_bound_runs(observed)
        newest = observed.known.newest
        unscheduled = [name for name in decision.managed if newest[name].task.schedule is None]
        with self._catalog.reading() as tx:
            self.bounded = implicit_bindings(tx, unscheduled)
            self._runs = without_repeated(tx, decision.runs)
        self.next_check, self._changed = decision.next_check, False

    def runs(self, tx: Transaction) -> tuple[BoundRun, ...]:
        """Return the runs to start; none if they have to be planned again.

        Args:
            tx: the writing transaction that starts them.
        """
        if self._runs and any(event.kind in _CONCERNED for event in events.since(tx, self._seen)):
            self._changed = True
            return ()
        return self._runs

    def begun(self, bindings: frozenset[str]) -> None:
        """Note which bindings have been started."""
        self._runs = tuple(run for run in self._runs if run.binding not in bindings)
