"""Requests for runs, and the tasks that a request runs: decided in the transaction that starts the run."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from kilonova.catalog import bindings, firings, registry
from kilonova.catalog.bindings import tasks_of
from kilonova.catalog.database import Transaction
from kilonova.catalog.firings import Claim
from kilonova.catalog.planner_input import load_planner_input
from kilonova.engine.run_protocol import Participant, RunPlan
from kilonova.engine.shared_steps import SharedSteps
from kilonova.errors import is_transient
from kilonova.model.channel import ChannelState
from kilonova.model.read_plan import ReadPlan
from kilonova.model.run import RunFailure, RunKind
from kilonova.model.task import Query
from kilonova.model.workflow import WorkflowDefinition
from kilonova.schedule.planning import TaskState, choose, due_tasks, port_inputs


@dataclass(frozen=True, slots=True)
class RunDue:
    """Request to run the tasks that have new input and are not delayed by their schedules.

    Attributes:
        among: the tasks to choose from; None for all.
    """

    among: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunTasks:
    """Request to run these tasks, even without new input, regardless of their schedules."""

    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunFirings:
    """Request to run the tasks of a claimed binding, even without new input, regardless of their schedules.

    Arrivals that start a task in no workflowette only make it due: it runs only if it has new input.

    Attributes:
        claimed: the binding and its firings.
        shared_steps: the steps shared with other runs of a merged batch; None if it runs alone.
    """

    claimed: Claim
    shared_steps: SharedSteps | None = None


RunRequest = RunDue | RunTasks | RunFirings
"""Request for a run."""


class RunReason(enum.Enum):
    """Reason to run a task: new input, if there is any; a request; or to determine the columns of its empty output."""

    NEWS = "news"
    ASKED = "asked"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The tasks to run, in order, the initial states of their channels, and the channels whose changes are read."""

    steps: tuple[tuple[TaskState, RunReason], ...]
    states: Mapping[str, ChannelState]
    followed: frozenset[str]


@dataclass(frozen=True, slots=True)
class ClaimedFirings(Participant):
    """Firings that a run executes; how they end with it follows from the catalog, see `kilonova.catalog.runs`.

    Attributes:
        claim: the claim of the server that executes the run.
        merged: whether the run is merged with others, which may cause it to fail: it is then retried alone.
    """

    claim: Claim
    merged: bool

    def on_start(self, tx: Transaction, run: int) -> None:
        """Record that the run of the firings has started.

        Raises:
            LeaseLost: another server has taken over some of them.
        """
        firings.launch(tx, self.claim, run)

    def on_abort(self, tx: Transaction, run: int, error: BaseException) -> None:
        """Queue the firings again if another run may succeed; otherwise they fail with this one."""
        if self.merged or is_transient(error):
            firings.end(tx, run, RunFailure.TRANSIENT)


def plan_run(tx: Transaction, request: RunRequest) -> RunPlan[TaskPlan] | None:
    """Return the plan of a run.

    Args:
        tx: the transaction that starts it, or one before it.
        request: the request.

    Returns:
        The plan: its tasks, with what they read and write; None if there is nothing to do.

    Raises:
        NotFound: there is no such task.
    """
    need = RunReason.NEWS
    participants: tuple[Participant, ...] = ()
    match request:
        case RunDue(among):
            workflow, progress, states = load_planner_input(tx, among)
            chosen = due_tasks(workflow, progress, states)
            binding = bindings.bindings_of_workflowette(tx, chosen, whole=False)
        case RunTasks(tasks):
            workflow, progress, states = load_planner_input(tx, tasks)
            chosen, need = tasks, RunReason.ASKED
            binding = bindings.bindings_of_workflowette(tx, chosen, whole=True)
        case RunFirings():
            binding = request.claimed.binding
            participants = (ClaimedFirings(request.claimed, merged=request.shared_steps is not None),)
            workflow, progress, states = load_planner_input(tx, tasks_of(tx, binding))
            progress = _ignore_schedules(progress)
            chosen, need = _started(tx, request.claimed, workflow, progress, states)
        case _:
            assert_never(request)
    if not chosen:
        return None
    needs = dict.fromkeys(chosen, need)
    while missing := _schema_producers(tx, needs, progress, states):
        needs |= dict.fromkeys(missing, RunReason.COLUMNS)
        workflow, progress, states = load_planner_input(tx, needs)
        progress = _ignore_schedules(progress)
    order = [task.name for task in workflow.order() if task.name in needs]
    pins = {
        block.number
        for name in order
        for feed in port_inputs(choose(progress[name], states), progress[name], states)
        for block in feed.reading.blocks
    }
    writes = tuple(channel for name in order for channel in progress[name].task.writes)
    read = {channel for name in order for channel in progress[name].task.reads}  # whichever variant is run
    for channel in (*writes, *sorted(read)):
        pins |= {block.number for block in states[channel].snapshot(states[channel].latest_readable).blocks}
    for name in order:
        for channel in internal_inputs(progress[name], set(writes)):
            pins |= {block.number for block in states[channel].blocks}
    plan = TaskPlan(
        tuple((progress[name], needs[name]) for name in order), states, registry.followed_channels(tx, writes)
    )
    return RunPlan(
        kind=RunKind.TASKS,
        tasks=tuple(order),
        writes=writes,
        pins=tuple(sorted(pins)),
        plan=plan,
        binding=binding,
        participants=participants,
    )


