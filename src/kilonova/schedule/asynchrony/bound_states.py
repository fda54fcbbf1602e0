"""The states of the bounds on outputs, and when a run is due because of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from kilonova.model.bound import (
    Bound,
    BoundState,
    InconsistencyBound,
    StalenessBound,
    inconsistency_state,
    staleness_state,
)
from kilonova.schedule.asynchrony.provenance import extent
from kilonova.schedule.asynchrony.scheduling_state import SchedulingState
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel


def bound_states(workflow: WorkflowModel, bounds: Iterable[Bound], state: SchedulingState) -> tuple[BoundState, ...]:
    """Return the state of each bound on an output channel, as `kilonova.model.bound.evaluate_bound` defines it.

    Args:
        workflow: the workflow.
        bounds: the bounds; those on other channels are left out.
        state: the state of the workflow.
    """
    heads = {output.channel: output.head for output in state.outputs}
    found: list[BoundState] = []
    for bound in bounds:
        head = heads.get(bound.channel)
        if head is None:
            continue
        paths = workflow.paths[bound.channel]
        match bound:
            case StalenessBound(path=path):
                entry = head[paths.index(path)]
                end = state.times[path[0]].end(entry[0][0]) if entry else None
                found.append(staleness_state(bound, end, state.now))
            case InconsistencyBound():
                found.append(inconsistency_state(bound, *extent(head, paths, state.times)))
            case _:
                assert_never(bound)
    return tuple(found)
