"""Refusal of bounds that no plan can keep: on no machine, or not as fast as runs have been so far."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from kilonova.catalog import run_records
from kilonova.catalog.bound_observation import observe_bounds
from kilonova.catalog.database import Transaction
from kilonova.errors import DeclarationError
from kilonova.model.bound import ZERO, Bound, StalenessBound, describe_bound
from kilonova.model.channel import ChannelState
from kilonova.model.schedule import duration
from kilonova.model.workflow import WorkflowDefinition
from kilonova.schedule.asynchrony.data_block import MONOTONE
from kilonova.schedule.asynchrony.declared_workflow import model_bounds, model_of
from kilonova.schedule.asynchrony.feasibility import TIMED_RUNS, ExpectedArrival, unkeepable_reason

_MOST_PATHS = 100
"""Number of paths up to which the bounds of a channel are checked; a check takes some seconds then."""


def refuse_unkeepable(changed: Collection[str], bounds: Iterable[Bound], whole: WorkflowDefinition) -> None:
    """Check that the bounds of some channels can be kept by some variants of the tasks before them.

    Channels that are computed from one with several writers are not checked: they run as their triggers say. Nor are
    those that very many paths lead to.

    Args:
        changed: the channels on which bounds have changed.
        bounds: all bounds, with complete paths.
        whole: all workflows, as one.

    Raises:
        DeclarationError: no plan can keep them, however fast.
    """
    known = tuple(bounds)
    for channel in changed:
        part = _upstream(channel, whole)
        if part is None:
            continue
        if _path_count(channel, part) > _MOST_PATHS:
            continue
        names = {each.name for each in part.channels}
        model = model_of(part, {})
        own = [each for each in known if each.channel in names]
        reason = unkeepable_reason(channel, model, model_bounds(own, part, model))
        if reason is not None:
            texts = "; ".join(describe_bound(each) for each in own if each.channel == channel)
            raise DeclarationError(
                f"no variant of the tasks before it can keep this, however fast it runs: {texts}. If data arrive on one"
                f" source after another, {reason}",
                channel=channel,
                hint="Add a variant that recomputes its output (-> kn.Base), or that reads new data (kn.New) of the"
                " channel that is read as a whole; or raise or remove the bound",
            )


def _path_count(channel: str, part: WorkflowDefinition) -> int:
    """Return how many paths lead to a channel: there may be too many of them to list."""
    counts: dict[str, int] = {}
    for task in part.order():
        count = sum(counts.get(name, 1) for name in task.reads if name not in task.writes)
        counts |= dict.fromkeys(task.writes, count)
    return counts[channel]


def _upstream(channel: str, whole: WorkflowDefinition) -> WorkflowDefinition | None:
    """Return the tasks that a channel is computed from, with their channels; None if it cannot be modelled."""
    waiting, names, tasks = [channel], set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name in names:
            continue
        names.add(name)
        writers = whole.writers(name)
        if len(writers) > 1 or (writers and whole.channel(name).several_writers):
            return None
        for task in writers:
            tasks.add(task.name)
            waiting += (*task.reads, *task.writes)
    if not tasks:
        return None
    return WorkflowDefinition(
        name=whole.name,
        channels=tuple(each for each in whole.channels if each.name in names),
        tasks=tuple(each for each in whole.tasks if each.name in tasks),
    )


def untimed_note(tx: Transaction, bound: Bound, altered: Collection[str]) -> str:
    """Return, as text, that `refuse_slow` passes a bound over because its tasks have not run a few times; else nothing.

    Args:
        tx: an open transaction.
        bound: the bound, with a complete path.
        altered: the tasks whose runs so far do not count.
    """
    if not isinstance(bound, StalenessBound) or bound.limit == ZERO:
        return ""
    tasks = bound.path[1:]
    samples = run_records.cost_samples(tx, tasks)
    if all(task not in altered and len(samples.get(task, ())) >= TIMED_RUNS for task in tasks):
        return ""
    return f"; whether runs are fast enough is known once each task has run {TIMED_RUNS} times"


def refuse_slow(tx: Transaction, changed: Iterable[Bound]) -> None:
    """Check that runs have been fast enough to keep some bounds on staleness.

    Nothing is refused as long as a task on the way has not run a few times, or nothing has arrived.

    Args:
        tx: an open transaction.
        changed: the bounds, on registered channels, with complete paths.

    Raises:
        DeclarationError: processing a typical arrival takes longer than a bound allows.
    """
    stale = [each for each in changed if isinstance(each, StalenessBound) and each.limit > ZERO]
    observed = observe_bounds(tx, stale) if stale else None
    if observed is None:
        return
    from kilonova.schedule.bound_planning.bound_decision import slow_bounds  # numpy takes a while

    for each in slow_bounds(observed, stale, _typical_arrivals(observed.known.channels, stale)):
        assert each.needed is not None
        assert isinstance(each.bound, StalenessBound)
        raise DeclarationError(
            f"the bound can be kept only with a faster machine: {describe_bound(each.bound)}, but what usually arrives"
            f" on {each.bound.path[0]} takes {_rounded(each.needed)} to process",
            channel=each.bound.channel,
            hint=f"Raise the limit to {_rounded(each.needed)} or more; estimates follow what the last runs took",
        )


def _rounded(time: timedelta) -> str:
    """Return a time as text, rounded up to seconds."""
    return duration(-int(-time.total_seconds() // 1))


def _typical_arrivals(
    channels: Mapping[str, ChannelState], bounds: Iterable[StalenessBound]
) -> dict[str, ExpectedArrival]:
    """Return the median size in bytes of the deltas of source channels, by channel."""
    found: dict[str, ExpectedArrival] = {}
    for name in dict.fromkeys(each.path[0] for each in bounds):
        state = channels.get(name)
        sizes = [] if state is None else [block.statistics.bytes for block in state.snapshot(state.latest_kept).deltas]
        if sizes:
            found[name] = ExpectedArrival(MONOTONE, float(statistics.median(sizes)))
    return found
