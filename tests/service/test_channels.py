"""What became of a channel, as its page tells it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kilonova.catalog import channel_store, registry, runs
from kilonova.errors import NotFound
from kilonova.model.block import Base, Delta
from kilonova.model.channel import PointState
from kilonova.model.compaction_policy import MaxDeltas
from kilonova.model.encoding import Changes, Upsert
from kilonova.model.row_count import RowCount
from kilonova.model.run import RunKind
from kilonova.model.schema import Column, Schema
from kilonova.model.task import Mode
from kilonova.service.queries import ProjectReader
from tests.catalog.building import a_task, begin, ingested
from tests.service.writing import Writing, compacted, declare, wrote

STRONG = Changes(("id",))
KEYED = Upsert(("id",))


def test_points_tell_all_that_became_of_them(looking: ProjectReader) -> None:
    catalog = looking.catalog
    declare(catalog, "logs", "other")
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("t", {"other": Mode.NEW}, ("logs",)), "w")
    one = wrote(catalog, {"logs": Writing(rows=3), "other": Writing()}, task="t")
    wrote(catalog, {"logs": Writing(empty=True)}, task="t")
    three = wrote(catalog, {"logs": Writing(rows=2)})
    base = compacted(catalog, "logs", 5)
    with catalog.writing() as tx:
        failed, _ = begin(tx, "logs")
        channel_store.new_block(tx, "logs", failed)
        runs.fail(tx, failed, "no luck")
        going, _ = begin(tx, "logs")
        writing = channel_store.new_block(tx, "logs", going).number
        channel_store.new_block(tx, "other", going)
        channel_store.remove_blocks(tx, "logs", [channel_store.channel_state(tx, "logs").path(0, 1)[0].number])  # type: ignore[index]

    chain = looking.channel_history("logs")
    assert [(point.number, point.state.value, point.run) for point in chain.points] == [
        (5, "reserved", going), (4, "cancelled", failed), (3, "filled", three), (2, "cancelled", 2), (1, "filled", one),
    ]  # fmt: skip
    assert chain.first == 3
    reserved, cancelled, newest, unchanged, oldest = chain.points
    [block] = reserved.blocks
    assert (block.number, block.kind, block.state, block.rows, block.run) == (
        writing,
        None,
        "being written",
        None,
        going,
    )
    assert (cancelled.blocks, cancelled.task, cancelled.reason) == ((), None, "")
    assert (unchanged.blocks, unchanged.task, unchanged.reason) == ((), "t", "because")
    assert [(block.kind, block.made, block.state, block.rows) for block in newest.blocks] == [
        (Delta(2, 3), RunKind.INGEST, "live", 2), (Base(3), RunKind.COMPACTION, "live", 5),
    ]  # fmt: skip
    assert newest.blocks[1].number == base
    assert (newest.task, newest.reason, newest.kind) == (None, "because", RunKind.INGEST)
    assert (oldest.task, oldest.kind, str(oldest.version), oldest.time) == (
        "t",
        RunKind.TASKS,
        "logs 1",
        catalog.clock(),
    )
    [block] = oldest.blocks
    assert (block.kind, block.state, block.encoding, block.rows, block.bytes) == (
        Delta(0, 1),
        "collected",
        "append",
        3,
        30,
    )


def test_points_come_page_by_page(looking: ProjectReader) -> None:
    declare(looking.catalog, "logs")
    for _ in range(5):
        ingested(looking.catalog, "logs")
    assert [point.number for point in looking.channel_history("logs", limit=2).points] == [5, 4]
    assert [point.number for point in looking.channel_history("logs", 4, 2).points] == [3, 2]
    assert looking.channel_history("logs", 1).points == ()
    for notify in (
        looking.channel_history,
        looking.size_history,
        looking.schemas,
        looking.readers,
        looking.snapshot_plan,
    ):
        with pytest.raises(NotFound, match="no such channel"):
            notify("log")


def test_what_is_new_is_empty(looking: ProjectReader) -> None:
    declare(looking.catalog, "logs")
    chain, assembly = looking.channel_history("logs"), looking.snapshot_plan("logs")
    assert (chain.points, chain.first) == ((), 0)
    assert looking.size_history("logs") == looking.schemas("logs") == looking.readers("logs") == ()
    assert (assembly.at, assembly.base, assembly.deltas, assembly.bytes, assembly.ratio) == (0, None, (), 0, None)


HISTORY = [
    Writing(rows=5, base=True, encoding=STRONG),
    Writing(rows=3, encoding=STRONG, removals=1),
    Writing(empty=True),
    Writing(rows=4),
    Writing(rows=2, encoding=KEYED, removals=1),
    Writing(rows=1, encoding=STRONG),
    Writing(rows=7, base=True, encoding=STRONG),
    Writing(rows=2, encoding=STRONG, removals=None),
]


def test_size_history_has_rows_where_known_and_bytes_always(looking: ProjectReader) -> None:
    declare(looking.catalog, "users", encoding=STRONG)
    for writing in HISTORY:
        wrote(looking.catalog, {"users": writing})
    found = looking.size_history("users")
    assert [(size.point, size.rows, size.bytes, size.written_rows, size.renewed) for size in found] == [
        (1, 5, 50, 5, True),
        (2, 6, 80, 3, False),
        (4, 10, 120, 4, False),
        (5, None, 140, 2, False),
        (6, None, 150, 1, False),
        (7, 7, 70, 7, True),
        (8, None, 90, 2, False),
    ]
    compacted(looking.catalog, "users", 6)
    last = looking.size_history("users")[-1]
    assert (last.rows, last.bytes, last.written_rows, last.written_bytes, last.renewed) == (6, 60, 2, 20, True)


def test_growth_over_some_points_is_the_end_of_that_over_all(looking: ProjectReader) -> None:
    declare(looking.catalog, "users", encoding=STRONG)
    for writing in HISTORY:
        wrote(looking.catalog, {"users": writing})
        whole = looking.size_history("users")
        for limit in range(1, len(whole) + 1):
            assert looking.size_history("users", limit) == whole[-limit:]
    with looking.catalog.writing() as tx:
        blocks = [block.number for block in channel_store.channel_state(tx, "users").blocks]
        channel_store.remove_blocks(tx, "users", blocks)
    assert looking.size_history("users") == whole


def test_schemas_tell_what_came_and_went(looking: ProjectReader) -> None:
    shapes = [
        Schema.of(("id", "bigint"), ("note", "string")),
        Schema.of(("id", "bigint"), ("note", "string")),
        Schema.of(("note", "string"), ("id", "bigint")),
        Schema.of(("id", "int"), ("size", "double")),
        Schema.of(("ID", "int"), ("size", "double")),
    ]
    declare(looking.catalog, "logs", schema=None)
    for shape in shapes:
        wrote(looking.catalog, {"logs": Writing(schema=shape)})
    found = looking.schemas("logs")
    assert [(each.point, each.run) for each in found] == [(5, 5), (4, 4), (1, 1)]
    cased, changed, first = found
    assert cased.changed == ((Column("id", "int"), Column("ID", "int")),)
    assert changed.added == (Column("size", "double"),)
    assert changed.dropped == (Column("note", "string"),)
    assert changed.changed == ((Column("id", "bigint"), Column("id", "int")),)
    assert (first.added, first.dropped, first.changed) == (shapes[0].columns, (), ())
    assert first.time == looking.catalog.clock()
    assert looking.schemas("logs", 2) == found[:2]


def test_only_the_last_blocks_are_read_for_schemas(looking: ProjectReader, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(looking.catalog, "logs")
    for _ in range(3):
        ingested(looking.catalog, "logs")
    monkeypatch.setattr("kilonova.catalog.read_models.schema_history._LOOKED_AT", 3)
    assert [each.point for each in looking.schemas("logs")] == [1]
    monkeypatch.setattr("kilonova.catalog.read_models.schema_history._LOOKED_AT", 2)
    assert looking.schemas("logs") == ()


def test_readers_are_listed_with_their_lags(looking: ProjectReader) -> None:
    catalog = looking.catalog
    declare(catalog, "logs", "logs_2", "counts", "more", "rest", "gone")
    with catalog.writing() as tx:
        for name, ports in {
            "counts": {"logs": Mode.NEW, "counts": Mode.ALL},
            "more": {"logs_2": Mode.ALL},
            "rest": {"counts": Mode.ALL, "logs": Mode.ALL},
            "gone": {"logs": Mode.NEW},
        }.items():
            registry.put_task(tx, a_task(name, ports, (name,)), "w")
        registry.drop_task(tx, "gone")
    for _ in range(3):
        ingested(catalog, "logs")
    wrote(catalog, {"counts": Writing()}, task="counts", read=[("logs", 2)])
    with catalog.writing() as tx:
        begin(tx, "logs")
    assert [(lag.task, lag.channel, lag.cursor, lag.newest) for lag in looking.readers("logs")] == [
        ("counts", "logs", 2, 3), ("rest", "logs", 0, 3),
    ]  # fmt: skip
    assert [lag.task for lag in looking.readers("counts")] == ["rest"]
    assert looking.readers("gone") == ()


def test_of_points_that_are_equal_a_lag_names_the_first(looking: ProjectReader) -> None:
    declare(looking.catalog, "logs", "counts")
    with looking.catalog.writing() as tx:
        registry.put_task(tx, a_task("counts", {"logs": Mode.NEW}, ("counts",)), "w")
    for empty in (False, True):
        wrote(looking.catalog, {"logs": Writing(empty=empty)})
    wrote(looking.catalog, {"counts": Writing()}, task="counts", read=[("logs", 2)])
    for lags in (looking.readers("logs"), looking.task("counts").lags, looking.status().lags):
        assert [(lag.cursor, lag.newest) for lag in lags] == [(1, 1)]
    assert [(port.start, port.end) for port in looking.task_preview("counts").reads] == [(1, 1)]


def test_a_snapshot_is_put_together_of_a_base_and_deltas(looking: ProjectReader) -> None:
    catalog = looking.catalog
    declare(catalog, "users", encoding=KEYED)
    for writing in (Writing(rows=4, base=True), Writing(rows=1), Writing(empty=True), Writing(rows=3)):
        wrote(catalog, {"users": writing})
    now = looking.snapshot_plan("users")
    assert now.base is not None
    assert (now.at, now.base.kind, [block.kind for block in now.deltas]) == (4, Base(1), [Delta(1, 2), Delta(3, 4)])
    assert (now.rows, now.block_rows, now.bytes) == (RowCount(8, 8), 8, 80)
    assert (now.ratio, now.buckets_aligned) == (2.0, False)
    assert (now.policy, now.read_cost, now.compaction_cost) == ("by cost", 0.0, 240.0)
    with catalog.writing() as tx:
        channel_store.set_policy(tx, "users", MaxDeltas(deltas=3))
    before = looking.snapshot_plan("users", 2)
    assert (before.at, before.bytes, before.policy, before.compaction_cost) == (2, 50, "after 3 deltas", 240.0)
    compacted(catalog, "users", 5)
    after = looking.snapshot_plan("users")
    assert (after.ratio, after.deltas, after.read_cost, after.compaction_cost) == (1.0, (), None, None)
    with catalog.writing() as tx:
        channel_store.remove_blocks(tx, "users", [block.number for block in now.deltas])
        channel_store.remove_blocks(tx, "users", [now.base.number])
    assert looking.snapshot_plan("users").base == after.base
    for point, said in ((2, "can no longer be read"), (9, "no such point")):
        with pytest.raises(NotFound, match=said) as caught:
            looking.snapshot_plan("users", point)
        assert caught.value.hint == "The readable points are 0 and 4"


def test_every_point_once_however_it_is_paged(looking: ProjectReader) -> None:
    declare(looking.catalog, "logs")
    for step in range(7):
        wrote(looking.catalog, {"logs": Writing(empty=step % 2 == 1)})
    seen, before = [], None
    while page := looking.channel_history("logs", before, 3).points:
        seen += page
        before = page[-1].number
    assert seen == list(looking.channel_history("logs").points)
    assert all(newer.number == older.number + 1 for newer, older in pairwise(seen))
    assert {point.state for point in seen} == {PointState.FILLED, PointState.CANCELLED}
