from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from kilonova.catalog import bindings, channel_store, events, firings, registry, runs, scheduling, servers
from kilonova.catalog.change_notifier import ChangeNotifier
from kilonova.catalog.database import Catalog
from kilonova.catalog.firings import Claim
from kilonova.errors import LeaseLost, NotFound
from kilonova.model.binding import Binding
from kilonova.model.event import EventKind
from kilonova.model.firing import FiringState
from kilonova.model.run import RunFailure, RunKind
from kilonova.model.schedule import Every
from kilonova.model.task import Mode
from kilonova.model.trigger import ArrivalTrigger, RunOutcome, RunTrigger, TimeTrigger, Trigger
from tests.catalog.building import LEASE, a_task, claim_batches, commit, fire_triggers, ingested, with_channels
from tests.databases import Clock as Time


def register(catalog: Catalog, merge_window: float | None = None, **triggers: tuple[Trigger, ...]) -> None:
    """A task per binding, all of which read the channel `clicks`."""
    with catalog.writing() as tx:
        for name in triggers:
            registry.put_task(tx, a_task(f"{name}_task", {"clicks": Mode.NEW}, (f"{name}_out",)), "w")
        named = {name: (f"{name}_task",) for name in triggers}
        bindings.put(
            tx,
            "w",
            [
                Binding(name=name, tasks=named[name], triggers=own, merge_window=merge_window)
                for name, own in triggers.items()
            ],
        )


@pytest.fixture
def clicks(catalog: Catalog) -> Catalog:
    with_channels(catalog, "clicks", "a_out", "b_out", "c_out")
    return catalog


def look(catalog: Catalog) -> list[str]:
    with catalog.writing() as tx:
        return fire_triggers(tx)


def claim(catalog: Catalog, server: str = "one", room: int = 9, limit: int | None = None) -> list[Claim]:
    with catalog.writing() as tx:
        batches, _ = claim_batches(tx, server, room, limit)
    return [part for batch in batches for part in batch.claims]


def start(catalog: Catalog, claimed: Claim) -> tuple[int, dict[str, int]]:
    with catalog.writing() as tx:
        run, points = runs.start(
            tx,
            kind=RunKind.TASKS,
            tasks=bindings.tasks_of(tx, claimed.binding),
            writes=(f"{claimed.binding}_out",),
            owner="worker",
            lease=LEASE,
            binding=claimed.binding,
        )
        firings.launch(tx, [(claimed, run)])
        return run, points


def fail(catalog: Catalog, run: int, failure: RunFailure) -> None:
    """Fail a run as its own process does."""
    with catalog.writing() as tx:
        firings.end(tx, run, failure)
        assert runs.fail(tx, run, "no luck")


def states(catalog: Catalog) -> list[FiringState]:
    with catalog.reading() as tx:
        return [firing.state for firing in reversed(firings.firings(tx, 100))]


def test_registered_triggers_are_read_back_unchanged(clicks: Catalog) -> None:
    register(
        clicks,
        a=(ArrivalTrigger(channel="clicks", rows=5), TimeTrigger(schedule=Every(60))),
        b=(RunTrigger(binding="a"),),
    )
    with clicks.reading() as tx:
        found = bindings.bindings(tx)
    assert set(found) == {"a", "b"}
    assert found["a"].binding == Binding(
        name="a",
        tasks=("a_task",),
        triggers=(ArrivalTrigger(channel="clicks", rows=5), TimeTrigger(schedule=Every(60))),
    )


