from __future__ import annotations

from kilonova.catalog import chains, registry, runs
from kilonova.catalog.database import Catalog
from kilonova.catalog.stretches import stretches
from kilonova.model.encoding import Upsert
from kilonova.model.policy import AfterDeltas, Never, Weigh
from kilonova.model.run import Input, RunKind
from tests.catalog.building import LEASE, a_channel, ingested, with_channels


def read(catalog: Catalog, channel: str, *, since: int = 0) -> None:
    """A run that reads the live blocks of a channel that end after a point."""
    with catalog.writing() as tx:
        run, _ = runs.start(tx, kind=RunKind.TASKS, tasks=(), writes=(), owner="me", lease=LEASE)
        found = chains.chronicle(tx, channel)
        blocks = tuple(block.number for block in found.blocks if block.end > since)
        item = Input(task="t", port="p", channel=channel, start=0, end=found.readable, blocks=blocks)
        runs.commit(tx, run, inputs=[item], outputs=(), advances=())


def test_readings_are_counted_by_what_they_merged(catalog: Catalog) -> None:
    with_channels(catalog, "logs", "quiet")
    with catalog.writing() as tx:
        registry.add_channels(tx, [a_channel("users", Upsert(("id",)))], "w")
    ingested(catalog, "users", base=True)
    read(catalog, "users")
    ingested(catalog, "users")
    read(catalog, "users")
    ingested(catalog, "users")
    read(catalog, "users")
    read(catalog, "users", since=2)  # the news alone: nothing is merged
    ingested(catalog, "logs")
    ingested(catalog, "logs")
    read(catalog, "logs")
    with catalog.reading() as tx:
        found = {each.channel: each for each in stretches(tx)}
    assert set(found) == {"users", "logs"}
    users, logs = found["users"], found["logs"]
    assert (users.appended, users.base, users.deltas, sorted(users.readings)) == (False, 10, 20, [1, 2])
    assert (logs.appended, logs.base, logs.deltas, logs.readings) == (True, 0, 20, (2,))
    assert (users.count, users.policy, logs.count) == (2, Weigh(), 2)
    for policy in (Never(), AfterDeltas(deltas=3), Weigh(waste=2.5)):
        with catalog.writing() as tx:
            chains.set_policy(tx, "users", policy)
            assert {each.channel: each.policy for each in stretches(tx)} == {"users": policy, "logs": Weigh()}
    ingested(catalog, "users", base=True)
    with catalog.reading() as tx:
        assert [each.channel for each in stretches(tx)] == ["logs"]


def test_what_is_being_compacted_is_left_alone(catalog: Catalog) -> None:
    with_channels(catalog, "logs")
    ingested(catalog, "logs")
    with catalog.writing() as tx:
        run, _ = runs.start(tx, kind=RunKind.COMPACTION, tasks=(), writes=(), owner="me", lease=LEASE)
        chains.new_block(tx, "logs", run)
        assert stretches(tx) == []
        runs.fail(tx, run, "no luck")
        assert len(stretches(tx)) == 1
