"""What garbage collection may take: the papers' examples, and that nobody misses what it took."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.errors import NotFound
from kilonova.model.block import Base, Block, Delta, Kind, Statistics
from kilonova.model.channel import Channel, ChannelState, Point, PointState
from kilonova.model.encoding import Encoding, Upsert
from kilonova.model.read_plan import DeltaRead
from kilonova.model.schema import Schema
from kilonova.model.version import Version
from kilonova.schedule.garbage import (
    Consumer,
    GCDecision,
    GCRoots,
    PlacedBlock,
    Provenance,
    Reference,
    decide_collection,
)
from kilonova.testing import reference
from tests.databases import NOON
from tests.model.test_channel_state import APPEND, CHANGES, COLUMNS, INCREMENT, REPLACE, UPSERT, histories
from tests.strategies import function_of, schema_of

SCHEMA = Schema.of(("id", "bigint"), ("note", "string"))
ENCODING = Upsert(("id",))


def a_block(number: int, kind: Kind) -> Block:
    return Block(
        number=number,
        kind=kind,
        schema=SCHEMA,
        encoding=ENCODING,
        columns=SCHEMA,
        buckets=0,
        statistics=Statistics(rows=1, bytes=1, files=1),
    )


def a_channel_state(name: str, states: str, *blocks: Block) -> ChannelState:
    """A channel whose points are F(illed), C(ancelled) or R(eserved)."""
    known = {"F": PointState.FILLED, "C": PointState.CANCELLED, "R": PointState.RESERVED}
    points = tuple(
        Point(number=number, state=known[letter], version=Version(), time=NOON, run=number)
        for number, letter in enumerate(states, 1)
    )
    return ChannelState(Channel(name=name, schema=SCHEMA, encoding=ENCODING), points, blocks)


def a_consumer(
    cursor: int, *, task: str = "t", started: bool = True, beginning: bool = False, needs_snapshot: bool = False
) -> Consumer:
    return Consumer(task=task, cursor=cursor, started=started, beginning=beginning, needs_snapshot=needs_snapshot)


def holdings(
    *states: ChannelState,
    consumers: dict[str, tuple[Consumer, ...]] | None = None,
    pins: dict[int, tuple[str, ...]] | None = None,
    physical: set[tuple[PlacedBlock, PlacedBlock]] | None = None,
    logical: set[Reference] | None = None,
    now: datetime = NOON,
) -> GCRoots:
    return GCRoots(
        now=now,
        states={state.channel.name: state for state in states},
        consumers=consumers or {},
        pins=pins or {},
        physical=frozenset(physical or ()),
        logical=frozenset(logical or ()),
    )


def going(verdicts: tuple[GCDecision, ...]) -> set[int]:
    return {verdict.block.number for verdict in verdicts if verdict.goes}


# Nova, section 2.4: B0, Δ0→1, Δ1→2, Δ2→3 and the compact B3; its point 0 is our point 1.

B0, D01, D12, D23 = a_block(1, Base(1)), a_block(2, Delta(1, 2)), a_block(3, Delta(2, 3)), a_block(4, Delta(3, 4))
B3 = a_block(5, Base(4))
NOVA = a_channel_state("c", "FFFF", B0, D01, D12, D23, B3)


def test_without_compaction_nothing_is_collected() -> None:
    assert going(decide_collection(holdings(a_channel_state("c", "FFFF", B0, D01, D12, D23)))) == set()


def test_without_consumers_all_but_the_compact_base_is_collected() -> None:
    assert going(decide_collection(holdings(NOVA))) == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("hours", "readable"), [(None, {4}), (0.5, {3, 4}), (1, {3, 4}), (1.5, {1, 2, 3, 4}), (9, {1, 2, 3, 4})]
)
def test_points_within_the_retention_time_stay_readable(hours: float | None, readable: set[int]) -> None:
    """The window begins with the point that was the newest then, here point 4 at noon and four hours."""
    state = a_channel_state("c", "FFFF", B0, D01, D12, D23, B3, a_block(6, Delta(1, 4)), a_block(7, Base(3)))
    points = tuple(replace(point, time=NOON + timedelta(hours=point.number)) for point in state.points)
    channel = replace(state.channel, retention=None if hours is None else hours * 3600)
    state = replace(state, channel=channel, points=points)
    verdicts = decide_collection(holdings(state, now=NOON + timedelta(hours=4)))
    stays = replace(state, blocks=tuple(verdict.block for verdict in verdicts if not verdict.goes))
    assert {point.number for point in stays.readable_points} == readable


def test_a_consumer_at_2_holds_the_delta_from_2_to_3() -> None:
    verdicts = decide_collection(holdings(NOVA, consumers={"c": (a_consumer(3),)}))
    assert going(verdicts) == {1, 2, 3}
    assert [verdict.held_by for verdict in verdicts][3:] == [
        "t has read up to point 3 only",
        "no later base or longer delta contains its rows",
    ]


def test_merged_deltas_are_collected_once_no_reader_needs_them() -> None:
    longer = a_block(6, Delta(1, 4))
    merged = a_channel_state("c", "FFFF", B0, D01, D12, D23, longer)
    assert going(decide_collection(holdings(merged))) == {2, 3, 4}
    for cursor, gone in ((1, {2, 3, 4}), (2, {2}), (3, {2, 3}), (4, {2, 3, 4})):
        assert going(decide_collection(holdings(merged, consumers={"c": (a_consumer(cursor),)}))) == gone
    assert going(decide_collection(holdings(merged, pins={3: ("a reader",)}))) == {2, 4}
    twice = a_channel_state("c", "FFFF", B0, D01, D12, D23, a_block(6, Delta(1, 3)), a_block(7, Delta(1, 4)))
    assert going(decide_collection(holdings(twice))) == {2, 3, 4, 6}


@pytest.mark.parametrize(("cursor", "gone"), [(4, {1, 2, 3, 4}), (2, {1, 2}), (1, {1}), (0, {1, 2, 3, 4})])
def test_every_consumer_holds_what_it_has_not_read(cursor: int, gone: set[int]) -> None:
    consumers = (a_consumer(4, task="ahead"), a_consumer(cursor))
    found = going(decide_collection(holdings(NOVA, consumers={"c": consumers})))
    assert found == gone


def test_a_reader_of_old_holds_the_snapshot_at_its_cursor() -> None:
    consumers = {"c": (a_consumer(3, needs_snapshot=True),)}
    assert going(decide_collection(holdings(NOVA, consumers=consumers))) == set()
    consumers = {"c": (a_consumer(4, needs_snapshot=True),)}
    assert going(decide_collection(holdings(NOVA, consumers=consumers))) == {1, 2, 3, 4}


def test_a_task_that_has_not_begun_holds_nothing_until_it_runs() -> None:
    assert going(decide_collection(holdings(NOVA, consumers={"c": (a_consumer(0, started=False),)}))) == {1, 2, 3, 4}
    beginning = a_consumer(0, started=False, beginning=True)
    assert going(decide_collection(holdings(NOVA, consumers={"c": (beginning,)}))) == {1}


def test_pins_hold_blocks() -> None:
    verdicts = decide_collection(holdings(NOVA, pins={1: ("run 7", "reader 8")}))
    assert going(verdicts) == {2, 3, 4}
    assert verdicts[0].held_by == "pinned by run 7, reader 8"


def test_only_the_chosen_channels_are_collected() -> None:
    other = replace(NOVA, channel=replace(NOVA.channel, name="d"), blocks=(a_block(9, Base(4)), a_block(8, Base(1))))
    both = holdings(NOVA, other)
    assert going(decide_collection(both)) == {1, 2, 3, 4, 8}
    assert {verdict.channel for verdict in decide_collection(both, ("d",))} == {"d"}
    assert going(decide_collection(both, ("d",))) == {8}


def test_what_is_not_readable_yet_stays_and_replaces_nothing() -> None:
    """Point 3 is reserved: the base at 4 may not be read yet."""
    state = a_channel_state("c", "FFRF", a_block(1, Base(1)), a_block(2, Delta(1, 2)), a_block(3, Base(4)))
    assert going(decide_collection(holdings(state))) == set()
    assert going(decide_collection(holdings(replace(state, points=a_channel_state("c", "FFCF").points)))) == {1, 2}


def test_of_two_bases_at_one_point_one_is_collected() -> None:
    state = a_channel_state("c", "FF", a_block(1, Delta(0, 1)), a_block(2, Delta(1, 2)), a_block(3, Base(2)))
    twice = replace(state, blocks=(*state.blocks, a_block(4, Base(2))))
    gone = going(decide_collection(holdings(twice)))
    assert gone >= {1, 2}
    left = replace(twice, blocks=tuple(block for block in twice.blocks if block.number not in gone))
    assert len(left.blocks) == 1


def test_a_base_at_a_cancelled_repetition_counts_as_one_at_the_point_before() -> None:
    state = a_channel_state("c", "FFC", a_block(1, Base(1)), a_block(2, Delta(1, 2)), a_block(3, Base(2)))
    made = a_channel_state("d", "F", a_block(4, Base(1)))
    logical = {Reference(of="d", at=1, channel="c", point=3)}
    assert going(decide_collection(holdings(state, made, logical=logical))) == {1, 2}
    later = replace(state, points=a_channel_state("c", "FFCF").points, blocks=(*state.blocks, a_block(5, Base(4))))
    verdicts = decide_collection(holdings(later, made, logical=logical))
    assert going(verdicts) == {1, 2}
    assert verdicts[2].held_by == "the base of d at point 1 reflects it"


def test_a_block_in_two_channels_is_decided_about_in_each() -> None:
    both = holdings(NOVA, a_channel_state("d", "F", a_block(3, Delta(0, 1))))
    assert {verdict.place for verdict in decide_collection(both) if verdict.goes} == {
        PlacedBlock("c", number) for number in (1, 2, 3, 4)
    }
    of_it = replace(both, physical=frozenset({(PlacedBlock("c", 3), PlacedBlock("d", 3))}))
    verdicts = decide_collection(of_it, provenance=Provenance.PHYSICAL)
    assert {verdict.place for verdict in verdicts if verdict.goes} == {PlacedBlock("c", n) for n in (1, 2, 4)}
    pinned = decide_collection(replace(both, pins={3: ("a reader",)}))
    assert {verdict.place for verdict in pinned if verdict.goes} == {PlacedBlock("c", n) for n in (1, 2, 4)}


# Logic evolution, Figure 4 and A.2: place urls p, crawled pages c, extraction output e. The paper's snapshots
# 0, 1, 2 are our points 1, 2, 3.

P = a_channel_state("p", "F", a_block(1, Base(1)))
C = a_channel_state(
    "c", "FFF", a_block(2, Base(1)), a_block(3, Delta(1, 2)), a_block(4, Delta(2, 3)), a_block(8, Base(3))
)
E = a_channel_state("e", "FFF", a_block(5, Base(1)), a_block(6, Delta(1, 2)), a_block(7, Base(3)))
PLACED = {block.number: PlacedBlock(state.channel.name, block.number) for state in (P, C, E) for block in state.blocks}
PHYSICAL = {
    (PLACED[read], PLACED[made])
    for read, made in [(1, 5), (2, 5), (1, 6), (3, 6), (1, 7), (2, 7), (3, 7), (4, 7), (2, 8), (3, 8), (4, 8)]
}
LOGICAL = {
    Reference(of="e", at=at, channel=channel, point=at if channel == "c" else 1) for at in (1, 2, 3) for channel in "pc"
}
EXTRACT = {"p": (a_consumer(1, task="e"),), "c": (a_consumer(3, task="e"),)}
FIGURE_4 = holdings(P, C, E, consumers=EXTRACT, physical=PHYSICAL, logical=LOGICAL)


def test_with_logical_provenance_the_old_blocks_of_figure_4_go() -> None:
    assert going(decide_collection(FIGURE_4)) == {2, 3, 4, 5, 6}


def test_with_physical_provenance_the_crawled_pages_of_figure_4_stay() -> None:
    verdicts = decide_collection(FIGURE_4, provenance=Provenance.PHYSICAL)
    assert going(verdicts) == {5, 6}
    assert {verdict.block.number: verdict.held_by for verdict in verdicts}[4] in {
        "block 7 was computed from it",
        "block 8 was computed from it",
    }


def test_before_the_crawled_pages_are_compacted_only_the_output_of_figure_4_is_collected() -> None:
    before = holdings(P, replace(C, blocks=C.blocks[:3]), E, consumers=EXTRACT, physical=PHYSICAL, logical=LOGICAL)
    for provenance in (Provenance.LOGICAL, Provenance.PHYSICAL):
        assert going(decide_collection(before, provenance=provenance)) == {5, 6}


def test_a_base_reflects_the_bases_of_its_version_whichever_way_it_was_computed() -> None:
    """A.1: the logical provenance of B_e([0,2,1]) is B_p([0]) and B_c([2])."""

    def versioned(state: ChannelState, *versions: Version) -> ChannelState:
        points = zip(state.points, versions, strict=True)
        return replace(state, points=tuple(replace(point, version=version) for point, version in points))

    pages = [Version.source("c", point) for point in (1, 2, 3)]
    urls = Version.source("p", 1)
    outputs = [page.joined(urls).through("e", logic) for page, logic in zip(pages, (0, 0, 1), strict=True)]
    known = holdings(versioned(P, urls), versioned(C, *pages), versioned(E, *outputs), consumers=EXTRACT)
    assert [str(each) for each in outputs[2].inputs()] == ["c 3", "p 1"]
    assert going(decide_collection(known)) == {2, 3, 4, 5, 6}
    assert going(decide_collection(known, ("c",))) == {3, 4}
    held = {each.block.number: each.held_by for each in decide_collection(known, ("c",))}
    assert held[2] == "the base of e at point 1 reflects it"
    assert going(decide_collection(known, provenance=Provenance.ALL)) == set()


def test_a_base_that_a_remaining_base_reflects_stays() -> None:
    """If only the crawled pages are collected, B_e([0,0,0]) remains and reflects B_c([0])."""
    assert going(decide_collection(FIGURE_4, ("c",))) == {3, 4}
    assert going(decide_collection(FIGURE_4, ("e",))) == {5, 6}


def test_the_newest_extraction_holds_what_it_has_not_read() -> None:
    consumers = {**EXTRACT, "c": (a_consumer(2, task="e"),)}
    assert going(decide_collection(replace(FIGURE_4, consumers=consumers))) == {2, 3, 5, 6}


@pytest.mark.parametrize("encoding", [APPEND, UPSERT, CHANGES, INCREMENT, COLUMNS, REPLACE], ids=str)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_collected_blocks_are_not_needed(encoding: Encoding, data: st.DataObject) -> None:
    history = data.draw(histories(encoding))
    before = history.channel_state
    newest = before.latest_readable
    consumers = tuple(
        a_consumer(
            data.draw(st.integers(0, newest)),
            started=data.draw(st.booleans()),
            needs_snapshot=data.draw(st.booleans()),
        )
        for _ in range(data.draw(st.integers(0, 3)))
    )
    pins = {block.number: ("reader",) for block in before.blocks if data.draw(st.integers(0, 9)) == 0}
    everything = holdings(before, consumers={"c": consumers}, pins=pins)
    gone = going(decide_collection(everything))
    assert not gone & pins.keys()
    after = replace(before, blocks=tuple(block for block in before.blocks if block.number not in gone))
    schema, function = schema_of(encoding), function_of(encoding)

    assert history.bag(after.snapshot(newest)) == history.relations[newest]
    for consumer in consumers:
        if not consumer.started:
            continue
        old, new = history.relations[consumer.cursor], history.relations[newest]
        news = after.delta(consumer.cursor, newest)
        assert isinstance(news, DeltaRead) == isinstance(before.delta(consumer.cursor, newest), DeltaRead)
        assert reference.merge(encoding, schema, old, history.change(news), function=function) == new
        if consumer.needs_snapshot:
            assert history.bag(after.snapshot(consumer.cursor)) == old
            changes = history.change(after.changes(consumer.cursor, newest))
            assert changes == reference.diff(CHANGES, schema, old, new)

    again = decide_collection(replace(everything, states={"c": after}))
    assert going(again) == set(), "a second collection finds nothing that the first left"

    settled = tuple(
        replace(point, state=PointState.CANCELLED) if point.state is PointState.RESERVED else point
        for point in before.points
    )
    try:
        replace(before, points=settled).snapshot(len(settled))
    except NotFound:
        return
    replace(after, points=settled).snapshot(len(settled))


def test_the_work_does_not_grow_with_blocks_times_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each snapshot and delta is put together once, whatever the number of blocks and of consumers at a cursor."""
    count = 3_000
    deltas = [a_block(number, Delta(number - 1, number)) for number in range(1, count + 1)]
    state = a_channel_state("c", "F" * count, *deltas, a_block(count + 1, Base(count)))
    consumers = tuple(a_consumer(count - 1, task=f"t{number}", needs_snapshot=True) for number in range(50))
    paths = 0
    path = ChannelState.path

    def counted(self: ChannelState, start: int, end: int, encoding: Encoding | None = None) -> tuple[Block, ...] | None:
        nonlocal paths
        paths += 1
        return path(self, start, end, encoding)

    monkeypatch.setattr(ChannelState, "path", counted)
    assert going(decide_collection(holdings(state, consumers={"c": consumers}))) == set()
    assert paths < 10
    ahead = tuple(replace(consumer, cursor=count) for consumer in consumers)
    assert going(decide_collection(holdings(state, consumers={"c": ahead}))) == set(range(1, count + 1))
