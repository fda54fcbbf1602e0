"""Columns that a migration renames, without reading or writing rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.model.encoding import Removal
from kilonova.schedule import planning
from kilonova.service.project import Project, open_project
from tests.seeds import SEED, some

PAGES = "url string, site string, q double, n int"

Bag = Counter[tuple[Any, ...]]


def web(query: str, *, key: str | None = "url", **readers: str) -> kn.Workflow:
    made = kn.Workflow("web")
    made.channel("pages", PAGES, **({"encoding": "changes"} if key is None else {"key": key}))
    made.view("result", query, refresh="incremental")
    for name, text in readers.items():
        made.view(name, text)
    return made


def ingest(project: Project, first: int, last: int) -> None:
    columns = ["concat('u', id) AS url", "concat('s', id % 7) AS site", f"((id * 37 + {first}) % 100) / 100 AS q"]
    project.ingest("pages", project.warehouse.spark.range(first, last).selectExpr(*columns, "CAST(id % 9 AS int) AS n"))


def bag(frame: Any) -> Bag:
    return Counter(map(tuple, frame.collect()))


def expected(project: Project, query: str, at: int | None = None) -> tuple[list[str], Bag]:
    """Return the columns and the rows of a query, as Spark computes it."""
    when = {} if at is None else {"at": at}
    found = project.warehouse.spark.sql(query.replace(" pages", " {pages}"), pages=project.read("pages", **when))
    return found.columns, bag(found)


def check(project: Project, query: str) -> None:
    """Check that the view has the columns and rows of a query, read in every way."""
    columns, rows = expected(project, query)
    found = project.read("result")
    assert (found.columns, bag(found)) == (columns, rows)
    names, values = project.rows("result")
    assert ([*names], Counter(map(tuple, values))) == (columns, rows)


def change(project: Project, query: str, **how: Any) -> str:
    """Change the query of the view, run it, and return what its plan says."""
    plan = project.apply(web(query, **how))
    project.run()
    check(project, query)
    (changed,) = (task for task in plan.tasks if task.task.name == "result")
    return changed.detail.rpartition("; ")[0].rpartition(": ")[2] if "reads nothing" in changed.detail else ""


def written(project: Project) -> int:
    """Return how many rows the last run has written."""
    return sum(made.rows or 0 for made in project.runs(1)[0].made)


@pytest.mark.parametrize("key", ["url", None])
def test_a_renamed_column_is_neither_read_nor_written(project: Project, key: str | None) -> None:
    project.apply(web("SELECT url, site, q FROM pages", key=key))
    ingest(project, 0, 50)
    project.run()
    ingest(project, 40, 60)
    project.run()
    before = project.status().channels["result"].latest_readable
    shown = expected(project, "SELECT url, site, q FROM pages")
    query = "SELECT url, site AS host, q AS quality FROM pages"
    assert change(project, query, key=key) == "renames site to host, q to quality"
    assert written(project) == 0
    (changed, _) = project.reader.schemas("result")
    assert [(old.name, new.name) for old, new in changed.changed] == [("site", "host"), ("q", "quality")]
    assert (changed.added, changed.dropped) == ((), ())
    for first in (0, 55):
        ingest(project, first, first + 20)
        project.run()
        check(project, query)
    early = project.read("result", at=before)
    assert (early.columns, bag(early)) == shown
    since = project.read("result", since=before)
    assert since.columns == ["url", "host", "quality", "_weight"]
    project.compact("result")
    project.collect_garbage()
    check(project, query)
    assert not project.fsck().damaged


def test_names_are_exchanged_given_to_others_and_taken_back(project: Project) -> None:
    project.apply(web("SELECT url, site, q, n FROM pages"))
    ingest(project, 0, 50)
    project.run()
    assert change(project, "SELECT url, site, n AS q, q AS n FROM pages") == "renames n to q, q to n"
    ingest(project, 40, 60)
    project.run()
    assert change(project, "SELECT url, site, q FROM pages") == "renames n to q and drops q"
    change(project, "SELECT url, site, q, length(site) AS n FROM pages")
    assert change(project, "SELECT url, site AS n, q FROM pages") == "renames site to n and drops n"
    ingest(project, 50, 70)
    project.run()
    project.compact("result")
    assert change(project, "SELECT url, site, q FROM pages") == "renames n to site"


def test_readers_of_changes_see_the_column_change(project: Project) -> None:
    project.apply(
        web("SELECT url, site, q FROM pages", sites="SELECT site, count(*) AS pages FROM result GROUP BY site")
    )
    ingest(project, 0, 50)
    project.run()
    reader = "SELECT host, count(*) AS pages FROM result GROUP BY host"
    assert change(project, "SELECT url, site AS host, q FROM pages", sites=reader) == ""
    assert sum(row.pages for row in project.read("sites").collect()) == 50
    assert project.read("sites").where("host IS NULL").count() == 0


def test_a_key_is_not_renamed_by_reference(project: Project) -> None:
    project.apply(web("SELECT url, site, q FROM pages"))
    ingest(project, 0, 50)
    project.run()
    assert change(project, "SELECT url AS address, site, q FROM pages") == ""


def test_columns_of_removals_and_of_deltas_of_columns_are_renamed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "REMOVAL_MIN", 0)
    project.apply(web("SELECT url, site, q, n FROM pages WHERE q > 0.1"))
    ingest(project, 0, 50)
    project.run()
    change(project, "SELECT url, site, q, n FROM pages WHERE q > 0.3")
    blocks = project.status().channels["result"].blocks
    assert any(isinstance(block.encoding, Removal) for block in blocks)
    change(project, "SELECT url, site, q, n * 2 AS n FROM pages WHERE q > 0.3")
    assert change(project, "SELECT url, site AS q, q AS site, n * 2 AS m FROM pages WHERE q > 0.3")
    change(project, "SELECT url, site AS q, q AS site, n * 2 AS m FROM pages WHERE q > 0.6")
    ingest(project, 30, 70)
    project.run()
    project.compact("result")
    check(project, "SELECT url, site AS q, q AS site, n * 2 AS m FROM pages WHERE q > 0.6")


@pytest.mark.parametrize("key", ["url", None])
def test_columns_are_renamed_together_with_other_changes(
    project: Project, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.setattr(planning, "REMOVAL_MIN", 0)
    project.apply(web("SELECT url, site, q, n FROM pages WHERE q > 0.1", key=key))
    ingest(project, 0, 50)
    project.run()
    for query, said in (
        ("SELECT url, site AS host, n, q FROM pages WHERE q > 0.3", "renames site to host and removes"),
        (
            "SELECT url, n AS links, host, q FROM (SELECT *, site AS host FROM pages) WHERE q > 0.2",
            "renames n to links",
        ),
        ("SELECT url, n * 2 AS n, n AS links, site AS q FROM pages WHERE q > 0.2", "host to q and computes n from"),
    ):
        plan = project.apply(web(query, key=key))
        ingest(project, 200 + len(query), 210 + len(query))
        project.run()
        check(project, query)
        (changed,) = (task for task in plan.tasks if task.task.name == "result")
        assert said in changed.detail or key is None, changed.detail
        if "removes" in said:
            assert any(isinstance(each.encoding, Removal) for each in project.status().channels["result"].blocks)
    project.compact("result")
    check(project, query)


def test_only_what_a_loosened_condition_adds_is_read_with_a_renamed_column(project: Project) -> None:
    project.apply(web("SELECT url, site, q FROM pages WHERE q > 0.5"))
    ingest(project, 0, 100)
    project.run()
    query = "SELECT url, site AS host, q FROM pages WHERE q > 0.4"
    plan = project.plan(web(query))
    (changed,) = (task for task in plan.tasks if task.task.name == "result")
    assert changed.detail.endswith("renames site to host and adds the rows for which q > 0.4 AND q <= 0.5; reads pages")
    project.apply(web(query))
    project.run()
    check(project, query)
    assert written(project) == 10


def test_groups_have_other_rows_and_other_names(project: Project) -> None:
    project.apply(web("SELECT site, count(*) AS pages, sum(n) AS links FROM pages WHERE q > 0.1 GROUP BY site"))
    ingest(project, 0, 50)
    project.run()
    query = "SELECT site, count(*) AS n, sum(n) AS links FROM pages WHERE q > 0.2 GROUP BY site"
    plan = project.apply(web(query))
    assert any("renames pages to n" in task.detail for task in plan.tasks), [task.detail for task in plan.tasks]
    project.run()
    check(project, query)
    ingest(project, 10, 80)
    project.run()
    check(project, query)


def test_groups_are_kept_up_to_date_under_other_names(project: Project) -> None:
    project.apply(web("SELECT site, count(*) AS pages, sum(n) AS links FROM pages GROUP BY site"))
    ingest(project, 0, 50)
    project.run()
    query = "SELECT site, count(*) AS n, sum(n) AS links FROM pages GROUP BY site"
    change(project, query)
    ingest(project, 10, 80)
    project.run()
    check(project, query)


def test_a_renamed_column_survives_the_recovery_of_the_catalog(tmp_path: Path, spark: SparkSession) -> None:
    query = "SELECT url, site AS host, q FROM pages"
    with open_project(tmp_path, session=spark) as project:
        project.create()
        project.apply(web("SELECT url, site, q FROM pages"))
        ingest(project, 0, 50)
        project.run()
        assert change(project, query)
        rows = bag(project.read("result"))
    for each in tmp_path.glob("kilonova.db*"):
        each.unlink()
    with open_project(tmp_path, session=spark) as project:
        project.recover()
        assert bag(project.read("result")) == rows
        assert project.read("result").columns == ["url", "host", "q"]


def news(columns: str, query: str | None = None, **how: Any) -> kn.Workflow:
    made = kn.Workflow("news")
    made.channel("articles", columns, **how)
    if query is not None:
        made.view("shown", query)
    return made


def arrive(project: Project, columns: str, *rows: tuple[Any, ...]) -> None:
    project.ingest("articles", project.warehouse.spark.createDataFrame(list(rows), columns))


@pytest.mark.parametrize("kind", some(["int", "bigint"], 1))
@pytest.mark.parametrize("at_once", some([True, False], 1))
@pytest.mark.parametrize(
    "how",
    some([{}, {"key": "id"}, {"encoding": "changes"}, {"key": "id", "encoding": "columns"}], 2),
    ids=lambda how: " ".join(how.values()) or "append",
)
def test_rows_of_a_source_keep_the_values_of_a_column_with_a_former_name(
    project: Project, how: dict[str, Any], kind: str, at_once: bool, tmp_path: Path
) -> None:
    before, after = "id bigint, headline string, n int", f"id bigint, n {kind}, title string"
    project.apply(news(before, "SELECT id, headline FROM articles", **how))
    arrive(project, before, (1, "a", 1), (2, "b", 2))
    project.run()
    project.apply(news(before, "SELECT id, headline FROM articles", **how))
    arrive(project, before, (3, "c", 3), (2, "B", 4))
    rename = {"headline": "title"}
    plan = project.apply(news(after, "SELECT id, title AS headline FROM articles", rename=rename, **how))
    (change,) = (each for each in plan.channels if each.channel.name == "articles")
    assert change.detail.startswith("renames the column headline to title")
    rows = {(1, 1, "a"), (2, 4, "B"), (3, 3, "c")} | ({(2, 2, "b")} if "key" not in how else set())
    assert {*map(tuple, project.read("articles").collect())} == rows
    if at_once:
        project.run()
    file = tmp_path / "old.csv"
    file.write_text("id,headline,n\n5,e,5\n")
    project.ingest("articles", str(file))
    arrive(project, after, (6, 6, "f"))
    rows |= {(5, 5, "e"), (6, 6, "f")}
    project.run()
    for _ in range(2):
        assert {*map(tuple, project.read("articles").collect())} == rows
        assert {*map(tuple, project.rows("articles")[1])} == rows
        assert {*map(tuple, project.read("shown").collect())} == {(key, title) for key, _, title in rows}
        project.compact("articles")
    project.apply(news(after, "SELECT id, title AS headline FROM articles", **how))  # the rule is no longer needed
    assert {*map(tuple, project.read("articles").collect())} == rows


def test_a_former_name_of_another_type_or_in_the_key_is_that_of_another_column(project: Project) -> None:
    before = "id bigint, headline string"
    project.apply(news(before, key="id"))
    arrive(project, before, (1, "a"))
    project.apply(news("id bigint, title int", key="id", rename={"headline": "title"}))
    assert project.rows("articles")[1] == [(1, None)]


@pytest.mark.parametrize("how", [{}, {"key": "id"}], ids=["append", "upsert"])
def test_a_view_takes_over_what_it_has_of_a_column_that_its_source_renames(
    project: Project, how: dict[str, Any]
) -> None:
    before, after, rename = "id bigint, headline string", "id bigint, title string", {"headline": "title"}
    project.apply(news(before, "SELECT id, headline FROM articles WHERE headline <> 'x'", **how))
    arrive(project, before, (1, "a"), (2, "x"))
    project.run()
    for query, said in (
        ("SELECT id, title AS headline FROM articles WHERE title <> 'x'", "changes no row; reads nothing"),
        ("SELECT id, title FROM articles WHERE title <> 'x'", "renames headline to title; reads nothing"),
    ):
        plan = project.apply(news(after, query, rename=rename, **how))
        (change,) = (task for task in plan.tasks if task.task.name == "shown")
        assert change.detail.endswith(said)
        project.run()
        assert written(project) == 0
        arrive(project, after, (3, "c"), (4, "x"))
        project.run()
        rows = sorted(map(tuple, project.read("articles").where("title <> 'x'").collect()))
        assert sorted(map(tuple, project.read("shown").collect())) == rows


@pytest.mark.parametrize("how", [{}, {"key": "id"}], ids=["append", "upsert"])
def test_a_column_that_is_written_in_another_case_is_the_same(project: Project, how: dict[str, Any]) -> None:
    project.apply(news("id bigint, title string", **how))
    arrive(project, "id bigint, title string", (1, "a"))
    plan = project.apply(news("id bigint, Title string", **how))
    assert plan.channels[0].detail == "renames the column title to Title"
    arrive(project, "id bigint, Title string", (2, "b"))
    for _ in range(2):
        assert sorted(map(tuple, project.read("articles").collect())) == [(1, "a"), (2, "b")]
        assert sorted(project.rows("articles")[1]) == [(1, "a"), (2, "b")]
        project.compact("articles")


def test_a_column_without_rows_is_not_renamed(project: Project) -> None:
    """Its identity would be that of a column which is added at the same point."""
    project.apply(news("id bigint", key="id"))
    arrive(project, "id bigint", (1,))
    project.apply(news("id bigint, x string", key="id"))
    project.apply(news("id bigint, y string", key="id", rename={"x": "y"}))
    project.apply(news("id bigint, y string, x string", key="id"))
    arrive(project, "id bigint, y string, x string", (2, "y", "x"))
    project.apply(news("id bigint, x string, y string", key="id"))
    assert sorted(map(tuple, project.read("articles").collect())) == [(1, None, None), (2, "x", "y")]
    assert sorted(project.rows("articles")[1]) == [(1, None, None), (2, "x", "y")]


def test_a_column_that_an_ingest_added_is_declared_by_another_name(project: Project) -> None:
    columns = "id bigint, title string"
    project.apply(news("id bigint", key="id", on_new_column="add"))
    arrive(project, columns, (1, "a"))
    assert project.rows("articles")[0] == ("id", "title")
    declared = news("id bigint, headline string", key="id", on_new_column="add", rename={"title": "headline"})
    project.apply(declared)
    arrive(project, columns, (2, "b"))
    assert project.rows("articles") == (("id", "headline"), [(1, "a"), (2, "b")])
    assert [each.action.value for each in project.plan(declared).channels] == ["keep"]


VALUES = ("site", "q", "n", "n * 2", "length(site)", "upper(site)", "q + n")
"""Columns of pages, and what is computed from them."""


class History:
    """Random names and choices of columns, data and compactions.

    Args:
        project: a new project.
        seed: what all that is random follows from.
    """

    def __init__(self, project: Project, seed: str) -> None:
        self.project, self.draw = project, random.Random(seed)
        self.key = self.draw.choice(["url", None])
        self.names = {"url": "url", "site": "site", "q": "q", "n": "n"}
        self.least = 0.0
        self.changed = False
        self.points: dict[int, tuple[list[str], Bag]] = {}

    @property
    def query(self) -> str:
        items = ", ".join(f"{value} AS {name}" for value, name in self.names.items())
        return f"SELECT {items} FROM pages" + (f" WHERE q > {self.least}" if self.least else "")

    def step(self) -> None:
        steps = [self.rename, self.rename, self.choose, self.compute, self.arrive, self.filter, self.tidy]
        for step in self.draw.sample(steps, self.draw.choice([1, 1, 2, 3])):
            step()
        if self.changed:
            self.apply()
        if self.draw.random() < 0.3:
            self.arrive()
        self.project.run()
        check(self.project, self.query)
        state = self.project.status().channels["result"]
        found = self.project.read("result")
        self.points[state.latest_distinct] = (found.columns, bag(found))

    def rename(self) -> None:
        values = [value for value in self.names if value != "url"]
        names = ["site", "q", "n", "a", "b", "c", "Q"]
        used: set[str] = set()
        for value in values:
            name = self.draw.choice([each for each in names if each.lower() not in used])
            used.add(name.lower())
            self.names[value] = name
        self.changed = True

    def compute(self) -> None:
        """Compute a column differently; another one may take its name later."""
        value = self.draw.choice([value for value in self.names if value != "url"])
        other = self.draw.choice([each for each in VALUES if each not in self.names])
        self.names = {(other if each == value else each): name for each, name in self.names.items()}
        self.changed = True

    def choose(self) -> None:
        others = [value for value in VALUES if value not in self.names]
        if len(others) > 1 and self.draw.random() < 0.6:
            value = self.draw.choice(others)
            taken = {name.lower() for name in self.names.values()}
            names = [each for each in ("site", "q", "n", "a", "b", "c") if each not in taken]
            if names:
                self.names[value] = self.draw.choice(names)
        elif len(self.names) > 2:
            del self.names[self.draw.choice([value for value in self.names if value != "url"])]
        self.changed = True

    def filter(self) -> None:
        self.least = self.draw.choice([0.0, 0.2, 0.5])
        self.changed = True

    def apply(self) -> None:
        self.changed = False
        self.project.apply(web(self.query, key=self.key))

    def arrive(self) -> None:
        first = self.draw.randrange(50)
        if self.key is not None or not self.points:
            ingest(self.project, first, first + 20)
        else:
            ingest(self.project, 100 * len(self.points), 100 * len(self.points) + 10)

    def tidy(self) -> None:
        if self.project.status().channels["result"].latest_distinct:
            self.project.compact("result")


def follow(spark: SparkSession, place: Path, seed: str, steps: int) -> None:
    with open_project(place, session=spark) as project, pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "REMOVAL_MIN", 0)
        project.create()
        history = History(project, seed)
        history.apply()
        ingest(project, 0, 40)
        project.run()
        for _ in range(steps):
            history.step()
        for point, shown in history.points.items():
            found = project.read("result", at=point)
            assert (found.columns, bag(found)) == shown


@pytest.mark.parametrize("number", some(range(4), 1))
def test_random_names(spark: SparkSession, tmp_path: Path, number: int) -> None:
    follow(spark, tmp_path, f"{SEED}/{number}", steps=10)
