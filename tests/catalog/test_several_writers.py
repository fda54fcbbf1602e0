"""What the points of a channel reflect that tasks write and ingests beside them, in whichever order they commit."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kilonova.catalog import channel_registry, channel_store, registry, run_records, runs
from kilonova.catalog.database import Catalog
from kilonova.model.block import Delta
from kilonova.model.channel import PointState
from kilonova.model.run import RunKind
from kilonova.model.task import Mode
from kilonova.model.version import Version
from tests.catalog.building import LEASE, a_block, a_channel, a_task, an_output, with_channels
from tests.seeds import SEED

TASKS = {"from_a": "a", "from_b": "b"}


def begun(catalog: Catalog, writer: str | None) -> tuple[int, int]:
    """A run that a task writes in, or that ingests, and its point."""
    kind, tasks = (RunKind.INGEST, ()) if writer is None else (RunKind.TASKS, (writer,))
    with catalog.writing() as tx:
        run, points = runs.start(tx, kind=kind, tasks=tasks, writes=("both",), owner="me", lease=LEASE)
    return run, points["both"]


@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_a_point_reflects_what_all_writers_have_brought_up_to_it(catalog: Catalog, seed: int) -> None:
    with_channels(catalog, *TASKS.values())
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [replace(a_channel("both"), several_writers=True)], "w")
        registry.put_tasks(tx, [a_task(name, {channel: Mode.NEW}, ("both",)) for name, channel in TASKS.items()], "w")
    chance = random.Random(seed)
    going: dict[tuple[int, int], str | None] = {}
    brought: dict[int, tuple[str | None, Version]] = {}
    for step in range(24):
        free = [None, *(name for name in TASKS if name not in going.values())]
        if step < 16 and chance.random() < 0.6:
            writer = chance.choice(free)
            going[begun(catalog, writer)] = writer
            continue
        if not going:
            continue
        run, point = chance.choice(list(going))
        writer = going.pop((run, point))
        version = Version.source("both", point)
        if writer is not None:
            version = Version.source(TASKS[writer], step).through(writer, 0)
        with catalog.writing() as tx:
            if chance.random() < 0.2:
                runs.fail(tx, run, "no")
                continue
            block = a_block(channel_store.new_block(tx, "both", run), Delta(point - 1, point))
            output = replace(an_output("both", point, block, writer), version=version)
            runs.commit(tx, run, inputs=(), outputs=(output,), advances=())
        brought[point] = writer, version
        with catalog.reading() as tx:
            found = channel_store.channel_state(tx, "both")
        for each in found.points:
            if each.state is PointState.FILLED:
                last = {who: said for number, (who, said) in sorted(brought.items()) if number <= each.number}
                wanted = Version()
                for said in last.values():
                    wanted = wanted.joined(said)
                assert each.version == wanted
        for name in TASKS:
            own = [said for _, (who, said) in sorted(brought.items()) if who == name]
            assert found.committed.by(name) == (own[-1] if own else Version())


def test_the_tasks_of_one_run_have_points_of_their_own(catalog: Catalog) -> None:
    with_channels(catalog, "a", "other")
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [replace(a_channel("both"), several_writers=True)], "w")
        run, points = runs.start(
            tx, kind=RunKind.TASKS, tasks=(), writes=("both", "other", "both"), owner="me", lease=LEASE
        )
        assert points == {"both": 1, "other": 1}
        blocks = [a_block(channel_store.new_block(tx, "both", run), Delta(point - 1, point)) for point in (1, 2)]
        outputs = [an_output("both", point, block, f"t{point}") for point, block in enumerate(blocks, 1)]
        runs.commit(tx, run, inputs=(), outputs=outputs, advances=())
        assert [(each.task, each.point) for each in run_records.outputs(tx, [run])] == [("t1", 1), ("t2", 2)]
        assert channel_store.channel_state(tx, "both").latest_readable == 2
        assert channel_store.channel_state(tx, "both").channel.several_writers
        assert not channel_store.channel_state(tx, "other").channel.several_writers
