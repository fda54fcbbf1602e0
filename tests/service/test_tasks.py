"""What a task would do, and what its runs did, as its page tells it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import kilonova as kn
from kilonova.catalog import channel_store, registry, runs
from kilonova.errors import NotFound
from kilonova.model.encoding import Changes, Upsert
from kilonova.model.run import RefreshMethod, RunKind, RunState
from kilonova.model.schedule import Every
from kilonova.model.schema import Schema
from kilonova.model.task import Mode
from kilonova.schedule import planning
from kilonova.service.next_run import TaskPreview
from kilonova.service.project import Project, open_project
from kilonova.service.queries import ProjectReader
from tests.catalog.building import a_function_variant, a_task, begin, ingested
from tests.service.writing import Writing, declare, wrote

KEYED = Upsert(("id",))
PORTS = {"users": Mode.NEW, "logs": Mode.CHANGES, "rates": Mode.ALL}


def told(outlook: TaskPreview) -> dict[str, tuple[int, int, str, int, int]]:
    """By port, from where to where, how, how many blocks and rows."""
    return {each.port: (each.start, each.end, each.how, len(each.blocks), each.rows) for each in outlook.reads}


@pytest.fixture
def merging(looking: ProjectReader) -> ProjectReader:
    """A task with an incremental variant alone, over channels that are empty."""
    declare(looking.catalog, "users", encoding=KEYED)
    declare(looking.catalog, "logs", "rates", "merged")
    with looking.catalog.writing() as tx:
        registry.put_task(tx, a_task("merged", PORTS, ("merged",)), "w")
    return looking


def test_a_task_over_empty_channels_would_read_nothing(merging: ProjectReader) -> None:
    found = merging.task_preview("merged")
    assert (found.due, found.variant, found.method, found.estimates) == (None, "merged", RefreshMethod.INITIAL, {})
    assert {how for *_, how, _, _ in told(found).values()} == {"nothing"}
    with pytest.raises(NotFound, match="no such task"):
        merging.task_preview("merge")


def test_a_task_says_what_it_would_read_and_how(merging: ProjectReader) -> None:
    catalog = merging.catalog
    upsert = Writing(rows=3, encoding=KEYED)
    wrote(catalog, {"users": replace(upsert, base=True), "logs": Writing(rows=5), "rates": Writing()})
    first = merging.task_preview("merged")
    assert first.due == "its logic has not run yet"
    assert told(first) == {
        "users": (0, 1, "snapshot", 1, 3), "logs": (0, 1, "delta", 1, 5), "rates": (0, 1, "snapshot", 1, 1),
    }  # fmt: skip
    wrote(
        catalog,
        {"merged": Writing()},
        task="merged",
        read=[("users", 1), ("logs", 1), ("rates", 1)],
        method=RefreshMethod.INITIAL,
    )
    idle = merging.task_preview("merged")
    assert (idle.due, idle.method) == (None, RefreshMethod.INCREMENTAL)
    assert set(idle.estimates) == {RefreshMethod.INCREMENTAL}
    assert told(idle)["users"] == (1, 1, "nothing", 0, 0)
    wrote(catalog, {"users": upsert, "logs": Writing(rows=4)})
    wrote(catalog, {"users": upsert, "logs": Writing(rows=2, base=True)})
    news = merging.task_preview("merged")
    assert news.due == "users advanced from point 1 to 3"
    assert told(news) == {
        "users": (1, 3, "chained deltas", 2, 6),
        "logs": (1, 3, "difference of two snapshots", 2, 7),
        "rates": (1, 1, "snapshot", 1, 1),
    }
    with catalog.writing() as tx:
        channel_store.remove_blocks(
            tx, "logs", [block.number for block in channel_store.channel_state(tx, "logs").blocks if block.end < 3]
        )
    gone = merging.task_preview("merged")
    assert told(gone)["logs"] == (
        1, 3, "the point can no longer be read: its blocks were garbage-collected", 0, 0,
    )  # fmt: skip
    assert told(gone)["users"] == told(news)["users"]


def test_weak_deltas_are_distinguished_from_strong_ones(looking: ProjectReader) -> None:
    catalog = looking.catalog
    declare(catalog, "users", encoding=KEYED)
    declare(catalog, "followed")
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("followed", {"users": Mode.CHANGES}, ("followed",)), "w")
    wrote(catalog, {"users": Writing(base=True, encoding=KEYED)})
    wrote(catalog, {"followed": Writing()}, task="followed", read=[("users", 1)])
    wrote(catalog, {"users": Writing(encoding=KEYED, removals=None)})
    assert told(looking.task_preview("followed"))["users"] == (1, 2, "deltas with the rows that they replace", 2, 2)


def test_a_task_that_its_schedule_holds_back_says_until_when(looking: ProjectReader) -> None:
    catalog = looking.catalog
    declare(catalog, "logs", "counts")
    with catalog.writing() as tx:
        held = replace(a_task("counts", {"logs": Mode.NEW}, ("counts",)), schedule=Every(3600))
        registry.put_task(tx, held, "w")
    ingested(catalog, "logs")
    wrote(catalog, {"counts": Writing()}, task="counts", read=[("logs", 1)])
    ingested(catalog, "logs")
    found = looking.task_preview("counts")
    assert (found.due, found.waits_until is not None) == (None, True)
    assert told(found)["logs"] == (1, 2, "delta", 1, 1)


def test_ways_that_are_open_are_estimated(looking: ProjectReader) -> None:
    catalog = looking.catalog
    declare(catalog, "logs", "counts")
    whole = a_function_variant("whole", {"logs": Mode.ALL}, b"x")
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("counts", {"logs": Mode.INSERTS}, ("counts",), more=(whole,)), "w")
    ingested(catalog, "logs")
    first = looking.task_preview("counts")
    assert (first.variant, first.method, set(first.estimates)) == ("whole", RefreshMethod.FULL, {RefreshMethod.FULL})
    wrote(catalog, {"counts": Writing()}, task="counts", read=[("logs", 1)], method=RefreshMethod.FULL)
    ingested(catalog, "logs")
    second = looking.task_preview("counts")
    assert (second.variant, second.method) == ("counts", RefreshMethod.INCREMENTAL)
    assert set(second.estimates) == {RefreshMethod.INCREMENTAL, RefreshMethod.FULL}
    wrote(catalog, {"logs": Writing(encoding=Changes(), removals=1)})
    third = looking.task_preview("counts")
    assert (third.variant, set(third.estimates)) == ("whole", {RefreshMethod.FULL})
    assert "may have been removed" in third.reason


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    """Views over made-up blocks, of which nobody has to make sense."""
    workflow = kn.Workflow("shop")
    workflow.channel("orders", "id bigint, customer string", key="id")
    workflow.channel("customers", "customer string, city string", key="customer")
    workflow.view("cities", "SELECT id, city FROM orders JOIN customers USING (customer)", refresh="incremental")
    project = open_project(tmp_path)
    project.create()
    project.apply(workflow)
    return project


def test_a_view_says_which_ports_its_change_reads(shop: Project) -> None:
    with shop:
        catalog = shop.catalog
        with catalog.reading() as tx:
            channels = {name: channel_store.channel(tx, name) for name in ("orders", "customers")}
        own = Schema.of(("id", "bigint"), ("city", "string"))

        def some(name: str, *, base: bool = False) -> Writing:
            schema, encoding = channels[name].schema, channels[name].encoding
            assert schema is not None
            return Writing(rows=9 if base else 2, base=base, schema=schema, encoding=encoding)

        wrote(catalog, {name: some(name, base=True) for name in channels})
        first = shop.reader.task_preview("cities")
        assert (first.method, set(first.estimates)) == (RefreshMethod.FULL, {RefreshMethod.FULL})
        assert {each.port: each.how for each in first.reads} == {"orders": "snapshot", "customers": "snapshot"}
        made = {"cities": Writing(base=True, schema=own)}
        wrote(catalog, made, task="cities", read=[("orders", 1), ("customers", 1)], method=RefreshMethod.FULL)
        idle = shop.reader.task_preview("cities")
        assert idle.due is None
        assert told(idle) == {"orders__change": (1, 1, "nothing", 0, 0), "customers__change": (1, 1, "nothing", 0, 0)}
        wrote(catalog, {"orders": some("orders")})
        news = shop.reader.task_preview("cities")
        assert set(news.estimates) >= {RefreshMethod.INCREMENTAL, RefreshMethod.FULL}
        assert {each.port: each.how for each in news.reads} == {
            "orders__change": "deltas with the rows that they replace",
            "customers__change": "nothing",
            "customers__new": "snapshot",
        }


def test_estimates_before_any_run_follow_how_much_sql_a_run_executes(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(12)]
    workflow = kn.Workflow("wide")
    for name in names:
        workflow.channel(name, "id bigint, x bigint", key="id")
    joined = " ".join(f"JOIN {name} ON t0.id = {name}.id" for name in names[1:])
    workflow.view("wide", f"SELECT t0.id, {', '.join(f'{name}.x AS {name}' for name in names)} FROM t0 {joined}")
    workflow.view("narrow", "SELECT id, x FROM t0 WHERE x > 0")
    relation = Schema.of(("id", "bigint"), ("x", "bigint"))
    wide = Schema.of(("id", "bigint"), *((name, "bigint") for name in names))
    with open_project(tmp_path) as project:
        project.create()
        project.apply(workflow)

        def write(*channels: str) -> None:
            base = channels == tuple(names)
            wrote(project.catalog, {each: Writing(base=base, schema=relation, encoding=KEYED) for each in channels})

        write(*names)
        first = {view: project.reader.task_preview(view).estimates for view in ("wide", "narrow")}
        assert first["wide"][RefreshMethod.FULL] > 3 * first["narrow"][RefreshMethod.FULL]
        for view, schema, read in (("wide", wide, names), ("narrow", relation, ["t0"])):
            made = {view: Writing(base=True, schema=schema, encoding=KEYED)}
            wrote(project.catalog, made, task=view, read=[(name, 1) for name in read])
        write("t0")
        one = project.reader.task_preview("wide")
        assert (
            project.reader.task_preview("narrow").estimates[RefreshMethod.INCREMENTAL]
            < one.estimates[RefreshMethod.INCREMENTAL] / 3
        )
        write(*names[1:])
        all_of_them = project.reader.task_preview("wide")
        assert all_of_them.method is RefreshMethod.FULL
        assert all_of_them.estimates[RefreshMethod.INCREMENTAL] > 3 * one.estimates[RefreshMethod.INCREMENTAL]
        assert all_of_them.estimates[RefreshMethod.FULL] < all_of_them.estimates[RefreshMethod.INCREMENTAL]
        assert f"estimated at {all_of_them.estimates[RefreshMethod.FULL]:.1f} s" in all_of_them.reason


@pytest.mark.parametrize(
    ("seconds", "tried", "chosen"),
    [
        (1.4, (), RefreshMethod.INCREMENTAL),
        (1.6, (), RefreshMethod.FULL),
        (1.4, (RefreshMethod.INCREMENTAL,), RefreshMethod.FULL),
        (0.9, (RefreshMethod.INCREMENTAL,), RefreshMethod.INCREMENTAL),
    ],
)
def test_a_method_that_was_never_used_is_tried_where_it_may_be_the_cheapest(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    tried: tuple[RefreshMethod, ...],
    chosen: RefreshMethod,
) -> None:
    estimates = {RefreshMethod.INCREMENTAL: seconds, RefreshMethod.FULL: 1.0}
    monkeypatch.setattr(planning, "_estimates", lambda *_: estimates)
    workflow = kn.Workflow("choice")
    workflow.channel("orders", "id bigint, x bigint", key="id")
    workflow.view("positive", "SELECT id, x FROM orders WHERE x > 0")
    relation = Schema.of(("id", "bigint"), ("x", "bigint"))
    with open_project(tmp_path) as project:
        project.create()
        project.apply(workflow)
        wrote(project.catalog, {"orders": Writing(base=True, schema=relation, encoding=KEYED)})
        for method in (RefreshMethod.FULL, *tried):
            made = {"positive": Writing(base=True, schema=relation, encoding=KEYED)}
            wrote(project.catalog, made, task="positive", read=[("orders", 1)], method=method)
        wrote(project.catalog, {"orders": Writing(schema=relation, encoding=KEYED)})
        assert project.reader.task_preview("positive").method is chosen


def test_runs_of_a_task_are_listed_with_their_estimates(looking: ProjectReader) -> None:
    catalog = looking.catalog
    declare(catalog, "a", "b")
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("t", {"x": Mode.NEW}, ("a", "b")), "w")
        registry.put_task(tx, a_task("other", {"x": Mode.NEW}, ("a",)), "w")
    estimates = {RefreshMethod.INCREMENTAL: 1.25, RefreshMethod.FULL: 7.5}
    nothing = Writing(empty=True)
    one = wrote(
        catalog, {"a": nothing, "b": Writing(rows=3)}, task="t", method=RefreshMethod.INCREMENTAL, estimates=estimates
    )
    two = wrote(catalog, {"a": nothing, "b": nothing}, task="t")
    wrote(catalog, {"a": Writing()}, task="other")
    four = wrote(catalog, {"a": Writing(rows=2), "b": Writing(rows=3)}, task="t", method=RefreshMethod.INITIAL)
    found = looking.task_runs("t")
    assert [past.run for past in found] == [four, two, one]
    both, unchanged, first = found
    assert (both.channel, both.point, both.rows, both.bytes, both.method) == ("a", 4, 5, 50, RefreshMethod.INITIAL)
    assert (unchanged.channel, unchanged.rows, unchanged.method, unchanged.change_bytes) == ("a", None, None, None)
    assert (first.channel, first.point, first.rows, first.method) == ("b", 1, 3, RefreshMethod.INCREMENTAL)
    assert (first.estimates, both.estimates) == (estimates, {})
    assert (first.change_bytes, first.whole_bytes, first.seconds, first.reason) == (7, 70, 0.5, "because")
    assert (first.started, first.ended, first.state) == (catalog.clock(), catalog.clock(), RunState.SUCCEEDED)
    assert found[0].error is None
    assert looking.task_runs("t", four, 1) == (unchanged,)
    assert looking.task_runs("t", limit=2) == found[:2]
    with catalog.writing() as tx:
        five, _ = begin(tx, "a", "b", tasks=("t",), kind=RunKind.TASKS)
    assert looking.task_runs("t") == found
    with catalog.writing() as tx:
        runs.fail(tx, five, "no luck")
    failed, *others = looking.task_runs("t", limit=2)
    assert (failed.run, failed.state, failed.error) == (five, RunState.FAILED, "no luck")
    assert (failed.channel, failed.point, failed.method, failed.rows, failed.reason) == (None, None, None, None, "")
    assert others == [both]
    with catalog.writing() as tx:
        begin(tx, "a", "b", tasks=("t",), kind=RunKind.TASKS)
    assert looking.task_runs("t", limit=2) == (failed, both)
    with pytest.raises(NotFound, match="no such task"):
        looking.task_runs("tt")


def test_of_a_failed_run_it_is_known_where_its_tasks_have_succeeded_since(looking: ProjectReader) -> None:
    catalog = looking.catalog
    declare(catalog, "a", "b")
    with catalog.writing() as tx:
        for name in ("a", "b"):
            registry.put_task(tx, a_task(name, {"x": Mode.NEW}, (name,)), "w")
        failed, _ = begin(tx, "a", "b", tasks=("a", "b"), kind=RunKind.TASKS)
        runs.fail(tx, failed, "no luck")
    assert looking.run_detail(failed).succeeded_since == ()
    one = wrote(catalog, {"a": Writing()}, task="a")
    assert looking.run_detail(failed).succeeded_since == ()
    other = wrote(catalog, {"b": Writing(empty=True)}, task="b")
    wrote(catalog, {"a": Writing()}, task="a")
    assert looking.run_detail(failed).succeeded_since == (one, other)
    assert looking.run_detail(one).succeeded_since == ()
