"""Execution of a run of tasks: each runs after those it reads from, and sees what they wrote in the same run."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

from pyspark.errors import PySparkException
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential,
)

from kilonova.catalog import events, registry
from kilonova.catalog.database import Transaction
from kilonova.catalog.firings import Claim
from kilonova.catalog.runs import Advance
from kilonova.catalog.schema_alerts import alert_readers
from kilonova.engine.compilation import compile_variant
from kilonova.engine.interfaces import WarehouseInterface
from kilonova.engine.invocation import attribute_errors, invoke, may_succeed_in_full, validate_output
from kilonova.engine.output import Output, removal, write_output
from kilonova.engine.run_events import (
    RunStarted,
    StepRecomputed,
    StepRetried,
    StepShared,
    StepSkipped,
)
from kilonova.engine.run_monitor import check_running
from kilonova.engine.run_protocol import ActiveRun, Participant, RunEnvironment, RunResults, execute_run, start_runs
from kilonova.engine.run_request import (
    RunFirings,
    RunReason,
    RunRequest,
    TaskPlan,
    plan_firings,
    plan_run,
    skip_firings,
)
from kilonova.engine.shared_steps import Blocks, SharedSteps, StepOutput
from kilonova.errors import (
    BlockDamaged,
    BoundViolated,
    KilonovaError,
    NotFound,
    SchemaMismatch,
    SparkUnavailable,
    is_transient,
)
from kilonova.model.block import Base, Block, Delta
from kilonova.model.bound import InconsistencyBound, inconsistency_state
from kilonova.model.channel import declared_output
from kilonova.model.encoding import delta_schema, optional_columns
from kilonova.model.event import EventKind
from kilonova.model.logic import Compiled, InputLookup, InputRead
from kilonova.model.read_plan import KeyLookup, SnapshotRead
from kilonova.model.required_columns import describe_columns
from kilonova.model.run import RefreshMethod, RunInput, RunOutput
from kilonova.model.schema import Schema, identified
from kilonova.model.task import Mode, Task
from kilonova.query.migration_and_input import with_new_input
from kilonova.schedule.due import (
    TaskState,
    due_reason,
    missing_inputs,
    read_ends,
    version_in_force,
    withheld_input,
)
from kilonova.schedule.from_sources import choose_from_sources
from kilonova.schedule.planning import (
    PortInput,
    VariantChoice,
    advanced_cursors,
    check_rewritable,
    choose,
    full_choice,
    full_refresh_choice,
    input_size,
    is_rewritten,
    limit_channels,
    output_version,
    port_inputs,
    remaining_ends,
    removal_condition,
)
from kilonova.warehouse.spark_errors import summarize_error


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retry policy for transient failures.

    Attributes:
        attempts: total number of attempts per step.
        wait: seconds before the second attempt; doubled before each further attempt.
    """

    attempts: int = 3
    wait: float = 1.0


def run_tasks(
    environment: RunEnvironment, warehouse: WarehouseInterface[Any], request: RunRequest, retries: RetryPolicy
) -> tuple[int, RunResults] | None:
    """Run tasks as one run.

    Args:
        environment: the environment of the run.
        warehouse: the blocks.
        request: the request, which determines the tasks.
        retries: the retry policy for transient failures.

    Returns:
        The run's number and what it published; None if there was nothing to do.

    Raises:
        NotFound: there is no such task.
        Conflict: another run has one of the tasks.
        Cancelled: the run was cancelled.
        TaskFailed: a task's code raised, or returned a wrong result.
        SchemaMismatch: its rows do not fit their channel.
        KeyViolation: its keys are null or occur twice.
    """
    shared_steps = request.shared_steps if isinstance(request, RunFirings) else None
    work = partial(_execute, warehouse=warehouse, retries=retries, shared_steps=shared_steps)
    return execute_run(environment, partial(plan_run, request=request), work, partial(skip_firings, request=request))


def start_claimed(environment: RunEnvironment, claims: Sequence[Claim]) -> list[ActiveRun[TaskPlan] | None]:
    """Start the runs of claimed bindings in one transaction, all or none; each is to be completed by `complete_tasks`.

    Returns:
        The runs; None for a binding that has nothing to do, whose firings have been skipped.

    Raises:
        Conflict: another run has one of the tasks.
        LeaseLost: another server has taken over one of the bindings.
    """
    requests = [RunFirings(claimed) for claimed in claims]

    def skip(tx: Transaction, place: int) -> None:
        skip_firings(tx, requests[place])

    return start_runs(environment, partial(plan_firings, requests=requests), skip)


