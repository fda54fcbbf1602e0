"""Blocks and the logs of runs in a warehouse's directory."""

from __future__ import annotations

import hashlib
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.errors import StorageFailed
from kilonova.model.block import BlockName
from kilonova.model.damage import manifest_file, marker_file
from kilonova.warehouse.storage import Storage

NEW_YEAR = date(2026, 1, 1)


def test_a_log_is_what_was_kept_last_and_no_block(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "warehouse"))
    assert storage.log(1, NEW_YEAR) is None
    storage.delete_logs(NEW_YEAR)
    storage.keep_log(1, NEW_YEAR, "long ago")
    storage.keep_log(1, NEW_YEAR, "ö \udc80")
    assert storage.log(1, NEW_YEAR) == "ö \\udc80"
    assert storage.log(2, NEW_YEAR) is None
    assert storage.blocks() == []
    assert [file.name for file in tmp_path.rglob("*.*")] == ["run_1.log"]


@pytest.mark.parametrize("place", ["warehouse", "warehouse/_logs"])
def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("a file where a directory should be")
    with pytest.raises(StorageFailed, match="log"):
        Storage(str(tmp_path / "warehouse")).keep_log(1, NEW_YEAR, "text")


@given(st.lists(st.integers(0, 400), unique=True, max_size=8), st.integers(0, 400))
def test_logs_go_by_the_day_of_their_runs(
    tmp_path_factory: pytest.TempPathFactory, days: list[int], limit: int
) -> None:
    place = tmp_path_factory.mktemp("warehouse")
    storage = Storage(str(place))
    (place / "_logs" / "notes").mkdir(parents=True)
    for number, day in enumerate(days):
        storage.keep_log(number, NEW_YEAR + timedelta(days=day), str(day))
    storage.delete_logs(NEW_YEAR + timedelta(days=limit))
    left = [storage.log(number, NEW_YEAR + timedelta(days=day)) for number, day in enumerate(days)]
    assert left == [str(day) if day >= limit else None for day in days]
    assert (place / "_logs" / "notes").exists()


def test_each_placement_of_a_block_is_sealed_once_and_marked_when_it_is_published(tmp_path: Path) -> None:
    storage, block = Storage(str(tmp_path / "warehouse")), BlockName(7, "c0ffee")
    storage.create()
    texts = ("where it was written", "where another run has placed it")
    one, two = (hashlib.sha256(text.encode()).hexdigest() for text in texts)
    assert storage.manifest(block, manifest_file(one)) is None
    with pytest.raises(StorageFailed, match="marked"):
        storage.mark_committed([(block, one)])
    for text in texts:
        storage.seal(block, text)
        with pytest.raises(StorageFailed, match="manifest"):
            storage.seal(block, text)
    assert [storage.manifest(block, manifest_file(each)) for each in (one, two)] == list(texts)
    storage.mark_committed([(block, two)])
    assert set(storage.found(block) or ()) == {manifest_file(one), manifest_file(two), marker_file(manifest_file(two))}
    assert storage.recorded(block) == ()
    assert storage.blocks() == [block]
    storage.delete([BlockName(7), BlockName(7, "abcdef")])
    assert storage.blocks() == [block]
    storage.delete([block, block])
    assert storage.blocks() == []


def test_files_are_recorded_without_what_stands_beside_them(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    one = BlockName(1, "a")
    storage.seal(one, "of the first")
    for number in (0, 1):
        file = tmp_path / one.directory / f"part-0000{number}-x-c000.zstd.parquet"
        parquet.write_table(pa.table({"id": range(number + 2)}), file)
    first, second = recorded = storage.recorded(one)
    assert (first.rows, second.rows) == (2, 3)
    content = (tmp_path / one.directory / first.name).read_bytes()
    assert (first.size, first.checksum) == (len(content), hashlib.sha256(content).hexdigest())
    named = storage.name_buckets(one, recorded)
    assert [file.name for file in named] == [
        "part-00000-x-c000_00000.zstd.parquet",
        "part-00001-x-c000_00001.zstd.parquet",
    ]
    assert storage.recorded(one) == named
