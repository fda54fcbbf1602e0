"""Pins of readings: they keep blocks for as long as what was read is used, and no longer."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from sqlalchemy import select

import kilonova as kn
from kilonova.catalog import channel_store, tables
from kilonova.catalog.database import Catalog
from kilonova.service.pins import Pins
from kilonova.service.project import Project
from kilonova.testing.sandbox import Sandbox
from kilonova.warehouse.local_pages import PageReader
from tests.catalog.building import ingested, with_channels
from tests.databases import Clock, empty_database


@pytest.fixture
def filled(project: Project) -> Project:
    workflow = kn.Workflow("w")
    workflow.channel("source", "id int, v string", key="id")
    project.apply(workflow)
    for number in range(3):
        Sandbox(project).ingest("source", [{"id": number, "v": "a"}])
    return project


def compacted(project: Project) -> int:
    """Compact the source, collect garbage, and return the number of blocks that are left."""
    project.compact("source")
    project.collect_garbage()
    return len(project.warehouse.storage.blocks())


def pins(project: Project) -> int:
    with project.catalog.reading() as tx:
        return len(channel_store.pinned(tx))


def test_a_page_whose_blocks_are_deleted_meanwhile_is_read_again(
    filled: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = PageReader.page
    pinned: list[int] = []

    def late(self: PageReader, *given: Any) -> Any:
        pinned.append(pins(filled))
        assert compacted(filled) == 1
        return read(self, *given)

    monkeypatch.setattr(PageReader, "page", late)
    found = filled.row_reader.small_page("source", offset=0, limit=2)
    assert found is not None
    assert (found[0], found[1].to_pydict()) == (3, {"id": [0, 1], "v": ["a", "a"]})
    assert pinned == [0, 1]
    filled.resources.pins.settle()
    assert pins(filled) == 0


def test_a_page_of_a_small_relation_is_read_while_others_write_the_catalog(filled: Project) -> None:
    with filled.catalog.writing():
        found = filled.row_reader.small_page("source", offset=0, limit=2)
    assert found is not None
    assert found[1].to_pydict() == {"id": [0, 1], "v": ["a", "a"]}


@pytest.mark.parametrize(
    "used",
    [lambda frame: frame, lambda frame: frame.where("id >= 0").select("id"), lambda frame: frame.groupBy("id").count()],
    ids=["itself", "rows of it", "groups of it"],
)
def test_rows_that_were_read_stay_until_the_frame_is_gone(
    filled: Project, used: Callable[[DataFrame], DataFrame]
) -> None:
    frame = used(filled.read("source"))
    gc.collect()
    assert compacted(filled) == 4
    assert frame.count() == 3
    del frame
    gc.collect()
    assert compacted(filled) == 1
    assert pins(filled) == 0


def test_closing_a_project_lets_go_of_what_was_read(filled: Project) -> None:
    frame = filled.read("source")
    assert pins(filled) == 3
    filled.resources.pins.close()
    assert pins(filled) == 0
    assert frame.count() == 3


def test_an_export_keeps_its_blocks(filled: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kilonova.warehouse import jobs

    export = jobs.export

    def late(frame: DataFrame, target: str, format: str) -> None:
        assert compacted(filled) == 4
        export(frame, target, format)

    monkeypatch.setattr(jobs, "export", late)
    filled.export("source", str(tmp_path / "out"), "json")
    assert pins(filled) == 0
    assert compacted(filled) == 1


class TestRenewal:
    @pytest.fixture
    def catalog(self) -> Iterator[Catalog]:
        with empty_database("sqlite") as url:
            made = Catalog(url, Clock())
            made.create()
            yield made
            made.close()

    def test_leases_are_renewed_during_a_read(self, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        from kilonova.catalog import pins

        with_channels(catalog, "source")
        _, block = ingested(catalog, "source")
        renewed = threading.Semaphore(0)
        renew = pins.renew_pins

        def seen(*arguments: object) -> None:
            renewed.release()
            renew(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(pins, "renew_pins", seen)
        held = Pins(catalog, timedelta(seconds=0.01))
        with catalog.writing() as tx:
            holder = held.pin(tx, [block])
        first = until(catalog)
        catalog.clock.forward(100)  # type: ignore[attr-defined]
        held.hold(holder)
        try:
            assert renewed.acquire(timeout=60)
            assert renewed.acquire(timeout=60)  # so the first has been committed
            assert until(catalog)[0] > first[0]
            held.release(holder)
            assert until(catalog) == []
        finally:
            held.close()


def until(catalog: Catalog) -> list[datetime]:
    with catalog.reading() as tx:
        return list(tx.connection.execute(select(tables.pin.c.until)).scalars())
