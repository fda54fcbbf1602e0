from __future__ import annotations

from datetime import timedelta

from kilonova.catalog import bindings, events, firings, registry, runs, servers, subscriptions
from kilonova.catalog.database import Catalog
from kilonova.model.binding import Binding
from kilonova.model.event import EventKind
from kilonova.model.firing import FiringState
from kilonova.model.run import RunKind
from kilonova.model.subscription import Webhook
from kilonova.model.task import Mode
from tests.catalog.building import LEASE, a_task, claim_batches, commit, with_channels
from tests.databases import Clock


def test_a_server_says_what_it_has_taken_on(catalog: Catalog, clock: Clock) -> None:
    with_channels(catalog, "clicks", "a_out", "b_out", "c_out")
    with catalog.writing() as tx:
        registry.put_tasks(tx, [a_task(f"{n}_task", {"clicks": Mode.NEW}, (f"{n}_out",)) for n in "abc"], "w")
        bindings.put(tx, "w", [Binding(name=name, tasks=(f"{name}_task",)) for name in "abc"])
        subscriptions.add(tx, Webhook(name="hook", url="http://localhost", kinds=frozenset([EventKind.FAILED])))
        subscriptions.add(tx, Webhook(name="other", url="http://localhost", kinds=frozenset([EventKind.FAILED])))
    for name in ("one", "two"):
        with catalog.writing() as tx:
            servers.register(tx, name, "1", LEASE)
        clock.forward(1)
    with catalog.writing() as tx:
        for name in "abc":
            firings.fire_manually(tx, name, "me")
        first = claim_batches(tx, "one", 2)[0][0]
        claim_batches(tx, "two", 1)
        run, points = runs.start(
            tx,
            kind=RunKind.TASKS,
            tasks=["a_task"],
            writes=["a_out"],
            owner="worker",
            lease=timedelta(hours=1),
            binding="a",
        )
        firings.launch(tx, [(first.claims[0], run)])
        for known in subscriptions.subscriptions(tx):
            subscriptions.claim(tx, known, "two" if known.subscription.name == "hook" else "another", LEASE)
        two, one = servers.server_statuses(tx, 10)
    assert (one.server.name, two.server.name) == ("one", "two")
    assert [(each.binding, each.state) for each in one.firings] == [
        ("b", FiringState.CLAIMED),
        ("a", FiringState.RUNNING),
    ]
    assert [each.number for each in one.runs] == [run]
    assert (one.subscriptions, one.lost) == ((), ())
    assert ([each.binding for each in two.firings], two.runs, two.subscriptions) == (["c"], (), ("hook",))
    clock.forward(LEASE.total_seconds() - 1.5)
    with catalog.writing() as tx:
        assert servers.expire(tx) == ["one"]
        firings.release(tx, ["one"])
        two, one = servers.server_statuses(tx, 10)
        assert [server.server for server in servers.server_statuses(tx, 1)] == [two.server]
        [silent] = events.before(tx, None, 1)
    assert one.server.state == servers.SILENT
    assert one.lost == (silent,)
    assert [each.binding for each in one.firings] == ["a"]
    clock.forward(2)
    commit(catalog, run, points)
    with catalog.reading() as tx:
        two, one = servers.server_statuses(tx, 10)
    assert (one.firings, one.runs, two.subscriptions) == ((), (), ())


def test_a_live_server_is_listed_however_many_have_started_since(catalog: Catalog, clock: Clock) -> None:
    for name in ("old", "gone", "later"):
        with catalog.writing() as tx:
            servers.register(tx, name, "1", LEASE)
            if name != "old":
                servers.deregister(tx, name)
        clock.forward(1)
    with catalog.reading() as tx:
        assert [each.server.name for each in servers.server_statuses(tx, 2)] == ["old", "later"]
        assert [each.name for each in servers.servers(tx, 3)] == ["old", "later", "gone"]
