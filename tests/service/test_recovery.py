"""A catalog that is lost, or restored from a backup, is what its warehouse says again."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.catalog import channel_store, runs
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.manifest import Manifest, digest, manifest_to_text
from kilonova.engine.garbage import collect_garbage
from kilonova.engine.run_events import no_listener
from kilonova.engine.run_protocol import ActiveRun, Participant, RunEnvironment, RunPlan, RunResults, execute_run
from kilonova.errors import CatalogError, Conflict, NotFound
from kilonova.model.block import Base, Block, BlockName, Delta, Kind, Statistics
from kilonova.model.channel import ChannelState, PointState
from kilonova.model.damage import manifest_file, marker_file
from kilonova.model.run import RunKind
from kilonova.model.version import Version
from kilonova.service.fsck import verify as fsck
from kilonova.service.ownership import WarehouseOwner, owner_of, owner_to_text, verify
from kilonova.service.project import Project, open_project
from kilonova.service.recovery import recover
from kilonova.warehouse.storage import OWNER, Storage
from tests.catalog.building import a_block, an_output, with_channels
from tests.databases import DIALECTS, empty_database
from tests.seeds import SEED

LEASE = timedelta(seconds=600)


def a_catalog(place: Path, name: str) -> Catalog:
    catalog = Catalog(f"sqlite:///{place / name}")
    catalog.create()
    return catalog


def made(place: Path, *channels: str) -> tuple[Catalog, Storage]:
    catalog, storage = a_catalog(place, "catalog.db"), Storage(str(place / "warehouse"))
    storage.create()
    verify(catalog, storage)
    with_channels(catalog, *channels)
    return catalog, storage


def root_of(storage: Storage) -> Path:
    return Path(storage.url.removeprefix("file://"))


def publish(catalog: Catalog, storage: Storage, channel: str, what: str = "delta") -> None:
    """Carry a run out on a channel: a delta, a base, a compaction of all or of deltas, or one of nothing or no luck."""
    environment = RunEnvironment(catalog=catalog, files=storage, owner="me", lease=LEASE, listener=no_listener)
    merges = what in ("compaction", "merged deltas")

    def prepare(_: Transaction) -> RunPlan[None]:
        kind = RunKind.COMPACTION if merges else RunKind.INGEST
        return RunPlan(kind=kind, tasks=(), writes=() if merges else (channel,), pins=(), plan=None)

    def work(begun: ActiveRun[None]) -> RunResults:
        if what == "failure":
            raise NotFound("no luck")
        with catalog.reading() as tx:
            state = channel_store.channel_state(tx, channel)
        point = state.latest_distinct if merges else begun.points[channel]
        deltas = state.snapshot(state.latest_readable).deltas
        if what == "merged deltas" and len(deltas) < 2:
            return RunResults(inputs=(), outputs=(), advances=())
        if what == "nothing":
            return RunResults(inputs=(), outputs=(an_output(channel, point, None),), advances=())
        kind: Kind = Base(point) if what in ("base", "compaction") else Delta(point - 1, point)
        if what == "merged deltas":
            kind = Delta(deltas[0].start, deltas[-2 if point % 2 else -1].end)
            point = kind.end
        block = replace(
            a_block(begun.name_block(channel), kind),
            statistics=Statistics(rows=point, bytes=0, files=0),
            stored=(),
        )
        output = an_output(channel, point, block, "compaction" if merges else None)
        return RunResults(inputs=(), outputs=(output,), advances=())

    try:
        execute_run(environment, prepare, work)
    except NotFound:
        assert what == "failure"


def states(catalog: Catalog) -> dict[str, ChannelState]:
    with catalog.reading() as tx:
        return channel_store.channel_states(tx)


def told(state: ChannelState) -> object:
    """What readers can see of a channel: how each point that can be read is put together, and what it reflects."""
    readable = {}
    for point in state.points:
        if point.state is PointState.FILLED:
            try:
                blocks = state.snapshot(point.number).blocks
            except NotFound:
                continue
            readable[point.number] = ([block.name for block in blocks], point.version)
    channel = replace(state.channel, several_writers=False)
    return channel, state.latest_distinct, readable


def test_a_lost_catalog_is_recovered_whatever_has_happened(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    for number in range(6):
        place = tmp_path / str(number)
        place.mkdir()
        catalog, storage = made(place, "clicks", "users")
        for channel in ("clicks", "users"):
            publish(catalog, storage, channel)
            for _ in range(chance.randrange(12)):
                publish(
                    catalog,
                    storage,
                    channel,
                    chance.choice(
                        ["delta", "delta", "delta", "base", "compaction", "merged deltas", "nothing", "failure"]
                    ),
                )
        if chance.random() < 0.5:
            collect_garbage(catalog, storage, no_listener)
        before = states(catalog)
        directories = storage.blocks()
        new = a_catalog(place, "new.db")
        with pytest.raises(CatalogError, match="kilonova recover"):
            verify(new, storage)
        done = recover(new, storage)
        verify(new, storage)
        after = states(new)
        assert {name: told(each) for name, each in after.items()} == {name: told(each) for name, each in before.items()}
        assert storage.blocks() == directories
        assert not fsck(new, storage).damaged
        with pytest.raises(CatalogError, match="belongs to the catalog"):
            verify(catalog, storage)
        assert recover(new, storage).run is None
        assert done.run is not None
        publish(new, storage, "clicks")
        newest = states(new)["clicks"]
        assert newest.latest > max(point.number for point in before["clicks"].points if point.state.value == "filled")
        assert max(storage.blocks()).number > max(directories).number
        assert states(new)["clicks"].snapshot(newest.latest).blocks[-1].number == max(storage.blocks()).number


def test_an_older_backup_gets_what_came_after_it(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    catalog, storage = made(tmp_path, "clicks", "users")
    for _ in range(3):
        publish(catalog, storage, "clicks")
    catalog.close()
    shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    catalog = a_catalog(tmp_path, "catalog.db")
    for _ in range(5):
        publish(catalog, storage, chance.choice(["clicks", "users"]))
    publish(catalog, storage, "clicks")
    publish(catalog, storage, "clicks", "compaction")
    collect_garbage(catalog, storage, no_listener)
    before = states(catalog)
    catalog.close()
    backup = a_catalog(tmp_path, "backup.db")
    done = recover(backup, storage)
    assert done.lost == 3
    assert {n: told(c) for n, c in states(backup).items()} == {n: told(c) for n, c in before.items()}
    with pytest.raises(CatalogError):
        verify(a_catalog(tmp_path, "catalog.db"), storage)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_numbers_go_on_in_a_database_of_either_kind(tmp_path: Path, dialect: str) -> None:
    catalog, storage = made(tmp_path, "clicks")
    for _ in range(3):
        publish(catalog, storage, "clicks")
    storage.seal(BlockName(20, "ab"), "no manifest")
    with empty_database(dialect) as url:
        new = Catalog(url)
        new.create()
        done = recover(new, storage)
        publish(new, storage, "clicks")
        assert max(storage.blocks()).number == 21
        with new.reading() as tx:
            assert runs.find_run(tx, None).number == (done.run or 0) + 1
        assert states(new)["clicks"].latest_readable == 4
        new.close()


def test_tasks_of_an_older_backup_start_from_scratch(tmp_path: Path, spark: SparkSession) -> None:
    def shop(limit: int) -> kn.Workflow:
        wf = kn.Workflow("shop")
        wf.channel("orders", "id bigint, amount bigint")

        @wf.task(schema="amount bigint")
        def large(orders: kn.New) -> kn.Delta:
            return orders.where(f"amount > {limit}").select("amount")

        return wf

    def ingest(project: Project, *amounts: int) -> None:
        project.ingest("orders", spark.createDataFrame(list(enumerate(amounts)), "id bigint, amount bigint"))
        project.run()

    with open_project(tmp_path, session=spark) as project:
        project.create()
        project.apply(shop(4))
        project.apply(shop(5))  # the second logic version of the task
        ingest(project, 3, 7)
        project.close()
        shutil.copytree(tmp_path / ".kilonova", tmp_path / "backup", ignore=shutil.ignore_patterns("warehouse"))
    with open_project(tmp_path, session=spark) as project:
        ingest(project, 9, 11)
    for file in (tmp_path / ".kilonova").glob("catalog.db*"):
        file.unlink()
    shutil.copytree(tmp_path / "backup", tmp_path / ".kilonova", dirs_exist_ok=True)
    with open_project(tmp_path, session=spark) as project:
        assert project.recover().added == 2
        assert sorted(project.rows("orders")[1]) == [(0, 3), (0, 9), (1, 7), (1, 11)]
        assert project.apply(shop(5)).empty
        ingest(project, 13)
        assert sorted(project.rows("large")[1]) == [(7,), (9,), (11,), (13,)]


def test_what_was_not_published_is_left_and_named(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks")
    for _ in range(4):
        publish(catalog, storage, "clicks")
    blocks = storage.blocks()
    next((root_of(storage) / blocks[2].directory).glob("_committed_*")).unlink()
    storage.seal(BlockName(9), "no manifest")
    new = a_catalog(tmp_path, "new.db")
    done = recover(new, storage)
    [channel] = done.channels
    assert [each.block.end for each in channel.blocks] == [1, 2]
    assert [(doubt.what, doubt.why) for doubt in channel.doubts] == [
        (blocks[2].directory, "it is not marked as published"),
        (blocks[3].directory, "the point that it starts from, 3, does not exist"),
        ("point 4", "lost; the newest readable point is 2"),
    ]
    assert [doubt.what for doubt in done.doubts] == ["block_9"]
    assert [point.state.value for point in states(new)["clicks"].points] == ["filled", "filled", "cancelled"]
    publish(new, storage, "clicks")
    assert states(new)["clicks"].latest == 5
    collected = collect_garbage(new, storage, no_listener)
    assert set(collected.unknown_directories) == {blocks[2].directory, blocks[3].directory, "block_9"}
    assert set(blocks) < set(storage.blocks())


def test_a_block_that_others_reflect_was_published(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks")
    for _ in range(2):
        publish(catalog, storage, "clicks")
    first, _ = storage.blocks()
    next((root_of(storage) / first.directory).glob("_committed_*")).unlink()
    entries = dict(Version.source("clicks", 1).entries)
    [entry] = entries.values()
    derived = Version.of({("clicks", "count"): tuple(replace(each, logic=(3,)) for each in entry)})
    block = replace(a_block(BlockName(7, "ab"), Base(1)), statistics=Statistics(rows=1, bytes=0, files=0), stored=())
    with catalog.reading() as tx:
        identity = tx.identity()
    manifest = Manifest(catalog=identity, channel="count", task="count", run=5, point=1, version=derived, block=block)
    text = manifest_to_text(manifest)
    storage.seal(block.name, text)
    storage.mark_committed([(block.name, digest(text))])
    done = recover(a_catalog(tmp_path, "new.db"), storage)
    assert {each.name: sorted(each.points) for each in done.channels} == {"clicks": [1, 2], "count": [1]}


def fail(_tx: Transaction, _run: int) -> None:
    """Fail the commit of a run, after its blocks were sealed."""
    raise RuntimeError("no")


def share(catalog: Catalog, storage: Storage, block: Block, channel: str, *participants: Participant) -> None:
    """Carry a run out that places a block of another channel in a channel."""
    environment = RunEnvironment(catalog=catalog, files=storage, owner="me", lease=LEASE, listener=no_listener)

    def prepare(_: Transaction) -> RunPlan[None]:
        return RunPlan(kind=RunKind.TASKS, tasks=(), writes=(channel,), pins=(), plan=None, participants=participants)

    def work(begun: ActiveRun[None]) -> RunResults:
        assert begun.share_blocks([block.number])
        point = begun.points[channel]
        output = an_output(channel, point, replace(block, kind=Delta(point - 1, point)), "copied")
        return RunResults(inputs=(), outputs=(output,), advances=())

    execute_run(environment, prepare, work)


def test_a_block_in_several_channels_is_recovered_in_all_of_them(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks", "users")
    publish(catalog, storage, "users")
    for _ in range(3):
        publish(catalog, storage, "clicks")
    _, second, third = states(catalog)["clicks"].blocks
    share(catalog, storage, second, "users")
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database:
        database.execute(f"VACUUM INTO '{tmp_path / 'backup.db'}'")
    share(catalog, storage, third, "users")
    found = fsck(catalog, storage, checksums=True)
    assert (found.blocks, found.damaged, found.unmarked, found.unreferenced) == (4, (), (), ())
    before = states(catalog)
    assert [block.number for block in before["users"].blocks][1:] == [second.number, third.number]
    assert len([name for name in storage.found(third.name) or {} if marker_file(name)]) == 2

    for name, added in (("new.db", 4), ("backup.db", 1)):
        other = a_catalog(tmp_path, name)
        done = recover(other, storage)
        assert (done.added, done.doubts, [channel.doubts for channel in done.channels]) == (added, (), [(), ()])
        assert {n: told(c) for n, c in states(other).items()} == {n: told(c) for n, c in before.items()}
        assert fsck(other, storage, checksums=True).damaged == ()
        other.close()


def test_what_a_failed_run_has_sealed_of_a_shared_block_is_not_recovered(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks", "users")
    publish(catalog, storage, "clicks")
    [block] = states(catalog)["clicks"].blocks
    publish(catalog, storage, "users")
    with pytest.raises(RuntimeError):
        share(catalog, storage, block, "users", Participant(on_commit=fail))
    publish(catalog, storage, "users")
    before = states(catalog)
    other = a_catalog(tmp_path, "new.db")
    assert recover(other, storage).added == 3
    assert {n: told(c) for n, c in states(other).items()} == {n: told(c) for n, c in before.items()}


def test_a_dropped_channel_does_not_come_back_with_a_shared_block(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks", "users")
    publish(catalog, storage, "clicks")
    [block] = states(catalog)["clicks"].blocks
    share(catalog, storage, block, "users")
    with catalog.writing() as tx:
        kept = channel_store.drop_channel(tx, "users")
    assert [name for name, _ in kept] == [block.name]
    storage.unseal(kept)
    assert fsck(catalog, storage).damaged == ()
    done = recover(a_catalog(tmp_path, "new.db"), storage)
    assert {each.name: len(each.blocks) for each in done.channels} == {"clicks": 1}


def test_only_published_placements_of_a_block_are_recovered(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks", "users")
    publish(catalog, storage, "clicks")
    [block] = states(catalog)["clicks"].blocks
    share(catalog, storage, block, "users")
    [placed] = states(catalog)["users"].blocks
    assert placed.manifest is not None
    (root_of(storage) / block.name.directory / str(marker_file(manifest_file(placed.manifest)))).unlink()
    [found] = fsck(catalog, storage).unmarked
    assert (found.channel, found.written.name) == ("users", block.name)
    done = recover(a_catalog(tmp_path, "new.db"), storage)
    assert {each.name: len(each.blocks) for each in done.channels} == {"clicks": 1, "users": 0}
    assert [doubt.why for each in done.channels for doubt in each.doubts] == ["it is not marked as published"]


def test_a_placement_in_a_dropped_channel_is_not_recovered_if_the_catalog_knows_the_block(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks", "users")
    publish(catalog, storage, "clicks")
    [block] = states(catalog)["clicks"].blocks
    share(catalog, storage, block, "users")
    with catalog.writing() as tx:
        channel_store.drop_channel(tx, "clicks")
    publish(catalog, storage, "users")
    assert recover(catalog, storage).run is None
    assert sorted(states(catalog)) == ["users"]
    assert next(each.number for each in states(catalog)["users"].blocks) == block.number


def test_two_histories_of_a_channel_are_not_mixed(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks")
    publish(catalog, storage, "clicks")
    catalog.close()
    shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    publish(a_catalog(tmp_path, "catalog.db"), storage, "clicks")
    backup = a_catalog(tmp_path, "backup.db")
    publish(backup, storage, "clicks")
    lost = a_catalog(tmp_path, "new.db")
    done = recover(lost, storage)
    assert sorted(done.channels[0].points) == [1]
    assert sum("another block also leads to point 2" in doubt.why for doubt in done.channels[0].doubts) == 2


def test_recovery_is_refused_during_a_run_and_over_another_warehouse(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks")
    publish(catalog, storage, "clicks")
    with catalog.writing() as tx:
        runs.start(tx, kind=RunKind.INGEST, tasks=(), writes=("clicks",), owner="me", lease=LEASE)
    with pytest.raises(Conflict, match="a run is still running"):
        recover(catalog, storage)
    (tmp_path / "other").mkdir()
    other, _ = made(tmp_path / "other", "clicks")
    publish(other, _, "clicks")
    with pytest.raises(CatalogError, match="another warehouse"):
        recover(other, storage)


@pytest.mark.parametrize("before", [True, False])
def test_a_recovery_that_was_killed_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    catalog, storage = made(tmp_path, "clicks")
    for _ in range(3):
        publish(catalog, storage, "clicks")
    expected = told(states(catalog)["clicks"])
    new = a_catalog(tmp_path, "new.db")
    real = Storage.hand_over

    def killed(self: Storage, owner: str) -> None:
        if not before:
            real(self, owner)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "hand_over", killed)
        with pytest.raises(KeyboardInterrupt):
            recover(new, storage)
    assert not states(new)
    with pytest.raises(CatalogError, match="kilonova recover"):
        verify(new, storage)
    recover(new, storage)
    verify(new, storage)
    assert told(states(new)["clicks"]) == expected


def test_a_warehouse_without_owner_is_recovered_if_its_blocks_agree(tmp_path: Path) -> None:
    catalog, storage = made(tmp_path, "clicks")
    publish(catalog, storage, "clicks")
    place = root_of(storage) / OWNER
    place.unlink()
    recover(a_catalog(tmp_path, "one.db"), storage)
    storage.hand_over(owner_to_text(WarehouseOwner(catalog="other")))
    done = recover(a_catalog(tmp_path, "two.db"), storage)
    assert [doubt.why.split(",")[0] for doubt in done.doubts] == ["it is of another catalog"]
    assert owner_of(storage) is not None
