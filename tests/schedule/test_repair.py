"""What mends damaged channels."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from kilonova.model.block import Base, Block, Delta, Kind
from kilonova.model.channel import ChannelState, Point, PointState
from kilonova.model.task import Mode
from kilonova.model.version import Version
from kilonova.schedule.repair import RepairMethod, remedies
from tests.catalog.building import a_block, a_channel, a_task


def state(name: str, *kinds: Kind, several_writers: bool = False) -> ChannelState:
    """A channel with blocks that are numbered from 1, and their points."""
    blocks: list[Block] = [a_block(number, kind) for number, kind in enumerate(kinds, 1)]
    points = tuple(
        Point(number=n, state=PointState.FILLED, version=Version(), time=datetime(2026, 1, 1, tzinfo=UTC), run=n)
        for n in range(1, max(block.end for block in blocks) + 1)
    )
    return ChannelState(replace(a_channel(name), several_writers=several_writers), points, tuple(blocks))


def test_unneeded_blocks_are_deleted_and_metadata_is_repaired() -> None:
    deltas = (Delta(0, 1), Delta(1, 2))
    found = {
        "both": state("both", *deltas, Base(2)),
        "chain": state("chain", *deltas),
        "beside": state("beside", *deltas),
    }
    made = remedies({"both": [3], "chain": [2], "beside": []}, found, ())
    assert {each.channel: each.method for each in made} == {
        "both": RepairMethod.DROP,
        "chain": RepairMethod.INGEST,
        "beside": RepairMethod.MEND,
    }
    assert {each.method for each in remedies({"both": [1, 2]}, found, ())} == {RepairMethod.DROP}
    assert {each.method for each in remedies({"both": [1, 3]}, found, ())} == {RepairMethod.INGEST}


def test_what_is_derived_is_recomputed_in_order_once_what_it_is_made_of_is_whole() -> None:
    tasks = [a_task(name, {of: Mode.ALL}, (name,)) for of, name in (("a", "b"), ("b", "c"), ("c", "d"))]
    found = {name: state(name, Base(1)) for name in "abcd"}
    made = remedies({"d": [1], "c": [1], "b": [1]}, found, tasks)
    assert [(each.channel, each.method, each.task) for each in made] == [
        (name, RepairMethod.RECOMPUTE, name) for name in ("b", "c", "d")
    ]
    made = remedies({"a": [1], "c": [1], "d": [1]}, found, tasks)
    assert [(each.channel, each.method) for each in made] == [
        ("a", RepairMethod.INGEST),
        ("c", RepairMethod.RECOMPUTE),
        ("d", RepairMethod.RECOMPUTE),
    ]
    made = remedies({"a": [1], "b": [1], "c": [1]}, found, tasks)
    assert [(each.channel, str(each)) for each in made] == [
        ("a", RepairMethod.INGEST),
        ("b", f"{RepairMethod.WAIT}: a"),
        ("c", f"{RepairMethod.WAIT}: b"),
    ]


def test_a_channel_of_several_writers_is_not_recomputed() -> None:
    found = {"both": state("both", Delta(0, 1), several_writers=True)}
    [remedy] = remedies({"both": [1]}, found, [a_task("one", {"a": Mode.NEW}, ("both",))])
    assert (remedy.method, remedy.is_automatic) == (RepairMethod.INGEST, False)
