from __future__ import annotations

from kilonova.catalog import channel_registry, channel_store, runs
from kilonova.catalog.compaction_stats import delta_stacks
from kilonova.catalog.database import Catalog
from kilonova.model.compaction_policy import CostBased, Manual, MaxDeltas
from kilonova.model.encoding import Upsert
from kilonova.model.run import RunInput, RunKind
from tests.catalog.building import LEASE, a_channel, ingested, with_channels


def read(catalog: Catalog, channel: str, *, since: int = 0) -> None:
    """A run that reads the live blocks of a channel that end after a point."""
    with catalog.writing() as tx:
        run, _ = runs.start(tx, kind=RunKind.TASKS, tasks=(), writes=(), owner="me", lease=LEASE)
        found = channel_store.channel_state(tx, channel)
        blocks = tuple(block.number for block in found.blocks if block.end > since)
        item = RunInput(task="t", port="p", channel=channel, start=0, end=found.latest_readable, blocks=blocks)
        runs.commit(tx, run, inputs=[item], outputs=(), advances=())


def test_readings_are_counted_by_what_they_merged(catalog: Catalog) -> None:
    with_channels(catalog, "logs", "quiet")
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [a_channel("users", Upsert(("id",)))], "w")
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
        found = {each.channel: each for each in delta_stacks(tx)}
    assert set(found) == {"users", "logs"}
    users, logs = found["users"], found["logs"]
    assert (users.appended, users.base, users.deltas, sorted(users.readings)) == (False, 10, 20, [1, 2])
    assert (logs.appended, logs.base, logs.deltas, logs.readings) == (True, 0, 20, (2,))
    assert (users.count, users.policy, logs.count) == (2, CostBased(), 2)
    for policy in (Manual(), MaxDeltas(deltas=3), CostBased(max_amplification=2.5)):
        with catalog.writing() as tx:
            channel_store.set_policy(tx, "users", policy)
            assert {each.channel: each.policy for each in delta_stacks(tx)} == {"users": policy, "logs": CostBased()}
    ingested(catalog, "users", base=True)
    with catalog.reading() as tx:
        assert [each.channel for each in delta_stacks(tx)] == ["logs"]


def test_what_is_being_compacted_is_left_alone(catalog: Catalog) -> None:
    with_channels(catalog, "logs")
    ingested(catalog, "logs")
    with catalog.writing() as tx:
        run, _ = runs.start(tx, kind=RunKind.COMPACTION, tasks=(), writes=(), owner="me", lease=LEASE)
        channel_store.new_block(tx, "logs", run)
        assert delta_stacks(tx) == []
        runs.fail(tx, run, "no luck")
        assert len(delta_stacks(tx)) == 1
