"""Garbage collection where the full disk also holds the catalog."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kilonova.catalog import channel_store, runs
from kilonova.engine import garbage
from kilonova.engine.interfaces import BlockStore
from kilonova.errors import CatalogFull
from kilonova.model.block import BlockName
from kilonova.service.project import Project, open_project
from tests.catalog.building import begin, ingested, with_channels


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def write(project: Project, directory: str) -> None:
    """Write a block of half a megabyte."""
    folder = project.directory / "warehouse" / directory
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"x" * (1 << 19))


def fill(disk: Path) -> None:
    """Write until there is no room."""
    file = os.open(disk / "other", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        while True:
            os.write(file, b"x" * 4096)
    except OSError:
        os.close(file)


def opened(disk: Path) -> Project:
    return open_project(disk, catalog="catalog.db", warehouse="warehouse")


def made(disk: Path, *, failed: bool) -> None:
    """A project with three bases of a channel, of which the last is needed; or with what a run that failed has left."""
    with opened(disk) as project:
        project.create()
        with_channels(project.catalog, "clicks")
        for _ in range(1 if failed else 3):
            ingested(project.catalog, "clicks", base=True)
        with project.catalog.reading() as tx:
            for block in channel_store.channel_state(tx, "clicks").blocks:
                write(project, block.name.directory)
        if failed:
            with project.catalog.writing() as tx:
                run, _ = begin(tx, "clicks")
                write(project, channel_store.new_block(tx, "clicks", run).directory)
                runs.fail(tx, run, "it failed")


@pytest.mark.parametrize("failed", [False, True], ids=["redundant blocks", "a failed run"])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside another process"])
def test_garbage_is_deleted_though_nothing_can_be_written(disk: Path, others: bool, failed: bool) -> None:
    made(disk, failed=failed)
    with ExitStack() as stack:
        if others:
            beside = stack.enter_context(opened(disk))
            beside.catalog.identity()
        fill(disk)
        project = stack.enter_context(opened(disk))
        with pytest.raises(CatalogFull, match="kilonova gc"):
            ingested(project.catalog, "clicks")
        project.collect_garbage()
        assert len(project.resources.block_store().blocks()) == 1
        with project.catalog.reading() as tx:
            channel_state = channel_store.channel_state(tx, "clicks")
            [kept] = channel_state.snapshot(channel_state.latest_readable).blocks
            states = channel_store.block_states(tx)
        assert {name.number: state for name, state in states.items()} == {
            number: channel_store.LIVE if number == kept.number else channel_store.GONE
            for number in range(1, len(states) + 1)
        }
        ingested(project.catalog, "clicks")


def test_where_nothing_can_go_nothing_is_lost(disk: Path) -> None:
    made(disk, failed=True)
    with opened(disk) as project:
        project.collect_garbage()
    fill(disk)
    with opened(disk) as project:
        done = project.collect_garbage()
        assert [verdict.goes for verdict in done.verdicts] == [False]
        assert len(project.resources.block_store().blocks()) == 1
    (disk / "other").unlink()
    with opened(disk) as project:
        ingested(project.catalog, "clicks")


def test_blocks_whose_files_went_before_a_crash_go_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, failed=False)
    delete = garbage._delete_each

    def crash(files: BlockStore, blocks: Iterable[BlockName]) -> None:
        delete(files, blocks)
        raise KeyboardInterrupt

    with opened(tmp_path) as project:
        with monkeypatch.context() as patch:
            patch.setattr(garbage, "_delete_each", crash)
            patch.setattr(garbage, "_delete_dead", lambda *_: None)
            with pytest.raises(KeyboardInterrupt):
                garbage.collect_garbage(
                    project.catalog, project.resources.block_store(), project.resources.listener, full=True
                )
        assert len(project.resources.block_store().blocks()) == 1
        assert sum(verdict.goes for verdict in project.collect_garbage().verdicts) == 2
        assert all(not verdict.goes for verdict in project.collect_garbage().verdicts)
