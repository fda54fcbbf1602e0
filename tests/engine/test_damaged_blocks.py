"""Blocks that are not as they were written are neither read nor compacted, and are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import update

import kilonova as kn
from kilonova.catalog import channel_store, tables
from kilonova.catalog.manifest import manifest_from_text
from kilonova.cli.main import main
from kilonova.errors import BlockDamaged
from kilonova.model.block import BlockName
from kilonova.model.damage import marker_file
from kilonova.schedule.repair import RepairMethod
from kilonova.service.project import Project
from tests.frames import bag_of
from tests.warehouse.test_verification import flip


def test_damaged_blocks_are_neither_read_nor_compacted(project: Project) -> None:
    wf = kn.Workflow("shop")
    wf.channel("orders", "id bigint")
    wf.view("counted", "SELECT count(*) AS n FROM orders")
    project.apply(wf)
    spark, storage = project.warehouse.spark, project.warehouse.storage
    for number in range(2):
        project.ingest("orders", spark.range(number, number + 3).coalesce(1))
    with project.catalog.reading() as tx:
        first, second = channel_store.channel_state(tx, "orders").blocks
    for block in (first, second):
        files = storage.found(block.name) or {}
        [file] = [name for name in files if marker_file(name)]
        text = storage.manifest(block.name, file)
        assert text is not None
        found = manifest_from_text(text)
        assert (found.block, found.channel, found.point) == (block, "orders", block.end)
        assert marker_file(file) in files
        assert block.stored is not None
        assert [file.rows for file in block.stored] == [3]
    place = Path(storage.path(second.name).removeprefix("file://"))
    [file] = place.glob("*.parquet")
    flip(file)
    with pytest.raises(BlockDamaged, match="of another content") as raised:
        project.compact("orders")
    assert (raised.value.channel, raised.value.path) == ("orders", storage.path(second.name))
    file.write_bytes(b"")
    project.warehouse._verification.forget([second.name])
    for attempt in (project.run, lambda: project.read("orders"), lambda: project.rows("orders")):
        with pytest.raises(BlockDamaged, match="of another size") as raised:
            attempt()
        assert raised.value.channel == "orders"


def test_blocks_of_older_releases_are_read_verified_and_compacted(project: Project) -> None:
    wf = kn.Workflow("shop")
    wf.channel("orders", "id bigint")
    project.apply(wf)
    spark, storage = project.warehouse.spark, project.warehouse.storage
    for number in range(2):
        project.ingest("orders", spark.range(number, number + 1).coalesce(1))
    with project.catalog.writing() as tx:
        first, second = channel_store.channel_state(tx, "orders").blocks
        tx.connection.execute(update(tables.block).values(suffix=None, stored=None))
        tx.connection.execute(update(tables.placement).values(manifest=None, stamp="older"))
        channel_store.mark_changed(tx, [channel_store.channel_id(tx, "orders")])
    for block in (first, second):
        place = Path(storage.path(block.name).removeprefix("file://"))
        next(place.glob("_block_*.json")).unlink()
        place.rename(place.with_name(f"block_{block.number}"))
    assert project.fsck(checksums=True).is_whole
    assert bag_of(project.read("orders")) == {(0,): 1, (1,): 1}
    assert project.compact("orders") is not None
    assert bag_of(project.read("orders")) == {(0,): 1, (1,): 1}
    (file,) = Path(storage.path(BlockName(second.number)).removeprefix("file://")).glob("*.parquet")
    file.unlink()
    [damaged] = project.fsck().damaged
    assert [str(each) for each in damaged.damages] == ["its directory is of other files"]


def test_what_is_derived_is_recomputed_and_what_is_not_must_be_brought_again(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    def shop(factor: int) -> kn.Workflow:
        wf = kn.Workflow("shop")
        wf.channel("orders", "id bigint")

        @wf.task(schema="id bigint, twice bigint", key="id")
        def doubled(orders: kn.New) -> kn.Delta:
            return orders.selectExpr("id", f"{factor} * id AS twice")

        wf.view("counted", "SELECT count(*) AS n, sum(twice) AS total FROM doubled")
        return wf

    project.apply(shop(3))
    project.apply(shop(2))  # the second logic version of the task
    spark, root = project.warehouse.spark, Path(project.warehouse.storage.url.removeprefix("file://"))
    project.ingest("orders", spark.range(0, 3).coalesce(1))
    project.run()
    project.ingest("orders", spark.range(3, 5).coalesce(1))
    project.run()
    project.compact("orders")
    expected = {name: bag_of(project.read(name)) for name in ("orders", "doubled", "counted")}

    def newest(channel: str, kind: str) -> Path:
        with project.catalog.reading() as tx:
            blocks = [
                each for each in channel_store.channel_state(tx, channel).blocks if str(each.kind).startswith(kind)
            ]
        return root / max(blocks, key=lambda block: block.end).name.directory

    def found(*, repair: bool = False) -> tuple[dict[str, RepairMethod], bool]:
        verified = project.fsck(checksums=True, repair=repair)
        return {each.channel: each.method for each in verified.remedies}, verified.is_whole

    assert found() == ({}, True)
    flip(next(newest("orders", "B").glob("*.parquet")))
    shutil.rmtree(newest("doubled", "Δ"))
    assert found() == ({"orders": RepairMethod.DROP, "doubled": RepairMethod.RECOMPUTE}, False)
    with pytest.raises(SystemExit) as ended:
        main(["-C", str(project.directory), "fsck", "doubled"])
    printed = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 1
    assert "its directory is missing" in printed
    assert "1 damaged" in printed
    assert found(repair=True) == ({"orders": RepairMethod.DROP, "doubled": RepairMethod.RECOMPUTE}, True)
    assert found() == ({}, True)
    project.run()
    assert {name: bag_of(project.read(name)) for name in expected} == expected

    next(newest("orders", "Δ").glob("*.parquet")).write_bytes(b"")
    next(newest("doubled", "B").glob("*.parquet")).unlink()
    broken = {"orders": RepairMethod.INGEST, "doubled": RepairMethod.WAIT}
    assert found() == found(repair=True) == (broken, False)
    project.ingest("orders", spark.range(0, 5).coalesce(1), replace=True)
    assert found(repair=True) == ({"orders": RepairMethod.DROP, "doubled": RepairMethod.RECOMPUTE}, True)
    project.run()
    assert {name: bag_of(project.read(name)) for name in expected} == expected
    assert found() == ({}, True)
    with pytest.raises(SystemExit) as ended:
        main(["-C", str(project.directory), "fsck", "--checksums"])
    assert not ended.value.code
