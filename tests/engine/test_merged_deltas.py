"""Small neighbouring deltas become one: readers get the same, and garbage collection takes the small ones."""

from __future__ import annotations

import pytest

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.schedule import compaction
from kilonova.service.project import Project
from tests.engine.test_renames import bag, expected, web
from tests.engine.test_renames import ingest as ingest_pages


def a_workflow(columns: str) -> kn.Workflow:
    wf = kn.Workflow("shop")
    wf.channel("orders", columns)

    @wf.task(schema="id bigint")
    def large(orders: kn.New) -> kn.Delta:
        return orders.where("id >= 10").select("id")

    return wf


def kinds_of(project: Project, channel: str) -> list[str]:
    """The live blocks of a channel."""
    with project.catalog.reading() as tx:
        return sorted(str(block.kind) for block in channel_store.channel_state(tx, channel).blocks)


def test_small_deltas_become_one_and_readers_see_no_difference(project: Project) -> None:
    project.apply(a_workflow("id bigint"))
    spark = project.warehouse.spark

    def ingest(numbers: range, columns: str = "id") -> None:
        for number in numbers:
            project.ingest("orders", spark.range(number, number + 1).selectExpr(*columns.split(", ")).coalesce(1))

    ingest(range(4))
    project.run()
    ingest(range(4, 25))
    assert project.compact("large", deltas=True) is None
    expected = sorted((number,) for number in range(25))
    before = project.reader.overview().channels["orders"]
    report = project.maintenance.maintain("orders", deltas=True)
    assert report is not None
    assert [str(made.reason) for made in report.made] == ["21 adjacent deltas merged"]
    assert {"Δ4→25", "Δ0→1"} <= set(kinds_of(project, "orders"))
    assert kinds_of(project, "orders") == ["Δ0→1", "Δ1→2", "Δ2→3", "Δ3→4", "Δ4→25"]
    assert sorted(project.rows("orders")[1]) == expected
    after = project.reader.overview().channels["orders"]
    assert (before.rows.exact, after.rows.exact, after.point) == (25, 25, 25)
    assert after.bytes < before.bytes
    assert project.maintenance.maintain("orders", deltas=True) is None
    project.run()
    assert sorted(project.rows("large")[1]) == expected[10:]
    project.apply(a_workflow("id bigint, note string"))
    ingest(range(25, 28), "id, 'x' AS note")
    done = project.compact("orders", deltas=True)
    assert done is not None
    assert [made.reason for made in done.made] == [
        "5 adjacent deltas merged",
        "3 adjacent deltas merged",
    ]
    project.run()
    project.collect_garbage()
    assert kinds_of(project, "orders") == ["Δ0→25", "Δ25→28"]
    assert sorted(project.rows("orders")[1]) == [
        *((number, None) for number in range(25)),
        *((number, "x") for number in range(25, 28)),
    ]
    assert sorted(project.rows("large")[1]) == [(number,) for number in range(10, 28)]
    assert [row for row in project.reader.size_history("orders", 100) if row.rows is None or row.rows > 28] == []


def test_upserts_become_one_delta_although_a_reader_has_read_some_of_them(project: Project) -> None:
    wf = kn.Workflow("shop")
    wf.channel("prices", "id bigint, price bigint", key="id")

    @wf.task(schema="id bigint, price bigint")
    def seen(prices: kn.New) -> kn.Delta:
        return prices.where("NOT _deleted").select("id", "price")

    project.apply(wf)
    spark = project.warehouse.spark

    def ingest(price: int, ids: range, deleted: bool = False) -> None:
        rows = spark.range(ids.start, ids.stop).selectExpr("id", f"{price}L AS price", f"{deleted} AS _deleted")
        project.ingest("prices", rows.coalesce(1))

    ingest(1, range(4))
    ingest(2, range(1, 2))
    project.run()
    ingest(3, range(2, 6))
    ingest(4, range(5, 6), deleted=True)
    ingest(5, range(1, 2))
    expected = [(0, 1), (1, 5), (2, 3), (3, 3), (4, 3)]
    report = project.maintenance.maintain("prices", deltas=True)
    assert report is not None
    assert [made.reason for made in report.made] == ["4 adjacent deltas merged"]
    assert kinds_of(project, "prices") == ["B1", "Δ1→5", "Δ2→3", "Δ3→4", "Δ4→5"]
    assert sorted(project.rows("prices")[1]) == expected
    assert project.maintenance.maintain("prices", deltas=True) is None
    project.run()
    first = [(0, 1), (1, 2), (2, 1), (3, 1)]
    assert sorted(project.rows("seen")[1]) == sorted([*first, *expected[1:]])
    ingest(6, range(0, 1))
    assert project.compact("prices", deltas=True) is not None
    project.run()
    project.collect_garbage()
    assert kinds_of(project, "prices") == ["B1", "Δ1→6"]
    assert sorted(project.rows("prices")[1]) == [(0, 6), *expected[1:]]
    assert project.compact("prices") is not None
    assert sorted(project.rows("prices")[1]) == [(0, 6), *expected[1:]]


def test_merging_deltas_of_before_leaves_the_columns_of_now(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_NEIGHBOURS", 2)
    project.apply(web("SELECT url, site FROM pages"))
    for first in (0, 40, 80):
        ingest_pages(project, first, first + 20)
        project.run()
    query = "SELECT url, site AS host, q FROM pages"
    project.apply(web(query))
    project.run()
    assert project.compact("result", deltas=True) is not None
    columns, rows = expected(project, query)
    found = project.read("result")
    assert (found.columns, bag(found)) == (columns, rows)
    assert project.status().channels["result"].channel.schema.names[:3] == ("url", "host", "q")
