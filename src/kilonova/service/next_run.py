"""Preview of the next run of a task, as if it ran now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from kilonova.catalog import task_graph
from kilonova.catalog.database import Transaction
from kilonova.catalog.planner_input import load_planner_input
from kilonova.engine.compilation import compile_variant
from kilonova.errors import NotFound
from kilonova.model.block import Block
from kilonova.model.channel import ChannelState
from kilonova.model.read_plan import ChangesRead, DeltaRead, DiffRead, ReadPlan, SnapshotRead
from kilonova.model.run import RefreshMethod
from kilonova.model.task import Mode, Port
from kilonova.schedule.due import due_version, version_in_force
from kilonova.schedule.layout import LayoutThresholds
from kilonova.schedule.planning import PortInput, VariantChoice, choose, port_input, reading_migrations


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPreview:
    """Preview of the input of a port.

    Attributes:
        port: the port.
        channel: the channel.
        mode: the read mode of the port.
        start: the point up to which the task has read; the first of equal ones.
        end: the point up to which it would read; the first of equal ones.
        how: how the blocks are combined, as text; why they cannot be, if some were garbage collected.
        blocks: the blocks.
        rows: rows in them.
        bytes: their size.
    """

    port: str
    channel: str
    mode: Mode
    start: int
    end: int
    how: str
    blocks: tuple[Block, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPreview:
    """Preview of the next run of a task.

    Attributes:
        due: why it is due; None if it is not, or if its schedule delays it.
        waits_until: the time until which its schedule delays it; None if it does not.
        variant: the variant that would run.
        method: the refresh method.
        reason: the reason for it.
        estimates: the estimated seconds of that method and of the alternatives; empty for `INITIAL`.
        reads: the ports that it would read; of a view, those that its query reads, and those read by cursor.
    """

    due: str | None
    waits_until: datetime | None
    variant: str
    method: RefreshMethod
    reason: str
    estimates: Mapping[RefreshMethod, float]
    reads: tuple[PortPreview, ...]


def task_preview(tx: Transaction, task: str) -> TaskPreview:
    """Return a preview of the next run of a task.

    Raises:
        NotFound: there is no such task.
    """
    known = load_planner_input(tx, [task])
    channels, versions = known.channels, known.versions[task]
    state, due = due_version(versions, channels) or (versions[0], None)
    choice = choose(version_in_force(state, channels) or state, channels)
    inputs: list[PortInput] = []
    previews: dict[str, PortPreview] = {}
    for port in choice.variant.ports:
        channel = channels[port.channel]
        try:
            read = port_input(port, choice, channels)
        except NotFound as error:
            start, end = choice.state.cursor(port.channel), choice.ends[port.channel]
            previews[port.name] = _preview(port, channel, start, end, error.problem)
        else:
            inputs.append(read)
            how, blocks = _how(read.reading), read.reading.blocks
            previews[port.name] = _preview(port, channel, read.start, read.end, how, blocks)
    names = _read_ports(tx, choice, inputs, channels)
    return TaskPreview(
        due=due,
        waits_until=state.waits_until,
        variant=choice.variant.name,
        method=choice.method,
        reason=choice.reason,
        estimates=choice.estimates,
        reads=tuple(preview for name, preview in previews.items() if name in names),
    )


def _read_ports(
    tx: Transaction,
    choice: VariantChoice,
    inputs: Sequence[PortInput],
    channels: Mapping[str, ChannelState],
) -> set[str]:
    """Return the names of the ports to report: of a view's change, only those that it needs to read."""
    ports, logic = choice.variant.ports, choice.variant.logic
    migrating = choice.method is RefreshMethod.MIGRATION
    if migrating and choice.variant not in reading_migrations(choice.state, channels):
        return set()
    known = len(inputs) == len(ports) and all(each.reading.schema is not None for each in inputs)
    if not logic.derived or not known or migrating:
        return {port.name for port in ports}
    strong = bool(task_graph.followed_channels(tx, choice.state.task.writes))
    compiled = compile_variant(choice, tuple(inputs), channels, LayoutThresholds(), strong=strong)
    looked_up = {read.port for read in compiled.inputs.values()} if compiled is not None else set()
    return looked_up | {port.name for port in ports if port.mode.advances}


def _preview(
    port: Port, channel: ChannelState, start: int, end: int, how: str, blocks: tuple[Block, ...] = ()
) -> PortPreview:
    return PortPreview(
        port=port.name,
        channel=port.channel,
        mode=port.mode,
        start=channel.settled(start),
        end=channel.settled(end),
        how=how,
        blocks=blocks,
        rows=sum(block.statistics.rows for block in blocks),
        bytes=sum(block.statistics.bytes for block in blocks),
    )


def _how(reading: ReadPlan) -> str:
    if not reading.blocks:
        return "nothing"
    match reading:
        case SnapshotRead():
            return "snapshot"
        case DeltaRead(deltas=(_,)):
            return "delta"
        case DeltaRead():
            return "chained deltas"
        case ChangesRead():
            return "deltas with the rows that they replace"
        case DiffRead(old=old):
            return "difference of two snapshots" if old.blocks else "snapshot"
        case _:
            assert_never(reading)
