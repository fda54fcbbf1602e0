"""A view that is computed from its sources passes over what it materializes, and follows it again later."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import kilonova as kn
from kilonova.catalog.run_records import cost_samples
from kilonova.model.run import InputSize, RefreshMethod
from kilonova.schedule.costs import CostModel
from kilonova.service.project import Project
from kilonova.service.queries import open_reader
from kilonova.testing.recompute import count_differences, recompute
from tests.seeds import SEED

SCHEMAS = {
    "orders": "id int, customer string, total decimal(10,2)",
    "items": "id int, line int, part string, qty int",
    "parts": "part string, weight int",
}
VIEWS = {
    "sizes": "SELECT n, count(*) AS orders FROM (SELECT id, count(*) AS n FROM items GROUP BY id) GROUP BY n",
    "large": "SELECT customer, sum(total) AS spent, avg(total) AS mean FROM orders"
    " WHERE id IN (SELECT id FROM items GROUP BY id HAVING sum(qty) > 4) GROUP BY customer",
    "best": "SELECT customer, sum(total * weight) AS worth FROM orders JOIN items USING (id) JOIN parts USING (part)"
    " GROUP BY customer ORDER BY worth DESC, customer LIMIT 2",
    "above": "SELECT id, total FROM orders WHERE total > (SELECT avg(weight) FROM parts)",
    "over": "SELECT spent, count(*) AS n FROM (SELECT customer, spent FROM large JOIN best USING (customer))"
    " GROUP BY spent",
}


def workflow(*views: str) -> kn.Workflow:
    made = kn.Workflow("shop")
    made.channel("orders", SCHEMAS["orders"], key="id")
    made.channel("items", SCHEMAS["items"], key=("id", "line"))
    made.channel("parts", SCHEMAS["parts"], key="part")
    for name in views or VIEWS:
        made.view(name, VIEWS[name])
    return made


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with kn.open_project(tmp_path, spark={"analyse": False}) as opened:
        opened.create()
        yield opened


def change(project: Project, draw: random.Random, share: float) -> None:
    """Insert, change and delete rows of some channels."""

    def put(channel: str, rows: list[tuple[Any, ...]]) -> None:
        schema = f"{SCHEMAS[channel]}, _deleted boolean"
        some = [(*row, draw.random() < 0.2) for row in rows if draw.random() < share]
        if some:
            project.ingest(channel, project.warehouse.spark.createDataFrame(some, schema))

    put("orders", [(n, f"c{draw.randrange(4)}", Decimal(draw.randrange(90))) for n in range(12)])
    put("items", [(n, line, draw.choice("xyz"), draw.randrange(4)) for n in range(12) for line in (1, 2, 3)])
    if draw.random() < 0.5:
        put("parts", [(part, draw.randrange(1, 40)) for part in "xyz"])


def assert_equal_to_the_queries(project: Project, views: tuple[str, ...] = tuple(VIEWS)) -> None:
    spark = project.warehouse.spark
    for name in (*SCHEMAS, *views):
        rows = project.read(name)
        spark.createDataFrame(rows.collect(), rows.schema).createOrReplaceTempView(name)
    for name in views:
        found = project.read(name)
        expected = spark.sql(VIEWS[name]).select(found.columns)
        assert [field.dataType for field in found.schema] == [field.dataType for field in expected.schema], name
        assert Counter(map(tuple, found.collect())) == Counter(map(tuple, expected.collect())), name


def priced(monkeypatch: pytest.MonkeyPatch, costs: dict[RefreshMethod, float]) -> None:
    def seconds(_: CostModel, method: RefreshMethod, size: InputSize) -> float:
        return costs.get(method, 9.0)

    monkeypatch.setattr(CostModel, "seconds", seconds)
    monkeypatch.setattr(CostModel, "likely", seconds)


def methods(project: Project) -> dict[str, str]:
    """How each task of the last run was refreshed."""
    return {each.channel: each.reason.partition(":")[0] for each in project.runs(1)[0].made if each.seconds}


def test_views_equal_their_queries_whatever_is_chosen_when(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(SEED)
    project.apply(workflow())
    for estimate in ("seconds", "likely"):
        monkeypatch.setattr(CostModel, estimate, lambda *_: draw.random() ** 2)
    for turn in range(4):
        change(project, draw, 1.0 if turn == 0 else draw.choice([0.1, 0.5]))
        if draw.random() < 0.8:
            project.run(all_or_nothing=draw.random() < 0.5)
        else:
            project.run([draw.choice(["sizes", "large", "best", "above"])])
            project.run()
        assert_equal_to_the_queries(project)
        if draw.random() < 0.3:
            project.collect_garbage()
        assert project.run() is None, "nothing is due any more"
    for each in recompute(project):
        assert count_differences(each.rows, project.read(each.channel)) == 0, each.channel


def test_what_a_view_materializes_is_recomputed_once_when_it_is_needed_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(SEED)
    project.apply(workflow("large"))
    change(project, draw, 1.0)
    project.run()
    slow, fast = 9.0, 0.1
    ways = [
        ({RefreshMethod.INCREMENTAL: fast}, {"large__1": "incremental", "large": "incremental"}),
        ({RefreshMethod.FROM_SOURCES: fast}, {"large": "from sources"}),
        ({RefreshMethod.INCREMENTAL: fast}, {"large__1": "full", "large": "full"}),
        ({RefreshMethod.INCREMENTAL: fast}, {"large__1": "incremental", "large": "incremental"}),
    ]
    for number, (costs, expected) in enumerate(ways):
        priced(monkeypatch, {method: costs.get(method, slow) for method in RefreshMethod})
        rows = [(n, 1, "x", 5 + number) for n in range(12)]
        project.ingest("items", project.warehouse.spark.createDataFrame(rows, SCHEMAS["items"]))
        orders = [(n, "c1", Decimal(number)) for n in range(12)]
        project.ingest("orders", project.warehouse.spark.createDataFrame(orders, SCHEMAS["orders"]))
        outlook = project.explain("large")[-1].outlook or ""
        project.run()
        assert methods(project) == expected
        assert outlook.partition(":")[0] == expected["large"]
        assert_equal_to_the_queries(project, ("large",))
        assert not project.status().due
        with open_reader(project.directory) as reader:
            assert not any(each.due for each in reader.overview().tasks.values()), number
        project.collect_garbage()


def test_a_changed_query_of_a_detached_view_is_computed_from_its_sources(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(SEED)
    project.apply(workflow("large"))
    change(project, draw, 1.0)
    project.run()
    priced(monkeypatch, {RefreshMethod.FROM_SOURCES: 0.1})
    change(project, draw, 1.0)
    project.run()
    monkeypatch.setitem(VIEWS, "large", VIEWS["large"].replace("> 4", "> 3"))
    project.apply(workflow("large"))
    project.run()
    assert methods(project) == {"large": "from sources"}
    assert_equal_to_the_queries(project, ("large",))
    priced(monkeypatch, {RefreshMethod.FULL: 0.1})
    change(project, draw, 1.0)
    project.run()
    assert methods(project) == {"large__1": "full", "large": "full"}
    assert_equal_to_the_queries(project, ("large",))


def test_a_detached_view_is_not_computed_from_what_is_out_of_date(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(SEED)
    project.apply(workflow("large"))
    change(project, draw, 1.0)
    project.run()
    priced(monkeypatch, {RefreshMethod.FROM_SOURCES: 0.1})
    change(project, draw, 1.0)
    project.run()
    assert methods(project) == {"large": "from sources"}
    priced(monkeypatch, {RefreshMethod.FULL: 0.1})
    project.run(["large"])
    assert methods(project) == {"large": "from sources"}
    project.run(["large__1"])
    change(project, draw, 1.0)
    project.run(["large"])
    assert methods(project) == {"large__1": "full", "large": "full"}
    assert_equal_to_the_queries(project, ("large",))


def first_run(project: Project) -> None:
    """Compute a view, and what it materializes, for the first time."""
    project.apply(workflow("large"))
    change(project, random.Random(SEED), 1.0)
    project.run()


def run_on_changed_rows(project: Project, number: int) -> None:
    """Run after all orders and items have changed."""
    rows = [(n, line, "x", 5 * (number % 2)) for n in range(12) for line in (1, 2, 3)]
    project.ingest("items", project.warehouse.spark.createDataFrame(rows, SCHEMAS["items"]))
    orders = [(n, "c1", Decimal(number)) for n in range(12)]
    project.ingest("orders", project.warehouse.spark.createDataFrame(orders, SCHEMAS["orders"]))
    project.run()


def test_a_view_is_computed_from_its_sources_once_its_changes_were_measured(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_run(project)
    dearer = {RefreshMethod.INCREMENTAL: 0.5, RefreshMethod.FULL: 0.7, RefreshMethod.FROM_SOURCES: 0.6}
    priced(monkeypatch, dearer)  # two relations, one after the other: 1.0 s
    for number, expected in enumerate(("incremental", "incremental", "from sources")):
        run_on_changed_rows(project, number)
        assert methods(project)["large"] == expected, number
        assert_equal_to_the_queries(project, ("large",))


def test_computing_from_the_sources_is_expected_to_take_as_long_as_recomputing_all(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it was tried: its SQL alone makes little of how long its data take."""
    first_run(project)
    costs = {RefreshMethod.INCREMENTAL: 0.5, RefreshMethod.FULL: 0.9}
    monkeypatch.setattr(CostModel, "seconds", lambda _, method, size: costs.get(method, 9.0))
    for number in range(4):
        run_on_changed_rows(project, number)
        assert methods(project)["large"] == "incremental", number


