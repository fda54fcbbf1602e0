"""Rows that a migration removes by a condition, without reading or writing rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.errors import BrokenInvariant
from kilonova.model.encoding import Removal
from kilonova.schedule import planning
from kilonova.service.project import Project, open_project
from tests.seeds import SEED, some

PAGES = "url string, site string, q double, n int"


@pytest.fixture(autouse=True)
def small_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let conditions be recorded for outputs of any size."""
    monkeypatch.setattr(planning, "REMOVAL_MIN", 0)


def web(query: str, *, key: str | None = "url", pages: str = PAGES, reader: str | None = None) -> kn.Workflow:
    made = kn.Workflow("web")
    made.channel("pages", pages, **({} if key is None else {"key": key}))
    made.view("result", query, refresh="incremental")
    if reader is not None:
        made.view("reader", reader)
    return made


def above(threshold: float, columns: str = "url, q, n") -> str:
    return f"SELECT {columns} FROM pages WHERE q > {threshold}"


def ingest(project: Project, first: int, last: int, more: str = "") -> None:
    columns = ["concat('u', id) AS url", "concat('s', id % 7) AS site", f"((id * 37 + {first}) % 100) / 100 AS q"]
    rows = project.warehouse.spark.range(first, last).selectExpr(*columns, "CAST(id % 9 AS int) AS n")
    project.ingest("pages", rows.selectExpr("*", more) if more else rows)


def bag(frame: Any) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, frame.collect()))


def check(project: Project, query: str) -> None:
    """Check that the view has the rows of a query, read in every way."""
    spark = project.warehouse.spark
    expected = bag(spark.sql(query.replace(" pages", " {pages}"), pages=project.read("pages")))
    assert bag(project.read("result")) == expected
    assert Counter(map(tuple, project.rows("result")[1])) == expected


def removals(project: Project) -> list[str]:
    blocks = project.status().channels["result"].blocks
    return [block.encoding.condition for block in blocks if isinstance(block.encoding, Removal)]


def raised(project: Project, *, key: str | None = "url", columns: str = "url, q, n") -> None:
    """Raise the threshold of a view with some rows."""
    project.apply(web(above(0.2, columns), key=key))
    ingest(project, 0, 60)
    project.run()
    ingest(project, 50, 90)
    project.run()
    plan = project.apply(web(above(0.5, columns), key=key))
    (change,) = (task for task in plan.tasks if task.task.name == "result")
    assert change.detail.endswith("removes the rows for which q <= 0.5; reads nothing")
    assert change.migration is not None
    assert change.migration.bytes == 0
    assert project.reader.task_preview("result").reads == ()
    project.run()
    assert removals(project) == ["`q` <= 0.5"]
    check(project, above(0.5, columns))


@pytest.mark.parametrize("key", ["url", None])
def test_a_raised_threshold_is_recorded_as_a_condition(project: Project, key: str | None) -> None:
    raised(project, key=key)
    before = project.status().channels["result"].latest_readable
    for first in (0, 40, 80):  # rows of removed keys come back, too
        ingest(project, first, first + 30)
        project.run()
        check(project, above(0.5))
    project.apply(web(above(0.7), key=key))
    ingest(project, 10, 40)
    project.run()
    assert len(removals(project)) == 2
    check(project, above(0.7))
    state = project.status().channels["result"]
    since = bag(project.read("result", since=before))
    old, new = bag(project.read("result", at=before)), bag(project.read("result"))
    changed = Counter({row: n for row, n in new.items()})
    changed.subtract(old)
    assert since == Counter({(*row, weight): 1 for row, weight in changed.items() if weight})
    project.compact("result")
    assert project.status().channels["result"].snapshot(state.latest_readable).deltas == ()
    project.collect_garbage()
    assert removals(project) == []
    check(project, above(0.7))
    assert not project.fsck().damaged


def test_what_has_been_removed_can_be_read_at_earlier_points(project: Project) -> None:
    raised(project)
    state = project.status().channels["result"]
    *_, before, _ = (point.number for point in state.readable_points)
    pages = project.read("pages")
    expected = project.warehouse.spark.sql(above(0.2).replace(" pages", " {pages}"), pages=pages)
    assert bag(project.read("result", at=before)) == bag(expected)


def test_an_earlier_version_comes_back(project: Project) -> None:
    raised(project)
    project.apply(web(above(0.2)))
    ingest(project, 85, 100)
    project.run()
    check(project, above(0.2))


