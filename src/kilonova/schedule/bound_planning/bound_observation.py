"""Observation from which runs are planned that keep bounds: a frozen value that the catalog loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kilonova.model.bound import Bound
from kilonova.schedule.asynchrony.provenance import ArrivalTimes
from kilonova.schedule.due import PlannerInput


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundObservation:
    """Tasks and channels that lead to bounded channels, at one moment.

    Attributes:
        now: the present time, later than every time in `arrivals`.
        known: these tasks and channels.
        bounds: the bounds that apply, their paths in the declared form (`kilonova.model.workflow_path`).
        arrivals: of each channel that no task writes, its points from the oldest that some channel reflects on.
        bindings: the binding of each task; recovered tasks have none until a workflow declares them, and do not run.
        running: the bindings that run or are about to run.
    """

    now: datetime
    known: PlannerInput
    bounds: tuple[Bound, ...]
    arrivals: Mapping[str, ArrivalTimes]
    bindings: Mapping[str, str]
    running: frozenset[str] = frozenset()

    @property
    def views(self) -> Mapping[str, str | None]:
        """The view of each task that maintains one or a relation that is materialized for it."""
        return {name: state.task.view for name, state in self.known.newest.items()}
