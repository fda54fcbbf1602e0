"""Analysis of views by Spark before they are registered: names, types and rules, without a job.

For each new or changed view that reads channels of known columns, Spark's analyser checks the query that recomputes it,
and the queries of its change as if its inputs had changed. The columns that the analyser finds are those of the view,
so that views over views can be analysed before any of them has run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Generic

from pyspark.errors import PySparkException

from kilonova.engine.interfaces import Frame, WarehouseInterface
from kilonova.errors import KilonovaError, QueryError
from kilonova.model.channel import Channel
from kilonova.model.encoding import Changes, delta_schema
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Task, Variant
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.properties import single
from kilonova.query.view_tasks import change_of, delta_of, known_of
from kilonova.warehouse.spark_errors import summarize_error, translate_errors

_MOVED = 3
"""Maximum number of a view's inputs that are assumed to have changed: the analysed query has a term for each."""


def analyse_views(
    warehouse: WarehouseInterface[Frame],
    tasks: Iterable[Task],
    channels: Mapping[str, Channel],
    complete: Mapping[str, Schema],
    anew: Collection[str],
) -> dict[str, str]:
    """Analyse views with Spark.

    Args:
        warehouse: executes SQL.
        tasks: the tasks of a workflow, each after those that it reads from.
        channels: the channels that they read and write.
        complete: the columns of channels, state columns included, as far as they are known.
        anew: the names of the tasks that are new or changed.

    Returns:
        By the names of tasks, why a view cannot be maintained incrementally although it can be recomputed.

    Raises:
        QueryError: Spark rejects the query of a view, or the query of its change if its refresh must be incremental.
    """
    found: dict[str, str] = {}
    analysis = _Analysis(warehouse, channels, complete)
    for task in tasks:
        if task.view is not None and (task.name in anew or task.name not in analysis.complete):
            try:
                problem = analysis.problem(task)
            except KilonovaError as error:
                if task.name in anew:
                    raise error.with_context(task=task.name) from error.__cause__
                continue
            if problem is not None and task.name in anew:
                found[task.name] = problem
    return found


class _Analysis(Generic[Frame]):
    def __init__(
        self, warehouse: WarehouseInterface[Frame], channels: Mapping[str, Channel], complete: Mapping[str, Schema]
    ) -> None:
        self._warehouse = warehouse
        self._channels = channels
        self.complete = dict(complete)
        self._single: set[str] = set()

    def problem(self, task: Task) -> str | None:
        """Analyse a view; return why it cannot be maintained incrementally, or None."""
        (name,) = task.writes
        self.complete.pop(name, None)
        whole = next(each for each in task.variants if not each.logic.derived)
        if any(port.channel not in self.complete for port in whole.ports):
            return None
        frames = {port.name: self._frame(self.complete[port.channel].user_columns) for port in whole.ports}
        self.complete[name] = self._columns(whole.logic.text, frames)
        change = next((each for each in task.variants if each.logic.derived), None)
        if change is None:
            return None
        try:
            self._analyse_change(task, change)
        except Exception as error:  # whatever it is, the view can be recomputed
            if change is task.variants[0]:
                raise
            return str(error) or type(error).__name__
        return None

    def _analyse_change(self, task: Task, change: Variant) -> None:
        (name,) = task.writes
        channels = {
            each: replace(self._channels[each], schema=self.complete[each].user_columns) for each in (*task.reads, name)
        }
        complete = self.complete[name]
        modes = {port.name: (port.channel, port.mode) for port in change.ports}
        found = MaintenanceContext(
            moved=frozenset(task.reads[:_MOVED]),
            sizes={},
            layered=frozenset(each for each, channel in channels.items() if isinstance(channel.encoding, Changes)),
        )
        logic = change_of(task)
        assert logic is not None
        known = known_of(channels, self._single)
        if single(logic.tree, known):
            self._single.add(name)
        for situation in (found, replace(found, again=True)) if complete.state_columns.columns else (found,):
            delta = delta_of(logic.tree, channels[name], complete, known, situation)
            if delta is None:
                continue
            frames = {}
            for each, read in delta.reads.items():
                channel, mode = modes[read.port]
                weighs = read.weighed or mode in (Mode.CHANGES, Mode.INSERTS)
                columns = self.complete[channel]
                frames[each] = self._frame(delta_schema(Changes(), columns) if weighs else columns)
            self._columns(delta.sql, frames)

    def _frame(self, columns: Schema) -> Frame:
        channel = SnapshotRead(at=0, schema=columns, encoding=Changes(), base=None, deltas=())
        return self._warehouse.open(channel)

    def _columns(self, sql: str, frames: Mapping[str, Frame]) -> Schema:
        try:
            with translate_errors(None):
                return self._warehouse.schema_of(self._warehouse.sql(sql, frames))
        except PySparkException as error:
            raise QueryError(f"Spark rejects its query: {summarize_error(error)}", hint="Correct the query") from error