@pytest.mark.parametrize("again", [False, True])
def test_columns_of_the_condition_are_dropped_and_come_back(project: Project, again: bool) -> None:
    raised(project)
    query = "SELECT url, n FROM pages WHERE q > 0.5"
    project.apply(web(query))
    project.run()
    assert removals(project)
    check(project, query)
    ingest(project, 20, 70)
    project.run()
    check(project, query)
    if again:
        query = "SELECT url, n, n * 1.5D AS q FROM pages WHERE q > 0.5"
        project.apply(web(query))
        ingest(project, 60, 80)
        project.run()
        check(project, query)
    project.compact("result")
    check(project, query)


def test_columns_of_the_condition_are_widened(project: Project) -> None:
    query = "SELECT url, n FROM pages WHERE n > {}"
    project.apply(web(query.format(2)))
    ingest(project, 0, 60)
    project.run()
    project.apply(web(query.format(4)))
    project.run()
    assert removals(project)
    wide = PAGES.replace("n int", "n bigint")
    project.apply(web(query.format(4), pages=wide))
    rows = project.warehouse.spark.range(50, 70).selectExpr(
        "concat('u', id) AS url", "'s' AS site", "0.5D AS q", "id * 100000000000 AS n"
    )
    project.ingest("pages", rows)
    project.run()
    check(project, query.format(4))


def test_rows_are_written_where_their_changes_are_read(project: Project) -> None:
    count = "SELECT count(*) AS c, sum(n) AS s FROM result"
    project.apply(web(above(0.2), reader=count))
    ingest(project, 0, 60)
    project.run()
    plan = project.apply(web(above(0.5), reader=count))
    (change,) = (task for task in plan.tasks if task.task.name == "result")
    assert change.detail.endswith("reads result")
    project.run()
    assert removals(project) == []
    check(project, above(0.5))
    expected = project.warehouse.spark.sql(count.replace("result", "{result}"), result=project.read("result"))
    assert bag(project.read("reader")) == bag(expected)


def test_a_reader_that_comes_later_reads_what_remains(project: Project) -> None:
    raised(project)
    count = "SELECT count(*) AS c, sum(n) AS s FROM result"
    for first in (95, 0):
        project.apply(web(above(0.5), reader=count))
        ingest(project, first, first + 20)
        project.run()
        expected = project.warehouse.spark.sql(count.replace("result", "{result}"), result=project.read("result"))
        assert bag(project.read("reader")) == bag(expected)


ELSEWHERE = {
    "a time that depends on the time zone": ("t", "TIMESTAMP '2026-01-01 00:00:00'"),
    "a text that may be no number": ("CAST(url AS int)", "3"),
    "a quotient": ("1 / n", "0.5"),
}


@pytest.mark.parametrize("condition", some(ELSEWHERE, 3))
def test_conditions_that_may_fail_or_depend_on_the_session_are_evaluated_once(project: Project, condition: str) -> None:
    term, limit = ELSEWHERE[condition]
    pages = PAGES + ", t timestamp"
    query = "SELECT url, n, t FROM pages WHERE n > 0 AND site > 's'"
    changed = f"{query} AND {term} > {limit}"
    project.apply(web(query, pages=pages))
    rows = project.warehouse.spark.range(1, 40).selectExpr(
        "CAST(id AS string) AS url", "'s1' AS site", "0.5D AS q", "CAST(id % 9 AS int) AS n",
        "timestamp_seconds(1760000000 + id * 1000000) AS t",
    )  # fmt: skip
    project.ingest("pages", rows)
    project.run()
    project.apply(web(changed, pages=pages))
    project.run()
    assert removals(project) == []
    check(project, changed)


def test_a_removal_has_no_rows_to_be_read(project: Project) -> None:
    raised(project)
    blocks = project.status().channels["result"].blocks
    (removal,) = (block for block in blocks if isinstance(block.encoding, Removal))
    assert removal.statistics.bytes == removal.statistics.files == 0
    with pytest.raises(BrokenInvariant):
        removal.row_encoding  # noqa: B018


def test_a_lost_catalog_is_recovered_with_its_removals(tmp_path: Path, spark: SparkSession) -> None:
    with open_project(tmp_path, session=spark) as project:
        project.create()
        raised(project)
        expected = bag(project.read("result"))
    for file in (tmp_path / ".kilonova").glob("catalog.db*"):
        file.unlink()
    with open_project(tmp_path, session=spark) as project:
        project.recover()
        assert removals(project)
        assert bag(project.read("result")) == expected
        project.apply(web(above(0.5)))
        ingest(project, 95, 110)
        project.run()
        check(project, above(0.5))


