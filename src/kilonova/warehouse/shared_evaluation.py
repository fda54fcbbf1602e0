"""Shared evaluation of frames: common sub-plans are evaluated once, and kept until the frames are written.

Spark evaluates a frame again for each job. If that may yield different rows (Python functions, random numbers, the
time, rows in no order), a row could go into two outputs of a task, or into none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from kilonova.warehouse.spark_errors import translate_errors


@contextmanager
def evaluate_once(
    spark: SparkSession, frames: Sequence[DataFrame], inputs: Iterable[DataFrame], place: Callable[[], str]
) -> Iterator[tuple[DataFrame, ...]]:
    """Make frames consistent with each other, whatever code they share.

    The largest sub-plans that several frames have in common, except inputs, are materialized as Parquet; over Spark
    Connect this includes deterministic ones, because only its server can recognize them.

    Args:
        spark: the session.
        frames: the frames.
        inputs: the deterministic inputs of the frames.
        place: returns the URL of a directory to materialize into, which the caller deletes.
    """
    if len(frames) < 2:
        yield tuple(frames)
        return
    if not hasattr(spark, "_jsparkSession"):
        with _written_remotely(spark, frames, inputs, place):
            yield tuple(frames)
        return
    with translate_errors(None):
        known = [frame._jdf.queryExecution().analyzed() for frame in inputs]
        split = _Written(spark, known, place).split(frames)
    yield split


def _read_back(spark: Any, frame: DataFrame, path: str) -> DataFrame:
    """Write a frame to a path, and return one with the same columns that reads it."""
    names = [f"c{number}" for number in range(len(frame.columns))]
    empty = {n for n, field in zip(names, frame.schema.fields, strict=True) if isinstance(field.dataType, NullType)}
    frame.toDF(*names).drop(*empty).write.parquet(path)
    read = spark.read.parquet(path)
    columns = zip(names, frame.columns, strict=True)
    return read.select(*((F.lit(None) if name in empty else F.col(name)).alias(shown) for name, shown in columns))  # type: ignore[no-any-return]


class _Written:
    """Replacement of shared sub-plans by their materialized rows, in a classic session."""

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
        """Return frames that read their shared sub-plans."""
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
        """Return a plan with its shared sub-plans replaced.

        Args:
            plan: the plan.
            inner: whether it is part of one that was materialized for as many frames.
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
        """Return whether a plan is known to be deterministic."""
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
        """Materialize a plan's rows, and return a plan that reads them, with the same attributes."""
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
"""Operators that add no nondeterminism of their own."""


@contextmanager
def _written_remotely(
    spark: Any, frames: Sequence[Any], inputs: Iterable[Any], place: Callable[[], str]
) -> Iterator[None]:
    """Make the plans of a Connect session, which are trees of Python objects, read their shared sub-plans."""
    ends = {id(frame._plan) for frame in inputs}
    roots = [frame._plan for frame in frames]
    shared = _largest_shared(roots, ends)
    try:
        for plan in shared:
            frame = type(frames[0])(plan, spark)
            with translate_errors(None):
                read: Any = _read_back(spark, frame, place())
            numbers = {number for node in _below(plan, set()) for number in (node._root_plan_id, node._plan_id)}
            plan.plan = partial(_numbered, read._plan, sorted(numbers))
        yield
    finally:
        for plan in shared:
            vars(plan).pop("plan", None)


def _numbered(plan: Any, numbers: Sequence[int], client: Any) -> Any:
    """Return a plan that also has the given plan ids, by which columns refer to their frame."""
    made = plan.plan(client)
    for number in numbers:
        outer = type(made)()
        outer.common.plan_id = number
        outer.filter.input.CopyFrom(made)
        outer.filter.condition.literal.boolean = True
        made = outer
    return made


def _largest_shared(roots: Sequence[Any], inputs: set[int]) -> list[Any]:
    """Return the largest sub-plans that several Connect plans have in common, inner ones first."""
    every = [{id(node): node for node in _below(root, inputs)} for root in roots]
    times = Counter(key for nodes in every for key in nodes)
    wanted: set[int] = set()
    marked: set[tuple[int, int]] = set()

    def mark(plan: Any, above: int) -> None:
        if id(plan) not in inputs and (id(plan), above) not in marked:
            marked.add((id(plan), above))
            if times[id(plan)] > above:
                wanted.add(id(plan))
            for child in _children_of(plan):
                mark(child, max(above, times[id(plan)]))

    for root in roots:
        mark(root, 1)
    found = {key: node for nodes in every for key, node in nodes.items()}
    return [plan for key, plan in found.items() if key in wanted]


def _below(plan: Any, ends: set[int], seen: set[int] | None = None) -> Iterator[Any]:
    """Yield a Connect plan and all nodes below it, inner ones first, down to the given ends."""
    seen = set() if seen is None else seen
    if id(plan) not in ends and id(plan) not in seen:
        seen.add(id(plan))
        for child in _children_of(plan):
            yield from _below(child, ends, seen)
        yield plan


def _children_of(plan: Any) -> Iterator[Any]:
    from pyspark.sql.connect.plan import LogicalPlan  # available only with Spark Connect

    for value in vars(plan).values():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, LogicalPlan):
                yield each
