"""How much Spark has done of what one thread asks of it: the tasks of its jobs, done and known so far.

A classic session tells it by its status tracker, for a group of jobs: the thread's jobs are put in one, which also
gives them a name in Spark's pages, and a pool, so that a large step leaves others their share. A Connect session
reports each operation to the thread that waits for it. Neither starts a job. Where Spark does not answer nothing is
counted, and nothing else happens.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
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
def counted(spark: SparkSession, name: str) -> Iterator[Callable[[], Amount]]:
    """Count what this thread asks of Spark within the block.

    Args:
        spark: the session.
        name: what it is for, as Spark's pages show it.

    Yields:
        Says how much there is by now; may be asked from any thread.
    """
    try:
        context: SparkContext | None = spark.sparkContext
    except PySparkException:  # a Connect session has none
        context = None
    if context is None:
        with _reported(spark) as operations:
            yield operations.amount
    else:
        with _grouped(context, name) as jobs:
            yield jobs.amount


class _Jobs:
    """The jobs of a group in a classic session."""

    def __init__(self, tracker: StatusTracker, group: str) -> None:
        self._tracker = tracker
        self._group = group
        self._ended: dict[int, Amount] = {}

    def amount(self) -> Amount:
        return sum((self._of(job) for job in self._tracker.getJobIdsForGroup(self._group)), Amount())

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
def _grouped(context: SparkContext, name: str) -> Iterator[_Jobs]:
    group = f"kilonova-{uuid.uuid4().hex}"
    before: dict[str, str | None] = {}
    with suppress(Exception):  # a Spark that has died fails what follows, with an error of its own
        before = {key: context.getLocalProperty(key) for key in _GROUP}
        context.setJobGroup(group, name)
        context.setLocalProperty(_POOL, f"kilonova-{crc32(name.encode()) % _POOLS}")
    try:
        yield _Jobs(context.statusTracker(), group)
    finally:
        with suppress(Exception):
            for key, value in before.items():
                context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None takes it away


class _Operations:
    """What is known of the operations of a Connect session."""

    def __init__(self) -> None:
        self._amounts: dict[str | None, Amount] = {}

    def hear(self, operation: str | None, stages: Iterable[StageInfo]) -> None:
        self._amounts[operation] = sum(
            (Amount(stage.num_completed_tasks, stage.num_tasks) for stage in stages), Amount()
        )

    def amount(self) -> Amount:
        return sum(list(self._amounts.values()), Amount())


_operations: ContextVar[_Operations | None] = ContextVar("operations", default=None)


def _hear(stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
    """Told by Spark's client, by the thread that waits for the operation."""
    if (operations := _operations.get()) is not None and stages:
        operations.hear(operation_id, stages)


@contextmanager
def _reported(spark: SparkSession) -> Iterator[_Operations]:
    with suppress(Exception):
        spark.registerProgressHandler(_hear)  # type: ignore[arg-type]  # once is enough, and all that it does
    operations = _Operations()
    token = _operations.set(operations)
    try:
        yield operations
    finally:
        _operations.reset(token)