@pytest.mark.parametrize(("direct", "tried_after"), [(0.8, (4, 4)), (0.6, ())])
def test_a_detached_view_returns_now_and_then_unless_that_is_clearly_dearer(
    project: Project, monkeypatch: pytest.MonkeyPatch, direct: float, tried_after: tuple[int, ...]
) -> None:
    first_run(project)
    priced(
        monkeypatch,
        {RefreshMethod.INCREMENTAL: 0.5, RefreshMethod.FULL: 0.7, RefreshMethod.FROM_SOURCES: direct},
    )
    returns = [way for times in tried_after for way in (*["from sources"] * times, "full")]
    for number, expected in enumerate(("incremental", "incremental", *returns, *["from sources"] * 5)):
        run_on_changed_rows(project, number)
        assert methods(project)["large"] == expected, number
    assert_equal_to_the_queries(project, ("large",))


def test_relations_whose_changes_come_to_nothing_make_what_reads_them_cheap(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_run(project)
    priced(monkeypatch, {RefreshMethod.INCREMENTAL: 0.5, RefreshMethod.FROM_SOURCES: 0.8})
    for number in range(4):  # the view does not read the part
        rows = [(n, 1, f"part {number}", 7) for n in range(12)]
        project.ingest("items", project.warehouse.spark.createDataFrame(rows, SCHEMAS["items"]))
        project.run()
        if number:
            assert methods(project) == {"large__1": "incremental"}, number
    with open_reader(project.directory) as reader, reader.catalog.reading() as tx:
        samples = cost_samples(tx, ["large__1"])["large__1"]
    assert [each.written for each in samples[:3]] == [0, 0, 0]
