"""Readings of random channel histories, put together with the reference, against the known relations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any, assert_never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.errors import BrokenInvariant, DeclarationError, NotFound
from kilonova.model.block import Base, Block, Delta, Kind, Statistics
from kilonova.model.channel import Channel, ChannelState, Point, PointState
from kilonova.model.encoding import Append, Changes, Encoding, Increment, Upsert, delta_schema
from kilonova.model.read_plan import ChangesRead, DeltaRead, DiffRead, ReadPlan, SnapshotRead
from kilonova.model.schema import Schema
from kilonova.model.version import Version
from kilonova.testing import reference
from kilonova.testing.reference import Bag
from tests.strategies import (
    APPEND,
    CHANGES,
    COLUMNS,
    INCREMENT,
    PLAIN,
    REPLACE,
    UPSERT,
    deltas,
    function_of,
    has_diff,
    relations,
    schema_of,
)

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)

every_encoding = pytest.mark.parametrize("encoding", [APPEND, UPSERT, CHANGES, INCREMENT, COLUMNS, REPLACE], ids=str)
some = settings(max_examples=80, deadline=None)


def a_point(number: int, state: PointState) -> Point:
    version = Version.source("c", number) if state is PointState.FILLED else Version()
    time = None if state is PointState.RESERVED else NOON
    return Point(number=number, state=state, version=version, time=time, run=number)


def a_block(number: int, kind: Kind, encoding: Encoding, schema: Schema = PLAIN, removals: int | None = None) -> Block:
    return Block(
        number=number,
        kind=kind,
        schema=schema,
        encoding=encoding,
        columns=schema if isinstance(kind, Base) else delta_schema(encoding, schema),
        buckets=0,
        statistics=Statistics(rows=0, bytes=0, files=0, removals=removals),
    )


@dataclass
class History:
    """A chronicle, what its blocks hold, and which relation each of its points is."""

    encoding: Encoding
    relations: list[Bag] = field(default_factory=lambda: [Counter()])
    states: list[PointState] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    contents: dict[int, Any] = field(default_factory=dict)

    @property
    def channel_state(self) -> ChannelState:
        channel = Channel(name="c", schema=schema_of(self.encoding), encoding=self.encoding)
        points = tuple(a_point(number, state) for number, state in enumerate(self.states, 1))
        return ChannelState(channel, points, tuple(self.blocks))

    def add(self, kind: Kind, encoding: Encoding, content: Any, removals: int | None = None) -> None:
        number = len(self.contents) + 1
        self.contents[number] = content
        self.blocks.append(a_block(number, kind, encoding, schema_of(self.encoding), removals))

    def bag(self, snapshot: SnapshotRead) -> Bag:
        bag: Bag = self.contents[snapshot.base.number] if snapshot.base else Counter()
        for block in snapshot.deltas:
            content = self.contents[block.number]
            bag = reference.merge(
                block.encoding, schema_of(self.encoding), bag, content, function=function_of(block.encoding)
            )
        return bag

    def change(self, reading: ReadPlan) -> Any:
        """The delta that a reading stands for."""
        schema = schema_of(self.encoding)
        function = function_of(self.encoding)
        match reading:
            case DeltaRead(encoding=encoding, deltas=blocks):
                change = reference.empty(encoding)
                for block in blocks:
                    if block.encoding != encoding:
                        assert isinstance(block.encoding, Append | Changes)
                    content = self.contents[block.number]
                    change = reference.chain(encoding, schema, change, content, function=function)
                return change
            case DiffRead(old=old, new=new, encoding=encoding):
                return reference.diff(encoding, schema, self.bag(old), self.bag(new), function=function)
            case ChangesRead(old=old, delta=delta):
                encoding = delta.encoding
                return reference.strong(
                    encoding, schema, self.change(delta), self.bag(old), function=function_of(encoding)
                )
            case SnapshotRead():
                raise AssertionError("a snapshot is no change")
            case _:
                assert_never(reading)


@st.composite
def histories(draw: st.DrawFn, encoding: Encoding, *, collected: bool = False) -> History:
    history = History(encoding)
    schema, function = schema_of(encoding), function_of(encoding)
    methods = ["delta", "delta", "cancelled", *(["base", "foreign"] if has_diff(encoding) else [])]
    for end in range(1, draw(st.integers(0, 7)) + 1):
        old = history.relations[-1]
        start = end - 1
        while start and history.states[start - 1] is PointState.CANCELLED and draw(st.booleans()):
            start -= 1
        method = draw(st.sampled_from(methods))
        history.states.append(PointState.CANCELLED if method == "cancelled" else PointState.FILLED)
        if method == "cancelled":
            history.relations.append(old)
        elif method == "base":
            new = draw(relations(encoding))
            history.relations.append(new)
            history.add(Base(end), encoding, new)
        else:
            using = encoding if method == "delta" else CHANGES
            if method == "delta":
                part = draw(deltas(encoding, old))
            else:
                part = reference.diff(CHANGES, schema, old, draw(relations(encoding)))
            new = reference.merge(using, schema, old, part, function=function_of(using))
            history.relations.append(new)
            history.add(Delta(start, end), using, part, draw(st.sampled_from((None, (old - new).total()))))
    for end in draw(st.sets(st.integers(1, len(history.states)), max_size=3)) if history.states else ():
        start = draw(st.integers(0, end))
        if start == end:
            history.add(Base(end), encoding, history.relations[end])
        elif all(state is PointState.CANCELLED for state in history.states[start:end]):
            continue
        else:
            using = encoding if encoding == APPEND else draw(st.sampled_from((encoding, CHANGES)))
            old, new = history.relations[start], history.relations[end]
            whole = reference.diff(using, schema, old, new, function=function)
            history.add(Delta(start, end), using, whole, (old - new).total())
    for number in draw(st.sets(st.integers(1, len(history.states)), max_size=1)) if history.states else ():
        history.states[number - 1] = PointState.RESERVED
        history.blocks = [block for block in history.blocks if block.end != number]
    if collected:
        gone = draw(st.sets(st.sampled_from(range(1, len(history.contents) + 1)))) if history.contents else set()
        history.blocks = [block for block in history.blocks if block.number not in gone]
    history.blocks = draw(st.permutations(history.blocks))
    return history


@every_encoding
@some
@given(data=st.data())
def test_snapshots_are_the_relations_at_their_points(encoding: Encoding, data: st.DataObject) -> None:
    history = data.draw(histories(encoding))
    channel_state = history.channel_state
    for number in range(channel_state.latest_readable + 1):
        assert history.bag(channel_state.snapshot(number)) == history.relations[number]
    with pytest.raises(NotFound):
        channel_state.snapshot(channel_state.latest_readable + 1)
    with pytest.raises(NotFound):
        channel_state.snapshot(-1)


@every_encoding
@some
@given(data=st.data())
def test_changes_lead_from_one_point_to_another(encoding: Encoding, data: st.DataObject) -> None:
    history = data.draw(histories(encoding))
    channel_state, schema, function = history.channel_state, schema_of(encoding), function_of(encoding)
    for start in range(channel_state.latest_readable + 1):
        for end in range(start, channel_state.latest_readable + 1):
            old, new = history.relations[start], history.relations[end]
            delta = history.change(channel_state.delta(start, end))
            assert reference.merge(encoding, schema, old, delta, function=function) == new
            strong = history.change(channel_state.changes(start, end))
            assert strong == reference.diff(CHANGES, schema, old, new)
            if channel_state.is_equivalent(start, end):
                assert delta == reference.empty(encoding)
            if any(weight < 0 for weight in strong.values()):
                assert channel_state.may_remove(start, end)
                assert encoding != APPEND or not channel_state.can_say(start, end)
            assert encoding == APPEND or channel_state.can_say(start, end)
            if encoding == APPEND:
                assert not channel_state.may_remove(start, end)


@every_encoding
@some
@given(data=st.data())
def test_a_channel_up_to_a_point_reads_as_it_did_when_that_was_the_newest(
    encoding: Encoding, data: st.DataObject
) -> None:
    history = data.draw(histories(encoding))
    channel_state, schema, function = history.channel_state, schema_of(encoding), function_of(encoding)
    end = data.draw(st.integers(0, channel_state.latest_readable))
    part, new = channel_state.up_to(end), history.relations[end]
    assert part.latest_readable == end
    assert history.bag(part.snapshot(end)) == new
    for start in range(end + 1):
        old = history.relations[start]
        delta = history.change(part.delta(start, end))
        assert reference.merge(encoding, schema, old, delta, function=function) == new
        assert history.change(part.changes(start, end)) == reference.diff(CHANGES, schema, old, new)
        assert part.is_equivalent(start, end) == channel_state.is_equivalent(start, end)
    with pytest.raises(NotFound):
        channel_state.up_to(channel_state.latest_readable + 1)


@every_encoding
@some
@given(data=st.data())
def test_what_garbage_collection_leaves_reads_right_or_not_at_all(encoding: Encoding, data: st.DataObject) -> None:
    history = data.draw(histories(encoding, collected=True))
    channel_state, schema, function = history.channel_state, schema_of(encoding), function_of(encoding)
    for number in range(channel_state.latest_readable + 1):
        origins = {0, *(block.end for block in channel_state.blocks if isinstance(block.kind, Base))}
        methods = [origin for origin in origins if channel_state.path(origin, number) is not None]
        if methods:
            assert history.bag(channel_state.snapshot(number)) == history.relations[number]
        else:
            with pytest.raises(NotFound):
                channel_state.snapshot(number)
        for start in range(number + 1):
            old, new = history.relations[start], history.relations[number]
            try:
                delta = history.change(channel_state.delta(start, number))
                assert reference.merge(encoding, schema, old, delta, function=function) == new
                strong = history.change(channel_state.changes(start, number))
                assert strong == reference.diff(CHANGES, schema, old, new)
            except NotFound:
                continue


@every_encoding
@some
@given(data=st.data())
def test_garbage_collected_points_are_not_needed(encoding: Encoding, data: st.DataObject) -> None:
    whole = data.draw(histories(encoding, collected=True)).channel_state
    cursor = data.draw(st.integers(0, whole.latest_readable))
    low = min([cursor, *(b.kind.start if isinstance(b.kind, Delta) else b.end for b in whole.blocks)])
    filled = [point.number for point in whole.points if point.state is PointState.FILLED and point.number <= low]
    since = max(filled, default=0)
    points = (p for p in whole.points if p.state is not PointState.CANCELLED or p.number == whole.latest)
    listed = ChannelState(whole.channel, tuple(p for p in points if p.number >= since), whole.blocks, since)
    assert (listed.latest, listed.latest_readable, listed.latest_distinct) == (
        whole.latest,
        whole.latest_readable,
        whole.latest_distinct,
    )
    numbers = [0, *range(max(1, since), whole.latest_readable + 1)]
    for end in numbers:
        assert listed.version(end) == whole.version(end)
        assert listed.schema_at(end) == whole.schema_at(end)
        assert read(lambda seen, end=end: seen.snapshot(end), listed) == read(lambda s, end=end: s.snapshot(end), whole)
        for start in (number for number in numbers if number <= end):
            assert listed.is_equivalent(start, end) == whole.is_equivalent(start, end)
            assert listed.may_remove(start, end) == whole.may_remove(start, end)
            for method in (ChannelState.path, ChannelState.delta, ChannelState.changes):
                between = partial(method, start=start, end=end)
                assert read(between, listed) == read(between, whole)
    for number in range(1, since):
        with pytest.raises(NotFound, match="garbage-collected"):
            listed.snapshot(number)


def read(method: Callable[[ChannelState], object], channel_state: ChannelState) -> object:
    """What a way of reading gives, or that it cannot be."""
    try:
        return method(channel_state)
    except NotFound as error:
        return error.problem


@some
@given(data=st.data())
def test_a_path_is_a_shortest_chain_of_deltas(data: st.DataObject) -> None:
    history = data.draw(histories(UPSERT, collected=True))
    channel_state = history.channel_state
    blocks = [block for block in channel_state.blocks if isinstance(block.kind, Delta)]
    numbers = range(channel_state.latest_readable + 1)
    far = len(blocks) + 1
    steps = {(i, j): 0 if channel_state.is_equivalent(i, j) else far for i in numbers for j in numbers}
    for block in blocks:
        assert isinstance(block.kind, Delta)
        for i in numbers:
            for j in numbers:
                if (
                    block.end <= channel_state.latest_readable
                    and channel_state.is_equivalent(i, block.kind.start)
                    and channel_state.is_equivalent(j, block.end)
                ):
                    steps[i, j] = min(steps[i, j], 1)
    for middle in numbers:
        for i in numbers:
            for j in numbers:
                steps[i, j] = min(steps[i, j], steps[i, middle] + steps[middle, j])
    for i in numbers:
        for j in range(i, channel_state.latest_readable + 1):
            path = channel_state.path(i, j)
            if path is None:
                assert steps[i, j] >= far
                continue
            assert len(path) == steps[i, j]
            at = i
            for block in path:
                assert isinstance(block.kind, Delta)
                assert channel_state.is_equivalent(at, block.kind.start)
                at = block.kind.end
            assert channel_state.is_equivalent(at, j)


@some
@given(data=st.data())
def test_cancelled_points_repeat_the_one_before(data: st.DataObject) -> None:
    history = data.draw(histories(UPSERT))
    channel_state = history.channel_state
    reserved = [number for number, state in enumerate(history.states, 1) if state is PointState.RESERVED]
    assert channel_state.latest_readable == (reserved[0] - 1 if reserved else len(history.states))
    filled = 0
    for number in range(channel_state.latest_readable + 1):
        if number and history.states[number - 1] is PointState.FILLED:
            filled = number
        assert channel_state.is_equivalent(number, filled)
        assert channel_state.version(number) == (Version.source("c", filled) if filled else Version())
    assert channel_state.latest_distinct == filled


@every_encoding
@some
@given(data=st.data())
def test_the_points_that_can_be_read_are_known(encoding: Encoding, data: st.DataObject) -> None:
    channel_state = data.draw(histories(encoding, collected=True)).channel_state
    readable = []
    for number in range(channel_state.latest_readable + 1):
        with suppress(NotFound):
            channel_state.snapshot(number)
            readable.append(number)
    ranges = channel_state.readable_ranges
    assert [number for first, last in ranges for number in range(first, last + 1)] == readable
    assert all(first > last + 1 for (_, last), (first, _) in pairwise(ranges))
    assert [point.number for point in channel_state.readable_points] == [
        number for number in readable if number and channel_state.settled(number) == number
    ]


class TestExamples:
    def channel_state(
        self, *states: PointState, blocks: tuple[Block, ...] = (), encoding: Encoding = UPSERT
    ) -> ChannelState:
        channel = Channel(name="c", schema=PLAIN, encoding=encoding)
        return ChannelState(channel, tuple(a_point(n, state) for n, state in enumerate(states, 1)), blocks)

    def test_an_empty_channel_reads_as_nothing(self) -> None:
        channel_state = self.channel_state()
        assert channel_state.latest_readable == channel_state.latest_distinct == 0
        assert channel_state.snapshot(0) == SnapshotRead(at=0, schema=PLAIN, encoding=UPSERT, base=None, deltas=())
        assert channel_state.delta(0, 0) == DeltaRead(start=0, end=0, schema=PLAIN, encoding=UPSERT, deltas=())

    def test_what_is_filled_after_a_reserved_point_is_not_readable(self) -> None:
        channel_state = self.channel_state(
            PointState.FILLED, PointState.RESERVED, PointState.FILLED, blocks=(a_block(1, Base(1), UPSERT),)
        )
        assert channel_state.latest_readable == 1
        with pytest.raises(NotFound, match="0 to 1"):
            channel_state.delta(0, 2)

    def test_an_error_names_the_points_that_can_be_read(self) -> None:
        points = tuple(a_point(number, PointState.FILLED) for number in range(1, 7))
        blocks = (a_block(1, Base(4), UPSERT), a_block(2, Delta(4, 5), UPSERT), a_block(3, Delta(1, 2), UPSERT))
        state = ChannelState(
            Channel(name="c", schema=PLAIN, encoding=UPSERT), points, (*blocks, a_block(4, Base(6), UPSERT))
        )
        for number in (2, 7):
            with pytest.raises(NotFound) as caught:
                state.snapshot(number)
            assert caught.value.hint == "The readable points are 0 and 4 to 6"
        with pytest.raises(NotFound) as caught:
            ChannelState(state.channel, points[:3], blocks[2:]).snapshot(1)
        assert caught.value.hint == "Only point 0, the empty relation, can be read"

    def test_the_newest_base_is_read(self) -> None:
        first, second = a_block(1, Base(1), UPSERT), a_block(3, Base(2), UPSERT)
        step = a_block(2, Delta(1, 2), UPSERT)
        channel_state = self.channel_state(PointState.FILLED, PointState.FILLED, blocks=(step, first, second))
        assert channel_state.snapshot(2).blocks == (second,)
        assert channel_state.snapshot(1).blocks == (first,)
        assert channel_state.delta(1, 2).blocks == (step,)

    def test_a_chain_of_weak_deltas_becomes_strong_by_what_was_there(self) -> None:
        base, step = a_block(1, Base(1), UPSERT), a_block(2, Delta(1, 2), UPSERT)
        channel_state = self.channel_state(PointState.FILLED, PointState.FILLED, blocks=(base, step))
        changes = channel_state.changes(1, 2)
        assert isinstance(changes, ChangesRead)
        assert changes.blocks == (base, step)
        assert changes.encoding == Changes()
        assert changes.schema == PLAIN

    def test_a_mixed_chain_is_diffed(self) -> None:
        base, step = a_block(1, Base(1), UPSERT), a_block(2, Delta(1, 2), CHANGES)
        channel_state = self.channel_state(PointState.FILLED, PointState.FILLED, blocks=(base, step))
        assert isinstance(channel_state.delta(1, 2), DiffRead)
        assert isinstance(channel_state.changes(1, 2), DeltaRead)

    def test_removals_that_are_not_known_may_be_there(self) -> None:
        for removals, expected in ((None, True), (0, False), (2, True)):
            blocks = (a_block(1, Base(1), UPSERT), a_block(2, Delta(1, 2), UPSERT, removals=removals))
            channel_state = self.channel_state(PointState.FILLED, PointState.FILLED, blocks=blocks)
            assert channel_state.may_remove(1, 2) is expected
            assert not channel_state.may_remove(0, 2)
            assert not channel_state.may_remove(2, 2)

    def test_a_rewritten_relation_may_lack_rows(self) -> None:
        blocks = (a_block(1, Base(1), UPSERT), a_block(2, Base(2), UPSERT))
        assert self.channel_state(PointState.FILLED, PointState.FILLED, blocks=blocks).may_remove(1, 2)

    def test_a_run_sees_what_it_wrote_itself(self) -> None:
        channel_state = self.channel_state(
            PointState.FILLED,
            PointState.RESERVED,
            PointState.RESERVED,
            PointState.RESERVED,
            blocks=(a_block(1, Base(1), UPSERT),),
        )
        own = a_block(2, Delta(1, 3), UPSERT)
        seen = channel_state.with_block(own, Version.source("x", 7), run=3)
        assert seen.latest_readable == seen.latest_distinct == 3
        assert seen.version(3) == Version.source("x", 7)
        assert seen.snapshot(3).deltas == (own,)
        assert seen.delta(1, 3).blocks == (own,)
        assert seen.is_equivalent(1, 2)
        assert channel_state.latest_readable == 1

    def test_what_others_wrote_later_does_not_show(self) -> None:
        later = a_block(3, Delta(3, 4), UPSERT)
        channel_state = self.channel_state(
            PointState.RESERVED, PointState.FILLED, PointState.FILLED, PointState.FILLED, blocks=(later,)
        )
        own = a_block(2, Delta(0, 1), UPSERT)
        assert channel_state.with_block(own, Version(), run=1).snapshot(1).deltas == (own,)

    def test_a_block_may_end_where_a_cancelled_point_repeats(self) -> None:
        blocks = (a_block(1, Delta(0, 2), UPSERT), a_block(2, Base(2), UPSERT))
        channel_state = self.channel_state(PointState.FILLED, PointState.CANCELLED, blocks=blocks)
        assert channel_state.snapshot(1).blocks == channel_state.snapshot(2).blocks == blocks[1:]
        assert channel_state.path(0, 2) == channel_state.path(0, 1) == blocks[:1]

    def test_the_newest_schema_is_the_declared_one_and_older_ones_are_those_of_blocks(self) -> None:
        wider = PLAIN.plus(("more", "string"))
        blocks = (a_block(1, Base(1), UPSERT, schema=wider), a_block(2, Base(3), UPSERT, schema=wider))
        channel_state = self.channel_state(PointState.FILLED, PointState.CANCELLED, PointState.FILLED, blocks=blocks)
        assert channel_state.schema_at(2) == channel_state.schema_at(1) == channel_state.snapshot(2).schema == wider
        assert channel_state.schema_at(3) == channel_state.snapshot(3).schema == PLAIN
        assert channel_state.schema_at(0) == PLAIN

    def test_until_it_is_recomputed_a_channel_with_another_key_is_read_as_it_was(self) -> None:
        other = Schema.of(("id", "string"), ("n", "bigint"))
        block = a_block(1, Base(1), UPSERT, schema=other)
        assert self.channel_state(PointState.FILLED, blocks=(block,)).snapshot(1).schema == other


def test_a_delta_leads_forward() -> None:
    with pytest.raises(BrokenInvariant):
        Delta(2, 2)
    assert str(Delta(1, 3)) == "Δ1→3"
    assert str(Base(3)) == "B3"


@pytest.mark.parametrize(
    ("name", "schema", "encoding"),
    [
        ("two words", PLAIN, Append()),
        ("c", PLAIN, Upsert(("nothing",))),
        ("c", PLAIN, Increment(("id",), ("n",))),
        ("c", Schema.of(("_weight", "bigint")), Append()),
        ("c", Schema(()), Append()),
    ],
)
def test_a_channel_that_cannot_be_is_refused(name: str, schema: Schema, encoding: Encoding) -> None:
    with pytest.raises(DeclarationError):
        Channel(name=name, schema=schema, encoding=encoding)


def test_a_channel_names_itself_in_errors() -> None:
    with pytest.raises(DeclarationError, match="channel c, column nothing"):
        Channel(name="c", schema=PLAIN, encoding=Upsert(("nothing",)))
    assert Channel(name="c", schema=None, encoding=Upsert(("id",))).key == ("id",)


@pytest.mark.parametrize("start", [0, 1])
def test_a_custom_encoding_without_a_diff_says_only_what_its_deltas_say(start: int) -> None:
    encoding = replace(REPLACE, has_diff=False)
    history = History(encoding, states=[PointState.FILLED] * 3)
    history.add(Delta(0, 1), encoding, {})
    history.add(Delta(1, 2), encoding, {})
    history.add(Base(3), encoding, {})
    assert history.channel_state.can_say(start, 2)
    assert not history.channel_state.can_say(start, 3)
    assert replace(history.channel_state, channel=replace(history.channel_state.channel, encoding=REPLACE)).can_say(
        1, 1
    )
