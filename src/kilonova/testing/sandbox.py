"""Workflows under test: a project in a temporary directory, and the check of variants."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kilonova.catalog.planner_input import load_planner_input
from kilonova.declare.workflow import Workflow
from kilonova.errors import NotFound, SchemaMismatch, TaskFailed, closest_name
from kilonova.model.encoding import Append, Upsert, delta_schema
from kilonova.model.schema import Schema
from kilonova.model.task import Task
from kilonova.service.project import Project, open_project
from kilonova.testing.recompute import count_differences, from_nothing
from kilonova.warehouse.blocks import column

Rows = DataFrame | Sequence[Mapping[str, Any]]


class Sandbox:
    """Workflow in a temporary project that is deleted after the test.

    Args:
        project: the temporary project.
    """

    def __init__(self, project: Project) -> None:
        self.project = project

    def ingest(self, channel: str, rows: Rows) -> None:
        """Insert rows, given as a DataFrame or as dictionaries, as a delta in the channel's encoding.

        Args:
            channel: the channel.
            rows: the rows; dictionaries may leave out columns, which are null then, and use former names of columns.
                A column that no dictionary has is left out.

        Raises:
            SchemaMismatch: a dictionary has a column that the channel does not have, or a value of another type.
            KilonovaError: as for `Project.ingest`.
        """
        self.project.ingest(channel, self._frame(channel, rows))

    def run(self, *tasks: str) -> dict[str, int | None]:
        """Run the tasks that are due, or the named ones.

        Args:
            tasks: the names of tasks, views or bindings.

        Returns:
            Rows written per channel; None where nothing changed; empty if nothing was due.
        """
        report = self.project.run(tasks or None)
        made = () if report is None else report.made
        return {item.channel: item.rows for item in made}

    def rows(self, channel: str) -> list[dict[str, Any]]:
        """Return the rows of a channel, sorted, as dictionaries.

        Args:
            channel: the channel.
        """
        names, rows = self.project.rows(channel)
        return [dict(zip(names, row, strict=True)) for row in sorted(rows, key=repr)]

    def _frame(self, channel: str, rows: Rows) -> DataFrame:
        if isinstance(rows, DataFrame):
            return rows
        with self.project.catalog.reading() as tx:
            states = load_planner_input(tx).channels
        if channel not in states:
            raise NotFound("there is no such channel", channel=channel, hint=closest_name(channel, list(states)))
        known = states[channel].channel
        if known.schema is None:
            problem, hint = "the columns of the channel are not known yet", "Declare them, or give a DataFrame"
            raise SchemaMismatch(problem, channel=channel, hint=hint)
        usual = delta_schema(known.encoding, known.schema)
        accepted = usual.plus(*((old, usual.type_of(new)) for old, new in known.rules.rename))
        given = dict.fromkeys(name for row in rows for name in row)
        for name in given:
            if name not in accepted.names:
                near = closest_name(name, list(accepted.names))
                raise SchemaMismatch("there is no such column", channel=channel, column=name, hint=near)
        columns = accepted.only(tuple(given)) if given else usual
        records = [tuple(row.get(name) for name in columns.names) for row in rows]
        try:
            return self._created(records, columns)
        except _MISFITS as error:
            raise self._misfit(records, columns, error).with_context(channel=channel) from None

    def _created(self, records: list[tuple[Any, ...]], columns: Schema) -> DataFrame:
        return self.project.warehouse.spark.createDataFrame(records, columns.ddl)

    def _misfit(self, records: list[tuple[Any, ...]], columns: Schema, error: Exception) -> SchemaMismatch:
        """Return the error of the first value that does not fit the type of its column."""
        for record in records:
            for value, item in zip(record, columns.columns, strict=True):
                try:
                    self._created([(value,)], Schema((item,)))
                except _MISFITS:
                    wanted = _PYTHON_TYPES.get(re.split(r"[(<]", item.type)[0], "a value of that type")
                    return SchemaMismatch(
                        f"the value {value!r} is not of the type {item.type}",
                        column=item.name,
                        hint=f"Write it as {wanted}",
                    )
        return SchemaMismatch(f"the rows do not have the types {columns.ddl}: {error}", hint="Give a DataFrame")


_MISFITS = (PySparkException, TypeError, ValueError, ArithmeticError)
"""Errors of creating a DataFrame from values of wrong types."""

_PYTHON_TYPES = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "an int within the range of the type"),
    **dict.fromkeys(("float", "double"), "a float"),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "a datetime.datetime"),
    "array": "a list",
    "binary": "bytes",
    "boolean": "a bool",
    "date": "a datetime.date",
    "decimal": "a decimal.Decimal",
    "map": "a dict",
    "struct": "a dict",
}
"""Python types of values, by the names of Spark's types."""


