"""Execution of a run of tasks: each runs after those it reads from, and sees what they wrote in the same run."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

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

from kilonova.catalog import events
from kilonova.catalog.database import Transaction
from kilonova.catalog.runs import Advance
from kilonova.engine.compilation import compile_variant
from kilonova.engine.interfaces import WarehouseInterface
from kilonova.engine.invocation import attribute_errors, invoke, may_succeed_in_full, summarize_error, validate_output
from kilonova.engine.output import Output, OutputTarget, write_output
from kilonova.engine.run_events import (
    RunStarted,
    StepEnded,
    StepRecomputed,
    StepRetried,
    StepShared,
    StepSkipped,
    StepStarted,
)
from kilonova.engine.run_monitor import check_running
from kilonova.engine.run_protocol import ActiveRun, Participant, RunEnvironment, RunResults, execute_run
from kilonova.engine.run_request import RunFirings, RunReason, RunRequest, TaskPlan, plan_run, skip_firings
from kilonova.engine.shared_steps import Blocks, SharedSteps, StepOutput
from kilonova.errors import BlockDamaged, KilonovaError, NotFound, SparkUnavailable, is_transient
from kilonova.model.block import Base, Block, Delta
from kilonova.model.channel import Channel
from kilonova.model.event import EventKind
from kilonova.model.logic import InputRead
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.run import InputSize, RunInput, RunOutput
from kilonova.model.task import Mode, Task
from kilonova.schedule.planning import (
    PortInput,
    TaskState,
    VariantChoice,
    advanced_cursors,
    check_rewritable,
    choose,
    due_reason,
    full_refresh_choice,
    input_size,
    is_rewritten,
    limit_channels,
    output_version,
    port_inputs,
    read_ends,
)


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

    def work(begun: ActiveRun[TaskPlan]) -> RunResults:
        begun.notify(RunStarted(run=begun.run, steps=tuple(p.task.name for p, _ in begun.plan.steps)))
        shared_steps = request.shared_steps if isinstance(request, RunFirings) else None
        return _Execution(warehouse, begun, retries, shared_steps).all()

    return execute_run(environment, partial(plan_run, request=request), work, partial(skip_firings, request=request))


@dataclass(frozen=True, slots=True)
class Fallback(Participant):
    """View that a run recomputed because incremental maintenance failed, which is recorded as an event.

    Attributes:
        task: the task that maintains it.
        channels: the channels that it writes.
        problem: the reason of the failure.
    """

    task: str
    channels: tuple[str, ...]
    problem: str

    def on_commit(self, tx: Transaction, run: int) -> None:
        """Record the event."""
        text = f"{self.task} was fully recomputed, because its incremental refresh failed: {self.problem}"
        events.record(tx, EventKind.FELL_BACK, run=run, channels=self.channels, text=text)


AT_ONCE = 4
"""Maximum number of tasks of a run that execute concurrently, if they do not wait for each other."""


def _depends_on(one: Task, other: Task) -> bool:
    """Return whether a task reads what another writes."""
    return bool(set(one.writes) & set(other.reads))


def _reason(choice: VariantChoice, why: str) -> str:
    return f"{choice.method.value}: {why}; {choice.reason}"


class _Execution:
    """Execution of the tasks of one run; tasks that do not wait for each other execute concurrently."""

    def __init__(
        self,
        warehouse: WarehouseInterface[Any],
        begun: ActiveRun[TaskPlan],
        retries: RetryPolicy,
        shared_steps: SharedSteps | None,
    ) -> None:
        self._warehouse = warehouse
        self._begun = begun
        self._retries = retries
        self._shared_steps = shared_steps
        self._channels = dict(begun.plan.channels)
        self._inputs: list[RunInput] = []
        self._outputs: list[RunOutput] = []
        self._advances: list[Advance] = []
        self._fallbacks: list[Fallback] = []
        self._lock = threading.Lock()
        writes = [(channel, p.task.name) for p, _ in begun.plan.steps for channel in p.task.writes]
        self._points = {
            (channel, task): begun.points[channel] + [name for other, name in writes if other == channel].index(task)
            for channel, task in writes
        }

    def all(self) -> RunResults:
        """Execute the tasks, each once those whose output it reads have ended."""
        waiting = {state.task.name: (state, need) for state, need in self._begun.plan.steps}
        running: dict[Future[None], Task] = {}
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix=f"run-{self._begun.run}") as pool:
            try:
                while waiting or running:
                    for name, (state, need) in list(waiting.items()):
                        unended = [*(item.task for item, _ in waiting.values()), *running.values()]
                        if not any(self._precedes(other, state.task) for other in unended if other.name != name):
                            del waiting[name]
                            running[pool.submit(self._step, state, need)] = state.task
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        del running[future]
                        future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return RunResults(
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            advances=tuple(self._advances),
            participants=tuple(self._fallbacks),
        )

    def _step(self, state: TaskState, need: RunReason) -> None:
        """Execute a task, unless it turns out to have no new input."""
        name = state.task.name
        until = self._begun.plan.until
        due = due_reason(state, self._channels, until)
        why = due
        match need:
            case RunReason.NEWS:
                pass
            case RunReason.ASKED if self._has_input(state):
                why = due or "requested"
            case RunReason.ASKED:
                pass
            case RunReason.COLUMNS:
                why = due or "its columns are needed"
            case _:
                assert_never(need)
        if why is None:
            with self._lock:
                self._skip(state)
            self._begun.notify(StepSkipped(run=self._begun.run, step=name))
            return
        choice = choose(state, self._channels, until)
        self._begun.notify(StepStarted(run=self._begun.run, step=name, reason=_reason(choice, why)))
        began = time.monotonic()
        try:
            with self._begun.step(name), attribute_errors(name):
                rows = self._task(state, choice, why)
        except KilonovaError as error:
            raise error.with_context(task=name) from error.__cause__
        self._begun.notify(StepEnded(run=self._begun.run, step=name, rows=rows, seconds=time.monotonic() - began))

    def _has_input(self, state: TaskState) -> bool:
        ends = read_ends(state, self._channels, self._begun.plan.until)
        return any(self._channels[name].settled(ends[name]) for name in state.task.reads)

    def _precedes(self, one: Task, other: Task) -> bool:
        """Return whether a task must end before another, which reads its output or writes a later point, begins."""
        common = set(one.writes) & set(other.writes)
        before = any(self._points[channel, one.name] < self._points[channel, other.name] for channel in common)
        return before or _depends_on(one, other)

    def _cancelled(self, channel: str, task: str) -> None:
        """Make visible to later tasks that a task has not written to a channel with several writers."""
        if self._channels[channel].channel.several_writers:
            point = self._points[channel, task]
            self._channels[channel] = self._channels[channel].with_cancelled(point, self._begun.run)

    def _skip(self, state: TaskState) -> None:
        for channel in state.task.writes:
            self._cancelled(channel, state.task.name)
            self._outputs.append(
                RunOutput(
                    channel=channel,
                    point=self._points[channel, state.task.name],
                    block=None,
                    version=self._channels[channel].version(self._channels[channel].latest_readable),
                    task=state.task.name,
                    reason="no new input",
                    seconds=0.0,
                )
            )

    def _task(self, state: TaskState, choice: VariantChoice, why: str) -> int | None:
        """Execute a task as chosen; if incremental maintenance of a view fails, recompute the view."""
        try:
            return self._done(state, choice, why)
        except Exception as error:
            instead = full_refresh_choice(state, choice) if may_succeed_in_full(error) else None
            if instead is None or self._begun.stopped.is_set():
                raise
            problem = (
                summarize_error(error) if isinstance(error, PySparkException) else str(error) or type(error).__name__
            )
        self._begun.notify(StepRecomputed(run=self._begun.run, step=state.task.name, error=problem))
        rows = self._done(state, replace(instead, reason=f"the incremental refresh failed: {problem}"), why)
        with self._lock:
            self._fallbacks.append(Fallback(state.task.name, state.task.writes, problem))
        return rows

    def _done(self, state: TaskState, choice: VariantChoice, why: str) -> int | None:
        began = time.monotonic()
        check_rewritable(choice, state, self._channels)
        inputs = port_inputs(choice, state, self._channels)
        unknown = [each.port.channel for each in inputs if each.reading.schema is None]
        if unknown:
            raise NotFound(
                "the channel has no schema yet, because nothing was written to it",
                channel=unknown[0],
                hint="Declare its schema, or run the task that writes it first",
            )
        blocks, shared = self._once(state, choice, inputs)
        reason = _reason(choice, why)
        if shared:
            reason = f"{reason}; computed by another run of the batch"
        seconds = time.monotonic() - began
        size = input_size(state, limit_channels(self._channels, choice.ends))
        with self._lock:
            self._record(state, choice, inputs, blocks, reason, seconds, size)
        written = [block for block in blocks.values() if block is not None]
        return sum(block.statistics.rows for block in written) if written else None

    def _record(
        self,
        state: TaskState,
        choice: VariantChoice,
        inputs: tuple[PortInput, ...],
        blocks: dict[str, Block | None],
        reason: str,
        seconds: float,
        size: InputSize,
    ) -> None:
        """Record the inputs and outputs of a task, and make them visible to later tasks."""
        for channel, block in blocks.items():
            version = output_version(choice, state, inputs, self._channels, channel)
            self._outputs.append(
                RunOutput(
                    channel=channel,
                    point=self._points[channel, state.task.name],
                    block=block,
                    version=version,
                    task=state.task.name,
                    reason=reason,
                    seconds=seconds,
                    method=choice.method,
                    input_size=size,
                    estimates=choice.estimates,
                )
            )
        self._note_inputs(choice, state, inputs)
        for output in self._outputs[-len(blocks) :]:
            before = self._channels[output.channel]
            if output.block is None:
                self._cancelled(output.channel, state.task.name)
                continue
            several = before.channel.several_writers
            version = before.committed.beside(output.version) if several else output.version
            self._channels[output.channel] = before.with_block(output.block, version, self._begun.run)

    def _note_inputs(self, choice: VariantChoice, state: TaskState, inputs: tuple[PortInput, ...]) -> None:
        name = state.task.name
        for each in inputs:
            self._inputs.append(
                RunInput(
                    task=name,
                    port=each.port.name,
                    channel=each.port.channel,
                    start=each.start,
                    end=each.end,
                    blocks=tuple(block.number for block in each.reading.blocks),
                )
            )
        points = advanced_cursors(choice, state.task)
        self._advances.append(Advance(task=name, logic=state.logic, points=points))

    def _once(
        self, state: TaskState, choice: VariantChoice, inputs: tuple[PortInput, ...]
    ) -> tuple[dict[str, Block | None], bool]:
        """Execute a task, unless a run merged with this one executes the same step: then share its blocks."""
        task = state.task
        if self._shared_steps is None:
            return self._attempted(state, choice, inputs), False
        targets = [self._target(channel, choice, task) for channel in task.writes]
        name = self._shared_steps.name(choice.variant, [each.reading for each in inputs], targets)
        if name is None:
            return self._attempted(state, choice, inputs), False

        def do() -> Blocks:
            made = self._attempted(state, choice, inputs)
            return tuple(made[channel] for channel in task.writes)

        def share(blocks: Blocks) -> Blocks | None:
            if not self._begun.share_blocks([block.number for block in blocks if block is not None]):
                return None
            return tuple(self._placed(*pair, task.name) for pair in zip(blocks, task.writes, strict=True))

        blocks, shared = self._shared_steps.done(name, do, share)
        if shared:
            self._begun.notify(StepShared(run=self._begun.run, step=task.name))
        return dict(zip(task.writes, blocks, strict=True)), shared

    def _target(self, channel: str, choice: VariantChoice, task: Task) -> StepOutput:
        state, point = self._channels[channel], self._points[channel, task.name]
        empty = state.latest_readable == point - 1 and state.latest_distinct == 0
        rewritten = is_rewritten(choice, task, state.channel)
        return StepOutput(channel=self._channel(channel), rewritten=rewritten, empty=empty)

    def _placed(self, block: Block | None, channel: str, task: str) -> Block | None:
        """Return a block of another run as placed at the point that a task writes."""
        if block is None:
            return None
        point = self._points[channel, task]
        return replace(block, kind=Base(point) if isinstance(block.kind, Base) else Delta(point - 1, point))

    def _attempted(
        self, state: TaskState, choice: VariantChoice, inputs: tuple[PortInput, ...]
    ) -> dict[str, Block | None]:
        def retrying(call: RetryCallState) -> None:
            error = call.outcome.exception() if call.outcome else None
            self._begun.notify(
                StepRetried(
                    run=self._begun.run,
                    step=state.task.name,
                    attempt=call.attempt_number,
                    error=str(error),
                )
            )

        for attempt in Retrying(
            stop=stop_after_attempt(self._retries.attempts) | stop_when_event_set(self._begun.stopped),
            sleep=sleep_using_event(self._begun.stopped),
            wait=wait_exponential(multiplier=self._retries.wait, max=60),
            retry=retry_if_exception(_may_pass_here),
            before_sleep=retrying,
            reraise=True,
        ):
            with attempt:
                return self._attempt(state, choice, inputs)
        raise AssertionError("unreachable")

    def _attempt(
        self, state: TaskState, choice: VariantChoice, inputs: tuple[PortInput, ...]
    ) -> dict[str, Block | None]:
        check_running(self._begun.stopped, self._begun.run)
        task = state.task
        sizes, followed = self._warehouse.sizes, self._begun.plan.followed
        compiled = compile_variant(
            state, choice, inputs, self._channels, sizes, strong=not followed.isdisjoint(task.writes)
        )
        if compiled is None:
            return dict.fromkeys(task.writes)
        by_port = {each.port.name: each for each in inputs}
        frames = {name: self._frame(by_port[read.port], read) for name, read in compiled.inputs.items()}
        results = invoke(self._warehouse, task, compiled.executable, frames)
        derived = choice.variant.logic.derived
        declared = [self._channel(name) if derived else self._channels[name].channel for name in task.writes]
        schemas = [
            channel.schema
            if derived and channel.schema is not None
            else validate_output(self._warehouse.schema_of(frame), channel, production, task.name)
            for frame, channel, production in zip(results, declared, choice.variant.productions, strict=True)
        ]
        new = [each for each in inputs if each.port.mode.advances] if derived else inputs
        expected = sum({block.number: block.statistics.bytes for each in new for block in each.reading.blocks}.values())
        name_block = partial(self._begun.name_block, task.writes[0])
        with self._warehouse.evaluated_once(results, frames.values(), name_block) as agreeing:
            return {
                channel.name: self._write(
                    task,
                    channel.name,
                    Output(
                        frame=frame,
                        schema=schema,
                        production=production,
                        replaces=is_rewritten(choice, task, channel),
                        expected=expected,
                        derived=derived,
                    ),
                )
                for frame, channel, schema, production in zip(
                    agreeing, declared, schemas, choice.variant.productions, strict=True
                )
            }

    def _channel(self, name: str) -> Channel:
        return self._channels[name].current

    def _frame(self, feed: PortInput, read: InputRead) -> Any:
        reading = feed.reading
        try:
            if read.stored:
                return self._warehouse.shared(
                    reading.complete if isinstance(reading, SnapshotRead) else reading, read.weighed
                )
            frame = self._warehouse.open(reading)
        except BlockDamaged as error:
            raise error.with_context(channel=feed.port.channel) from None
        if feed.port.mode is Mode.INSERTS:
            assert reading.schema is not None
            return self._warehouse.inserts(frame, reading.schema)
        return frame

    def _write(self, task: Task, channel: str, output: Output[Any]) -> Block | None:
        target = OutputTarget(
            state=self._channels[channel],
            point=self._points[channel, task.name],
            name=self._begun.name_block(channel),
            strong=channel in self._begun.plan.followed,
        )
        try:
            return write_output(self._warehouse, target, output)
        except KilonovaError as error:
            raise error.with_context(channel=channel) from error.__cause__


def _may_pass_here(error: BaseException) -> bool:
    """Return whether a retry in this process may succeed: not if its Spark session is gone."""
    return is_transient(error) and not isinstance(error, SparkUnavailable)
