"""Progress and cancellation of one thread's Spark work: tasks of its jobs, done and known so far.

In a classic session, the status tracker reports it per job group: the thread's jobs are put in one, which also sets
their description in the Spark UI, and in a pool, so that a large step leaves resources to others. A Connect session
reports each operation to the thread that waits for it, and identifies operations by a tag. None of this starts a job.
If Spark does not respond, nothing is counted, without any other effect.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING
from zlib import crc32

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kilonova.model.progress import TaskCount

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql.connect.shell.progress import StageInfo

_POOL = "spark.scheduler.pool"

_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", _POOL)
"""Local properties in which Spark keeps a thread's job group."""

_POOLS = 16
"""Number of pools over which concurrent work is spread; Spark never removes a pool."""


@contextmanager
def track_jobs(spark: SparkSession, name: str) -> Iterator[JobTracker | ConnectOperations]:
    """Track this thread's Spark work within the `with` block.

    Args:
        spark: the session.
        name: its description in the Spark UI.

    Yields:
        A tracker that reports progress and cancels the work; usable from any thread.
    """
    try:
        context: SparkContext | None = spark.sparkContext
    except PySparkException:  # not available with Spark Connect
        context = None
    if context is None:
        with _report(spark) as operations:
            yield operations
    else:
        with _grouped(context, name) as jobs:
            yield jobs


class JobTracker:
    """Jobs of a group in a classic session."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context = context
        self._tracker: StatusTracker = context.statusTracker()
        self._group = group
        self._ended: dict[int, TaskCount] = {}

    def amount(self) -> TaskCount:
        """Return the number of tasks done, and of all tasks known so far."""
        return sum((self._of(job) for job in self._tracker.getJobIdsForGroup(self._group)), TaskCount())

    def interrupt(self) -> None:
        """Cancel the running jobs."""
        self._context.cancelJobGroup(self._group)

    def _of(self, job: int) -> TaskCount:
        if job in self._ended:
            return self._ended[job]
        info = self._tracker.getJobInfo(job)
        if info is None:
            return TaskCount()
        stages = [self._tracker.getStageInfo(stage) for stage in info.stageIds]
        amount = sum(
            (TaskCount(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None), TaskCount()
        )
        if info.status != "RUNNING":  # tasks not done by then were not needed
            amount = self._ended[job] = TaskCount(amount.done, amount.done)
        return amount


@contextmanager
def _grouped(context: SparkContext, name: str) -> Iterator[JobTracker]:
    group = f"kilonova-{uuid.uuid4().hex}"
    before: dict[str, str | None] = {}
    with suppress(Exception):  # if Spark has died, what follows fails with an error of its own
        before = {key: context.getLocalProperty(key) for key in _GROUP}
        context.setJobGroup(group, name, interruptOnCancel=True)
        context.setLocalProperty(_POOL, f"kilonova-{crc32(name.encode()) % _POOLS}")
    try:
        yield JobTracker(context, group)
    finally:
        with suppress(Exception):
            for key, value in before.items():
                context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None takes it away


class ConnectOperations:
    """Operations of a Connect session."""

    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._spark = spark
        self._tag = tag
        self._amounts: dict[str | None, TaskCount] = {}

    def hear(self, operation: str | None, stages: Iterable[StageInfo]) -> None:
        """Record the progress of an operation."""
        self._amounts[operation] = sum(
            (TaskCount(stage.num_completed_tasks, stage.num_tasks) for stage in stages), TaskCount()
        )

    def amount(self) -> TaskCount:
        """Return the number of tasks done, and of all tasks known so far."""
        return sum(list(self._amounts.values()), TaskCount())

    def interrupt(self) -> None:
        """Cancel the running operations."""
        self._spark.interruptTag(self._tag)


_operations: ContextVar[ConnectOperations | None] = ContextVar("operations", default=None)


def _hear(stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
    """Handle progress reported by Spark's client, in the thread that waits for the operation."""
    if (operations := _operations.get()) is not None and stages:
        operations.hear(operation_id, stages)


@contextmanager
def _report(spark: SparkSession) -> Iterator[ConnectOperations]:
    tag = f"kilonova-{uuid.uuid4().hex}"
    with suppress(Exception):
        spark.registerProgressHandler(_hear)  # type: ignore[arg-type]  # once is enough, and all that it does
    operations = ConnectOperations(spark, tag)
    token = _operations.set(operations)
    spark.addTag(tag)
    try:
        yield operations
    finally:
        spark.removeTag(tag)
        _operations.reset(token)