@contextmanager
def sandbox(workflow: Workflow, session: SparkSession | None = None) -> Iterator[Sandbox]:
    """Open a workflow in a temporary project, as a context manager.

    Args:
        workflow: the workflow.
        session: the session to use; by default one is started.
    """
    with (
        tempfile.TemporaryDirectory(prefix="kilonova-") as place,
        open_project(Path(place), session=session) as project,
    ):
        project.create()
        project.apply(workflow)
        yield Sandbox(project)


def check_variants(
    workflow: Workflow,
    task: str,
    data: Mapping[str, DataFrame],
    *,
    batches: int = 3,
    seed: int = 0,
    session: SparkSession | None = None,
) -> None:
    """Check that all variants of a task agree: M(B(V₁), Δ(V₁→V₂)) = B(V₂) (logic evolution, section 2.4).

    The rows of every input arrive in random batches; some rows of keyed inputs arrive early, are deleted and
    added again. After each batch the task runs as it would in service, and its output is compared with the output of
    every variant for all rows that have arrived, in one step from nothing.

    Args:
        workflow: the workflow that declares the task.
        task: the task.
        data: the rows of each channel that the task reads.
        batches: number of batches in which they arrive.
        seed: random seed of the batches.
        session: the session to use; by default one is started.

    Raises:
        NotFound: there is no such task, or an input has no data.
        TaskFailed: a variant disagrees; the message names it, and the number of differing rows.
    """
    value = workflow.declared().workflow
    found = next((item for item in value.tasks if item.name == task), None)
    if found is None:
        raise NotFound("there is no such task", task=task, hint=closest_name(task, [t.name for t in value.tasks]))
    for channel in found.reads:
        if channel not in data:
            raise NotFound(
                "the task reads the channel, and no data is given for it",
                channel=channel,
                task=task,
                hint="Add its rows to data",
            )
    with sandbox(workflow.only(task), session) as box:
        parts = {channel: _batches(box, channel, data[channel], batches, seed) for channel in found.reads}
        for number in range(batches):
            for channel in found.reads:
                for part in parts[channel][number]:
                    box.project.ingest(channel, part)
            box.run()
            _compare(box.project, found, number)


def _batches(box: Sandbox, channel: str, rows: DataFrame, count: int, seed: int) -> list[list[DataFrame]]:
    """Return the blocks of a channel per batch; for keyed channels with rows that are deleted and added again."""
    generator = random.Random(f"{seed} {channel}")
    with box.project.catalog.reading() as tx:
        states = load_planner_input(tx).channels
    encoding, sequence_by = states[channel].channel.encoding, states[channel].channel.sequence_by
    order = F.pmod(F.xxhash64(F.lit(generator.getrandbits(40)), *map(column, rows.columns)), F.lit(count))
    dealt = rows.withColumn("_batch", order).localCheckpoint()
    parts: list[list[DataFrame]] = [[dealt.where(column("_batch") == n).drop("_batch")] for n in range(count)]
    if isinstance(encoding, Upsert) and sequence_by is None and count > 2:
        early = parts[0][0].where(F.pmod(F.xxhash64(*map(column, encoding.key)), F.lit(4)) == 0)
        parts[1].insert(0, early.withColumn("_deleted", F.lit(True)))
        parts[-1].append(early)
    elif not isinstance(encoding, Append | Upsert):
        parts = [[rows.limit(0)] for _ in range(count - 1)] + [[rows]]
    return parts


def _compare(project: Project, task: Task, batch: int) -> None:
    with project.catalog.reading() as tx:
        observed = load_planner_input(tx)
    known, states = observed.newest[task.name], observed.channels
    if not known.started:
        return
    relations = {
        name: project.warehouse.open(states[name].snapshot(states[name].latest_readable)) for name in task.reads
    }
    for variant in known.task.variants:
        made = from_nothing(project, known, variant, states, relations)
        for channel, frame in zip(task.writes, made, strict=True):
            count = count_differences(project.read(channel), frame)
            if count:
                raise TaskFailed(
                    f"after batch {batch + 1} the channel {channel} differs in {count} rows from the "
                    f"result of the variant {variant.name} in one step",
                    task=task.name,
                    hint="One of the variants is wrong",
                )
