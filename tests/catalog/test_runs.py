"""Runs: reservations, claims, leases, commits, pins, cursors, provenance."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kilonova.catalog import channel_registry, channel_store, events, pins, registry, run_records, runs, tables
from kilonova.catalog.database import Catalog
from kilonova.catalog.read_models import run_queries
from kilonova.errors import Conflict, InvalidState, LeaseLost, NotFound
from kilonova.model.block import Base, Delta
from kilonova.model.channel import PointState
from kilonova.model.event import EventKind
from kilonova.model.run import Committed, LeaseExpired, RunInput, RunKind, RunState
from kilonova.model.schema import Schema
from kilonova.model.task import Mode
from kilonova.model.version import Version
from tests.catalog.building import (
    LEASE,
    SCHEMA,
    a_block,
    a_channel,
    a_task,
    an_output,
    begin,
    commit,
    ingested,
    with_channels,
)
from tests.databases import Clock, contents, rows


@pytest.fixture
def clicks(catalog: Catalog) -> Catalog:
    """A catalog with the channels clicks, users and joined, and the task joined between them."""
    with_channels(catalog, "clicks", "users", "joined")
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("joined", {"clicks": Mode.NEW, "users": Mode.ALL}, ("joined",)), "w")
    return catalog


def readable(catalog: Catalog, channel: str) -> int:
    with catalog.reading() as tx:
        return channel_store.channel_state(tx, channel).latest_readable


def states(catalog: Catalog) -> dict[int, str]:
    with catalog.reading() as tx:
        return {name.number: state for name, state in channel_store.block_states(tx).items()}


def test_points_are_reserved_in_the_order_in_which_runs_start(clicks: Catalog) -> None:
    with clicks.writing() as tx:
        reserved = [begin(tx, "clicks", "users")[1] for _ in range(3)]
    assert reserved == [{"clicks": n, "users": n} for n in (1, 2, 3)]


def test_readers_see_points_below_the_lowest_one_still_reserved(clicks: Catalog) -> None:
    with clicks.writing() as tx:
        begun = [begin(tx, "clicks") for _ in range(3)]
    commit(clicks, *begun[2])
    assert readable(clicks, "clicks") == 0
    commit(clicks, *begun[0])
    assert readable(clicks, "clicks") == 1
    with clicks.writing() as tx:
        assert runs.fail(tx, begun[1][0], "no luck")
    assert readable(clicks, "clicks") == 3
    with clicks.reading() as tx:
        state = channel_store.channel_state(tx, "clicks")
    assert [(point.number, point.state) for point in state.points] == [
        (1, PointState.FILLED),
        (3, PointState.FILLED),
    ]
    assert len(state.snapshot(3).deltas) == 2


def test_one_run_at_a_time_has_a_task(clicks: Catalog) -> None:
    with clicks.writing() as tx:
        run, points = begin(tx, "joined", tasks=("joined",), kind=RunKind.TASKS)
    before = contents(clicks)
    with pytest.raises(Conflict, match="another run") as caught, clicks.writing() as tx:
        begin(tx, "joined", tasks=("joined",), kind=RunKind.TASKS)
    assert (caught.value.task, caught.value.run) == ("joined", run)
    assert contents(clicks) == before
    commit(clicks, run, points)
    with clicks.writing() as tx:
        begin(tx, "joined", tasks=("joined",), kind=RunKind.TASKS)


ENDS = {
    "fail": (RunState.FAILED, EventKind.FAILED, "no luck"),
    "cancel": (RunState.CANCELLED, EventKind.CANCELLED, "cancelled by ann"),
    "expire": (RunState.ABANDONED, EventKind.ABANDONED, "the process me stopped sending heartbeats"),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_does_not_succeed_gives_everything_back(clicks: Catalog, clock: Clock, end: str) -> None:
    _, block = ingested(clicks, "clicks")
    with clicks.writing() as tx:
        run, _ = begin(tx, "joined", tasks=("joined",), kind=RunKind.TASKS)
        pins.pin(tx, pins.holder_of(run), [block], LEASE)
        named = channel_store.new_block(tx, "joined", run)
    with clicks.writing() as tx:
        if end == "fail":
            assert runs.fail(tx, run, "no luck")
        elif end == "cancel":
            assert runs.is_running(tx, run)
            runs.cancel(tx, run, "ann")
        else:
            clock.forward(11)
    with clicks.writing() as tx:
        assert [item.number for item in runs.expire(tx)] == ([run] if end == "expire" else [])
        assert rows(tx, "claim") == rows(tx, "pin") == []
        assert channel_store.marked_for_deletion(tx) == [named]
        found = runs.find_run(tx, run)
        told = events.since(tx, 0)[-1]
    state, kind, said = ENDS[end]
    assert (found.state, found.error) == (state, said)
    assert (told.kind, told.run, told.channels, told.text) == (kind, run, ("joined",), said)
    assert readable(clicks, "joined") == 1
    with clicks.writing() as tx:
        assert not runs.fail(tx, run, "again")
        assert not runs.renew_lease(tx, run, LEASE)
        assert not runs.is_running(tx, run)


def test_a_run_that_has_ended_cannot_be_cancelled_and_it_is_said_how_it_has(clicks: Catalog) -> None:
    done, _ = ingested(clicks, "clicks")
    with clicks.writing() as tx:
        begun = begin(tx, "joined", tasks=("joined",), kind=RunKind.TASKS)
        runs.cancel(tx, begun[0], "ann \0")
    before = contents(clicks)
    for run, how in ((done, "as succeeded"), (begun[0], r"as cancelled: cancelled by ann \\0")):
        with pytest.raises(InvalidState, match=how) as caught, clicks.writing() as tx:
            runs.cancel(tx, run, "ben")
        assert caught.value.run == run
    with pytest.raises(NotFound, match="no such run"), clicks.writing() as tx:
        runs.cancel(tx, 99, "ben")
    assert commit(clicks, *begun, empty=True) == LeaseExpired()
    assert contents(clicks) == before


def test_what_failed_can_be_written_down_whatever_it_says(clicks: Catalog) -> None:
    with clicks.writing() as tx:
        run, _ = begin(tx, "clicks")
    with clicks.writing() as tx:
        assert runs.fail(tx, run, "row \x00 of \udcff\n" + "x" * 100_000)
    with clicks.reading() as tx:
        assert "row" in str(runs.find_run(tx, run).error)


def test_a_lease_lasts_while_it_is_renewed(clicks: Catalog, clock: Clock) -> None:
    with clicks.writing() as tx:
        run, _ = begin(tx, "clicks")
    for _ in range(5):
        clock.forward(9)
        with clicks.writing() as tx:
            assert runs.renew_lease(tx, run, LEASE)
            assert runs.expire(tx) == []
    clock.forward(10)
    with clicks.writing() as tx:
        assert runs.expire(tx) == []
    clock.forward(0.001)
    with clicks.writing() as tx:
        assert [item.number for item in runs.expire(tx)] == [run]


def test_a_run_whose_lease_ran_out_unnoticed_may_still_commit(clicks: Catalog, clock: Clock) -> None:
    with clicks.writing() as tx:
        begun = begin(tx, "clicks")
    clock.forward(1000)
    assert commit(clicks, *begun) == Committed()


def test_a_run_that_was_taken_over_publishes_nothing(clicks: Catalog, clock: Clock) -> None:
    with clicks.writing() as tx:
        run, points = begin(tx, "clicks", "joined", tasks=("joined",))
        block = channel_store.new_block(tx, "clicks", run)
    clock.forward(11)
    with clicks.writing() as tx:
        runs.expire(tx)
    before = contents(clicks)
    with clicks.writing() as tx:
        outcome = runs.commit(
            tx,
            run,
            inputs=(RunInput(task="joined", port="clicks", channel="clicks", start=0, end=1),),
            outputs=(an_output("clicks", points["clicks"], a_block(block, Delta(0, 1))),),
            advances=(runs.Advance(task="joined", logic=0, points=(("clicks", 1),)),),
        )
    assert outcome == LeaseExpired()
    assert contents(clicks) == before
    with clicks.reading() as tx:
        assert channel_store.channel_state(tx, "clicks").blocks == ()


def test_a_run_that_was_taken_over_can_name_no_more_blocks(clicks: Catalog, clock: Clock) -> None:
    with clicks.writing() as tx:
        run, _ = begin(tx, "clicks")
    clock.forward(11)
    with clicks.writing() as tx:
        runs.expire(tx)
    with pytest.raises(LeaseLost), clicks.writing() as tx:
        channel_store.new_block(tx, "clicks", run)
    assert states(clicks) == {}


def test_a_commit_is_all_or_nothing(clicks: Catalog) -> None:
    """Whatever statement of it fails, here the last one."""
    _, read = ingested(clicks, "clicks")
    with clicks.writing() as tx:
        run, points = begin(tx, "joined", tasks=("joined",), kind=RunKind.TASKS)
        block = channel_store.new_block(tx, "joined", run)
    before = contents(clicks)
    with pytest.raises(NotFound), clicks.writing() as tx:
        runs.commit(
            tx,
            run,
            inputs=(RunInput(task="joined", port="clicks", channel="clicks", start=0, end=1, blocks=(read,)),),
            outputs=(an_output("joined", points["joined"], a_block(block, Base(1)), "joined"),),
            advances=(runs.Advance(task="joined", logic=0, points=(("clicks", 1), ("not there", 1))),),
        )
    assert contents(clicks) == before


def test_a_commit_moves_cursors_and_records_provenance(clicks: Catalog) -> None:
    _, read = ingested(clicks, "clicks")
    with clicks.writing() as tx:
        run, points = begin(tx, "joined", tasks=("joined",), kind=RunKind.TASKS)
        block = channel_store.new_block(tx, "joined", run)
    clicks_read = RunInput(task="joined", port="clicks", channel="clicks", start=0, end=1, blocks=(read,))
    users_read = RunInput(task="joined", port="users", channel="users", start=0, end=0)
    with clicks.writing() as tx:
        runs.commit(
            tx,
            run,
            inputs=(clicks_read, users_read),
            outputs=(an_output("joined", points["joined"], a_block(block, Base(1), rows=7), "joined"),),
            advances=(runs.Advance(task="joined", logic=0, points=(("clicks", 1), ("users", 0))),),
        )
    with clicks.reading() as tx:
        registered = registry.tasks(tx)["joined"]
        assert registered.started
        assert [registered.cursor(name) for name in ("clicks", "users", "joined")] == [1, 0, 0]
        (made,) = run_records.outputs(tx, [run])
        assert (made.task, made.channel, made.point, made.block, made.rows) == ("joined", "joined", 1, block.number, 7)
        assert run_records.inputs(tx, [run]) == [
            (run, RunInput(task="joined", port="clicks", channel="clicks", start=0, end=1)),
            (run, RunInput(task="joined", port="users", channel="users", start=0, end=0)),
        ]
        assert rows(tx, "run_input_block") == [(run, "joined", 1, read)]
        assert rows(tx, "claim") == []
        assert channel_store.channel_state(tx, "joined").version(1) == Version.source("joined", 1)


def test_a_point_without_a_block_is_cancelled(clicks: Catalog) -> None:
    with clicks.writing() as tx:
        begun = begin(tx, "clicks")
    commit(clicks, *begun, empty=True)
    with clicks.reading() as tx:
        state = channel_store.channel_state(tx, "clicks")
    assert (state.latest_readable, state.latest_distinct) == (1, 0)
    assert state.points[0].state is PointState.CANCELLED


def test_a_reserved_point_that_the_results_leave_out_is_cancelled(clicks: Catalog) -> None:
    with clicks.writing() as tx:
        run, points = begin(tx, "clicks", "users")
    commit(clicks, run, {"clicks": points["clicks"]})
    assert (readable(clicks, "clicks"), readable(clicks, "users")) == (1, 1)


def test_an_unused_block_is_marked_for_deletion(clicks: Catalog) -> None:
    with clicks.writing() as tx:
        run, points = begin(tx, "clicks")
        spare = channel_store.new_block(tx, "clicks", run)
    commit(clicks, run, points)
    with clicks.writing() as tx:
        assert channel_store.marked_for_deletion(tx) == [spare]
        channel_store.mark_deleted(tx, [spare.number])
        assert channel_store.marked_for_deletion(tx) == []
    assert states(clicks)[spare.number] == channel_store.GONE


def test_a_channel_without_a_schema_takes_that_of_its_first_block(catalog: Catalog) -> None:
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [a_channel("free", schema=None)], "w")
    ingested(catalog, "free")
    with catalog.reading() as tx:
        assert channel_store.channel(tx, "free").schema == SCHEMA


def test_compaction_adds_a_block_to_a_point_that_is_there(clicks: Catalog) -> None:
    ingested(clicks, "clicks")
    ingested(clicks, "clicks")
    with clicks.writing() as tx:
        run, points = begin(tx, kind=RunKind.COMPACTION)
        assert points == {}
        block = channel_store.new_block(tx, "clicks", run)
    with clicks.reading() as tx:
        before = channel_store.channel_state(tx, "clicks").points
    with clicks.writing() as tx:
        output = an_output("clicks", 2, a_block(block, Base(2)), "compaction")
        runs.commit(tx, run, inputs=(), outputs=(output,), advances=())
    with clicks.reading() as tx:
        after = channel_store.channel_state(tx, "clicks")
    assert after.points == before
    assert after.snapshot(2).base is not None
    assert after.snapshot(2).deltas == ()


def test_a_block_of_a_channel_that_was_dropped_meanwhile_is_not_published(clicks: Catalog) -> None:
    ingested(clicks, "clicks")
    with clicks.writing() as tx:
        run, _ = begin(tx, kind=RunKind.COMPACTION)
        block = channel_store.new_block(tx, "clicks", run)
    with clicks.writing() as tx:
        registry.drop_task(tx, "joined")
        channel_store.drop_channel(tx, "clicks")
        channel_registry.add_channels(tx, [a_channel("clicks")], "w")
    output = an_output("clicks", 1, a_block(block, Base(1)), "compaction")
    with pytest.raises(NotFound), clicks.writing() as tx:
        runs.commit(tx, run, inputs=(), outputs=(output,), advances=())
    with clicks.writing() as tx:
        assert runs.fail(tx, run, "dropped")
    assert states(clicks)[block.number] == channel_store.DOOMED


def test_points_of_a_channel_that_is_declared_again_continue_the_numbers(clicks: Catalog) -> None:
    for _ in range(3):
        ingested(clicks, "clicks")
    with clicks.writing() as tx:
        registry.drop_task(tx, "joined")
        channel_store.drop_channel(tx, "clicks")
        channel_registry.add_channels(tx, [a_channel("clicks")], "w")
    with clicks.reading() as tx:
        state = channel_store.channel_state(tx, "clicks")
    assert (state.latest_readable, state.latest_distinct, state.snapshot(3).blocks) == (3, 0, ())
    with pytest.raises(NotFound, match="dropped"):
        state.snapshot(2)
    ingested(clicks, "clicks")
    with clicks.reading() as tx:
        state = channel_store.channel_state(tx, "clicks")
    assert [point.number for point in state.points] == [4]
    assert (state.latest_distinct, len(state.snapshot(4).blocks)) == (4, 1)
    with clicks.writing() as tx:  # without having been written
        for _ in range(2):
            channel_store.drop_channel(tx, "clicks")
            channel_registry.add_channels(tx, [a_channel("clicks")], "w")
    with clicks.reading() as tx:
        assert channel_store.channel_state(tx, "clicks").latest_readable == 4


def test_a_task_that_was_declared_again_during_its_run_starts_from_scratch(clicks: Catalog) -> None:
    ingested(clicks, "clicks")
    with clicks.writing() as tx:
        task = registry.tasks(tx)["joined"]
        run, _ = begin(tx, "joined")
    with clicks.writing() as tx:
        registry.drop_task(tx, "joined")
        channel_store.drop_channel(tx, "clicks")
        channel_registry.add_channels(tx, [a_channel("clicks")], "w")
        registry.put_task(tx, task.task, "w")
        advance = runs.Advance(task="joined", logic=task.logic, points=(("clicks", 1),))
        runs.commit(tx, run, inputs=(), outputs=(), advances=(advance,))
    with clicks.reading() as tx:
        assert not registry.tasks(tx)["joined"].started


def test_pins_keep_blocks_until_they_run_out(clicks: Catalog, clock: Clock) -> None:
    _, block = ingested(clicks, "clicks")
    with clicks.writing() as tx:
        pins.pin(tx, "reader", [block, block], timedelta(seconds=5))
        pins.pin(tx, "reader", [block], timedelta(seconds=5))
        pins.pin(tx, "other", [block], timedelta(seconds=50))
        assert len(rows(tx, "pin")) == 2
    clock.forward(6)
    with clicks.writing() as tx:
        runs.expire(tx)
        assert [row[0] for row in rows(tx, "pin")] == ["other"]
        pins.unpin(tx, "other")
        assert rows(tx, "pin") == []


def test_heartbeats_renew_pins(clicks: Catalog, clock: Clock) -> None:
    _, block = ingested(clicks, "clicks")
    with clicks.writing() as tx:
        run, _ = begin(tx, "joined")
        pins.pin(tx, pins.holder_of(run), [block], LEASE)
    clock.forward(8)
    with clicks.writing() as tx:
        runs.renew_lease(tx, run, LEASE)
    clock.forward(8)
    with clicks.writing() as tx:
        runs.expire(tx)
        assert len(rows(tx, "pin")) == 1


def test_files_of_a_dropped_channel_stay_while_they_are_read(clicks: Catalog, clock: Clock) -> None:
    _, block = ingested(clicks, "clicks")
    with clicks.writing() as tx:
        pins.pin(tx, "reader", [block], LEASE)
        registry.drop_task(tx, "joined")
        channel_store.drop_channel(tx, "clicks")
    with clicks.reading() as tx:
        assert channel_store.marked_for_deletion(tx) == []
    clock.forward(11)
    with clicks.reading() as tx:
        assert [name.number for name in channel_store.marked_for_deletion(tx)] == [block]


def test_a_dropped_channel_leaves_nothing_but_its_doomed_blocks(clicks: Catalog) -> None:
    ingested(clicks, "clicks")
    _, gone = ingested(clicks, "clicks")
    with clicks.writing() as tx:
        channel_store.remove_blocks(tx, "clicks", [gone])
        channel_store.mark_deleted(tx, [gone])
        registry.move_cursors(tx, "joined", 0, [("clicks", 2)])
        number = channel_store.channel_id(tx, "clicks")
        registry.drop_task(tx, "joined")
        channel_store.drop_channel(tx, "clicks")
    with clicks.reading() as tx:
        assert "clicks" not in channel_store.channel_names(tx)
        for table in tables.metadata.tables.values():
            if "channel_id" in table.c:
                left = tx.connection.execute(table.select().with_only_columns(table.c.channel_id)).scalars()
                assert number not in left.all(), table.name
        assert sorted(channel_store.block_states(tx).values()) == [channel_store.DOOMED, channel_store.GONE]
    with clicks.writing() as tx:
        channel_registry.add_channels(tx, [a_channel("clicks", schema=Schema.of(("other", "int")))], "w")
    with clicks.reading() as tx:
        assert channel_store.channel_state(tx, "clicks").points == ()


def test_history_is_newest_first(clicks: Catalog, clock: Clock) -> None:
    numbers = [ingested(clicks, "clicks")[0] for _ in range(3)]
    with clicks.reading() as tx:
        assert [run.number for run in run_queries.runs(tx)] == numbers[::-1]
        assert [run.number for run in run_queries.runs(tx, 2)] == numbers[:0:-1]
        found = runs.find_run(tx, numbers[0])
        assert found.started == found.ended == clock.now
        assert found.lease_until == clock.now + LEASE
        with pytest.raises(NotFound, match="1 to 3"):
            runs.find_run(tx, 99)
