"""Frames that are made of one evaluation: what several share is evaluated once, and kept until they are written.

Spark evaluates a frame anew for each job. Where that may give other rows (functions in Python, random numbers, the
time, rows in no order), a row could go into two outputs of a task, or into none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from kilonova.warehouse.jobs import translated


@contextmanager
def evaluated_once(
    spark: SparkSession, frames: Sequence[DataFrame], inputs: Iterable[DataFrame], place: Callable[[], str]
) -> Iterator[tuple[DataFrame, ...]]:
    """Frames that agree with each other, whatever the code that they share.

    The largest sub-plans that several frames have in common, inputs left out, are written down as Parquet.
    The plans of a Connect session cannot be taken apart: its frames are given back as they are.

    Args:
        spark: the session.
        frames: the frames.
        inputs: what they are made of, which is the same each time.
        place: gives the URL of a directory for what is written down, which the caller deletes.
    """
    if len(frames) < 2 or not hasattr(spark, "_jsparkSession"):
        yield tuple(frames)
        return
    with translated(None):
        known = [frame._jdf.queryExecution().analyzed() for frame in inputs]
        split = _Written(spark, known, place).split(frames)
    yield split


def _read_back(spark: Any, frame: DataFrame, path: str) -> DataFrame:
    """Write a frame down, and return one with the same columns that reads it."""
    names = [f"c{number}" for number in range(len(frame.columns))]
    empty = {n for n, field in zip(names, frame.schema.fields, strict=True) if isinstance(field.dataType, NullType)}
    frame.toDF(*names).drop(*empty).write.parquet(path)
    read = spark.read.parquet(path)
    columns = zip(names, frame.columns, strict=True)
    return read.select(*((F.lit(None) if name in empty else F.col(name)).alias(shown) for name, shown in columns))  # type: ignore[no-any-return]


class _Written:
    """Sub-plans that are replaced by what was written of them, in a session of this process."""

    def __init__(self, spark: Any, inputs: Iterable[Any], place: Callable[[], str]) -> None:
        self._spark = spark
        self._jvm = spark._jvm
        self._inputs = {self._key(plan) for plan in inputs}
        self._place = place
        self._times: Counter[int] = Counter()
        self._replaced: dict[int, Any] = {}
        patterns = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        self._unsteady = (
            patterns.PYTHON_UDF(),
            patterns.SCALA_UDF(),
            patterns.CURRENT_LIKE(),
            patterns.PLAN_EXPRESSION(),
        )

    def split(self, frames: Sequence[DataFrame]) -> tuple[DataFrame, ...]:
        """Frames that read what they shared."""
        plans = [frame._jdf.queryExecution().analyzed() for frame in frames]
        for plan in plans:
            self._times.update(self._nodes(plan, set()))
        found = [self._rebuilt(plan, inner=False) for plan in plans]
        return tuple(
            frame if new is plan else self._frame(new) for frame, plan, new in zip(frames, plans, found, strict=True)
        )

    def _key(self, plan: Any) -> int:
        return int(self._jvm.java.lang.System.identityHashCode(plan))

    def _children(self, plan: Any) -> list[Any]:
        children = plan.children()
        return [children.apply(place) for place in range(children.length())]

    def _nodes(self, plan: Any, into: set[int]) -> set[int]:
        key = self._key(plan)
        if key not in self._inputs and key not in into:
            into.add(key)
            for child in self._children(plan):
                self._nodes(child, into)
        return into

    def _rebuilt(self, plan: Any, *, inner: bool) -> Any:
        """A plan in which what is shared was replaced.

        Args:
            plan: the plan.
            inner: whether it is part of one that was written down for as many frames.
        """
        key = self._key(plan)
        if key in self._inputs or key in self._replaced:
            return self._replaced.get(key, plan)
        shared = self._times[key] > 1 and not inner
        if shared and self._steady(plan):
            return plan
        children = self._children(plan)
        times = self._times[key]
        new = [self._rebuilt(child, inner=times > 1 and self._times[self._key(child)] <= times) for child in children]
        changed = any(one is not other for one, other in zip(new, children, strict=True))
        made = plan.withNewChildren(self._jvm.PythonUtils.toSeq(new)) if changed else plan
        if shared:
            self._replaced[key] = made = self._kept(made)
        return made

    def _steady(self, plan: Any) -> bool:
        """Return whether a plan is known to give the same rows each time it is evaluated."""
        if not plan.deterministic() or any(plan.containsPattern(pattern) for pattern in self._unsteady):
            return False
        return self._simple(plan)

    def _simple(self, plan: Any) -> bool:
        if self._key(plan) in self._inputs:
            return True
        return plan.nodeName() in _SIMPLE and all(map(self._simple, self._children(plan)))

    def _frame(self, plan: Any) -> DataFrame:
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self._spark._jsparkSession, plan), self._spark)

    def _kept(self, plan: Any) -> Any:
        """Write a plan's rows down, and return a plan that reads them, with the same attributes."""
        read: Any = _read_back(self._spark, self._frame(plan), self._place())
        sql, none = self._jvm.org.apache.spark.sql, self._jvm.scala.Option.empty()
        return sql.execution.LogicalRDD(
            plan.output(),
            read._jdf.queryExecution().toRdd(),
            sql.catalyst.plans.physical.UnknownPartitioning(0),
            self._jvm.PythonUtils.toSeq([]),
            False,
            none,
            self._spark._jsparkSession,
            none,
            none,
            False,
        )


_SIMPLE = ("Project", "Filter", "SubqueryAlias", "Union")
"""Operators that add nothing unsteady of their own."""
