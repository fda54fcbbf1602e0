"""Every damage of a warehouse is found, and named, whatever it is."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kilonova.catalog import channel_store, events
from kilonova.catalog.database import Catalog, Transaction, utc_now
from kilonova.engine.run_events import no_listener
from kilonova.engine.run_protocol import ActiveRun, RunEnvironment, RunPlan, RunResults, execute_run
from kilonova.errors import NotFound
from kilonova.model.block import BlockName, Delta, Statistics
from kilonova.model.event import EventKind
from kilonova.model.run import RunKind
from kilonova.schedule.repair import RepairMethod
from kilonova.service.fsck import FsckReport, mend, verify, verify_some
from kilonova.warehouse.storage import Storage
from tests.catalog.building import a_block, an_output, with_channels
from tests.databases import Clock
from tests.seeds import SEED

CHANNELS = ("clicks", "users", "pages")

MANIFESTS = "_block_*.json"


def publish(catalog: Catalog, storage: Storage, channel: str, *sizes: int) -> None:
    """Commit a run that writes a block of as many files, which have so many rows."""
    environment = RunEnvironment(
        catalog=catalog, files=storage, owner="me", lease=timedelta(seconds=600), listener=no_listener
    )

    def prepare(_: Transaction) -> RunPlan[None]:
        return RunPlan(kind=RunKind.INGEST, tasks=(), writes=(channel,), pins=(), plan=None)

    def work(begun: ActiveRun[None]) -> RunResults:
        name, point = begun.name_block(channel), begun.points[channel]
        place = root_of(storage) / name.directory
        place.mkdir()
        for part, rows in enumerate(sizes):
            file = place / f"part-{part:05d}-{name.suffix}.zstd.parquet"
            parquet.write_table(pa.table({"id": range(rows), "note": ["x"] * rows}), file)
        stored = storage.recorded(name)
        told = Statistics(rows=sum(sizes), bytes=sum(file.size for file in stored), files=len(stored))
        block = a_block(name, Delta(point - 1, point))
        block = replace(block, stored=stored, statistics=told)
        return RunResults(inputs=(), outputs=(an_output(channel, point, block),), advances=())

    assert execute_run(environment, prepare, work) is not None


def root_of(storage: Storage) -> Path:
    return Path(storage.url.removeprefix("file://"))


def made(place: Path, channels: tuple[str, ...], clock: Callable[[], datetime] = utc_now) -> tuple[Catalog, Storage]:
    """A catalog with channels, and its warehouse."""
    catalog, storage = Catalog(f"sqlite:///{place / 'catalog.db'}", clock), Storage(str(place / "warehouse"))
    catalog.create()
    storage.create()
    with_channels(catalog, *channels)
    return catalog, storage


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Catalog, Path]:
    """A catalog, and the warehouse of its twelve blocks, of which one has no files."""
    catalog, storage = made(tmp_path_factory.mktemp("filled"), CHANNELS)
    for number in range(12):
        publish(catalog, storage, CHANNELS[number % 3], *([] if number == 5 else [number + 10] * (1 + number % 3)))
    return catalog, root_of(storage)


def data(place: Path) -> list[Path]:
    return sorted(place.glob("part-*"))


def pick(root: Path, chance: random.Random, *, files: bool = True) -> Path:
    """The directory of some block, of one that has files if asked for."""
    return chance.choice([place for place in sorted(root.glob("block_*")) if data(place) or not files])


def flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def delete_file(root: Path, chance: random.Random) -> set[str]:
    place = pick(root, chance)
    chance.choice(data(place)).unlink()
    return {place.name}


def truncate(root: Path, chance: random.Random) -> set[str]:
    place = pick(root, chance)
    file = chance.choice(data(place))
    os.truncate(file, chance.choice([0, chance.randrange(file.stat().st_size)]))
    return {place.name}


def swap_files(root: Path, chance: random.Random) -> set[str]:
    one = pick(root, chance)
    other = chance.choice([place for place in root.glob("block_*") if data(place) and place != one])
    swap(chance.choice(data(one)), chance.choice(data(other)))
    return {one.name, other.name}


def swap_directories(root: Path, chance: random.Random) -> set[str]:
    one, other = chance.sample(sorted(root.glob("block_*")), 2)
    swap(one, other)
    return {one.name, other.name}


def add_file(root: Path, chance: random.Random) -> set[str]:
    place = pick(root, chance, files=False)
    shutil.copy(chance.choice(data(pick(root, chance))), place / f"part-{chance.randrange(100, 1000):05d}.parquet")
    return {place.name}


def flip_bit(root: Path, chance: random.Random) -> set[str]:
    place = pick(root, chance)
    flip(chance.choice(data(place)), chance)
    return {place.name}


def flip_bit_of_manifest(root: Path, chance: random.Random) -> set[str]:
    place = pick(root, chance, files=False)
    flip(next(place.glob(MANIFESTS)), chance)
    return {place.name}


def delete_manifest(root: Path, chance: random.Random) -> set[str]:
    place = pick(root, chance, files=False)
    next(place.glob(MANIFESTS)).unlink()
    return {place.name}


def delete_directory(root: Path, chance: random.Random) -> set[str]:
    place = pick(root, chance, files=False)
    shutil.rmtree(place)
    return {place.name}


DAMAGES: tuple[Callable[[Path, random.Random], set[str]], ...] = (
    delete_file,
    truncate,
    swap_files,
    swap_directories,
    add_file,
    flip_bit,
    flip_bit_of_manifest,
    delete_manifest,
    delete_directory,
)


def names(found: FsckReport) -> set[str]:
    return {each.block.written.name.directory for each in found.damaged}


def test_every_one_of_two_hundred_random_damages_is_found(filled: tuple[Catalog, Path], tmp_path: Path) -> None:
    catalog, root = filled
    whole = verify(catalog, Storage(str(root)), checksums=True)
    assert (whole.blocks, whole.damaged, whole.unreferenced, whole.unmarked) == (12, (), (), ())
    assert whole.files == len(list(root.rglob("*.parquet")))
    chance = random.Random(SEED)
    for number in range(200):
        copy = tmp_path / str(number)
        shutil.copytree(root, copy)
        damage = DAMAGES[number % len(DAMAGES)]
        damaged = damage(copy, chance)
        found = verify(catalog, Storage(str(copy)), checksums=True)
        assert names(found) == damaged, f"{damage.__name__}, seed {SEED}, number {number}"
        assert not found.is_whole
        assert {each.channel for each in found.remedies} == {each.block.channel for each in found.damaged}
        shutil.rmtree(copy)


def test_names_and_sizes_are_compared_without_reading_a_file(filled: tuple[Catalog, Path], tmp_path: Path) -> None:
    catalog, root = filled
    copy, chance, heard = tmp_path / "copy", random.Random(SEED), list[tuple[int, int]]()
    shutil.copytree(root, copy)
    flip_bit(copy, chance)
    found = verify(catalog, Storage(str(copy)), progress=lambda done, total: heard.append((done, total)))
    assert found.is_whole
    assert heard[-1] == (12, 12)
    damaged = truncate(copy, chance)
    assert names(verify(catalog, Storage(str(copy)))) == damaged
    with pytest.raises(NotFound):
        verify(catalog, Storage(str(copy)), ["nothing"])


def test_what_stands_beside_rows_is_mended(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, ("pages",))
    for rows in (3, 4):
        publish(catalog, storage, "pages", rows)
    with catalog.reading() as tx:
        one, other = (
            root_of(storage) / block.name.directory for block in channel_store.channel_state(tx, "pages").blocks
        )
    (root_of(storage) / BlockName(99, "abc").directory).mkdir()
    [lost], [changed] = one.glob(MANIFESTS), other.glob(MANIFESTS)
    lost.unlink()
    next(one.glob("_committed_*")).unlink()
    changed.write_text("{}")
    (other / "added.parquet").write_text("not mine")

    found = verify(catalog, storage, checksums=True)
    assert [[str(damage) for damage in each.damages] for each in found.damaged] == [
        [f"the file {lost.name} is missing"],
        ["the file added.parquet is foreign", f"the file {changed.name} is of another content"],
    ]
    assert not any(each.is_lost for each in found.damaged)
    assert [each.method for each in found.remedies] == [RepairMethod.MEND]
    assert found.unreferenced == ("block_99_abc",)
    assert [block.written.name.directory for block in found.unmarked] == [one.name]
    mend(catalog, storage, found)
    again = verify(catalog, storage, checksums=True)
    assert (again.damaged, again.unmarked) == ((), ())
    assert (other / "_foreign_added.parquet").read_text() == "not mine"


def test_lost_rows_of_a_source_must_be_brought_again(filled: tuple[Catalog, Path], tmp_path: Path) -> None:
    catalog, root = filled
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    delete_file(copy, random.Random(SEED))
    [remedy] = verify(catalog, Storage(str(copy))).remedies
    assert (remedy.method, remedy.is_automatic, remedy.task) == (RepairMethod.INGEST, False, None)


def test_blocks_are_verified_one_after_the_other_and_again_when_that_was_long_ago(tmp_path: Path) -> None:
    clock = Clock()
    catalog, storage = made(tmp_path, ("clicks",), clock)
    for rows in (3, 4, 5):
        publish(catalog, storage, "clicks", rows)
    week = timedelta(days=7)
    first, second, third = sorted(root_of(storage).glob("block_*"))
    flip(data(first)[0], random.Random(SEED))
    assert verify_some(catalog, storage, week, 60) == ()  # they have just been written
    clock.forward(week.total_seconds() + 1)
    assert verify_some(catalog, storage, week, -1) == ()  # there was no time
    found = verify_some(catalog, storage, week, 60)
    assert [each.block.written.name.directory for each in found] == [first.name]
    assert verify_some(catalog, storage, week, 60) == ()  # it has been told of
    data(second)[0].unlink()
    shutil.rmtree(third)
    clock.forward(week.total_seconds() + 1)
    found = verify_some(catalog, storage, week, 60)
    assert [each.block.written.name.directory for each in found] == [first.name, second.name, third.name]
    with catalog.reading() as tx:
        told = [each for each in events.since(tx, 0) if each.kind is EventKind.DAMAGED]
    assert [each.channels for each in told] == [("clicks",)] * 4
    assert "is missing" in told[2].text
