"""Analysis of views by Spark before they are registered: names, types and rules, without a job.

Of each new or changed view that reads channels of known columns, Spark's analyser sees the query that makes it anew,
and the queries of its change as if what it reads had changed. The columns that the analyser finds are those of the
view, so that views over views can be analysed before any of them has run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Generic

from pyspark.errors import PySparkException

from kilonova.engine.invoke import reason
from kilonova.engine.seam import Frame, Warehouse
from kilonova.errors import KilonovaError, QueryError
from kilonova.model.channel import Channel
from kilonova.model.encoding import Changes, delta_schema
from kilonova.model.reading import Snapshot
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Query, Sql, Task, Variant
from kilonova.query.maintaining import Situation
from kilonova.query.tasks import FULL, delta_of, has_one_row, known_of
from kilonova.warehouse.jobs import translated

_MOVED = 3
"""How many of the channels that a view reads are taken to have changed: the analysed query has a term for each."""


def is_view(task: Task) -> bool:
    """Return whether a task keeps a view, or what a view needs."""
    return _whole(task) is not None


def _whole(task: Task) -> Variant | None:
    return next((each for each in task.variants if each.name == FULL and isinstance(each.logic, Sql)), None)


def analysed(
    warehouse: Warehouse[Frame],
    tasks: Iterable[Task],
    channels: Mapping[str, Channel],
    complete: Mapping[str, Schema],
    anew: Collection[str],
) -> dict[str, str]:
    """Have Spark analyse views.

    Args:
        warehouse: executes SQL.
        tasks: the tasks of a workflow, each after those that it reads from.
        channels: the channels that they read and write.
        complete: the columns of channels, those stored beside them included, as far as they are known.
        anew: the names of the tasks that are new or changed.

    Returns:
        By the names of tasks, why the change of a view cannot be followed although the view can be made anew.

    Raises:
        QueryError: Spark refuses the query of a view, or the query of its change where that is always to be followed.
    """
    found: dict[str, str] = {}
    analysis = _Analysis(warehouse, channels, complete)
    for task in tasks:
        if is_view(task) and (task.name in anew or task.name not in analysis.complete):
            try:
                problem = analysis.problem(task)
            except KilonovaError as error:
                if task.name in anew:
                    raise error.within(task=task.name) from error.__cause__
                continue
            if problem is not None and task.name in anew:
                found[task.name] = problem
    return found


class _Analysis(Generic[Frame]):
    def __init__(
        self, warehouse: Warehouse[Frame], channels: Mapping[str, Channel], complete: Mapping[str, Schema]
    ) -> None:
        self._warehouse = warehouse
        self._channels = channels
        self.complete = dict(complete)
        self._single: set[str] = set()

    def problem(self, task: Task) -> str | None:
        """Have a view analysed; return why its change cannot be followed."""
        (name,) = task.writes
        self.complete.pop(name, None)
        whole = _whole(task)
        assert whole is not None
        if any(port.channel not in self.complete for port in whole.ports):
            return None
        frames = {port.name: self._frame(self.complete[port.channel].visible) for port in whole.ports}
        assert isinstance(whole.logic, Sql)
        self.complete[name] = self._columns(whole.logic.text, frames)
        change = next((each for each in task.variants if isinstance(each.logic, Query)), None)
        if change is None:
            return None
        try:
            self._analyse_change(task, change)
        except Exception as error:  # whatever it is, the view can be made anew
            if change is task.variants[0]:
                raise
            return str(error) or type(error).__name__
        return None

    def _analyse_change(self, task: Task, change: Variant) -> None:
        (name,) = task.writes
        channels = {each: self._known(each) for each in (*task.reads, name)}
        complete = self.complete[name]
        modes = {port.name: (port.channel, port.mode) for port in change.ports}
        found = Situation(
            moved=frozenset(task.reads[:_MOVED]),
            sizes={},
            layered=frozenset(each for each, channel in channels.items() if isinstance(channel.encoding, Changes)),
        )
        assert isinstance(change.logic, Query)
        known = known_of(channels, self._single)
        if has_one_row(change.logic.text, known):
            self._single.add(name)
        for situation in (found, replace(found, again=True)) if complete.kept.columns else (found,):
            delta = delta_of(change.logic.text, channels[name], complete, known, situation)
            if delta is None:
                continue
            frames = {}
            for each, read in delta.reads.items():
                channel, mode = modes[read.port]
                weighs = read.weighed or mode in (Mode.CHANGES, Mode.INSERTS)
                columns = self.complete[channel]
                frames[each] = self._frame(delta_schema(Changes(), columns) if weighs else columns)
            self._columns(delta.sql, frames)

    def _known(self, name: str) -> Channel:
        return replace(self._channels[name], schema=self.complete[name].visible)

    def _frame(self, columns: Schema) -> Frame:
        channel = Snapshot(at=0, schema=columns, encoding=Changes(), base=None, deltas=())
        return self._warehouse.open(channel)

    def _columns(self, sql: str, frames: Mapping[str, Frame]) -> Schema:
        try:
            with translated(None):
                return self._warehouse.schema_of(self._warehouse.sql(sql, frames))
        except PySparkException as error:
            raise QueryError(f"Spark refuses its query: {reason(error)}") from error
