"""Bounds in the catalog: times since which points can be read, provenance, phases, changes at run time, enforcement."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from alembic import command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, text

from kilonova.catalog import bounds, channel_registry, channel_store, events, registry, runs, scheduling, tables
from kilonova.catalog.bound_enforcement import require_kept
from kilonova.catalog.bound_status import BoundStatus, bound_statuses
from kilonova.catalog.database import Catalog, _alembic_config
from kilonova.catalog.planner_input import load_planner_input
from kilonova.catalog.validity import _validities, present, validities
from kilonova.errors import BoundViolated, DeclarationError, InvalidState, NotFound
from kilonova.model.block import Base, Delta
from kilonova.model.bound_phase import BoundPhase
from kilonova.model.channel import PointState
from kilonova.model.event import EventKind
from kilonova.model.run import InputSize, RefreshMethod, RunKind, RunOutput
from kilonova.model.task import Mode
from kilonova.model.version import Validity, Version
from kilonova.schedule.due import read_ends
from kilonova.schedule.planning import choose, output_version, port_inputs
from kilonova.scheduler.bound_monitor import BoundMonitor
from tests.catalog.building import a_block, a_channel, a_task, an_output, begin, ingested, with_channels
from tests.databases import NOON, Clock, emptied

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def with_report(catalog: Catalog) -> None:
    """Channels orders and rates; daily is computed from orders, report from the news of daily and all of rates."""
    with_channels(catalog, "orders", "rates", "daily", "report")
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("daily", {"orders": Mode.NEW}, ("daily",)), "w")
        registry.put_task(tx, a_task("report", {"daily": Mode.NEW, "rates": Mode.ALL}, ("report",)), "w")


def run_task(catalog: Catalog, name: str, *, empty: bool = False, base: bool = False) -> int:
    """Run a task as the engine does, without executing it; return the point that it fills, or 0."""
    with catalog.writing() as tx:
        run, points = begin(tx, name, tasks=(name,), kind=RunKind.TASKS)
        known = load_planner_input(tx, [name])
        state = known.newest[name]
        choice = choose(state, known.channels)
        version = output_version(choice, port_inputs(choice, known.channels), known.channels, name)
        if base:
            version = Version()
            for read, end in read_ends(state, known.channels).items():
                version = version.joined(known.channels[read].version(end).through(name, state.logic))
        block = None
        if not empty:
            kind = Base(points[name]) if base else Delta(points[name] - 1, points[name])
            block = a_block(channel_store.new_block(tx, name, run), kind)
        ends = tuple(choice.ends.items())
    output = RunOutput(
        channel=name,
        point=points[name],
        block=block,
        version=version,
        task=name,
        reason="because",
        seconds=1.0,
        method=RefreshMethod.INCREMENTAL,
        input_size=InputSize(change=1, whole=1),
    )
    advance = runs.Advance(task=name, logic=0, points=ends)
    try:
        with catalog.writing() as tx:
            runs.commit(tx, run, inputs=(), outputs=(output,), advances=(advance,))
            require_kept(tx, run, (output,))
    except BoundViolated as error:
        with catalog.writing() as tx:
            runs.fail(tx, run, str(error))
        raise
    return 0 if empty else points[name]


def status(catalog: Catalog, *path: str, channel: str = "report") -> BoundStatus:
    with catalog.reading() as tx:
        return next(
            each for each in bound_statuses(tx) if each.registered.channel == channel and each.registered.path == path
        )


def set_limit(catalog: Catalog, limit: timedelta | None, *path: str, channel: str = "report") -> None:
    with catalog.writing() as tx:
        bounds.set_limit(tx, channel, path, limit, "ann")


DAILY = ("orders", "daily", "report")
RATES = ("rates", "report")


def test_points_become_readable_in_the_order_in_which_readers_see_them_although_the_clock_jumps_back(
    catalog: Catalog, clock: Clock
) -> None:
    with_channels(catalog, "a", "b")
    ingested(catalog, "a")
    with catalog.writing() as tx:
        first, second = begin(tx, "a"), begin(tx, "a")
    clock.forward(-3600)
    _commit(catalog, *second)
    ingested(catalog, "b")
    clock.forward(60)
    _commit(catalog, *first)
    ingested(catalog, "b")
    with catalog.reading() as tx:
        of = validities(tx, [(name, number) for name in "ab" for number in range(4)])
        tick = timedelta.resolution
        assert of("a", 0) == Validity(None, NOON)
        assert of("a", 1) == Validity(NOON, NOON + 2 * tick)
        assert of("b", 1) == Validity(NOON + tick, NOON + 4 * tick)
        assert of("a", 2) == Validity(NOON + 2 * tick, NOON + 3 * tick)
        assert of("a", 3) == Validity(NOON + 3 * tick, None)
        assert present(tx) == NOON + 4 * tick


STEPS = st.lists(
    st.tuples(st.sampled_from(("begin", "commit", "fail")), st.sampled_from("ab"), st.integers(-3600, 3600)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=STEPS, data=st.data())
def test_a_point_is_valid_while_it_is_the_newest_that_can_be_read(
    catalog: Catalog, clock: Clock, steps: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    """Whichever runs end first, whether they fail, and wherever the clock jumps."""
    emptied(catalog)
    with_channels(catalog, "a", "b")
    running: list[tuple[int, dict[str, int]]] = []
    seen: list[tuple[datetime, dict[str, int]]] = []
    for step, channel, seconds in steps:
        clock.forward(seconds)
        if step == "begin" or not running:
            with catalog.writing() as tx:
                running.append(begin(tx, channel))
        else:
            run, points = running.pop(data.draw(st.integers(0, len(running) - 1)))
            if step == "commit":
                _commit(catalog, run, points)
            else:
                with catalog.writing() as tx:
                    runs.fail(tx, run, "no luck")
        with catalog.reading() as tx:
            states = channel_store.channel_states(tx)
            newest = {name: state.latest_distinct for name, state in states.items()}
            of = validities(tx, newest.items())
            starts = [start for each in newest.items() if (start := of(*each).start) is not None]
        if starts:
            seen.append((max(starts), newest))
    with catalog.reading() as tx:
        every = [
            (name, number)
            for name, state in states.items()
            for number in (0, *(p.number for p in state.points if p.state is PointState.FILLED))
            if number <= state.latest_readable
        ]
        of = validities(tx, every)
    for time, newest in seen:
        found = [(each, of(*each)) for each in every]
        begun = [(each, one) for each, one in found if each[1] == 0 or (one.start is not None and one.start <= time)]
        assert [each for each, one in begun if one.end is None or time < one.end] == sorted(newest.items())


def test_rows_that_are_ingested_are_the_newest_until_others_are_whatever_tasks_write(
    catalog: Catalog, clock: Clock
) -> None:
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [replace(a_channel("c"), several_writers=True), a_channel("a")], "w")
        registry.put_task(tx, a_task("t", {"a": Mode.NEW}, ("c",)), "w")
    for times in range(3):
        clock.forward(60)
        ingested(catalog, "c") if times != 1 else _write(catalog, "c", "t")
    with catalog.reading() as tx:
        of = validities(tx, [("c", 1), ("c", 3)])
    assert of("c", 1) == Validity(NOON + timedelta(seconds=60), NOON + timedelta(seconds=180))
    assert of("c", 3).end is None


def _write(catalog: Catalog, channel: str, task: str) -> None:
    with catalog.writing() as tx:
        run, points = begin(tx, channel, tasks=(task,), kind=RunKind.TASKS)
        block = a_block(channel_store.new_block(tx, channel, run), Delta(points[channel] - 1, points[channel]))
        output = replace(
            an_output(channel, points[channel], block, task), version=Version.source("a", 1).through("t", 0)
        )
        runs.commit(tx, run, inputs=(), outputs=(output,), advances=())


def _commit(catalog: Catalog, run: int, points: dict[str, int]) -> None:
    with catalog.writing() as tx:
        ((name, point),) = points.items()
        block = a_block(channel_store.new_block(tx, name, run), Delta(point - 1, point))
        runs.commit(tx, run, inputs=(), outputs=(an_output(name, point, block),), advances=())


def test_staleness_is_measured_along_each_path(catalog: Catalog, clock: Clock) -> None:
    with_report(catalog)
    for path in (DAILY, RATES):
        set_limit(catalog, DAY, *path)
    assert status(catalog, *DAILY).amount == timedelta()
    ingested(catalog, "orders")
    clock.forward(3600)
    assert status(catalog, *DAILY).amount == HOUR  # nothing is there yet
    assert status(catalog, *RATES).amount == timedelta()
    ingested(catalog, "rates")
    run_task(catalog, "daily")
    run_task(catalog, "report")
    assert (status(catalog, *DAILY).amount, status(catalog, *DAILY).end) == (timedelta(), None)
    clock.forward(3600)
    ingested(catalog, "orders")
    arrived = clock.now
    clock.forward(23 * 3600)
    found = status(catalog, *DAILY)
    assert (found.amount, found.slack, found.end, found.phase) == (23 * HOUR, HOUR, arrived, BoundPhase.AT_RISK)
    assert found.next_change == arrived + DAY + timedelta.resolution
    clock.forward(3601)
    assert status(catalog, *DAILY).phase is BoundPhase.VIOLATED
    assert status(catalog, *RATES).phase is BoundPhase.KEPT
    run_task(catalog, "daily")
    assert status(catalog, *DAILY).phase is BoundPhase.VIOLATED
    run_task(catalog, "report")
    assert status(catalog, *DAILY).slack == DAY


def test_data_that_change_nothing_on_their_way_do_not_make_a_channel_stale(catalog: Catalog, clock: Clock) -> None:
    with_report(catalog)
    set_limit(catalog, HOUR, *DAILY)
    ingested(catalog, "orders")
    ingested(catalog, "rates")
    run_task(catalog, "daily", empty=True)
    clock.forward(7200)
    assert status(catalog, *DAILY).phase is BoundPhase.VIOLATED  # report has read nothing yet
    ingested(catalog, "orders")
    run_task(catalog, "daily")
    run_task(catalog, "report")
    for _ in range(3):
        clock.forward(7200)
        ingested(catalog, "orders")
        run_task(catalog, "daily", empty=True)
        assert status(catalog, *DAILY).amount == timedelta()
    ingested(catalog, "orders")
    run_task(catalog, "daily")
    run_task(catalog, "report", empty=True)
    assert status(catalog, *DAILY).amount == timedelta()
    clock.forward(60)
    ingested(catalog, "orders")
    run_task(catalog, "daily")
    assert run_task(catalog, "report")
    with catalog.reading() as tx:
        state = channel_store.channel_state(tx, "report")
        newest = state.version(state.latest_readable)
        of = validities(tx, newest.extremes)
    assert newest.points("orders") == ((7, 7),)  # not those before it, which changed nothing
    assert newest.is_consistent(of)


def test_a_run_whose_output_would_be_too_inconsistent_publishes_nothing(catalog: Catalog, clock: Clock) -> None:
    with_report(catalog)
    set_limit(catalog, HOUR)
    ingested(catalog, "orders")
    ingested(catalog, "rates")
    run_task(catalog, "daily")
    run_task(catalog, "report")
    clock.forward(1)
    ingested(catalog, "rates")
    clock.forward(1800)
    ingested(catalog, "orders")
    run_task(catalog, "daily")
    assert run_task(catalog, "report")  # rows with the first rates are half an hour apart from the newest orders
    clock.forward(1800 + 1)
    ingested(catalog, "orders")
    run_task(catalog, "daily")
    with pytest.raises(BoundViolated, match="inconsistent by 1:00:01") as caught:
        run_task(catalog, "report")
    assert "reflects point 3 of orders" in str(caught.value)
    assert "along the path rates›report only point 1" in str(caught.value)
    with catalog.reading() as tx:
        state = channel_store.channel_state(tx, "report")
        assert (state.latest, state.latest_distinct) == (3, 2)
        assert load_planner_input(tx, ["report"]).newest["report"].cursor("daily") == 2
    assert status(catalog).amount == timedelta(minutes=30)
    assert run_task(catalog, "report", base=True) == 4  # which reads all rates again
    assert status(catalog).amount == timedelta()


def test_readers_get_the_newest_point_that_keeps_a_bound_that_is_set_later(catalog: Catalog, clock: Clock) -> None:
    with_report(catalog)
    ingested(catalog, "orders")
    ingested(catalog, "rates")
    run_task(catalog, "daily")
    run_task(catalog, "report")
    clock.forward(1)
    ingested(catalog, "rates")
    for _ in range(2):
        clock.forward(3600)
        ingested(catalog, "orders")
        run_task(catalog, "daily")
        run_task(catalog, "report")

    def kept() -> tuple[int, int]:
        with catalog.reading() as tx:
            state = channel_store.channel_state(tx, "report")
            return state.latest_readable, state.latest_kept

    set_limit(catalog, 3 * HOUR)
    assert kept() == (3, 3)
    set_limit(catalog, timedelta(minutes=90))
    assert kept() == (3, 2)
    assert (status(catalog).phase, status(catalog).kept) == (BoundPhase.VIOLATED, 2)
    set_limit(catalog, HOUR)
    assert kept() == (3, 1)  # T⁺ < T⁻ + t: exactly an hour is too much
    set_limit(catalog, timedelta())
    assert kept() == (3, 1)
    set_limit(catalog, None)
    assert kept() == (3, 3)
    set_limit(catalog, timedelta())
    run_task(catalog, "report", base=True)
    assert kept() == (4, 4)


def test_a_limit_set_at_run_time_stays_until_another_one_is_declared(catalog: Catalog) -> None:
    with_report(catalog)

    def found() -> tuple[timedelta | None, timedelta | None, str | None] | None:
        with catalog.reading() as tx:
            every = bounds.bounds(tx, ["report"])
        return next(((each.declared, each.limit, each.changed_by) for each in every), None)

    def declared(limit: timedelta) -> None:
        with catalog.writing() as tx:
            bounds.declare(tx, "report", DAILY, limit)

    declared(DAY)
    assert found() == (DAY, DAY, None)
    set_limit(catalog, 2 * DAY, *DAILY)
    declared(DAY)
    assert found() == (DAY, 2 * DAY, "ann")
    declared(3 * DAY)
    assert found() == (3 * DAY, 3 * DAY, None)
    set_limit(catalog, None, *DAILY)
    declared(3 * DAY)
    assert found() == (3 * DAY, None, "ann")
    with pytest.raises(NotFound, match="no bound on the staleness of report along orders›daily›report"):
        set_limit(catalog, None, *DAILY)
    with catalog.writing() as tx:
        assert bounds.reset_limit(tx, "report", DAILY, "ben") == 3 * DAY
    assert found() == (3 * DAY, 3 * DAY, None)
    with catalog.writing() as tx:
        bounds.drop(tx, "report", DAILY)
    assert found() is None
    set_limit(catalog, DAY, *DAILY)
    assert found() == (None, DAY, "ann")
    with pytest.raises(InvalidState, match="no workflow declares"), catalog.writing() as tx:
        bounds.reset_limit(tx, "report", DAILY, "ben")
    with pytest.raises(DeclarationError, match="negative"):
        set_limit(catalog, -DAY, *DAILY)
    set_limit(catalog, None, *DAILY)
    assert found() is None
    with catalog.writing() as tx:
        bounds.declare(tx, "report", DAILY, DAY)
        registry.drop_task(tx, "report")
        channel_store.drop_channel(tx, "report")
        assert bounds.bounds(tx) == []


def test_each_change_of_a_phase_is_announced_once_per_episode(catalog: Catalog, clock: Clock) -> None:
    with_report(catalog)
    set_limit(catalog, 10 * HOUR, *DAILY)
    monitors = [BoundMonitor(catalog), BoundMonitor(catalog)]

    def told() -> list[EventKind]:
        """The events since the last call, once all servers have seen them, and checked the bounds."""
        for monitor in (*monitors, *monitors):
            with catalog.reading() as tx:
                for event in events.since(tx, seen[-1]):
                    monitor.note(event)
            monitor.check(exist=True)
        with catalog.reading() as tx:
            new = events.since(tx, seen[-1])
            seen.append(events.newest(tx))
        return [event.kind for event in new if event.kind.value.startswith("bound-")]

    seen = [0]
    assert told() == [EventKind.BOUND_CHANGED]
    ingested(catalog, "orders")
    assert told() == []
    assert [monitor.next_check for monitor in monitors] == [NOON + 9 * HOUR + timedelta.resolution] * 2
    clock.forward(9 * 3600 + 1)
    assert told() == [EventKind.BOUND_AT_RISK]
    clock.forward(3600)
    assert told() == [EventKind.BOUND_VIOLATED]
    clock.forward(3600)
    assert told() == []
    run_task(catalog, "daily")
    run_task(catalog, "report")
    assert told() == [EventKind.BOUND_RESTORED]
    ingested(catalog, "orders")
    clock.forward(9 * 3600 + 1)
    assert told() == [EventKind.BOUND_AT_RISK]
    run_task(catalog, "daily")
    run_task(catalog, "report")
    assert told() == []
    with catalog.reading() as tx:
        said = [event for event in events.since(tx, 0) if event.kind is EventKind.BOUND_VIOLATED]
    assert [(event.channels, event.text) for event in said] == [
        (("report",), "report is at most 10 hours behind orders›daily›report; it is behind by 10 h")
    ]


def test_servers_wait_for_no_bound_where_there_are_none(catalog: Catalog) -> None:
    with_report(catalog)
    monitor = BoundMonitor(catalog)

    def exist() -> bool:
        with catalog.reading() as tx:
            return scheduling.pending(tx).bounds

    assert not exist()
    set_limit(catalog, 10 * HOUR, *DAILY)
    ingested(catalog, "orders")
    assert exist()
    monitor.check(exist=True)
    assert monitor.next_check is not None
    monitor.check(exist=False)
    assert monitor.next_check is None
    monitor.check(exist=True)
    assert monitor.next_check is not None


def test_a_year_of_history_makes_no_difference(catalog: Catalog, clock: Clock) -> None:
    with_report(catalog)
    set_limit(catalog, DAY, *DAILY)
    set_limit(catalog, DAY)
    for name in ("orders", "rates", "daily", "report"):
        ingested(catalog, name) if name in ("orders", "rates") else run_task(catalog, name)
    count = 20_000
    with catalog.writing() as tx:
        number, run = channel_store.channel_id(tx, "orders"), tx.connection.execute(select(tables.run.c.id)).scalar()
        point = {"channel_id": number, "run_id": run, "state": "filled", "version": []}
        times = [NOON + place * timedelta(minutes=1) for place in range(count + 2)]
        many = [point | {"number": n, "time": times[n], "readable": times[n]} for n in range(2, count + 2)]
        tx.connection.execute(insert(tables.point), many)
    clock.now = times[-1]
    with catalog.reading() as tx:
        of = validities(tx, [("orders", n) for n in (1, count // 2, count + 1)])
        assert of("orders", count // 2) == Validity(times[count // 2], times[count // 2 + 1])
        assert of("orders", count + 1) == Validity(times[-1], None)
        if catalog.dialect == "sqlite":
            query = _validities("sqlite").compile(tx.connection)
            values = query.params | {"pairs": "[[1, 5]]"}
            given = tuple(values[name] for name in query.positiontup or ())
            steps = tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", given)
            assert not [step for *_, step in steps if step.startswith("SCAN point")]
    assert status(catalog, *DAILY).end == times[2]


def test_points_that_were_there_before_bounds_get_the_times_since_which_they_could_be_read(url: str) -> None:
    catalog = Catalog(url)
    ends = [
        ("filled", "01"),
        ("filled", "05"),
        ("cancelled", "07"),
        ("filled", "03"),
        ("reserved", None),
        ("filled", "08"),
    ]
    with catalog._exclusive("SELECT 1") as (connection, _):
        command.upgrade(_alembic_config(connection), "0035")
        day = "'2024-01-01 00:00:00.000000'"
        connection.execute(text("INSERT INTO channel (id, name, encoding, workflow) VALUES (1, 'a', '{}', 'w')"))
        columns = "(id, kind, state, tasks, owner, started, lease_until)"
        connection.execute(
            text(f"INSERT INTO run {columns} VALUES (1, 'ingest', 'succeeded', '[]', 'me', {day}, {day})")
        )
        for number, (state, hour) in enumerate(ends, 1):
            time = "NULL" if hour is None else day.replace(" 00", f" {hour}")
            row = f"(1, {number}, '{state}', '[]', {time}, 1)"
            columns = "(channel_id, number, state, version, time, run_id)"
            connection.execute(text(f"INSERT INTO point {columns} VALUES {row}"))
    catalog.create()
    with catalog.reading() as tx:
        point = tables.point.c
        times = tx.connection.execute(select(point.readable).order_by(point.number)).scalars()
        assert [None if time is None else time.hour for time in times] == [1, 5, None, 7, None, None]
    catalog.close()