def complete_tasks(
    warehouse: WarehouseInterface[Any], run: ActiveRun[TaskPlan], retries: RetryPolicy
) -> tuple[int, RunResults]:
    """Execute the tasks of a run that has started, and publish it: see `run_tasks`."""
    return run.complete(partial(_execute, warehouse=warehouse, retries=retries, shared_steps=None))


def _execute(
    run: ActiveRun[TaskPlan],
    *,
    warehouse: WarehouseInterface[Any],
    retries: RetryPolicy,
    shared_steps: SharedSteps | None,
) -> RunResults:
    run.notify(RunStarted(run=run.run, steps=tuple(state.task.name for state, _ in run.plan.steps)))
    return _Execution(warehouse, run, retries, shared_steps).all()


AT_ONCE = 4
"""Maximum number of tasks of a run that execute concurrently, if they do not wait for each other."""


def _reason(choice: VariantChoice, why: str) -> str:
    return f"{choice.method.value}: {why}; {choice.reason}"


class _Execution:
    """Execution of the tasks of one run; tasks that do not wait for each other execute concurrently."""

    def __init__(
        self,
        warehouse: WarehouseInterface[Any],
        run: ActiveRun[TaskPlan],
        retries: RetryPolicy,
        shared_steps: SharedSteps | None,
    ) -> None:
        self._warehouse = warehouse
        self._run = run
        self._retries = retries
        self._shared_steps = shared_steps
        self._channels = dict(run.plan.channels)
        self._inputs: dict[tuple[str, str], RunInput] = {}
        self._outputs: list[RunOutput] = []
        self._advances: list[Advance] = []
        self._participants: list[Participant] = []
        self._lock = threading.Lock()
        self._views = {state.task.name: state for state, _ in run.plan.steps if state.task.from_sources is not None}
        self._in_force: dict[str, int] = {}
        self._direct: dict[str, tuple[VariantChoice, str] | None] = {}
        free = dict(run.points)
        self._points: dict[tuple[str, str], int] = {}
        for state, _ in run.plan.steps:
            for channel in state.task.writes:
                self._points[channel, state.task.name] = free[channel]
                free[channel] += state.points

    def all(self) -> RunResults:
        """Execute the tasks, each once those whose output it reads have ended."""
        steps = {state.task.name: (state, need) for state, need in self._run.plan.steps}
        tasks = [state.task for state, _ in self._run.plan.steps]
        order = TopologicalSorter(
            {
                task.name: [other.name for other in tasks if other is not task and self._precedes(other, task)]
                for task in tasks
            }
        )
        order.prepare()
        running: dict[Future[None], str] = {}
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix=f"run-{self._run.run}") as pool:
            try:
                while order.is_active():
                    for name in order.get_ready():
                        running[pool.submit(self._step, *steps[name])] = name
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        future.result()
                        order.done(running.pop(future))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return RunResults(
            inputs=tuple(self._inputs.values()),
            outputs=tuple(self._outputs),
            advances=tuple(self._advances),
            participants=tuple(self._participants),
        )

    def _precedes(self, one: Task, other: Task) -> bool:
        """Return whether a task must end before another, which reads its output or writes a later point, begins."""
        common = set(one.writes) & set(other.writes)
        before = any(self._points[channel, one.name] < self._points[channel, other.name] for channel in common)
        # Its sources come before the tasks of a view: whether they are read directly is decided when they are there.
        view = self._views.get(other.view or "")
        read = other.reads if view is None or one.view == other.view else (*other.reads, *view.task.sources)
        return before or not set(one.writes).isdisjoint(read)

    def _step(self, state: TaskState, need: RunReason) -> None:
        """Execute a task, unless it turns out to have no new input."""
        name, until = state.task.name, self._run.plan.until
        if (direct := self._from_sources(state.task.view)) is not None:
            if name == state.task.view:
                self._do(*direct)
            else:
                detach = Advance(task=name, logic=state.logic, points=())
                self._skip(state.task, "its view is computed from its sources", detach)
            return
        version = version_in_force(state, self._channels, until)
        if version is None:
            missing = describe_columns(missing_inputs(state, self._channels, until))
            self._skip(state.task, f"waits for input with {missing}")
            return
        self._in_force[name] = version.logic
        state = self._finish(state) if version is state else version
        why = due_reason(state, self._channels, until)
        if why is None and need is RunReason.COLUMNS:
            why = "its columns are needed"
        elif why is None and need is RunReason.ASKED:
            ends = read_ends(state, self._channels, until)
            why = "requested" if any(self._channels[each].settled(ends[each]) for each in state.task.reads) else None
        if why is None:
            self._skip(state.task, "no new input")
            return
        if state.continues:
            self._take_over(state)
        choice = choose(state, self._channels, until, variant=self._run.plan.variants.get(name))
        choice = self._consistent(choice)
        if choice.method is RefreshMethod.MIGRATION:
            self._migrate(choice, why)
        else:
            self._do(choice, why)

    def _consistent(self, choice: VariantChoice) -> VariantChoice:
        """Return the choice, or a full refresh where the output would violate a bound on inconsistency otherwise."""
        for name in choice.state.task.writes:
            limit = self._run.plan.limits.get(name)
            whole = None if limit is None else full_choice(choice)
            if limit is None or whole is None:
                continue
            version = output_version(choice, port_inputs(choice, self._channels), self._channels, name)
            seen = self._run.validity(version)
            bound = InconsistencyBound(channel=name, limit=limit)
            if inconsistency_state(bound, seen.start, seen.end).violated:
                return replace(whole, reason=f"otherwise {name} would be more inconsistent than its bound allows")
        return choice

    def _finish(self, state: TaskState) -> TaskState:
        """Let the version that went on process its remaining input; return the state of the one that takes over."""
        until = self._run.plan.until
        ends = remaining_ends(state, self._channels, until)
        if ends is None or state.previous is None:
            return state
        if (why := due_reason(state.previous, self._channels, ends)) is None:
            return state
        choice = choose(state.previous, self._channels, ends)
        self._do(choice, f"{why}; the logic version {state.logic} takes over after that")
        self._advance(state.task)
        return replace(state, previous=replace(state.previous, started=True, cursors=dict(advanced_cursors(choice))))

    def _take_over(self, state: TaskState) -> None:
        """Let a logic version that has waited write its channels as it declares them."""
        task, logic = state.task.name, state.logic
        for output in state.outputs:
            own = self._channels[output.name]
            schema = output.schema and identified(output.schema, own.channel.schema, own.latest_readable)
            declared = declared_output(own.channel, replace(output, schema=schema))
            self._channels[output.name] = replace(own, channel=declared)

        def record(tx: Transaction, run: int) -> None:
            registry.take_over(tx, task, logic, [self._channels[output.name].channel for output in state.outputs])
            events.record(
                tx, EventKind.TOOK_OVER, run=run, channels=state.task.writes, text=f"{task}: logic version {logic}"
            )

        with self._lock:
            self._participants.append(Participant(on_commit=record))

    def _migrate(self, choice: VariantChoice, why: str) -> None:
        """Execute the migrations of a task, and process the input that the earlier version has not read.

        If one fails, the output is recomputed from all input instead.
        """
        state, following = choice.state, self._following(choice)
        by_condition = self._removal(choice) is not None
        if following is not None and not by_condition and (together := _together(choice, *following)) is not None:
            self._do(together, f"{why}, {following[1]}")
            return
        if self._do(choice, why).method.renews:
            return
        for variant in state.migrations[1:]:
            self._advance(state.task)
            ends = {name: self._channels[name].latest_readable for name in state.task.writes}
            next_ = replace(choice, variant=variant, ends={**choice.ends, **ends})
            if self._do(next_, f"{variant.name} follows {state.migrations[0].name}").method.renews:
                return
        self._advance(state.task)
        if (following := self._following(choice)) is not None:
            self._do(*following)

    def _following(self, migrated: VariantChoice) -> tuple[VariantChoice, str] | None:
        """Return how the input is processed that the earlier version has not read, and why; None if there is none."""
        until = self._run.plan.until
        state = replace(migrated.state, started=True, cursors=dict(advanced_cursors(migrated)), previous=None)
        why = due_reason(state, self._channels, until)
        return None if why is None else (choose(state, self._channels, until), why)

    def _advance(self, task: Task) -> None:
        """Let a task write its next point; the one before it is cancelled unless it was filled."""
        for channel in task.writes:
            place = channel, task.name
            if self._channels[channel].latest < self._points[place]:
                self._channels[channel] = self._channels[channel].with_cancelled(self._points[place], self._run.run)
            self._points[place] += 1

    def _from_sources(self, name: str | None) -> tuple[VariantChoice, str] | None:
        """Return how and why a view is computed from its sources; None if it is not. The first of its tasks decides."""
        if name is None or name not in self._views:
            return None
        with self._lock:
            if name not in self._direct:
                self._direct[name] = self._decide(self._views[name])
            return self._direct[name]

    def _decide(self, view: TaskState) -> tuple[VariantChoice, str] | None:
        until = self._run.plan.until
        steps = [(state, need) for state, need in self._run.plan.steps if state.task.view == view.task.name]
        reasons = [due_reason(state, self._channels, until) for state, _ in steps]
        reasons += ["requested" for _, need in steps if need is RunReason.ASKED]
        why = next(filter(None, reasons), None)
        names = [state.task.name for state, _ in steps]
        choice = None if why is None else choose_from_sources(view, names, self._channels, until)
        return None if choice is None or why is None else (choice, why)

    def _do(self, choice: VariantChoice, why: str) -> VariantChoice:
        """Execute a task as chosen; return the choice that was executed, which may be a full refresh instead."""
        name = choice.state.task.name
        try:
            with self._run.step(name, _reason(choice, why)) as step, attribute_errors(name):
                executed, blocks = self._refresh(choice, why)
                step.count(*blocks)
                return executed
        except KilonovaError as error:
            raise error.with_context(task=name) from error.__cause__

    def _skip(self, task: Task, reason: str, *advances: Advance) -> None:
        with self._lock:
            self._advances += advances
            for channel in task.writes:
                self._cancelled(channel, task.name)
                self._outputs.append(
                    RunOutput(
                        channel=channel,
                        point=self._points[channel, task.name],
                        block=None,
                        version=self._channels[channel].version(self._channels[channel].latest_readable),
                        task=task.name,
                        reason=reason,
                        seconds=0.0,
                    )
                )
        self._run.notify(StepSkipped(run=self._run.run, step=task.name))

    def _cancelled(self, channel: str, task: str) -> None:
        """Make visible to later tasks that a task has not written to a channel with several writers."""
        if self._channels[channel].channel.several_writers:
            point = self._points[channel, task]
            self._channels[channel] = self._channels[channel].with_cancelled(point, self._run.run)

    def _refresh(self, choice: VariantChoice, why: str) -> tuple[VariantChoice, Blocks]:
        """Execute a task as chosen; if incremental maintenance of a view or its migration fails, recompute the view."""
        try:
            return choice, self._execute(choice, why)
        except Exception as error:
            instead = full_refresh_choice(choice) if may_succeed_in_full(error) else None
            if instead is None or self._run.stopped.is_set():
                raise
            problem = (
                summarize_error(error) if isinstance(error, PySparkException) else str(error) or type(error).__name__
            )
        task = choice.state.task
        self._run.notify(StepRecomputed(run=self._run.run, step=task.name, error=problem))
        failed, ends = "incremental refresh", choice.ends
        if choice.method is RefreshMethod.MIGRATION:  # the points that it reads may lack columns of the new query
            failed, ends = "migration", read_ends(choice.state, self._channels, self._run.plan.until)
        instead = replace(instead, ends=ends, reason=f"the {failed} failed: {problem}")
        blocks = self._execute(instead, why)
        text = f"{task.name} was fully recomputed, because its {failed} failed: {problem}"

        def record(tx: Transaction, run: int) -> None:
            events.record(tx, EventKind.FELL_BACK, run=run, channels=task.writes, text=text)

        with self._lock:
            self._participants.append(Participant(on_commit=record))
        return instead, blocks

    def _execute(self, choice: VariantChoice, why: str) -> Blocks:
        """Execute a task as chosen, and record what it has read and written."""
        began = time.monotonic()
        check_rewritable(choice, self._channels)
        if (withheld := withheld_input(choice.state, self._channels)) is not None:
            raise BoundViolated(
                "the points of its input that it has not read violate the bound on the inconsistency of the channel",
                channel=withheld,
                hint=f"Run what writes the channel, or change the bound: kilonova bound inconsistency {withheld} LIMIT",
            )
        inputs = port_inputs(choice, self._channels)
        unknown = [each.port.channel for each in inputs if each.reading.schema is None]
        if unknown:
            raise NotFound(
                "the channel has no schema yet, because nothing was written to it",
                channel=unknown[0],
                hint="Declare its schema, or run the task that writes it first",
            )
        blocks, shared = self._once(choice, inputs)
        reason = _reason(choice, why) + ("; computed by another run of the batch" if shared else "")
        seconds = time.monotonic() - began
        with self._lock:
            self._record(choice, inputs, blocks, reason, seconds)
        return blocks

    def _record(
        self, choice: VariantChoice, inputs: tuple[PortInput, ...], blocks: Blocks, reason: str, seconds: float
    ) -> None:
        """Record the inputs and outputs of a task, and make them visible to later tasks."""
        task = choice.state.task
        size = input_size(choice.state, limit_channels(self._channels, choice.ends), choice.method)
        for channel, block in zip(task.writes, blocks, strict=True):
            before, point = self._channels[channel], self._points[channel, task.name]
            version = output_version(choice, inputs, self._channels, channel)
            self._outputs.append(
                RunOutput(
                    channel=channel,
                    point=point,
                    block=block,
                    version=version,
                    task=task.name,
                    reason=reason,
                    seconds=seconds,
                    method=choice.method,
                    input_size=size,
                    estimates=choice.estimates,
                )
            )
            if block is None:
                self._cancelled(channel, task.name)
                after = before.committed.beside(version) if before.channel.several_writers else version
                self._channels[channel] = self._channels[channel].with_extension(point, after)
            else:
                if before.has_other_columns(block):
                    alert = partial(alert_readers, channel=channel)
                    self._participants.append(Participant(on_commit=alert))
                after = before.committed.beside(version) if before.channel.several_writers else version
                self._channels[channel] = before.with_block(block, after, self._run.run)
        step = "" if choice.variant.from_version is None else f" ({choice.variant.name})"
        if choice.state.logic != self._in_force.get(task.name, choice.state.logic):
            step = f" (logic version {choice.state.logic})"
        for each in inputs:
            key = task.name, f"{each.port.name}{step}"
            earlier = self._inputs.get(key)  # of a recomputation instead of a migration, before the new input
            read = [*(earlier.blocks if earlier else ()), *(block.number for block in each.reading.blocks)]
            self._inputs[key] = RunInput(
                task=task.name,
                port=key[1],
                channel=each.port.channel,
                start=each.start if earlier is None else earlier.start,
                end=each.end,
                blocks=tuple(dict.fromkeys(read)),
            )
        self._advances.append(Advance(task=task.name, logic=choice.state.logic, points=advanced_cursors(choice)))

    def _once(self, choice: VariantChoice, inputs: tuple[PortInput, ...]) -> tuple[Blocks, bool]:
        """Execute a task, unless a run merged with this one executes the same step: then share its blocks."""
        task, steps = choice.state.task, self._shared_steps
        targets = [self._step_output(channel, choice) for channel in task.writes]
        readings = [each.reading for each in inputs]
        if steps is None or (name := steps.name(choice.variant, readings, targets)) is None:
            return self._retried(choice, inputs), False

        def placed(block: Block | None, channel: str) -> Block | None:
            if block is None:
                return None
            point = self._points[channel, task.name]
            return replace(block, kind=Base(point) if isinstance(block.kind, Base) else Delta(point - 1, point))

        def share(blocks: Blocks) -> Blocks | None:
            if not self._run.share_blocks([block.number for block in blocks if block is not None]):
                return None
            return tuple(map(placed, blocks, task.writes))

        blocks, shared = steps.done(name, lambda: self._retried(choice, inputs), share)
        if shared:
            self._run.notify(StepShared(run=self._run.run, step=task.name))
        return blocks, shared

    def _step_output(self, channel: str, choice: VariantChoice) -> StepOutput:
        state, point = self._channels[channel], self._points[channel, choice.state.task.name]
        empty = state.latest_readable == point - 1 and state.latest_distinct == 0
        return StepOutput(channel=state.current, rewritten=is_rewritten(choice, state.channel), empty=empty)

    def _retried(self, choice: VariantChoice, inputs: tuple[PortInput, ...]) -> Blocks:
        def notify(call: RetryCallState) -> None:
            error = str(call.outcome.exception() if call.outcome else None)
            step = choice.state.task.name
            self._run.notify(StepRetried(run=self._run.run, step=step, attempt=call.attempt_number, error=error))

        retrying = Retrying(
            stop=stop_after_attempt(self._retries.attempts) | stop_when_event_set(self._run.stopped),
            sleep=sleep_using_event(self._run.stopped),
            wait=wait_exponential(multiplier=self._retries.wait, max=60),
            retry=retry_if_exception(_may_pass_here),
            before_sleep=notify,
            reraise=True,
        )
        return retrying(self._attempt, choice, inputs)

    def _attempt(self, choice: VariantChoice, inputs: tuple[PortInput, ...]) -> Blocks:
        check_running(self._run.stopped, self._run.run)
        task, derived = choice.state.task, choice.variant.logic.derived
        strong = not self._run.plan.followed.isdisjoint(task.writes)
        compiled = compile_variant(
            choice,
            inputs,
            self._channels,
            self._warehouse.sizes,
            strong=strong,
            analyse=partial(self._columns_of, choice),
        )
        if compiled is None:
            return (None,) * len(task.writes)
        if (condition := self._removal(choice)) is not None and (relation := compiled.relation) is not None:
            (name,) = task.writes
            state, point = self._channels[name], self._points[name, task.name]
            columns, newest = relation.user_columns, state.latest_readable
            schema = identified(columns, state.current.schema, newest, renamed=compiled.renamed)
            return (removal(state, point, self._run.name_block(name), condition, schema),)
        by_port = {each.port.name: each for each in inputs}
        frames = {name: self._frame(by_port, read) for name, read in compiled.inputs.items()}
        results = invoke(self._warehouse, task, compiled.executable, frames)
        schemas = [self._schema(choice, compiled, *pair) for pair in zip(task.writes, results, strict=True)]
        new = [each for each in inputs if each.port.mode.advances] if derived else inputs
        if choice.method is RefreshMethod.MIGRATION:
            new = [by_port[read.port] for read in compiled.inputs.values()]
        expected = sum({block.number: block.statistics.bytes for each in new for block in each.reading.blocks}.values())
        name_block = partial(self._run.name_block, task.writes[0])
        with self._warehouse.evaluated_once(results, frames.values(), name_block) as agreeing:
            written = zip(task.writes, agreeing, schemas, strict=True)
            return tuple(
                self._write(choice, compiled, channel, frame, schema, expected) for channel, frame, schema in written
            )

    def _removal(self, choice: VariantChoice) -> str | None:
        """Return the condition of the rows that a migration removes, if nothing but that is to be written."""
        if choice.method is not RefreshMethod.MIGRATION:
            return None
        return removal_condition(choice.variant, choice.state, self._channels)

    def _schema(self, choice: VariantChoice, compiled: Compiled, name: str, frame: Any) -> Schema:
        """Return the schema of a channel after a task has written a frame to it.

        Args:
            choice: the chosen variant.
            compiled: the compiled logic.
            name: the channel.
            frame: the rows.

        Raises:
            SchemaMismatch: a migration changes the type of a column whose values it does not give, or a function of a
                user gives it another type.
        """
        relation, known = compiled.relation, None
        if not choice.variant.logic.derived:
            channel = self._channels[name].channel
            if channel.adopts and choice.method.renews:
                known = self._channels[name].current.schema  # the same columns as before are told by their names
                if choice.state.previous is not None or choice.state.task.view is not None:
                    channel = replace(channel, schema=None)  # but they may be others, after other queries or inputs
        elif (channel := self._channels[name].current).schema is not None:
            if relation is None:
                return channel.schema
            newest = self._channels[name].latest_readable
            found = identified(relation.user_columns, channel.schema, newest, renamed=compiled.renamed)
            actual, encoding = self._warehouse.schema_of(frame), compiled.encoding or channel.encoding
            if not compiled.trusted:
                delta_schema(encoding, found).validate(actual, optional=optional_columns(encoding, found))
            there = {(column.identity, column.type) for column in channel.schema.columns}
            given = actual.names
            for column in found.columns:
                if (column.identity, column.type) not in there and column.name not in given:
                    raise SchemaMismatch(
                        "the migration does not give the values of the column, whose type changes",
                        column=column.name,
                        hint="Nothing needs to be done: the output is recomputed",
                    )
            return found
        found = validate_output(
            self._warehouse.schema_of(frame), channel, choice.production(name), choice.state.task.name
        )
        return found if known is None else identified(found, known, self._channels[name].latest_readable)

    def _columns_of(self, choice: VariantChoice, query: str, channels: Collection[str]) -> Schema:
        """Return the columns of a query over channels as a task reads them."""
        seen = limit_channels(self._channels, choice.ends, choice.state.task.requires)
        snapshots = {name: seen[name].snapshot(seen[name].latest_readable) for name in channels}
        frames = {name: self._warehouse.open(replace(each, base=None, deltas=())) for name, each in snapshots.items()}
        return self._warehouse.schema_of(self._warehouse.sql(query, frames))

    def _frame(self, by_port: Mapping[str, PortInput], read: InputRead) -> Any:
        feed = by_port[read.port]
        reading = feed.reading
        try:
            if read.stored:
                whole = reading.complete if isinstance(reading, SnapshotRead) else reading
                return self._warehouse.shared(whole, read.weighed, _key_lookup(by_port, read.lookup))
            frame = self._warehouse.open(reading)
        except BlockDamaged as error:
            raise error.with_context(channel=feed.port.channel) from None
        if feed.port.mode is Mode.INSERTS:
            assert reading.schema is not None
            return self._warehouse.inserts(frame, reading.schema)
        return frame

    def _write(
        self,
        choice: VariantChoice,
        compiled: Compiled,
        channel: str,
        frame: Any,
        schema: Schema,
        expected: int,
    ) -> Block | None:
        output = Output(
            state=self._channels[channel],
            point=self._points[channel, choice.state.task.name],
            name=self._run.name_block(channel),
            strong=channel in self._run.plan.followed,
            frame=frame,
            schema=schema,
            production=choice.production(channel),
            replaces=is_rewritten(choice, self._channels[channel].channel),
            expected=expected,
            derived=choice.variant.logic.derived and compiled.trusted,
            encoding=compiled.encoding,
            without_rows=compiled.without_rows,
        )
        try:
            return write_output(self._warehouse, output)
        except KilonovaError as error:
            raise error.with_context(channel=channel) from error.__cause__


