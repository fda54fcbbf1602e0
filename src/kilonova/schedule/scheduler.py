"""Decisions on what a server runs next.

`Scheduler.decide(observation)` is a pure function. `kilonova.catalog.scheduling` loads the observation and stores the
decision in one writing transaction, and writing transactions are serialized: no observation is outdated when its
decision is stored, whichever server made it. Every policy must keep to this:

- an occurrence for which a trigger fires is queued, in the decision that has the trigger's state after it;
- a binding that is running does not start, and a firing starts in one run only;
- it starts no more batches than there are free workers.

`TriggerScheduler` implements Nova's triggers (section 2.3). A policy that has to know more than it extends the
observation; one that starts fewer runs returns fewer batches, and its firings stay queued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from kilonova.model.trigger import Occurrence, Trigger, TriggerState
from kilonova.schedule.bound_planning.bound_run import BoundRun
from kilonova.schedule.queueing import (
    SERIES,
    ObservedBinding,
    QueuedBinding,
    QueuedFiring,
    batch_bindings,
    form_series,
    select_bindings,
)
from kilonova.schedule.run_scope import ALL_DUE, RunScope
from kilonova.schedule.trigger_evaluation import TriggerInputs, evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTrigger:
    """Trigger that may fire.

    Attributes:
        number: its number.
        binding: the binding that it starts.
        trigger: its definition.
        state: its state.
        next_check: the time of its next evaluation if there is no new input; None if none is needed.
    """

    number: int
    binding: str
    trigger: Trigger
    state: TriggerState
    next_check: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """State of the catalog and of a server from which a scheduler decides.

    Attributes:
        now: the current time.
        triggers: the triggers that may fire: those that are due, or that new events concern.
        inputs: the inputs for evaluating these triggers.
        bindings: the bindings of the triggers and of the queued firings, by name.
        queued: the queued firings of bindings that do not run, of each workflow at least those that can start now; none
            if the server has no free worker.
        bound_runs: the runs that keep bounds, planned from the same state of the catalog.
        running: the bindings that run or are about to run, each with its workflow.
        free_workers: the number of batches that the server can start.
        workflow_limit: the maximum number of concurrent runs of a workflow; None for any number.
    """

    now: datetime
    triggers: tuple[ObservedTrigger, ...] = ()
    inputs: TriggerInputs = field(default_factory=TriggerInputs)
    bindings: Mapping[str, ObservedBinding] = field(default_factory=dict)
    queued: tuple[QueuedFiring, ...] = ()
    bound_runs: tuple[BoundRun, ...] = ()
    running: Mapping[str, str] = field(default_factory=dict)
    free_workers: int = 0
    workflow_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRun:
    """Run to start.

    Attributes:
        binding: the binding.
        firings: its firings that the run completes.
        scope: what it executes and how far it reads.
    """

    binding: str
    firings: tuple[QueuedFiring, ...]
    scope: RunScope = ALL_DUE


@dataclass(frozen=True, slots=True)
class ScheduledBatch:
    """Runs that one worker executes.

    Attributes:
        runs: the runs.
        merged: whether they read a common input once, side by side; else they are started together, and executed in
            turn.
    """

    runs: tuple[ScheduledRun, ...]
    merged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision of a scheduler.

    Attributes:
        triggers: the triggers whose state or next check changes, as they are from now on.
        queued: the firings to queue, without numbers.
        batches: the runs to start, from queued firings of the observation and of this decision.
        next_check: the time at which queued firings can start without further events; None if there is none.
    """

    triggers: tuple[ObservedTrigger, ...] = ()
    queued: tuple[QueuedFiring, ...] = ()
    batches: tuple[ScheduledBatch, ...] = ()
    next_check: datetime | None = None


class Scheduler(Protocol):
    """Policy that decides what runs."""

    def decide(self, observation: Observation) -> Decision:
        """Return the decision for an observation; the same one for the same observation."""


