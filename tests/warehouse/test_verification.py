"""Blocks that are read are compared with what was written: names and sizes at first, contents where asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kilonova.errors import BlockDamaged
from kilonova.model.block import Base, Block, BlockName, Statistics
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.verification import BELIEVED, Verification
from tests.catalog.building import a_block


def flip(file: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def a_stored_block(storage: Storage, number: int = 7) -> tuple[Block, Path]:
    """A block of two files, and its directory."""
    name = BlockName(number, "c0ffee")
    storage.seal(name, "{}")
    place = Path(storage.url.removeprefix("file://")) / name.directory
    for part in range(2):
        parquet.write_table(pa.table({"id": range(part + 100)}), place / f"part-0000{part}-{number}.parquet")
    stored = storage.recorded(name)
    told = Statistics(rows=201, bytes=sum(file.size for file in stored), files=2)
    return replace(a_block(name, Base(1)), stored=stored, statistics=told), place


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the file part-00000-7.parquet is missing": lambda place: (place / "part-00000-7.parquet").unlink(),
    "the file part-00001-7.parquet is of another size": lambda place: (place / "part-00001-7.parquet").write_bytes(b""),
    "the file part-2.parquet is foreign": lambda place: (place / "part-2.parquet").write_bytes(b"PAR1"),
    "its directory is missing": lambda place: place.rename(place.with_name("elsewhere")),
}


@pytest.mark.parametrize("problem", DAMAGES)
@pytest.mark.parametrize("known", [True, False], ids=["", "of an older release"])
def test_what_is_missing_foreign_or_of_another_size_is_refused(tmp_path: Path, problem: str, known: bool) -> None:
    storage = Storage(str(tmp_path))
    block, place = a_stored_block(storage)
    block = block if known else replace(block, stored=None)
    Verification(storage).check([block])
    DAMAGES[problem](place)
    with pytest.raises(BlockDamaged, match=problem if known else "its directory is") as raised:
        Verification(storage).check([block])
    assert (raised.value.path, raised.value.transient) == (storage.path(block.name), False)
    assert "kilonova fsck" in str(raised.value)


def test_contents_are_compared_where_asked(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    block, place = a_stored_block(storage)
    verification, careful = Verification(storage), Verification(storage, checksums=True)
    careful.check([block])
    flip(place / "part-00001-7.parquet")
    verification.check([block])
    careful.check([block])  # it has read them once
    for each in (verification, careful):
        with pytest.raises(BlockDamaged, match=r"part-00001-7\.parquet is of another content"):
            each.check([block], checksums=True)
    with pytest.raises(BlockDamaged):
        Verification(storage, checksums=True).check([block])


def test_a_block_found_whole_is_believed_for_a_while_and_what_stands_beside_its_files_is_no_matter(
    tmp_path: Path,
) -> None:
    now, storage = [0.0], Storage(str(tmp_path))
    block, place = a_stored_block(storage)
    next(place.glob("_block_*.json")).unlink()
    (place / "_SUCCESS").touch()
    (place / ".hidden").touch()
    verification = Verification(storage, clock=lambda: now[0])
    verification.check([block])
    (place / "part-00000-7.parquet").unlink()
    verification.check([block])
    now[0] = BELIEVED + 1
    with pytest.raises(BlockDamaged):
        verification.check([block])
    other, _ = a_stored_block(storage, 8)
    verification.check([other])
    storage.delete([other.name])
    verification.forget([other.name])
    with pytest.raises(BlockDamaged):
        verification.check([other])
