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
from kilonova.engine.compilation import compile_variant, with_current_schema
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
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.run import InputSize, RunInput, RunOutput
from kilonova.model.task import Mode, Query, Task, Variant
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
    output_version,
    port_inputs,
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
        self._states = dict(begun.plan.states)
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
        waiting = {progress.task.name: (progress, need) for progress, need in self._begun.plan.steps}
        running: dict[Future[None], Task] = {}
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix=f"run-{self._begun.run}") as pool:
            try:
                while waiting or running:
                    for name, (progress, need) in list(waiting.items()):
                        unended = [*(item.task for item, _ in waiting.values()), *running.values()]
                        if not any(self._precedes(other, progress.task) for other in unended if other.name != name):
                            del waiting[name]
                            running[pool.submit(self._step, progress, need)] = progress.task
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

    def _step(self, progress: TaskState, need: RunReason) -> None:
        """Execute a task, unless it turns out to have no new input."""
        name = progress.task.name
        due = due_reason(progress, self._states)
        why = due
        match need:
            case RunReason.NEWS:
                pass
            case RunReason.ASKED if self._has_input(progress):
                why = due or "requested"
            case RunReason.ASKED:
                pass
            case RunReason.COLUMNS:
                why = due or "its columns are needed"
            case _:
                assert_never(need)
        if why is None:
            with self._lock:
                self._skip(progress)
            self._begun.notify(StepSkipped(run=self._begun.run, step=name))
            return
        choice = choose(progress, self._states)
        self._begun.notify(StepStarted(run=self._begun.run, step=name, reason=_reason(choice, why)))
        began = time.monotonic()
        try:
            with self._begun.step(name), attribute_errors(name):
                rows = self._task(progress, choice, why)
        except KilonovaError as error:
            raise error.with_context(task=name) from error.__cause__
        self._begun.notify(StepEnded(run=self._begun.run, step=name, rows=rows, seconds=time.monotonic() - began))

    def _has_input(self, progress: TaskState) -> bool:
        return any(self._states[name].latest_distinct for name in progress.task.reads)

    def _precedes(self, one: Task, other: Task) -> bool:
        """Return whether a task must end before another, which reads its output or writes a later point, begins."""
        common = set(one.writes) & set(other.writes)
        before = any(self._points[channel, one.name] < self._points[channel, other.name] for channel in common)
        return before or _depends_on(one, other)

    def _cancelled(self, channel: str, task: str) -> None:
        """Make visible to later tasks that a task has not written to a channel with several writers."""
        if self._states[channel].channel.several_writers:
            point = self._points[channel, task]
            self._states[channel] = self._states[channel].with_cancelled(point, self._begun.run)

    def _skip(self, progress: TaskState) -> None:
        for channel in progress.task.writes:
            self._cancelled(channel, progress.task.name)
            self._outputs.append(
                RunOutput(
                    channel=channel,
                    point=self._points[channel, progress.task.name],
                    block=None,
                    version=self._states[channel].version(self._states[channel].latest_readable),
                    task=progress.task.name,
                    reason="no new input",
                    seconds=0.0,
                )
            )

    def _task(self, progress: TaskState, choice: VariantChoice, why: str) -> int | None:
        """Execute a task as chosen; if incremental maintenance of a view fails, recompute the view."""
        try:
            return self._done(progress, choice, why)
        except Exception as error:
            instead = full_refresh_choice(progress, choice) if may_succeed_in_full(error) else None
            if instead is None or self._begun.stopped.is_set():
                raise
            problem = (
                summarize_error(error) if isinstance(error, PySparkException) else str(error) or type(error).__name__
            )
        self._begun.notify(StepRecomputed(run=self._begun.run, step=progress.task.name, error=problem))
        rows = self._done(progress, replace(instead, reason=f"the incremental refresh failed: {problem}"), why)
        with self._lock:
            self._fallbacks.append(Fallback(progress.task.name, progress.task.writes, problem))
        return rows

    def _done(self, progress: TaskState, choice: VariantChoice, why: str) -> int | None:
        began = time.monotonic()
        check_rewritable(choice, progress, self._states)
        fed = port_inputs(choice, progress, self._states)
        unknown = [feed.port.channel for feed in fed if feed.reading.schema is None]
        if unknown:
            raise NotFound(
                "the channel has no schema yet, because nothing was written to it",
                channel=unknown[0],
                hint="Declare its schema, or run the task that writes it first",
            )
        blocks, shared = self._once(progress, choice, fed)
        reason = _reason(choice, why)
        if shared:
            reason = f"{reason}; computed by another run of the batch"
        seconds = time.monotonic() - began
        size = input_size(progress, self._states)
        with self._lock:
            self._record(progress, choice, fed, blocks, reason, seconds, size)
        written = [block for block in blocks.values() if block is not None]
        return sum(block.statistics.rows for block in written) if written else None

    def _record(
        self,
        progress: TaskState,
        choice: VariantChoice,
        fed: tuple[PortInput, ...],
        blocks: dict[str, Block | None],
        reason: str,
        seconds: float,
        size: InputSize,
    ) -> None:
        """Record the inputs and outputs of a task, and make them visible to later tasks."""
        for channel, block in blocks.items():
            version = output_version(choice, progress, fed, self._states, channel)
            self._outputs.append(
                RunOutput(
                    channel=channel,
                    point=self._points[channel, progress.task.name],
                    block=block,
                    version=version,
                    task=progress.task.name,
                    reason=reason,
                    seconds=seconds,
                    method=choice.method,
                    input_size=size,
                    estimates=choice.estimates,
                )
            )
        self._note_inputs(choice, progress, fed)
        for output in self._outputs[-len(blocks) :]:
            before = self._states[output.channel]
            if output.block is None:
                self._cancelled(output.channel, progress.task.name)
                continue
            several = before.channel.several_writers
            version = before.committed.beside(output.version) if several else output.version
            self._states[output.channel] = before.with_block(output.block, version, self._begun.run)

    def _note_inputs(self, choice: VariantChoice, progress: TaskState, fed: tuple[PortInput, ...]) -> None:
        name = progress.task.name
        for feed in fed:
            self._inputs.append(
                RunInput(
                    task=name,
                    port=feed.port.name,
                    channel=feed.port.channel,
                    start=feed.start,
                    end=feed.end,
                    blocks=tuple(block.number for block in feed.reading.blocks),
                )
            )
        points = advanced_cursors(choice, progress, self._states)
        self._advances.append(Advance(task=name, logic=progress.logic, points=points))

    def _once(
        self, progress: TaskState, choice: VariantChoice, fed: tuple[PortInput, ...]
    ) -> tuple[dict[str, Block | None], bool]:
        """Execute a task, unless a run merged with this one executes the same step: then share its blocks."""
        task = progress.task
        if self._shared_steps is None:
            return self._attempted(progress, choice, fed), False
        targets = [self._target(channel, choice, task) for channel in task.writes]
        name = self._shared_steps.name(choice.variant, [feed.reading for feed in fed], targets)
        if name is None:
            return self._attempted(progress, choice, fed), False

        def do() -> Blocks:
            made = self._attempted(progress, choice, fed)
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
        state, point = self._states[channel], self._points[channel, task.name]
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
        self, progress: TaskState, choice: VariantChoice, fed: tuple[PortInput, ...]
    ) -> dict[str, Block | None]:
        def retrying(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            self._begun.notify(
                StepRetried(
                    run=self._begun.run,
                    step=progress.task.name,
                    attempt=state.attempt_number,
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
                return self._attempt(progress, choice, fed)
        raise AssertionError("unreachable")

    def _attempt(
        self, progress: TaskState, choice: VariantChoice, fed: tuple[PortInput, ...]
    ) -> dict[str, Block | None]:
        check_running(self._begun.stopped, self._begun.run)
        task = progress.task
        sizes, followed = self._warehouse.sizes, self._begun.plan.followed
        spelled = compile_variant(
            progress, choice, fed, self._states, sizes, strong=not followed.isdisjoint(task.writes)
        )
        if spelled is None:
            return dict.fromkeys(task.writes)
        logic, reads = spelled
        by_port = {feed.port.name: feed for feed in fed}
        frames = {name: self._frame(by_port[read.port], choice.variant, read.weighed) for name, read in reads.items()}
        results = invoke(self._warehouse, task, logic, frames)
        derived = isinstance(choice.variant.logic, Query)
        declared = [self._channel(name) if derived else self._states[name].channel for name in task.writes]
        schemas = [
            channel.schema
            if derived and channel.schema is not None
            else validate_output(self._warehouse.schema_of(frame), channel, production, task.name)
            for frame, channel, production in zip(results, declared, choice.variant.productions, strict=True)
        ]
        notification = [f for f in fed if f.port.mode.advances and f.port.mode is not Mode.OLD] if derived else fed
        expected = sum(
            {block.number: block.statistics.bytes for f in notification for block in f.reading.blocks}.values()
        )
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
        return with_current_schema(self._states[name])

    def _frame(self, feed: PortInput, variant: Variant, weighed: bool) -> Any:
        reading = feed.reading
        try:
            if isinstance(variant.logic, Query):
                return self._warehouse.shared(
                    reading.complete if isinstance(reading, SnapshotRead) else reading, weighed
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
            state=self._states[channel],
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
