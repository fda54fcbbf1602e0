"""Random histories of views whose queries change, on Spark: their rows are those of their present queries.

Data arrive between the changes, versions are passed over before they have run, channels are compacted, blocks are
collected, earlier queries come back, and runs are interrupted.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.engine.executor import _Execution
from kilonova.errors import DeclarationError, KilonovaError, QueryError
from kilonova.schedule import planning
from kilonova.service.project import Project, open_project
from tests.query.edits import Editor
from tests.query.generator import Generator
from tests.query.histories import KEYED, TABLES, row
from tests.seeds import SEED, some

Bag = Counter[tuple[Any, ...]]


class _Interrupted(KilonovaError):
    """Raised instead of executing a task."""


class History:
    """One history.

    Args:
        project: a new project.
        seed: what all that is random follows from.
    """

    def __init__(self, project: Project, seed: str) -> None:
        self.project = project
        self.draw = random.Random(seed)
        self.edits = Editor(self.draw.randrange(1 << 30))
        self.queries = [Generator(self.draw.randrange(1 << 30)).query(depth=1)]
        self.applied = self.queries[0]
        self.counted = self.draw.random() < 0.5
        self.said: list[str] = []

    def workflow(self, query: str) -> kn.Workflow:
        wf = kn.Workflow("history")
        for name in TABLES:
            if name in KEYED:
                wf.channel(name, ddl_of(name), key="k")
            else:
                wf.channel(name, ddl_of(name), encoding="append" if name == "g" else "changes")
        wf.view("v", query)
        if self.counted:
            wf.view("counted", "SELECT count(*) AS n FROM v")
        return wf

    def step(self) -> None:
        """Do something at random."""
        step = self.draw.choice([self.arrive, self.arrive, self.change, self.change, self.run, self.run, self.tidy])
        self.said.append(step.__name__)
        step()

    def arrive(self) -> None:
        name = self.draw.choice(list(TABLES))
        keys = self.draw.sample(range(12), 4)
        rows = [row(self.draw, name, key) for key in keys]
        ddl = ddl_of(name)
        if name == "r":
            gone = [each for each in map(tuple, self.project.rows("r")[1]) if self.draw.random() < 0.2]
            changes = Counter(rows)
            changes.subtract(Counter(gone))
            rows = [(*each, weight) for each, weight in changes.items() if weight]
            ddl += ", _weight bigint"
        if rows:
            self.project.ingest(name, self.project.warehouse.spark.createDataFrame(rows, ddl))

    def change(self) -> None:
        counted = self.counted
        self.counted = self.draw.random() < 0.2 or counted
        if self.draw.random() < 0.2:
            query = self.draw.choice(self.queries)
        else:
            query, kinds = self.edits.edited(self.applied, self.draw.choice([1, 1, 2]))
            self.said.append(", ".join(kinds))
        try:
            self.project.apply(self.workflow(query))
        except (DeclarationError, QueryError):  # an edit may leave a query that is none
            self.counted = counted
            return
        self.queries.append(query)
        self.applied = query

    def run(self) -> None:
        if self.draw.random() < 0.15:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_Execution, "_record", self._interrupting(_Execution._record))
                self.project.run_each()
        self.project.run()
        self.check()

    def _interrupting(self, record: Any) -> Any:
        left = self.draw.randrange(3)

        def interrupted(*args: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise _Interrupted("interrupted")
            record(*args)

        return interrupted

    def tidy(self) -> None:
        for name in [*TABLES, "v"]:
            if self.draw.random() < 0.4 and self.project.status().channels[name].latest_distinct:
                self.project.compact(name)
        self.project.collect_garbage()

    def check(self) -> None:
        """Compare the views with what Spark makes of their queries."""
        spark = self.project.warehouse.spark
        frames = {name: self.project.read(name) for name in TABLES}
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        expected = spark.sql(self.applied)
        found = self.project.read("v")
        assert found.columns == expected.columns, self.told()
        assert bag(found) == bag(expected), self.told()
        if self.counted:
            assert [each[0] for each in self.project.rows("counted")[1]] == [expected.count()], self.told()

    def told(self) -> str:
        runs = [f"{made.channel}: {made.reason}" for run in self.project.runs(6) for made in run.made]
        return "\n".join([*self.said, *self.queries, *runs])


def ddl_of(table: str) -> str:
    return ", ".join(f"{column} {kind}" for column, kind in TABLES[table].items())


def bag(frame: Any) -> Bag:
    return Counter(map(repr, map(tuple, frame.collect())))  # type: ignore[return-value]


def follow(spark: SparkSession, place: Path, seed: str, steps: int, kind: type[History] = History) -> tuple[int, int]:
    """Follow a history of a kind, and return how many times an output was migrated, and recomputed after a change.

    Conditions of removed rows are recorded for outputs of any size.
    """
    with open_project(place, session=spark) as project, pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "REMOVAL_MIN", 0)
        project.create()
        history = kind(project, seed)
        project.apply(history.workflow(history.applied))
        for name in TABLES:
            rows = [row(history.draw, name, key) for key in range(5)]
            project.ingest(name, spark.createDataFrame(rows, ddl_of(name)))
        history.run()
        for _ in range(steps):
            history.step()
        history.run()
        reasons = [made.reason for run in project.runs(1000) for made in run.made]
        return (
            sum(reason.startswith("migration") for reason in reasons),
            sum("is new" in reason for reason in reasons),
        )


@pytest.mark.parametrize("number", some(range(4), 1))
def test_views_have_the_rows_of_their_present_queries(spark: SparkSession, tmp_path: Path, number: int) -> None:
    follow(spark, tmp_path, f"{SEED}/{number}", steps=10)