def test_the_condition_of_a_python_task_is_recorded(project: Project) -> None:
    def places(threshold: float) -> kn.Workflow:
        wf = kn.Workflow("places")
        wf.channel("pages", PAGES, key="url")

        @wf.task(schema="url string, q double, n int", key="url", where=f"q >= {threshold}", per_row=True)
        def result(pages: kn.New) -> kn.Delta:
            return pages

        return wf

    project.apply(places(0.2))
    ingest(project, 0, 60)
    project.run()
    for threshold in (0.5, 0.4, 0.6):
        project.apply(places(threshold))
        ingest(project, 20, 50)
        project.run()
        check(project, f"SELECT url, q, n FROM pages WHERE q >= {threshold}")
    assert removals(project) == ["`q` >= 0.2 AND `q` < 0.5", "`q` >= 0.4 AND `q` < 0.6"]


class History:
    """Random changes of the conditions and columns of a view, and of its input.

    Args:
        project: a new project.
        draw: what all that is random follows from.
    """

    CONDITIONS = (
        *(f"q > {limit}" for limit in (0.2, 0.4, 0.6)),
        *("q <= 0.9", "n IN (1, 2, 3, 5)", "n IS NOT NULL", "NOT n < 4", "site <> 's3'", "site BETWEEN 's1' AND 's5'"),
        *("n > 3 OR q < 0.5", "site IS NULL OR site > 's2'", "length(url) > 1", "coalesce(n, 0) < 7"),
    )
    COLUMNS = ("q", "n", "site")

    def __init__(self, project: Project, draw: random.Random) -> None:
        self.project = project
        self.draw = draw
        self.key = draw.choice(["url", None])
        self.grouped = draw.random() < 0.3
        self.conditions = set(draw.sample(self.CONDITIONS, 1))
        self.columns = set(self.COLUMNS)
        self.limit = 1
        self.reader = False

    @property
    def query(self) -> str:
        where = " AND ".join(sorted(self.conditions)) or "TRUE"
        if self.grouped:
            where = where.replace("q ", "max(q) ").replace("n ", "sum(n) ").replace("(n,", "(sum(n),")
            where = where.replace("length(url)", "count(*)")
            having = f"HAVING count(*) > {self.limit} AND {where}"
            return f"SELECT site, max(q) AS q, sum(n) AS n FROM pages GROUP BY site {having}"
        return f"SELECT {', '.join(['url', *sorted(self.columns)])} FROM pages WHERE {where}"

    def apply(self) -> None:
        reader = "SELECT count(*) AS c, sum(length(site)) AS s FROM result" if self.reader else None
        self.project.apply(web(self.query, key=self.key, reader=reader))

    def change(self) -> None:
        kind = self.draw.choice(["tighten", "tighten", "tighten", "loosen", "columns", "limit", "reader"])
        match kind:
            case "tighten":
                self.conditions.add(self.draw.choice(self.CONDITIONS))
            case "loosen":
                self.conditions.discard(self.draw.choice(sorted(self.conditions or {""})))
            case "columns":
                self.columns ^= {self.draw.choice(self.COLUMNS)}
            case "limit":
                self.limit += self.draw.choice([1, 1, -1])
            case "reader":
                self.reader = not self.reader and "site" in (self.COLUMNS if self.grouped else self.columns)
        self.reader &= self.grouped or "site" in self.columns
        self.apply()

    def arrive(self) -> None:
        first = self.draw.randrange(60)
        rows = [
            (f"u{number}", *(self.draw.choice([None, value]) if self.draw.random() < 0.2 else value for value in row))
            for number in range(first, first + self.draw.randrange(1, 20))
            for row in [(f"s{self.draw.randrange(7)}", self.draw.random(), self.draw.randrange(9))]
        ]
        self.project.ingest("pages", self.project.warehouse.spark.createDataFrame(rows, PAGES))

    def tidy(self) -> None:
        if self.project.status().channels["result"].latest_distinct:
            self.project.compact("result", deltas=self.draw.random() < 0.5)
        self.project.collect_garbage()

    def follow(self, steps: int) -> None:
        self.apply()
        self.arrive()
        for _ in range(steps):
            self.draw.choice([self.arrive, self.change, self.change, self.project.run, self.project.run, self.tidy])()
        self.project.run()
        check(self.project, self.query)
        if self.reader:
            found = bag(self.project.read("reader"))
            rows = self.project.rows("result")[1]
            place = self.project.read("result").columns.index("site")
            lengths = [len(row[place]) for row in rows if row[place] is not None]
            assert found == Counter([(len(rows), sum(lengths) if lengths else None)])


@pytest.mark.parametrize("number", some(range(8), 2))
def test_views_have_the_rows_of_their_present_conditions(project: Project, number: int) -> None:
    History(project, random.Random(f"{SEED}/{number}")).follow(steps=12)