@dataclass(frozen=True, slots=True)
class TriggerScheduler:
    """Scheduler that starts bindings as bounds require and as their triggers fire, as many at once as possible.

    Runs that keep bounds come first. Runs that are started by triggers are merged where that is wanted, and short ones
    that would have to wait for a worker are started together, to be executed in turn.
    """

    def decide(self, observation: Observation) -> Decision:
        """Evaluate the triggers, and start the most urgent of the queued bindings."""
        bounded = _start_bounded(observation)
        taken = {run.binding: observation.bindings[run.binding].workflow for run in bounded}
        observation = replace(
            observation,
            running={**observation.running, **taken},
            free_workers=observation.free_workers - len(bounded),
        )
        changed: list[ObservedTrigger] = []
        fired: list[QueuedFiring] = []
        for each in observation.triggers:
            found = evaluate(each.trigger, each.state, observation.inputs, observation.now)
            if (found.state, found.next_check) != (each.state, each.next_check):
                changed.append(replace(each, state=found.state, next_check=found.next_check))
            if found.occurrence is not None:
                fired.append(QueuedFiring(binding=each.binding, trigger=each.number, occurrence=found.occurrence))
        batches, next_check = _start(observation, fired) if observation.free_workers > 0 else ((), None)
        return Decision(
            triggers=tuple(changed),
            queued=(*(firing for run in bounded for firing in run.firings), *fired),
            batches=(*(ScheduledBatch((run,)) for run in bounded), *batches),
            next_check=next_check,
        )


def _start_bounded(observation: Observation) -> tuple[ScheduledRun, ...]:
    """Return the runs that keep bounds, as many as can start, each with a firing of its own."""
    found: list[ScheduledRun] = []
    running = Counter(observation.running.values())
    limit = observation.workflow_limit
    for run in observation.bound_runs:
        workflow = observation.bindings[run.binding].workflow
        full = limit is not None and running[workflow] >= limit
        if run.binding in observation.running or full or len(found) == observation.free_workers:
            continue
        running[workflow] += 1
        occurrence = Occurrence(run.occurrence, observation.now)
        firing = QueuedFiring(binding=run.binding, trigger=None, occurrence=occurrence, due_only=True, scope=run.scope)
        found.append(ScheduledRun(binding=run.binding, firings=(firing,), scope=run.scope))
    return tuple(found)


def _start(
    observation: Observation, fired: Iterable[QueuedFiring]
) -> tuple[tuple[ScheduledBatch, ...], datetime | None]:
    """Return the batches to start now, and the end of the first merge window among the other bindings."""
    firings: dict[str, list[QueuedFiring]] = {}
    for each in (*observation.queued, *fired):
        if each.binding not in observation.running:
            firings.setdefault(each.binding, []).append(each)
    queued = (QueuedBinding(observation.bindings[name], _of_one_run(own)) for name, own in firings.items())
    ready, next_check = batch_bindings(queued, observation.now)
    running = Counter(observation.running.values())
    workers = observation.free_workers
    selected = select_bindings(ready, running, workers * SERIES, observation.workflow_limit)
    return tuple(map(_batch, form_series(selected, workers))), next_check


def _batch(series: tuple[tuple[QueuedBinding, ...], ...]) -> ScheduledBatch:
    runs = tuple(_scheduled(each) for batch in series for each in batch)
    return ScheduledBatch(runs, merged=len(series) < len(runs))


def _of_one_run(queued: Sequence[QueuedFiring]) -> tuple[QueuedFiring, ...]:
    """Return the firings of a binding that its next run completes: one that has a scope has a run of its own."""
    scoped = next((firing for firing in queued if firing.scope is not None), None)
    return tuple(queued) if scoped is None else (scoped,)


def _scheduled(one: QueuedBinding) -> ScheduledRun:
    return ScheduledRun(binding=one.binding.name, firings=one.firings, scope=one.firings[0].scope or ALL_DUE)
