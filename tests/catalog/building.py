"""States of a catalog, built through its own functions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from kilonova.catalog import channel_registry, channel_store, runs, scheduling
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.firings import Batch
from kilonova.model.block import Base, Block, BlockName, Delta, Kind, Statistics
from kilonova.model.channel import Channel
from kilonova.model.encoding import Append, Encoding
from kilonova.model.logic import Function, Sql
from kilonova.model.run import CommitResult, RunKind, RunOutput
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.model.version import Version
from kilonova.schedule.scheduler import TriggerScheduler

SCHEMA = Schema.of(("id", "bigint"), ("note", "string"))
LEASE = timedelta(seconds=10)


def a_channel(name: str, encoding: Encoding | None = None, schema: Schema | None = SCHEMA) -> Channel:
    return Channel(name=name, schema=schema, encoding=encoding or Append(), adopts=schema is None)


def a_task(
    name: str,
    ports: dict[str, Mode],
    writes: tuple[str, ...],
    *,
    text: str = "SELECT 1",
    more: tuple[Variant, ...] = (),
) -> Task:
    first = Variant(
        name=name,
        ports=tuple(Port(channel, channel, mode) for channel, mode in ports.items()),
        productions=(Production.DELTA,) * len(writes),
        logic=Sql(text=text),
        fingerprint=text,
    )
    return Task(name=name, writes=writes, variants=(first, *more))


def a_function_variant(name: str, ports: dict[str, Mode], pickled: bytes) -> Variant:
    return Variant(
        name=name,
        ports=tuple(Port(channel, channel, mode) for channel, mode in ports.items()),
        productions=(Production.BASE,),
        logic=Function(pickled=pickled, source="def f(): ..."),
        fingerprint=pickled.hex(),
    )


def a_block(name: BlockName | int, kind: Kind, rows: int = 1, encoding: Encoding | None = None) -> Block:
    name = name if isinstance(name, BlockName) else BlockName(name)
    return Block(
        number=name.number,
        suffix=name.suffix,
        kind=kind,
        schema=SCHEMA,
        encoding=encoding or Append(),
        columns=SCHEMA,
        buckets=0,
        statistics=Statistics(
            rows=rows, bytes=10 * rows, files=1, removals=0, net_rows=None if isinstance(kind, Base) else rows
        ),
    )


def an_output(channel: str, point: int, block: Block | None, task: str | None = None) -> RunOutput:
    return RunOutput(
        channel=channel,
        point=point,
        block=block,
        version=Version.source(channel, point),
        task=task,
        reason="because",
        seconds=0.5,
    )


def fire_triggers(tx: Transaction, triggers: Collection[int] | None = None) -> list[str]:
    """The bindings that triggers fire, of the given triggers or of all."""
    every = scheduling.trigger_interests(tx).every if triggers is None else triggers
    decision = TriggerScheduler().decide(scheduling.observe(tx, every, free_workers=0))
    assert scheduling.store(tx, decision, "") == []
    return [each.binding for each in decision.queued]


def claim_batches(
    tx: Transaction, server: str, free_workers: int, limit: int | None = None
) -> tuple[list[Batch], datetime | None]:
    """The batches that a server claims, and when more can start."""
    observation = scheduling.observe(tx, (), free_workers=free_workers, workflow_limit=limit)
    decision = TriggerScheduler().decide(observation)
    return scheduling.store(tx, decision, server), decision.next_check


def begin(
    tx: Transaction,
    *writes: str,
    tasks: tuple[str, ...] = (),
    kind: RunKind = RunKind.INGEST,
    binding: str | None = None,
) -> tuple[int, dict[str, int]]:
    return runs.start(tx, kind=kind, tasks=tasks, writes=writes, owner="me", lease=LEASE, binding=binding)


def commit(
    catalog: Catalog, run: int, points: dict[str, int], *, base: bool = False, empty: bool = False
) -> CommitResult:
    """Publish one block per reserved point."""
    with catalog.writing() as tx:
        outputs = []
        for channel, point in points.items():
            kind: Kind = Base(point) if base else Delta(point - 1, point)
            encoding = channel_store.channel_state(tx, channel).channel.encoding
            block = None if empty else a_block(channel_store.new_block(tx, channel, run), kind, encoding=encoding)
            outputs.append(an_output(channel, point, block))
        return runs.commit(tx, run, inputs=(), outputs=outputs, advances=())


def ingested(catalog: Catalog, channel: str, *, base: bool = False) -> tuple[int, int]:
    """A committed run; its number and its block."""
    with catalog.writing() as tx:
        run, points = begin(tx, channel)
    commit(catalog, run, points, base=base)
    with catalog.reading() as tx:
        return run, max(block.number for block in channel_store.channel_state(tx, channel).blocks)


def with_channels(catalog: Catalog, *names: str) -> None:
    with catalog.writing() as tx:
        for name in names:
            channel_registry.add_channels(tx, [a_channel(name)], "w")
