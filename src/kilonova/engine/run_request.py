"""Requests for runs, and the tasks that a request runs: decided in the transaction that starts the run."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import assert_never

from kilonova.catalog import bindings, firings, task_graph
from kilonova.catalog.bounds import inconsistency_limits
from kilonova.catalog.database import Transaction
from kilonova.catalog.firings import Claim
from kilonova.catalog.planner_input import load_planner_input
from kilonova.engine.run_protocol import Participant, RunPlan
from kilonova.engine.shared_steps import SharedSteps
from kilonova.errors import is_transient
from kilonova.model.channel import ChannelState
from kilonova.model.read_plan import ReadPlan
from kilonova.model.run import RunFailure, RunKind
from kilonova.schedule.due import PlannerInput, TaskState, due_tasks
from kilonova.schedule.planning import choose, port_inputs


@dataclass(frozen=True, slots=True)
class RunDue:
    """Request to run the tasks that have new input and are not delayed by their schedules.

    Attributes:
        among: the tasks to choose from; None for all.
        until: the points up to which channels are read that the run does not write; others are read to the newest.
    """

    among: tuple[str, ...] | None = None
    until: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunTasks:
    """Request to run these tasks, even without new input, regardless of their schedules.

    Attributes:
        tasks: the tasks.
        until: the points up to which channels are read that the run does not write; others are read to the newest.
    """

    tasks: tuple[str, ...]
    until: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunFirings:
    """Request to run the tasks of a claimed binding, even without new input, regardless of their schedules.

    Arrivals that start a task in no workflowette only make it due: it runs only if it has new input. So do requests for
    the tasks of a binding that are due.

    Attributes:
        claimed: the binding and its firings.
        shared_steps: the steps shared with other runs of a merged batch; None if it runs alone.
    """

    claimed: Claim
    shared_steps: SharedSteps | None = None

    @property
    def until(self) -> Mapping[str, int]:
        """The points up to which channels are read that the run does not write; others are read to the newest."""
        return self.claimed.scope.until


RunRequest = RunDue | RunTasks | RunFirings
"""Request for a run."""


class RunReason(enum.Enum):
    """Reason to run a task: new input, if there is any; a request; or to determine the columns of its empty output."""

    NEW_INPUT = "new input"
    ASKED = "asked"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Plan of the tasks of a run.

    Attributes:
        steps: the tasks to run, in order.
        channels: the states of their channels before the run.
        until: the points up to which channels are read; others are read to the newest readable point.
        followed: the channels that it writes whose changes are read.
        variants: the variants by which tasks run; the others choose.
        limits: the bounds on the inconsistency of the channels that it writes.
    """

    steps: tuple[tuple[TaskState, RunReason], ...]
    channels: Mapping[str, ChannelState]
    until: Mapping[str, int]
    followed: frozenset[str]
    variants: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, timedelta] = field(default_factory=dict)


def requeued_firings(*, merged: bool) -> Participant:
    """Return the participant that queues the firings of a run again if it fails and another one may succeed.

    How they end otherwise follows from the catalog, see `kilonova.catalog.runs`.

    Args:
        merged: whether the run is merged with others, which may cause it to fail: it is then retried alone.
    """

    def on_abort(tx: Transaction, run: int, error: BaseException) -> None:
        if merged or is_transient(error):
            firings.end(tx, run, RunFailure.TRANSIENT)

    return Participant(on_abort=on_abort)


def plan_run(tx: Transaction, request: RunRequest) -> RunPlan[TaskPlan] | None:
    """Return the plan of a run.

    Args:
        tx: the transaction that starts it, or one before it.
        request: the request.

    Returns:
        The plan: its tasks, with what they read and write; None if there is nothing to do.

    Raises:
        NotFound: there is no such task.
        InvalidState: a channel is to be read up to a point before a task's cursor, or to one that is not readable.
    """
    match request:
        case RunDue():
            asked, known = False, load_planner_input(tx, request.among)
        case RunTasks():
            asked, known = True, load_planner_input(tx, request.tasks)
        case RunFirings():
            (plan,) = plan_firings(tx, [request])
            return plan
        case _:
            assert_never(request)
    return _planned(tx, request, _chosen(known, request, asked=asked))


