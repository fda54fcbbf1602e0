from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import event

from kilonova.catalog import bindings, firings, registry, runs
from kilonova.catalog.database import Catalog
from kilonova.catalog.read_models import binding_status
from kilonova.catalog.read_models.binding_status import BindingStatus
from kilonova.errors import NotFound
from kilonova.model.binding import Binding
from kilonova.model.firing import FiringState
from kilonova.model.run import RunKind
from kilonova.model.schedule import Every
from kilonova.model.task import Mode
from kilonova.model.trigger import AllOf, ArrivalTrigger, RunTrigger, TimeTrigger, Trigger
from tests.catalog.building import LEASE, a_task, begin, claim_batches, commit, fire_triggers, ingested, with_channels
from tests.databases import NOON
from tests.databases import Clock as Time

HOURLY = TimeTrigger(schedule=Every(3600))


def register(catalog: Catalog, **triggers: tuple[Trigger, ...]) -> None:
    """A task per binding, all of which read the channel `clicks`."""
    with_channels(catalog, "clicks", "users", *(f"{name}_out" for name in triggers))
    with catalog.writing() as tx:
        registry.put_tasks(
            tx, [a_task(f"{name}_task", {"clicks": Mode.NEW}, (f"{name}_out",)) for name in triggers], "w"
        )
        every = [Binding(name=name, tasks=(f"{name}_task",), triggers=own) for name, own in triggers.items()]
        bindings.put(tx, "w", every)


def pending(catalog: Catalog) -> dict[str, BindingStatus]:
    with catalog.reading() as tx:
        found = binding_status.binding_statuses(tx, bindings.binding_names(tx))
    return {each.bound.binding.name: each for each in found}


def look(catalog: Catalog) -> list[str]:
    with catalog.writing() as tx:
        return sorted(fire_triggers(tx))


def test_exactly_the_ready_triggers_fire_at_the_next_evaluation(catalog: Catalog, clock: Time) -> None:
    register(
        catalog,
        some=(ArrivalTrigger(channel="clicks"),),
        many=(ArrivalTrigger(channel="clicks", rows=3),),
        old=(ArrivalTrigger(channel="clicks", rows=9, seconds=1000),),
        both=(AllOf((ArrivalTrigger(channel="clicks"), ArrivalTrigger(channel="users"))),),
        either=(ArrivalTrigger(channel="users"), HOURLY),
        then=(RunTrigger(binding="some"),),
        never=(),
    )
    steps = ["", "clicks", "", "users", "clicks", "run", "clicks", "clicks", "clicks", "run", "users", ""]
    fired: set[str] = set()
    for step in steps:
        clock.forward(500)
        if step == "run":
            with catalog.writing() as tx:
                claimed = [part for batch in claim_batches(tx, "one", 99)[0] for part in batch.claims]
                for part in claimed:
                    firings.skip(tx, part, "nothing to do")
        elif step:
            ingested(catalog, step)
        ready = {name for name, each in pending(catalog).items() if any(one.ready for one in each.triggers)}
        assert sorted(ready) == sorted(set(look(catalog))), step
        fired |= ready
        assert not any(one.ready for each in pending(catalog).values() for one in each.triggers)
    assert fired == {"some", "many", "old", "both", "either", "then"}


def test_a_point_that_is_reserved_holds_back_its_own_channel_alone(catalog: Catalog) -> None:
    register(catalog, a=(ArrivalTrigger(channel="clicks"),), b=(ArrivalTrigger(channel="users"),))
    with catalog.writing() as tx:
        begin(tx, "users")
    for channel in ("clicks", "users"):
        ingested(catalog, channel)
    assert {name: each.triggers[0].waits for name, each in pending(catalog).items()} == {
        "a": "point 1 of clicks was reached",
        "b": "nothing new on users",
    }
    assert look(catalog) == ["a"]