def skip_firings(tx: Transaction, request: RunRequest) -> None:
    """End the firings of a binding that has nothing to do."""
    if isinstance(request, RunFirings):
        firings.skip(tx, request.claimed)


def shared_reads(tx: Transaction, parts: Iterable[Claim]) -> tuple[ReadPlan, ...]:
    """Return the read plans that several of the claimed bindings would use now (Nova, section 4.2).

    Inputs of views are left out: views read selected columns and rows directly from the files. So are inputs that only
    one definition reads, however often: that is executed once (`kilonova.engine.shared_steps`).
    """
    counts: Counter[ReadPlan] = Counter()
    readers: dict[ReadPlan, set[str]] = {}
    for part in parts:
        workflow, progress, states = load_planner_input(tx, tasks_of(tx, part.binding))
        progress = _ignore_schedules(progress)
        found: set[ReadPlan] = set()
        for name in _started(tx, part, workflow, progress, states)[0]:
            choice = choose(progress[name], states)
            if not isinstance(choice.variant.logic, Query):
                for feed in port_inputs(choice, progress[name], states):
                    if feed.port.channel not in progress[name].task.writes:
                        found.add(feed.reading)
                        readers.setdefault(feed.reading, set()).add(choice.variant.fingerprint)
        counts.update(found)
    return tuple(
        reading
        for reading, count in counts.items()
        if count > 1 and len(readers[reading]) > 1 and reading.blocks and reading.schema is not None
    )


def _started(
    tx: Transaction,
    claimed: Claim,
    workflow: WorkflowDefinition,
    progress: Mapping[str, TaskState],
    states: Mapping[str, ChannelState],
) -> tuple[tuple[str, ...], RunReason]:
    """Return the tasks of a binding that its firings run, and why: all of them if a trigger or a person starts it."""
    if firings.explicit(tx, claimed):
        return tuple(progress), RunReason.ASKED
    return due_tasks(workflow, progress, states), RunReason.NEWS


def _ignore_schedules(progress: Mapping[str, TaskState]) -> dict[str, TaskState]:
    """Return the task states without schedules that delay them."""
    return {name: replace(item, waits_until=None) for name, item in progress.items()}


def _schema_producers(
    tx: Transaction,
    needs: Mapping[str, RunReason],
    progress: Mapping[str, TaskState],
    states: Mapping[str, ChannelState],
) -> list[str]:
    """Return the tasks that determine the columns of inputs of chosen tasks to which nothing was written yet."""
    read = dict.fromkeys(channel for name in needs for channel in progress[name].task.reads)
    unknown = [name for name in read if states[name].schema_at(states[name].latest_readable) is None]
    writers = registry.writers(tx, unknown)
    return [name for channel in unknown for name in writers[channel] if needs.get(name) is not RunReason.COLUMNS]


def internal_inputs(progress: TaskState, written: set[str]) -> set[str]:
    """Return the channels written in this run that the task reads."""
    return {channel for channel in progress.task.reads if channel in written}
