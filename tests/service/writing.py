"""Blocks of a channel that nobody has written, as runs publish them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kilonova.catalog import channel_registry, channel_store, runs
from kilonova.catalog.database import Catalog
from kilonova.catalog.runs import Advance
from kilonova.model.block import Base, Delta, Statistics
from kilonova.model.channel import Channel
from kilonova.model.encoding import Append, Changes, Encoding
from kilonova.model.run import InputSize, RefreshMethod, RunKind, RunOutput
from kilonova.model.schema import Schema
from kilonova.model.version import Version
from tests.catalog.building import LEASE, SCHEMA, a_block, begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """What a run writes to a channel."""

    rows: int = 1
    base: bool = False
    encoding: Encoding = field(default_factory=Append)
    schema: Schema = SCHEMA
    removals: int | None = 0
    empty: bool = False
    version: Version | None = None

    @property
    def net_rows(self) -> int | None:
        """The net number of rows that it adds, as it is known of a delta of some encodings."""
        if self.base:
            return None
        match self.encoding:
            case Append():
                return self.rows
            case Changes() if self.removals is not None:
                return self.rows - 2 * self.removals
            case _:
                return None


def declare(catalog: Catalog, *names: str, encoding: Encoding | None = None, schema: Schema | None = SCHEMA) -> None:
    with catalog.writing() as tx:
        for name in names:
            channel_registry.add_channels(tx, [Channel(name=name, schema=schema, encoding=encoding or Append())], "w")


def wrote(
    catalog: Catalog,
    writings: Mapping[str, Writing],
    *,
    task: str | None = None,
    read: Sequence[tuple[str, int]] = (),
    method: RefreshMethod | None = None,
    estimates: Mapping[RefreshMethod, float] | None = None,
    seconds: float = 0.5,
) -> int:
    """A committed run that fills (or cancels) the next point of channels; its number."""
    with catalog.writing() as tx:
        kind = RunKind.INGEST if task is None else RunKind.TASKS
        run, points = begin(tx, *writings, tasks=() if task is None else (task,), kind=kind)
        outputs = []
        for channel, what in writings.items():
            point = points[channel]
            number = channel_store.new_block(tx, channel, run)
            block = a_block(number, Base(point) if what.base else Delta(point - 1, point), what.rows, what.encoding)
            told = Statistics(
                rows=what.rows, bytes=10 * what.rows, files=1, removals=what.removals, net_rows=what.net_rows
            )
            outputs.append(
                RunOutput(
                    channel=channel,
                    point=point,
                    block=None if what.empty else replace(block, schema=what.schema, statistics=told),
                    version=what.version or Version.source(channel, point),
                    task=task,
                    reason="because",
                    seconds=seconds,
                    method=method,
                    input_size=None if method is None else InputSize(change=7, whole=70),
                    estimates=estimates or {},
                )
            )
        advances = () if task is None else (Advance(task=task, logic=0, points=tuple(read)),)
        runs.commit(tx, run, inputs=(), outputs=outputs, advances=advances)
    return run


def compacted(catalog: Catalog, channel: str, rows: int) -> int:
    """A committed compaction; its block."""
    with catalog.writing() as tx:
        run, _ = runs.start(tx, kind=RunKind.COMPACTION, tasks=(), writes=(), owner="me", lease=LEASE)
        state = channel_store.channel_state(tx, channel)
        point = state.latest_distinct
        block = a_block(channel_store.new_block(tx, channel, run), Base(point), rows, state.channel.encoding)
        output = RunOutput(
            channel=channel,
            point=point,
            block=block,
            version=state.version(point),
            task="compaction",
            reason="deltas merged",
            seconds=1.0,
        )
        runs.commit(tx, run, inputs=(), outputs=[output], advances=())
    return block.number
