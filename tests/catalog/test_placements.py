"""Blocks that several channels have, by reference."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest

from kilonova.catalog import channel_store, runs
from kilonova.catalog.database import Catalog
from kilonova.errors import Conflict
from kilonova.model.block import Base, Block, Delta
from tests.catalog.building import LEASE, a_block, an_output, begin, ingested, with_channels
from tests.databases import Clock

CHANNELS = ("written", "shared", "shared_too")


@dataclass
class Part:
    """A run that has a block in common with others."""

    channel: str
    run: int
    point: int
    block: Block

    def commit(self, catalog: Catalog) -> None:
        placed = replace(self.block, kind=Delta(self.point - 1, self.point), manifest=self.channel)
        with catalog.writing() as tx:
            runs.commit(tx, self.run, inputs=(), outputs=[an_output(self.channel, self.point, placed)], advances=())

    def fail(self, catalog: Catalog) -> None:
        with catalog.writing() as tx:
            runs.fail(tx, self.run, "no luck")


def begun(catalog: Catalog, *channels: str) -> list[Part]:
    """Begin a run for each channel; the first has written a block that the others share."""
    with catalog.writing() as tx:
        started = [(channel, *begin(tx, channel)) for channel in channels]
        block = a_block(channel_store.new_block(tx, channels[0], started[0][1]), Base(1))
        for _, run, _ in started[1:]:
            assert runs.share_blocks(tx, run, [block.number], LEASE)
    return [Part(channel, run, points[channel], block) for channel, run, points in started]


def state_of(catalog: Catalog, block: Block) -> str:
    with catalog.reading() as tx:
        return channel_store.block_states(tx, [block.name])[block.name]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_shared_block_is_live_where_it_was_committed_and_deleted_if_it_was_nowhere(
    catalog: Catalog, order: tuple[int, ...]
) -> None:
    with_channels(catalog, *CHANNELS)
    for succeeding in itertools.product((True, False), repeat=3):
        parts = begun(catalog, *CHANNELS)
        block, committed, running = parts[0].block, set(), set(order)
        for number in order:
            running.remove(number)
            if succeeding[number]:
                parts[number].commit(catalog)
                committed.add(parts[number].channel)
            else:
                parts[number].fail(catalog)
            left = channel_store.WRITING if running else channel_store.DOOMED
            assert state_of(catalog, block) == (channel_store.LIVE if committed else left)
        with catalog.writing() as tx:
            states = channel_store.channel_states(tx)
            doomed = channel_store.marked_for_deletion(tx)
            assert doomed == ([] if committed else [block.name])
            channel_store.mark_deleted(tx, [name.number for name in doomed])
        held = {name: [b for b in state.blocks if b.number == block.number] for name, state in states.items()}
        assert {name for name, found in held.items() if found} == committed
        for part in parts:
            for found in held[part.channel]:
                assert (found.kind, found.manifest) == (Delta(part.point - 1, part.point), part.channel)


@pytest.mark.parametrize("first", [0, 1])
def test_a_block_in_two_channels_stays_until_both_have_removed_it(catalog: Catalog, first: int) -> None:
    with_channels(catalog, *CHANNELS)
    parts = begun(catalog, *CHANNELS[:2])
    for part in parts:
        part.commit(catalog)
    one, other, block = CHANNELS[first], CHANNELS[1 - first], parts[0].block
    with catalog.reading() as tx:
        before = channel_store.channel_state(tx, other)
    with catalog.writing() as tx:
        assert channel_store.remove_blocks(tx, one, [block.number]) == []
        assert channel_store.remove_blocks(tx, one, [block.number]) == []
    with catalog.reading() as tx:
        assert channel_store.channel_state(tx, one).blocks == ()
        assert channel_store.channel_state(tx, other) == before
    assert state_of(catalog, block) == channel_store.LIVE
    with catalog.writing() as tx:
        assert channel_store.remove_blocks(tx, other, [block.number]) == [block.name]
    assert state_of(catalog, block) == channel_store.DOOMED


def test_a_dropped_channel_leaves_the_blocks_that_others_have(catalog: Catalog) -> None:
    with_channels(catalog, *CHANNELS)
    parts = begun(catalog, *CHANNELS[:2])
    for part in parts:
        part.commit(catalog)
    _, own = ingested(catalog, "written")
    with catalog.writing() as tx:
        channel_store.drop_channel(tx, "written")
    with catalog.reading() as tx:
        assert [name.number for name in channel_store.marked_for_deletion(tx)] == [own]
        assert [block.number for block in channel_store.channel_state(tx, "shared").blocks] == [parts[0].block.number]


def test_a_block_that_was_deleted_is_neither_shared_nor_published(catalog: Catalog) -> None:
    with_channels(catalog, *CHANNELS)
    with catalog.writing() as tx:
        writer, _ = begin(tx, "written")
        sharer, points = begin(tx, "shared")
        block = a_block(channel_store.new_block(tx, "written", writer), Base(1))
        runs.fail(tx, writer, "no luck")
        assert not runs.share_blocks(tx, sharer, [block.number], LEASE)
        assert runs.share_blocks(tx, sharer, [], LEASE)
    part = Part("shared", sharer, points["shared"], block)
    with pytest.raises(Conflict, match="was deleted"):
        part.commit(catalog)
    part.fail(catalog)
    with catalog.writing() as tx:
        assert not runs.share_blocks(tx, sharer, [], LEASE), "the run has ended"


def test_shared_blocks_of_silent_processes_are_deleted(catalog: Catalog, clock: Clock) -> None:
    with_channels(catalog, *CHANNELS)
    parts = begun(catalog, *CHANNELS)
    clock.forward(LEASE.total_seconds() + 1)
    with catalog.writing() as tx:
        assert len(runs.expire(tx)) == 3
        assert channel_store.marked_for_deletion(tx) == [parts[0].block.name]
