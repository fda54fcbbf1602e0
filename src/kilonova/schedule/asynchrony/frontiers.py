"""The frontier of a channel: up to where its blocks have been processed into outputs (asynchronous scheduling, 6.2.1).

The frontier of an output is its head. That of a channel consists, for each output and each way to it, of the entries
of the output's frontier that come through the channel: a *frontier set*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kilonova.schedule.asynchrony.provenance import Newest, newest
from kilonova.schedule.asynchrony.scheduling_state import OutputState
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel

Frontiers = Mapping[str, frozenset[Newest]]
"""The frontier set of each channel that leads to an output."""


def frontiers_of(workflow: WorkflowModel, outputs: Iterable[OutputState]) -> Frontiers:
    """Return the frontier set of each channel from which some outputs are computed."""
    return reflected_upstream(workflow, {output.channel: {newest(output.head)} for output in outputs})


def reflected_upstream(workflow: WorkflowModel, points: Mapping[str, Iterable[Newest]]) -> Frontiers:
    """Return the points of each channel that are reflected by given points of channels downstream, or given themselves.

    Args:
        workflow: the workflow.
        points: the newest points of some blocks, by channel.
    """
    found = {name: set(each) for name, each in points.items()}
    for name in reversed(workflow.order):
        frontier = found.get(name)
        if frontier is None:
            continue
        for read, kept in workflow.places_through.get(name, {}).items():
            found.setdefault(read, set()).update([tuple([each[place] for place in kept]) for each in frontier])
    return {name: frozenset(each) for name, each in found.items()}


def least_frontier(frontier: frozenset[Newest]) -> Newest:
    """Return the least element of a frontier set, entry by entry."""
    return tuple(map(min, zip(*frontier, strict=True)))