def plan_firings(tx: Transaction, requests: Sequence[RunFirings]) -> list[RunPlan[TaskPlan] | None]:
    """Return the plans of the runs of claimed bindings: see `plan_run`. They are loaded together."""
    return [_planned(tx, *each) for each in _requested(tx, requests)]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Tasks that a request runs.

    Attributes:
        known: the planner's input.
        needs: the tasks to run, each with the reason.
        states: the logic version of each.
    """

    known: PlannerInput
    needs: dict[str, RunReason]
    states: dict[str, TaskState]


def _planned(tx: Transaction, request: RunRequest, chosen: _Chosen) -> RunPlan[TaskPlan] | None:
    """Return the plan of a run of chosen tasks; None if there are none."""
    known, needs, states = chosen.known, chosen.needs, chosen.states
    if not needs:
        return None
    claim, binding, participants = None, None, tuple[Participant, ...]()
    if isinstance(request, RunFirings):
        claim = request.claimed
        binding = claim.binding
        participants = (requeued_firings(merged=request.shared_steps is not None),)
    else:
        binding = bindings.bindings_of_workflowette(tx, needs, whole=isinstance(request, RunTasks))
    while missing := _schema_producers(tx, needs, states.values(), known.channels):
        needs |= dict.fromkeys(missing, RunReason.COLUMNS)
        known = load_planner_input(tx, needs).without_schedules()
        states = known.newest | {name: replace(state, waits_until=None) for name, state in states.items()}
    order = [states[task.name] for task in known.workflow.order() if task.name in needs]
    names = tuple(state.task.name for state in order)
    writes = tuple(channel for state in order for channel in state.task.writes * state.points)
    until = {name: end for name, end in request.until.items() if name not in writes}
    return RunPlan(
        kind=RunKind.TASKS,
        tasks=names,
        writes=writes,
        pins=_pins(order, known.channels, until, writes),
        plan=TaskPlan(
            steps=tuple((state, needs[state.task.name]) for state in order),
            channels=known.channels,
            until=until,
            followed=task_graph.followed_channels(tx, writes),
            variants={} if claim is None else claim.scope.variants,
            limits={name: limit for name, limit in inconsistency_limits(tx).items() if name in writes},
        ),
        binding=binding,
        claim=claim,
        participants=participants,
    )


def _requested(tx: Transaction, requests: Sequence[RunFirings]) -> list[tuple[RunFirings, _Chosen]]:
    """Return requests for claimed bindings with the tasks that they run."""
    claims = [request.claimed for request in requests]
    members = bindings.tasks_of_all(tx, [claim.binding for claim in claims])
    known = load_planner_input(tx, [name for names in members.values() for name in names]).without_schedules()
    explicit = firings.explicit(tx, claims)
    found = []
    for request in requests:
        binding = request.claimed.binding
        own = known.among(members[binding])
        found.append((request, _chosen(own, request, asked=binding in explicit)))
    return found


def _chosen(known: PlannerInput, request: RunRequest, *, asked: bool) -> _Chosen:
    """Return the tasks that a request runs: all that are known if it asks for them, else those that are due.

    A binding runs all of its tasks if a trigger or a person starts it.
    """
    if asked:
        return _Chosen(known, dict.fromkeys(known.newest, RunReason.ASKED), known.newest)
    if isinstance(request, RunFirings) and _overtaken(known, request.until):
        return _Chosen(known, {}, {})
    newest = known.newest
    states = {state.task.name: state for state in due_tasks(known, request.until)}
    needs = dict.fromkeys(states, RunReason.NEW_INPUT)
    for name in request.claimed.scope.tasks if isinstance(request, RunFirings) else ():
        if name in newest:
            states.setdefault(name, newest[name])
            needs[name] = RunReason.ASKED
    return _Chosen(known, needs, states)


def _overtaken(known: PlannerInput, until: Mapping[str, int]) -> bool:
    """Return whether a task has read beyond the points up to which a run, which was lost and is retried, is to read."""
    reading = ((state, name) for state in known.newest.values() for name in state.task.reads)
    return any(state.cursor(name) > until[name] for state, name in reading if name in until)


def _pins(
    order: Sequence[TaskState], channels: Mapping[str, ChannelState], until: Mapping[str, int], writes: Collection[str]
) -> tuple[int, ...]:
    """Return the blocks that a run reads, whichever variants it turns out to run."""
    tasks = [state.task for state in order]
    newest = {*writes, *(name for task in tasks for name in (*task.reads, *task.sources, *task.migrated))}
    pins = {block.number for name in newest for block in channels[name].snapshot(channels[name].latest_readable).blocks}
    for state in order:
        choice = choose(state, channels, until)
        pins |= {block.number for each in port_inputs(choice, channels) for block in each.reading.blocks}
        pins |= {block.number for each in state.replaced.values() for block in channels[each].blocks}
        read = (*state.task.reads, *state.task.sources)
        partial = {name for name in read if name in writes or name in until or state.continues}
        pins |= {block.number for name in partial for block in channels[name].blocks}
    return tuple(sorted(pins))


def skip_firings(tx: Transaction, request: RunRequest) -> None:
    """End the firings of a binding that has nothing to do."""
    if isinstance(request, RunFirings):
        firings.skip(tx, request.claimed, "none of its tasks has new input")


def shared_reads(tx: Transaction, claims: Iterable[Claim]) -> tuple[ReadPlan, ...]:
    """Return the read plans that several of the claimed bindings would use now (Nova, section 4.2).

    Inputs of views are left out: views read selected columns and rows directly from the files. So are inputs that only
    one definition reads, however often: that is executed once (`kilonova.engine.shared_steps`).
    """
    readers: dict[ReadPlan, set[tuple[str, str]]] = defaultdict(set)
    for request, chosen in _requested(tx, [RunFirings(claimed) for claimed in claims]):
        channels = chosen.known.channels
        for state in chosen.states.values():
            choice = choose(state, channels, request.until)
            if choice.variant.logic.shareable:
                for each in port_inputs(choice, channels):
                    if each.port.channel not in state.task.writes:
                        readers[each.reading].add((request.claimed.binding, choice.variant.fingerprint))
    return tuple(
        reading
        for reading, users in readers.items()
        if len({binding for binding, _ in users}) > 1 and len({definition for _, definition in users}) > 1
        if reading.blocks and reading.schema is not None
    )


def _schema_producers(
    tx: Transaction,
    needs: Mapping[str, RunReason],
    states: Iterable[TaskState],
    channels: Mapping[str, ChannelState],
) -> list[str]:
    """Return the tasks that determine the columns of inputs of chosen tasks to which nothing was written yet."""
    read = dict.fromkeys(channel for state in states for channel in state.task.reads)
    unknown = [name for name in read if channels[name].schema_at(channels[name].latest_readable) is None]
    writers = task_graph.writers(tx, unknown)
    return [name for channel in unknown for name in writers[channel] if needs.get(name) is not RunReason.COLUMNS]
