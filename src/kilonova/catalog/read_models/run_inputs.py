"""Inputs of the tasks of a run, block by block: the record behind physical provenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Result, select

from kilonova.catalog import tables
from kilonova.catalog.channel_store import kind_from, placed_by
from kilonova.catalog.database import Transaction
from kilonova.catalog.run_records import inputs
from kilonova.model.block import Kind
from kilonova.model.run import Run
from kilonova.model.task import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRead:
    """Block that a run has read.

    Attributes:
        number: its number.
        kind: base or delta, with its points.
        rows: the number of its rows.
        bytes: its size.
        live: whether it is still live; otherwise it was collected.
    """

    number: int
    kind: Kind
    rows: int
    bytes: int
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRead:
    """Input of a task through a port: the change from `start` to `end`, or the snapshot at one of them.

    Attributes:
        task: the task.
        port: the port.
        channel: the channel.
        start: the task's cursor on the channel before the run.
        end: the newest point that was readable.
        mode: the mode of the port; None if the variants of the task differ in it.
        blocks: the blocks of the channel that the task read, through this port or another.
    """

    task: str
    port: str
    channel: str
    start: int
    end: int
    mode: Mode | None
    blocks: tuple[BlockRead, ...]


def port_reads(tx: Transaction, run: Run) -> list[PortRead]:
    """Return the inputs of the tasks of a run, in the order of its tasks; empty until the run has succeeded."""
    read = [item for _, item in inputs(tx, [run.number])]
    if not read:
        return []
    modes, block, place, given = _modes(tx, run), tables.block, tables.placement, tables.run_input_block
    rows: Result[Any] = tx.connection.execute(
        select(
            given.c.task,
            tables.channel.c.name,
            block.c.id,
            place.c.start,
            place.c.end,
            place.c.live,
            block.c.rows,
            block.c.bytes,
        )
        .join(block, block.c.id == given.c.block_id)
        .join(place, placed_by(given))
        .join(tables.channel, tables.channel.c.id == given.c.channel_id)
        .where(given.c.run_id == run.number)
        .order_by(block.c.id)
    )
    blocks: dict[tuple[str, str], list[BlockRead]] = {}
    for row in rows:
        piece = BlockRead(number=row.id, kind=kind_from(row), rows=row.rows, bytes=row.bytes, live=row.live)
        blocks.setdefault((row.task, row.name), []).append(piece)
    places = {task: place for place, task in enumerate(run.tasks)}
    found = [
        PortRead(
            task=item.task,
            port=item.port,
            channel=item.channel,
            start=item.start,
            end=item.end,
            mode=modes.get((item.task, item.port)),
            blocks=tuple(blocks.get((item.task, item.channel), ())),
        )
        for item in read
    ]
    return sorted(found, key=lambda each: (places[each.task], each.port))


def _modes(tx: Transaction, run: Run) -> dict[tuple[str, str], Mode]:
    """Return the modes of ports, by task and port, in the newest logic version registered before a run."""
    task, logic, variant = tables.task, tables.logic, tables.variant
    rows = tx.connection.execute(
        select(task.c.name, variant.c.logic, variant.c.ports)
        .join(logic, logic.c.task_id == task.c.id)
        .join(variant, (variant.c.task_id == task.c.id) & (variant.c.logic == logic.c.version))
        .where(task.c.name.in_(run.tasks), logic.c.registered <= run.started)
    ).all()
    newest: dict[str, int] = {}
    for row in rows:
        newest[row.name] = max(row.logic, newest.get(row.name, 0))
    found: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        for port, _, mode in row.ports if row.logic == newest[row.name] else ():
            found.setdefault((row.name, port), set()).add(mode)
    return {key: Mode(*modes) for key, modes in found.items() if len(modes) == 1}
