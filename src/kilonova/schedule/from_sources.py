"""Choice between computing a view from what it materializes and from its sources, which detaches it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from kilonova.model.channel import ChannelState
from kilonova.model.required_columns import missing_columns
from kilonova.model.run import CostSample, RefreshMethod
from kilonova.schedule.costs import fit, machine_factor
from kilonova.schedule.due import TaskState, new_input, read_ends
from kilonova.schedule.planning import (
    WORTH_TRYING,
    VariantChoice,
    accepts_bases,
    choose,
    input_size,
    limit_channels,
)
from kilonova.schedule.query_shape import shape_of

_TRIALS = 2
"""Number of runs over a change before a view may be computed from its sources, unless that is clearly cheaper."""

_CLEARLY = 2.5
"""Factor between two estimates of which the lower one is not doubted, although nothing was measured."""

_AHEAD = 5
"""Number of runs over which the recomputation of all that a detached view materializes is spread."""

_DIRECT_RUNS = 4
"""Least number of runs from the sources after which what a detached view materializes is tried again."""


def choose_from_sources(
    view: TaskState,
    running: Collection[str],
    channels: Mapping[str, ChannelState],
    ends: Mapping[str, int] | None = None,
) -> VariantChoice | None:
    """Return the choice that computes a view from its sources, if that is cheaper than from what it materializes.

    It detaches the view: the materialized relations do not change, and have to be recomputed before the view is
    computed from them again.

    Args:
        view: the view.
        running: the names of the tasks of the run.
        channels: the channels.
        ends: as for `choose`.

    Returns:
        The choice; None if the view is computed from what it materializes.
    """
    direct, own = view.task.from_sources, view.task
    if view.previous is not None and view.previous.detached:  # what it materializes is not up to date for it either
        view = replace(view, started=True, cursors=view.previous.cursors, previous=None)
    if direct is None or not view.started or not accepts_bases(own, channels):
        return None
    newest = {name: channels[name].latest_readable for name in own.relies_on}
    if not view.detached and any(missing_columns(own.requires, channels[name], at) for name, at in newest.items()):
        return None
    machine = machine_factor((state.samples, shape_of(state.task)) for state in (view, *view.parts))
    parts = tuple(replace(part, machine=machine) for part in view.parts)
    view = replace(view, parts=parts, machine=machine)
    seen = limit_channels(channels, read_ends(view, channels, ends))
    choice = replace(choose(view, channels, ends), variant=direct, method=RefreshMethod.FROM_SOURCES)
    absent = {*own.reads} - {*own.sources} - {channel for part in view.parts for channel in part.task.writes}
    left = [part for part in view.parts if part.task.name not in running]
    if absent or any(new_input(replace(part, view=None), seen) is not None for part in left):
        return replace(choice, reason="what it materializes is not up to date") if view.detached else None
    maintained, recomputed = _parts_estimates(view, seen)
    size = input_size(view, seen, choice.method)
    # Recomputing what it materializes, which was done at first, is a run like that, and the best estimate without one.
    like = (CostSample(choice.method, size, recomputed),) if recomputed else ()
    costs = fit((*view.samples, *like), shape_of(own), view.idle, machine)
    seconds = costs.likely(choice.method, size)  # not the lower bound: trying it has the price of recomputing the rest
    if not _is_preferred(view, seconds, maintained, recomputed):
        return None
    reason = f"estimated at {seconds:.1f} s, from what it materializes at {maintained:.1f} s"
    return replace(choice, estimates={choice.method: seconds}, reason=reason)


def _is_preferred(view: TaskState, seconds: float, maintained: float, recomputed: float) -> bool:
    """Return whether a view is to be computed from its sources.

    Args:
        view: the view.
        seconds: the estimated time that this takes.
        maintained: that of the view and of what it materializes.
        recomputed: that of recomputing both, which is necessary once if the view is detached.
    """
    again = (recomputed - maintained) / _AHEAD
    if not view.detached:
        doubtful = maintained <= _CLEARLY * seconds and _runs_of_changes(view) < _TRIALS
        return not doubtful and maintained > seconds + again
    if maintained and maintained + again <= seconds:
        return False
    return not (_may_return(view) and maintained + again <= WORTH_TRYING * seconds)


def _may_return(view: TaskState) -> bool:
    """Return whether a detached view was computed from its sources for so long that the alternative is tried again.

    Its estimate does not improve meanwhile, and is from its first runs, in which Spark compiled. It is tried when the
    view was computed from its sources as often as in all such periods before, so that a wrong trial costs little.
    """
    direct = [sample.method is RefreshMethod.FROM_SOURCES for sample in view.samples]
    latest = len(tuple(takewhile(bool, direct)))
    return view.detached and latest >= max(_DIRECT_RUNS, sum(direct) - latest)


def _parts_estimates(view: TaskState, channels: Mapping[str, ChannelState]) -> tuple[float, float]:
    """Return how long refreshing a view and what it materializes takes: by the cheapest methods, and in full.

    Relations that do not read each other are refreshed at the same time, and so were they in the runs from which the
    estimates are. Of a relation whose change is not known yet, as much is expected to change as of what it is computed
    from, as often as its earlier runs have changed it.
    """
    expected: dict[str, int] = {}
    likely: dict[str, float] = {}
    maintained: dict[str, float] = {}
    recomputed: dict[str, float] = {}
    direct = takewhile(lambda sample: sample.method is RefreshMethod.FROM_SOURCES, view.samples)
    idle = len(tuple(direct)) if view.detached else 0
    for state in (*view.parts, view):
        kept, read = state, {name: channels[name].latest_readable for name in state.task.reads}
        if view.detached:  # estimated as if it had been maintained until now
            cursors = {**read, **view.cursors}
            kept = replace(state, started=True, cursors=cursors, idle=0 if state is view else idle)
        size = input_size(kept, channels, expected=expected)
        least, most = 0.0, 0.0
        if size.moved or not state.started:
            choice = choose(kept, channels, expected=expected)
            most = choice.estimates.get(RefreshMethod.FULL, 0.0)
            if size.moved:
                chance = max(likely.get(name, 1.0) for name in state.task.reads)
                likely.update(dict.fromkeys(state.task.writes, chance * _effective_share(state.samples)))
                least = chance * min(choice.estimates.values(), default=0.0)
                share = 1.0 if choice.method.renews else min(1.0, size.change / max(1, size.whole))
                expected.update((name, round(share * channels[name].size)) for name in state.task.writes)
        for ends, seconds in ((maintained, least), (recomputed, most)):
            end = seconds + max((ends.get(name, 0.0) for name in state.task.reads), default=0.0)
            ends.update(dict.fromkeys(state.task.writes, end))
    (own,) = view.task.writes
    return maintained[own], recomputed[own]


def _runs_of_changes(view: TaskState) -> int:
    """Return how often a view, or what it materializes, has processed a change."""
    return max(len(_over_changes(state.samples)) for state in (view, *view.parts))


def _over_changes(samples: Sequence[CostSample]) -> list[CostSample]:
    return [each for each in samples if each.method in (RefreshMethod.INCREMENTAL, RefreshMethod.AFFECTED_GROUPS)]


def _effective_share(samples: Sequence[CostSample]) -> float:
    """Return the expected share of the runs over a change that change the output; 1 if there were none."""
    written = [sample.written != 0 for sample in _over_changes(samples)]
    return (sum(written) + 1) / (len(written) + 1)
