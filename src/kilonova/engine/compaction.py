"""Compaction: the newest snapshot of a channel, written as a base (Nova, section 2.4).

Small neighbouring deltas can also be merged into one delta. Both add blocks to existing points; readers see the same
data as before, but read it faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kilonova.catalog import channel_store, task_graph
from kilonova.catalog.database import Transaction
from kilonova.engine.interfaces import WarehouseInterface
from kilonova.engine.run_events import RunStarted
from kilonova.engine.run_protocol import ActiveRun, RunEnvironment, RunPlan, RunResults, execute_run
from kilonova.errors import KilonovaError
from kilonova.model.block import Block, BlockName
from kilonova.model.channel import ChannelState
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.run import RunInput, RunKind, RunOutput
from kilonova.schedule.compaction import mergeable_runs

STEP = "compaction"


def is_compactable(snapshot: SnapshotRead) -> bool:
    """Return whether a snapshot is anything other than a base in the warehouse."""
    return bool(snapshot.deltas) or (snapshot.base is not None and snapshot.base.external is not None)


def compact(
    environment: RunEnvironment, warehouse: WarehouseInterface[Any], channel: str
) -> tuple[int, RunResults] | None:
    """Write the newest snapshot of a channel as a base, with the columns with which it was written.

    Returns:
        The run's number and what it published; None if the newest point has a base already, or no rows.

    Raises:
        NotFound: there is no such channel.
    """

    def choose(state: ChannelState, _cursors: list[int]) -> tuple[Part, ...]:
        snapshot = state.snapshot(state.latest_readable)
        if not is_compactable(snapshot):
            return ()
        point, written = state.latest_distinct, state.written_schema(state.latest_readable)
        reason = f"{len(snapshot.deltas)} deltas merged" + (" with a base" if snapshot.base else "")
        if not snapshot.deltas:
            reason = "an external base copied"
        if written is not None and snapshot.schema is not None and not written.has_same_columns(snapshot.schema):
            snapshot = replace(snapshot, schema=written)
        write = partial(warehouse.compact, replace(snapshot, at=point))
        return (Part(read=snapshot.blocks, start=0, end=point, reason=reason, write=write),)

    return _rewrite(environment, channel, choose)


def merge_deltas(
    environment: RunEnvironment, warehouse: WarehouseInterface[Any], channel: str, *, few: bool
) -> tuple[int, RunResults] | None:
    """Merge neighbouring deltas of a channel: small ones, or all upserts.

    Args:
        environment: the environment of the run.
        warehouse: reads and writes blocks.
        channel: the channel.
        few: whether to merge even two of them, not only as many as are worth merging.

    Returns:
        The run's number and what it published; None if there are no such neighbours.

    Raises:
        NotFound: there is no such channel.
    """

    def choose(state: ChannelState, cursors: list[int]) -> tuple[Part, ...]:
        snapshot = state.snapshot(state.latest_readable)
        settled = [state.settled(cursor) for cursor in cursors]
        buckets = 0 if snapshot.base is None else snapshot.base.buckets
        return tuple(
            Part(
                read=chain,
                start=chain[0].start,
                end=chain[-1].end,
                reason=f"{len(chain)} adjacent deltas merged",
                write=partial(warehouse.merge_deltas, chain, snapshot.base),
                merges=tuple(block.number for block in chain),
            )
            for chain in mergeable_runs(snapshot.deltas, settled, few=few, buckets=buckets)
        )

    return _rewrite(environment, channel, choose)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A block to be written from other blocks.

    Attributes:
        read: the other blocks.
        start: the point that they lead from.
        end: the point that they lead to.
        reason: a description of the block, as text.
        write: function that writes the block under a name.
        merges: the numbers of the deltas that it replaces.
    """

    read: tuple[Block, ...]
    start: int
    end: int
    reason: str
    write: Callable[[BlockName], Block]
    merges: tuple[int, ...] = ()


def _rewrite(
    environment: RunEnvironment, channel: str, choose: Callable[[ChannelState, list[int]], tuple[Part, ...]]
) -> tuple[int, RunResults] | None:
    """Write additional blocks of a channel, made from existing ones, in one run."""

    def prepare(tx: Transaction) -> RunPlan[tuple[ChannelState, tuple[Part, ...]]] | None:
        state = channel_store.channel_state(tx, channel)
        parts = choose(state, [reader.cursor(channel) for reader in task_graph.readers(tx, channel)])
        if not parts:
            return None
        pins = tuple(block.number for part in parts for block in part.read)
        return RunPlan(kind=RunKind.COMPACTION, pins=pins, plan=(state, parts))

    def work(begun: ActiveRun[tuple[ChannelState, tuple[Part, ...]]]) -> RunResults:
        state, parts = begun.plan
        begun.notify(RunStarted(run=begun.run, steps=(channel,)))
        outputs: list[RunOutput] = []
        for part in parts:
            with begun.step(channel, part.reason) as step:
                try:
                    block = part.write(begun.name_block(channel))
                except KilonovaError as error:
                    raise error.with_context(channel=channel) from error.__cause__
                step.count(block)
            outputs.append(
                RunOutput(
                    channel=channel,
                    point=part.end,
                    block=block,
                    version=state.version(part.end),
                    task=STEP,
                    reason=part.reason,
                    seconds=step.seconds,
                    merges=part.merges,
                )
            )
        read = tuple(block.number for part in parts for block in part.read)
        start, end = parts[0].start, parts[-1].end
        item = RunInput(task=STEP, port=channel, channel=channel, start=start, end=end, blocks=read)
        return RunResults(inputs=(item,), outputs=tuple(outputs))

    return execute_run(environment, prepare, work)