def _key_lookup(by_port: Mapping[str, PortInput], lookup: InputLookup | None) -> KeyLookup | None:
    """Return which rows of an input are enough, by the read plans of the ports."""
    if lookup is None:
        return None
    values = tuple((by_port[port].reading, column) for port, column in lookup.values)
    return KeyLookup(column=lookup.column, values=values, columns=lookup.columns)


def _together(migrated: VariantChoice, following: VariantChoice, why: str) -> VariantChoice | None:
    """Return the choice that migrates an output and processes new input as one step; None if these are two steps.

    Args:
        migrated: the choice that only migrates it.
        following: the choice that processes the input, if the output has been migrated.
        why: why it does.
    """
    (*_, migration), task = migrated.state.migrations, migrated.state.task
    if migration is not migrated.variant or following.method is not RefreshMethod.INCREMENTAL:
        return None
    variant = with_new_input(migration, following.variant, task.writes[0])
    if variant is None:
        return None
    cursors = {name: end for name, end in migrated.ends.items() if name not in task.writes}
    return replace(
        migrated,
        state=replace(following.state, cursors=cursors),
        variant=variant,
        ends={**cursors, **following.ends},
        reason=f"{migrated.reason}; with the new input",
    )


def _may_pass_here(error: BaseException) -> bool:
    """Return whether a retry in this process may succeed: not if its Spark session is gone."""
    return is_transient(error) and not isinstance(error, SparkUnavailable)
