"""Blocks that are not as they were written are neither read nor compacted, and are named."""

from __future__ import annotations

from pathlib import Path

import pytest

import kilonova as kn
from kilonova.catalog import chains
from kilonova.catalog.manifest import manifest_from_text
from kilonova.errors import BlockDamaged
from kilonova.service.project import Project
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
        first, second = chains.chronicle(tx, "orders").blocks
    for block in (first, second):
        text = storage.manifest(block.name)
        assert text is not None
        found = manifest_from_text(text)
        assert (found.block, found.channel, found.point) == (block, "orders", block.end)
        assert storage.is_committed(block.name)
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