def test_a_point_fires_once_however_often_it_is_evaluated(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    assert look(clicks) == []
    ingested(clicks, "clicks")
    assert look(clicks) == ["a"]
    assert look(clicks) == []
    ingested(clicks, "clicks")
    ingested(clicks, "clicks")
    assert look(clicks) == ["a"]


def test_points_that_are_reserved_or_cancelled_fire_nothing(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    with clicks.writing() as tx:
        first, _ = runs.start(tx, kind=RunKind.INGEST, tasks=(), writes=("clicks",), owner="me", lease=LEASE)
    ingested(clicks, "clicks")
    assert look(clicks) == []
    with clicks.writing() as tx:
        runs.fail(tx, first, "no luck")
    assert look(clicks) == ["a"]


def test_a_firing_follows_the_states_of_its_run(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(RunTrigger(binding="a"),))
    ingested(clicks, "clicks")
    look(clicks)
    [claimed] = claim(clicks)
    assert states(clicks) == [FiringState.CLAIMED]
    run, points = start(clicks, claimed)
    assert states(clicks) == [FiringState.RUNNING]
    assert look(clicks) == []
    commit(clicks, run, points)
    assert states(clicks) == [FiringState.SUCCEEDED]
    assert look(clicks) == ["b"]


def test_what_is_cancelled_is_not_due_again_and_starts_nothing(clicks: Catalog) -> None:
    b, c = (RunTrigger(binding="a", reached=reached) for reached in (RunOutcome.SUCCEEDED, RunOutcome.FAILED))
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(b,), c=(c,))
    ingested(clicks, "clicks")
    look(clicks)
    [claimed] = claim(clicks)
    run, _ = start(clicks, claimed)
    ingested(clicks, "clicks")
    look(clicks)
    with clicks.writing() as tx:
        runs.cancel(tx, run, "ann")
    assert states(clicks) == [FiringState.FAILED, FiringState.QUEUED]
    with clicks.reading() as tx:
        told = events.since(tx, 0)[-1]
    assert (told.kind, told.binding, told.run) == (EventKind.CANCELLED, "a", run)
    assert look(clicks) == []
    [behind] = claim(clicks)  # what fired while it went on is another matter
    assert behind.firings == (2,)


def test_firings_behind_a_running_one_become_one_run(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    [first] = claim(clicks)
    run, points = start(clicks, first)
    for _ in range(3):
        ingested(clicks, "clicks")
        look(clicks)
    assert claim(clicks) == []
    commit(clicks, run, points)
    [second] = claim(clicks)
    assert len(second.firings) == 3


def test_a_silent_server_loses_what_it_has_not_begun(clicks: Catalog, clock: Time) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    with clicks.writing() as tx:
        servers.register(tx, "one", "1", LEASE)
    look(clicks)
    [claimed] = claim(clicks, "one")
    clock.forward(LEASE.total_seconds() + 1)
    with clicks.writing() as tx:
        assert servers.expire(tx) == ["one"]
        firings.release(tx, ["one"])
        assert not servers.heartbeat(tx, "one", LEASE)
    [again] = claim(clicks, "two")
    with pytest.raises(LeaseLost, match="taken over"):
        start(clicks, claimed)
    run, points = start(clicks, again)
    commit(clicks, run, points)
    assert states(clicks) == [FiringState.SUCCEEDED]


def test_a_run_that_takes_its_process_with_it_is_done_again_a_few_times(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    for attempt in range(firings.ATTEMPTS):
        [claimed] = claim(clicks)
        start(clicks, claimed)
        with clicks.writing() as tx:
            assert len(runs.abandon(tx, "worker", "it exited", RunFailure.TRANSIENT)) == 1
        assert states(clicks) == [FiringState.QUEUED if attempt + 1 < firings.ATTEMPTS else FiringState.FAILED]
    assert claim(clicks) == []


@pytest.mark.parametrize("stopped", [True, False])
def test_a_run_that_is_lost_with_its_server_is_done_again_more_often(
    clicks: Catalog, clock: Time, stopped: bool
) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    for loss in range(firings.LOSSES):
        [claimed] = claim(clicks)
        start(clicks, claimed)
        clock.forward(LEASE.total_seconds() + 1)
        with clicks.writing() as tx:
            ended = runs.abandon(tx, "worker", "stopped", RunFailure.LOST) if stopped else runs.expire(tx)
            assert len(ended) == 1
        assert states(clicks) == [FiringState.QUEUED if loss + 1 < firings.LOSSES else FiringState.FAILED]
    assert claim(clicks) == []
    with clicks.reading() as tx:
        [told] = (event for event in events.since(tx, 0) if event.kind is EventKind.STUCK)
    assert told.text.endswith(f"lost with its server {firings.LOSSES} times")


def test_a_failed_run_is_done_again_only_if_that_may_help(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    for one, failure in zip(claim(clicks), (RunFailure.FINAL, RunFailure.TRANSIENT), strict=True):
        run, _ = start(clicks, one)
        fail(clicks, run, failure)
    assert states(clicks) == [FiringState.FAILED, FiringState.QUEUED]


def test_a_firing_that_comes_to_nothing_says_why(clicks: Catalog) -> None:
    names = ("changed", "unchanged", "failed", "cancelled", "skipped", "refused", "lost")
    with_channels(clicks, *(f"{name}_out" for name in names))
    register(clicks, **dict.fromkeys(names, (ArrivalTrigger(channel="clicks"),)))
    ingested(clicks, "clicks")
    look(clicks)
    claims = {each.binding: each for each in claim(clicks)}
    begun = {name: start(clicks, claims[name]) for name in names[:4]}
    commit(clicks, *begun["changed"])
    commit(clicks, begun["unchanged"][0], {})
    with clicks.writing() as tx:
        runs.fail(tx, begun["failed"][0], "no luck")
        runs.cancel(tx, begun["cancelled"][0], "ann")
        firings.skip(tx, claims["skipped"], "no new input")
        firings.fail(tx, claims["refused"], "there is no such task")
        for _ in range(firings.ATTEMPTS):
            firings.requeue(tx, claims["lost"], counted=True)
            claim_batches(tx, "one", 9)
        found = {each.binding: (each.state.value, each.reason) for each in firings.firings(tx, 100)}
    assert found == {
        "changed": ("succeeded", None),
        "unchanged": ("succeeded", "its run changed nothing"),
        "failed": ("failed", "no luck"),
        "cancelled": ("failed", "cancelled by ann"),
        "skipped": ("skipped", "no new input"),
        "refused": ("failed", "there is no such task"),
        "lost": ("failed", "failed in all 3 attempts"),
    }


def test_a_firing_waits_for_a_manual_run_of_its_task(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    with clicks.writing() as tx:
        run, points = runs.start(tx, kind=RunKind.TASKS, tasks=("a_task",), writes=("a_out",), owner="me", lease=LEASE)
    assert claim(clicks) == []
    commit(clicks, run, points)
    assert len(claim(clicks)) == 1


def test_there_is_room_for_so_many_and_a_workflow_has_its_limit(clicks: Catalog) -> None:
    register(clicks, **{name: (ArrivalTrigger(channel="clicks"),) for name in "abc"})
    ingested(clicks, "clicks")
    look(clicks)
    assert len(claim(clicks, room=2, limit=1)) == 1
    assert claim(clicks, room=2, limit=1) == []
    assert len(claim(clicks, room=1)) == 1
    assert len(claim(clicks, room=5)) == 1


def test_what_reads_the_same_waits_and_is_merged_and_tried_again_alone(clicks: Catalog, clock: Time) -> None:
    register(clicks, merge_window=30, **{name: (ArrivalTrigger(channel="clicks"),) for name in "abc"})
    ingested(clicks, "clicks")
    look(clicks)
    with clicks.writing() as tx:
        batches, next_check = claim_batches(tx, "one", 9)
        assert (batches, next_check) == ([], tx.now + timedelta(seconds=30))
    clock.forward(31)
    with clicks.writing() as tx:
        [batch], next_check = claim_batches(tx, "one", 1)
        assert next_check is None
    assert sorted(part.binding for part in batch.claims) == ["a", "b", "c"]
    one, other, third = batch.claims
    run, points = start(clicks, one)
    commit(clicks, run, points)
    for part in (other, third):
        run, _ = start(clicks, part)
        fail(clicks, run, RunFailure.TRANSIENT)
    with clicks.writing() as tx:
        batches, next_check = claim_batches(tx, "one", 9)
    assert sorted(len(batch.claims) for batch in batches) == [1, 1]
    assert next_check is None


def test_what_is_paused_fires_afterwards(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    with clicks.writing() as tx:
        bindings.pause(tx, "a", True, "me")
    ingested(clicks, "clicks")
    assert look(clicks) == []
    with clicks.writing() as tx:
        bindings.pause(tx, "a", False, "me")
        assert scheduling.triggers_due(tx)
    assert look(clicks) == ["a"]


def test_a_trigger_that_stays_remembers_and_a_new_one_begins(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(RunTrigger(binding="a"),))
    ingested(clicks, "clicks")
    assert look(clicks) == ["a"]
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), c=(ArrivalTrigger(channel="clicks"),))
    assert look(clicks) == ["c"]
    with clicks.reading() as tx:
        assert set(bindings.bindings(tx)) == {"a", "c"}
        with pytest.raises(NotFound, match="no such binding"):
            bindings.binding_id(tx, "b")


def test_a_channel_that_is_dropped_and_declared_again_fires_again(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"), TimeTrigger(schedule=Every(60))))
    for _ in range(3):
        ingested(clicks, "clicks")
        look(clicks)
    with clicks.writing() as tx:
        channel_store.drop_channel(tx, "clicks")
        bindings.forget(tx, "clicks")
    assert look(clicks) == []
    with_channels(clicks, "clicks")
    ingested(clicks, "clicks")
    assert look(clicks) == ["a"]


def test_by_hand(clicks: Catalog) -> None:
    register(clicks, a=())
    with clicks.writing() as tx:
        firings.fire_manually(tx, "a", "by hand, somebody")
        with pytest.raises(NotFound, match="Did you mean"):
            firings.fire_manually(tx, "aa", "somebody")
    [claimed] = claim(clicks)
    with clicks.writing() as tx:
        firings.skip(tx, claimed, "nothing to do")
    assert states(clicks) == [FiringState.SKIPPED]


def test_times_come_without_anything_happening(clicks: Catalog, clock: Time) -> None:
    register(clicks, a=(TimeTrigger(schedule=Every(60)),))
    assert look(clicks) == ["a"]
    with clicks.reading() as tx:
        assert scheduling.triggers_due(tx) == []
        assert scheduling.next_check(tx) == tx.now + timedelta(seconds=60)
    clock.forward(150)
    with clicks.reading() as tx:
        assert len(scheduling.triggers_due(tx)) == 1
    assert look(clicks) == ["a"]


def test_events_come_in_order_and_name_what_may_have_changed(clicks: Catalog) -> None:
    with clicks.reading() as tx:
        before = events.newest(tx)
    run, _ = ingested(clicks, "clicks")
    with clicks.reading() as tx:
        found = events.since(tx, before)
    assert [event.kind for event in found] == [EventKind.LAUNCHED, EventKind.SUCCEEDED]
    assert [event.run for event in found] == [run, run]
    assert found[-1].channels == ("clicks",)


def test_many_servers_fire_and_claim_each_occurrence_once(clicks: Catalog) -> None:
    register(clicks, **{name: (ArrivalTrigger(channel="clicks"),) for name in "abc"})
    claimed: list[Claim] = []
    over = threading.Event()

    def serve(name: str) -> None:
        while not over.is_set():
            look(clicks)
            claimed.extend(claim(clicks, name, room=1))

    threads = [threading.Thread(target=serve, args=(f"server {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        ingested(clicks, "clicks")
    over.set()
    for thread in threads:
        thread.join()
    look(clicks)
    claimed += claim(clicks, "the last")
    with clicks.reading() as tx:
        found = firings.firings(tx, 1000)
    for name in "abc":
        own = [firing.occurrence for firing in found if firing.binding == name]
        assert own[0] == "clicks@5"
        assert len(set(own)) == len(own)
        assert sum(one.binding == name for one in claimed) == 1


def test_a_watch_wakes_when_something_is_committed(clicks: Catalog) -> None:
    watch = ChangeNotifier(clicks)
    watch.wait(5)  # what was there before is news, once
    woken = threading.Event()

    def wait() -> None:
        watch.wait(30)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not woken.wait(0.3)
    ingested(clicks, "clicks")
    assert woken.wait(10)
    thread.join()
    watch.close()


def test_what_is_forgotten_is_old_and_seen_by_all(clicks: Catalog, clock: Time) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(RunTrigger(binding="a"),))
    with clicks.writing() as tx:
        servers.register(tx, "one", "1", timedelta(seconds=10))
        bindings.pause(tx, "b", True, "me")
    ingested(clicks, "clicks")
    look(clicks)
    [claimed] = claim(clicks)
    run, points = start(clicks, claimed)
    commit(clicks, run, points)
    clock.forward(100 * 86400)
    with clicks.writing() as tx:
        servers.expire(tx)
        before = events.since(tx, 0)
        for forget in (events.forget, firings.forget, servers.forget):
            forget(tx, tx.now - timedelta(days=90))
    with clicks.reading() as tx:
        left = events.since(tx, 0)
        assert 0 < len(left) < len(before)
        assert any(event.kind is EventKind.SUCCEEDED and event.binding == "a" for event in left)
        assert (firings.firings(tx, 100), servers.servers(tx, 100)) == ([], [])
    with clicks.writing() as tx:
        bindings.pause(tx, "b", False, "me")
    assert look(clicks) == ["b"]
    with clicks.writing() as tx:
        events.forget(tx, tx.now - timedelta(days=90))
        assert not any(event.binding == "a" for event in events.since(tx, 0))
        assert events.since(tx, 0)


def stuck(catalog: Catalog, patience: float = 60) -> list[str]:
    """What is told as stuck by a look now."""
    with catalog.writing() as tx:
        before = events.newest(tx)
        firings.report_stuck(tx, timedelta(seconds=patience))
        found = events.since(tx, before)
    assert all(event.kind is EventKind.STUCK for event in found)
    return [str(event.binding) for event in found]


def test_a_firing_that_waits_too_long_is_reported_once(clicks: Catalog, clock: Time) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    assert len(claim(clicks, room=1)) == 1
    clock.forward(60)
    assert stuck(clicks) == []
    clock.forward(1)
    assert sorted(stuck(clicks)) == ["a", "b"]  # a claim is no run yet
    clock.forward(1000)
    assert stuck(clicks) == []


def test_a_launched_firing_is_queued_again_when_its_run_is_lost(clicks: Catalog, clock: Time) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    [claimed] = claim(clicks)
    run, _ = start(clicks, claimed)
    clock.forward(100)
    assert stuck(clicks) == []
    fail(clicks, run, RunFailure.TRANSIENT)
    clock.forward(59)
    assert stuck(clicks) == []
    [claimed] = claim(clicks)
    with clicks.writing() as tx:
        firings.requeue(tx, claimed, counted=False)
    clock.forward(2)
    assert stuck(clicks) == ["a"]


def test_time_counts_from_when_it_fired_and_not_from_what_it_fired_for(clicks: Catalog, clock: Time) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    clock.forward(1000)
    look(clicks)
    assert stuck(clicks) == []


def test_what_is_not_bound_any_more_does_not_wait(clicks: Catalog, clock: Time) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    register(clicks)
    clock.forward(100)
    assert stuck(clicks) == []


def test_a_firing_without_attempts_left_is_reported(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    for attempt in range(firings.ATTEMPTS):
        with clicks.reading() as tx:
            before = events.newest(tx)
        [claimed] = claim(clicks)
        with clicks.writing() as tx:
            firings.requeue(tx, claimed, counted=True)
            told = [(event.kind, event.binding) for event in events.since(tx, before)]
        assert told == ([(EventKind.STUCK, "a")] if attempt + 1 == firings.ATTEMPTS else [])


def test_what_a_server_does_not_know_of_is_given_back(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    one, other = claim(clicks)
    with clicks.writing() as tx:
        firings.release(tx, ["one"], one.firings)
    assert states(clicks) == [FiringState.CLAIMED, FiringState.QUEUED]
    assert [each.binding for each in claim(clicks, "two")] == [other.binding]
    with clicks.writing() as tx:
        firings.release(tx, ["one"])
    assert states(clicks) == [FiringState.QUEUED, FiringState.CLAIMED]


def test_queued_firings_of_a_removed_binding_are_not_stuck(clicks: Catalog) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(ArrivalTrigger(channel="clicks"),))
    ingested(clicks, "clicks")
    look(clicks)
    [claimed] = claim(clicks, room=1)
    with clicks.writing() as tx:
        bindings.put(tx, "w", [])
        assert firings.any_unended(tx)  # what was begun ends
        firings.skip(tx, claimed, "nothing to do")
        assert not firings.any_unended(tx)
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(ArrivalTrigger(channel="clicks"),))
    assert len(claim(clicks)) == 1


def test_events_that_no_subscription_needs_are_deleted(clicks: Catalog, clock: Time) -> None:
    register(clicks, a=(ArrivalTrigger(channel="clicks"),), b=(RunTrigger(binding="a", reached=RunOutcome.FAILED),))
    ingested(clicks, "clicks")
    look(clicks)
    [claimed] = claim(clicks)
    commit(clicks, *start(clicks, claimed))
    clock.forward(100 * 86400)
    with clicks.writing() as tx:
        events.forget(tx, tx.now - timedelta(days=90))
        assert len(events.since(tx, 0)) == 1
