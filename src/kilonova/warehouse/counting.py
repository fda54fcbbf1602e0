"""How much Spark has done of what one thread asks of it, and how to end that: tasks of its jobs, done and known so far.

A classic session tells it by its status tracker, for a group of jobs: the thread's jobs are put in one, which also
gives them a name in Spark's pages, and a pool, so that a large step leaves others their share. A Connect session
reports each operation to the thread that waits for it, and knows operations by a tag. None of it starts a job. Where
Spark does not answer nothing is counted, and nothing else happens.
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

from kilonova.model.headway import Amount

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql.connect.shell.progress import StageInfo

_POOL = "spark.scheduler.pool"

_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", _POOL)
"""What Spark keeps of a thread's group of jobs."""

_POOLS = 16
"""Among how many pools what goes on at once is spread; Spark keeps each that it has ever heard of."""


@contextmanager
def counted(spark: SparkSession, name: str) -> Iterator[Jobs | Operations]:
    """Count what this thread asks of Spark within the block.

    Args:
        spark: the session.
        name: what it is for, as Spark's pages show it.

    Yields:
        Says how much there is by now, and ends it; from any thread.
    """
    try:
        context: SparkContext | None = spark.sparkContext
    except PySparkException:  # a Connect session has none
        context = None
    if context is None:
        with _reported(spark) as operations:
            yield operations
    else:
        with _grouped(context, name) as jobs:
            yield jobs


class Jobs:
    """The jobs of a group in a classic session."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context = context
        self._tracker: StatusTracker = context.statusTracker()
        self._group = group
        self._ended: dict[int, Amount] = {}

    def amount(self) -> Amount:
        """How much Spark has done by now, of what it is known to have to do."""
        return sum((self._of(job) for job in self._tracker.getJobIdsForGroup(self._group)), Amount())

    def interrupt(self) -> None:
        """End the jobs that go on now."""
        self._context.cancelJobGroup(self._group)

    def _of(self, job: int) -> Amount:
        if job in self._ended:
            return self._ended[job]
        info = self._tracker.getJobInfo(job)
        if info is None:
            return Amount()
        stages = [self._tracker.getStageInfo(stage) for stage in info.stageIds]
        amount = sum(
            (Amount(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None), Amount()
        )
        if info.status != "RUNNING":  # what was not done by then was not needed
            amount = self._ended[job] = Amount(amount.done, amount.done)
        return amount


@contextmanager
def _grouped(context: SparkContext, name: str) -> Iterator[Jobs]:
    group = f"kilonova-{uuid.uuid4().hex}"
    before: dict[str, str | None] = {}
    with suppress(Exception):  # a Spark that has died fails what follows, with an error of its own
        before = {key: context.getLocalProperty(key) for key in _GROUP}
        context.setJobGroup(group, name, interruptOnCancel=True)
        context.setLocalProperty(_POOL, f"kilonova-{crc32(name.encode()) % _POOLS}")
    try:
        yield Jobs(context, group)
    finally:
        with suppress(Exception):
            for key, value in before.items():
                context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None takes it away


class Operations:
    """What is known of the operations of a Connect session."""

    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._spark = spark
        self._tag = tag
        self._amounts: dict[str | None, Amount] = {}

    def hear(self, operation: str | None, stages: Iterable[StageInfo]) -> None:
        """Hear how an operation goes."""
        self._amounts[operation] = sum(
            (Amount(stage.num_completed_tasks, stage.num_tasks) for stage in stages), Amount()
        )

    def amount(self) -> Amount:
        """How much Spark has done by now, of what it is known to have to do."""
        return sum(list(self._amounts.values()), Amount())

    def interrupt(self) -> None:
        """End the operations that go on now."""
        self._spark.interruptTag(self._tag)


_operations: ContextVar[Operations | None] = ContextVar("operations", default=None)


def _hear(stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
    """Told by Spark's client, by the thread that waits for the operation."""
    if (operations := _operations.get()) is not None and stages:
        operations.hear(operation_id, stages)


@contextmanager
def _reported(spark: SparkSession) -> Iterator[Operations]:
    tag = f"kilonova-{uuid.uuid4().hex}"
    with suppress(Exception):
        spark.registerProgressHandler(_hear)  # type: ignore[arg-type]  # once is enough, and all that it does
    operations = Operations(spark, tag)
    token = _operations.set(operations)
    spark.addTag(tag)
    try:
        yield operations
    finally:
        spark.removeTag(tag)
        _operations.reset(token)
