from __future__ import annotations

import random
from datetime import datetime

from kilonova.catalog import events, runs, tables, trigger_inputs
from kilonova.catalog.database import Catalog, Transaction
from kilonova.model.block import Base
from kilonova.model.event import EventKind
from kilonova.model.trigger import ArrivalTrigger, ConditionState, RunOutcome, RunTrigger
from kilonova.schedule.trigger_evaluation import Arrivals
from tests.catalog.building import a_block, an_output, begin, commit, with_channels
from tests.databases import Clock
from tests.seeds import SEED


def arrived_by_definition(tx: Transaction, number: int, seen: int) -> Arrivals | None:
    """What has come on a channel, by looking at each point."""
    found: list[tuple[int, datetime, int]] = []
    point, made, block = tables.point, tables.run_output, tables.block
    blocks = {row.id: row.rows for row in tx.connection.execute(block.select())}
    by_run = {(row.run_id, row.channel_id): row.block_id for row in tx.connection.execute(made.select())}
    later = point.select().where(point.c.channel_id == number, point.c.number > seen)
    for row in tx.connection.execute(later.order_by(point.c.number)):
        if row.state == "reserved":
            break
        if row.state == "filled":
            found.append((row.number, row.time, blocks[by_run[row.run_id, number]]))
    if not found:
        return None
    return Arrivals(first=found[0][1], point=found[-1][0], time=found[-1][1], rows=sum(rows for *_, rows in found))


def test_what_has_come_is_what_can_be_read_after_a_point(catalog: Catalog, clock: Clock) -> None:
    """Runs of several channels begin and end in any order; each channel is looked at from every point."""
    names = ("a", "b", "c")
    with_channels(catalog, *names)
    chance = random.Random(SEED)
    going: list[tuple[int, dict[str, int]]] = []
    for _ in range(25):
        clock.forward(1)
        if len(going) < 4:
            with catalog.writing() as tx:
                going.append(begin(tx, *chance.sample(names, chance.randint(1, 2))))
        if chance.random() < 0.8:
            run, points = going.pop(chance.randrange(len(going)))
            if chance.random() < 0.2:
                with catalog.writing() as tx:
                    runs.fail(tx, run, "no luck")
            else:
                commit(catalog, run, points, empty=chance.random() < 0.3)
        looked_at = [(name, seen) for name in names for seen in range(20)]
        triggers = [(ArrivalTrigger(channel=name, rows=5), (ConditionState(seen=seen),)) for name, seen in looked_at]
        with catalog.reading() as tx:
            found = trigger_inputs.trigger_inputs(tx, triggers).arrived
            numbers = {row.name: row.id for row in tx.connection.execute(tables.channel.select())}
            for name, seen in looked_at:
                assert found.get((name, seen)) == arrived_by_definition(tx, numbers[name], seen)


def test_compactions_bring_no_rows_and_rows_are_counted_where_they_matter(catalog: Catalog) -> None:
    with_channels(catalog, "a")
    with catalog.writing() as tx:
        run, points = begin(tx, "a")
    commit(catalog, run, points)
    with catalog.writing() as tx:
        run, _ = begin(tx)
        number = tx.connection.execute(
            tables.block.insert().values(target_id=1, run_id=run, state="writing")
        ).inserted_primary_key
        assert number is not None

        output = an_output("a", 1, a_block(number[0], Base(1), rows=50))
        runs.commit(tx, run, inputs=(), outputs=[output], advances=())
    with catalog.reading() as tx:
        counting = trigger_inputs.trigger_inputs(
            tx,
            [
                (ArrivalTrigger(channel="a", rows=5), (ConditionState(),)),
                (ArrivalTrigger(channel="a"), (ConditionState(),)),
            ],
        )
        careless = trigger_inputs.trigger_inputs(
            tx,
            [(ArrivalTrigger(channel="a"), (ConditionState(),)), (ArrivalTrigger(channel="gone"), (ConditionState(),))],
        )
    assert counting.arrived["a", 0].rows == 1
    assert {place: arrived.rows for place, arrived in careless.arrived.items()} == {("a", 0): 0}


def test_the_newest_event_is_that_of_the_binding_by_which_it_got_somewhere(catalog: Catalog) -> None:
    told = [
        (EventKind.LAUNCHED, "x"),
        (EventKind.SUCCEEDED, "x"),
        (EventKind.FAILED, "y"),
        (EventKind.SKIPPED, "x"),
        (EventKind.LAUNCHED, "y"),
        (EventKind.FAILED, "x"),
        (EventKind.SUCCEEDED, "y"),
    ]
    with catalog.writing() as tx:
        for kind, binding in told:
            events.record(tx, kind, binding=binding)
    every = [(binding, reached, seen) for binding in "xyz" for reached in RunOutcome for seen in range(9)]
    triggers = [
        (RunTrigger(binding=binding, reached=reached), (ConditionState(seen=seen),)) for binding, reached, seen in every
    ]
    with catalog.reading() as tx:
        found = trigger_inputs.trigger_inputs(tx, triggers).reached
    for binding, reached, seen in every:
        kinds = events.kinds_of_outcome(reached)
        wanted = [number for number, each in enumerate(told, 1) if each[1] == binding and each[0] in kinds]
        newest = max((number for number in wanted if number > seen), default=None)
        assert (found[binding, reached, seen][0] if newest else None) == newest
        assert ((binding, reached, seen) in found) == (newest is not None)