def test_a_binding_says_how_far_its_triggers_are_and_what_has_become_of_it(catalog: Catalog, clock: Time) -> None:
    register(catalog, a=(ArrivalTrigger(channel="clicks", rows=3, seconds=60), HOURLY), b=(RunTrigger(binding="a"),))
    [first, second] = pending(catalog)["a"].triggers
    assert (first.ready, first.next_check, second.ready) == (False, None, True)
    assert look(catalog) == ["a"]
    ingested(catalog, "clicks")
    a = pending(catalog)["a"]
    assert [one.next_check for one in a.triggers] == [NOON + timedelta(seconds=60), NOON + timedelta(hours=1)]
    assert [part.rows for part in a.triggers[0].parts] == [1]
    assert a.next == NOON + timedelta(seconds=60)
    assert a.last is not None
    assert (a.due, a.last.state) == (1, FiringState.QUEUED)
    with catalog.writing() as tx:
        firings.fire_manually(tx, "a", "me")
        bindings.pause(tx, "a", True, "ann")
    a, b = pending(catalog).values()
    assert (a.next, a.due, a.bound.paused) == (None, 2, True)
    assert a.last is not None
    assert a.last.occurrence == "me"
    assert (b.last, b.due, b.next) == (None, 0, None)
    with catalog.writing() as tx:
        [batch], _ = claim_batches(tx, "one", 9)
        run, points = runs.start(
            tx,
            kind=RunKind.TASKS,
            tasks=["a_task"],
            writes=["a_out"],
            owner="me",
            lease=LEASE,
            binding="a",
        )
        firings.launch(tx, [(batch.claims[0], run)])
    assert pending(catalog)["a"].due == 2
    commit(catalog, run, points)
    a, b = pending(catalog).values()
    assert (a.due, b.triggers[0].waits, b.triggers[0].ready) == (0, "a has succeeded", True)


def test_bindings_are_asked_for_by_name(catalog: Catalog) -> None:
    register(catalog, a=(HOURLY,), b=(), c=())
    with catalog.reading() as tx:
        assert [each.bound.binding.name for each in binding_status.binding_statuses(tx, ["c", "a"])] == ["a", "c"]
        assert binding_status.binding_statuses(tx, []) == []
        with pytest.raises(NotFound):
            binding_status.binding_statuses(tx, ["a", "x"])


def test_however_many_triggers_there_are_a_few_statements_tell_of_them(catalog: Catalog) -> None:
    waits = AllOf(
        (ArrivalTrigger(channel="clicks", rows=5), ArrivalTrigger(channel="users"), RunTrigger(binding="b0"), HOURLY)
    )
    register(
        catalog, b0=(HOURLY,), **{f"b{number}": (waits, ArrivalTrigger(channel="clicks")) for number in range(1, 40)}
    )
    ingested(catalog, "clicks")
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    with catalog.reading() as tx:
        event.listen(tx.connection, "before_cursor_execute", counted)
        binding_status.binding_statuses(tx, ["b1"])
        one, count = count, 0
        assert len(binding_status.binding_statuses(tx, bindings.binding_names(tx))) == 40
        assert count <= one + 1


def test_next_checks_are_listed_soonest_first(catalog: Catalog, clock: Time) -> None:
    register(
        catalog,
        a=(HOURLY,),
        b=(TimeTrigger(schedule=Every(60)), HOURLY),
        c=(ArrivalTrigger(channel="clicks"),),
        d=(HOURLY,),
    )
    look(catalog)
    with catalog.writing() as tx:
        bindings.pause(tx, "d", True, "ann")
        found = binding_status.upcoming_triggers(tx, 10)
        assert [(each.binding, each.trigger, each.next_check) for each in found] == [
            ("b", "every 1 minute", NOON + timedelta(minutes=1)),
            ("a", "every 1 hour", NOON + timedelta(hours=1)),
            ("b", "every 1 hour", NOON + timedelta(hours=1)),
        ]
        assert binding_status.upcoming_triggers(tx, 1) == found[:1]
