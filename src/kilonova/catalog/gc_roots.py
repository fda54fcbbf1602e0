"""Roots of garbage collection: everything that keeps blocks in the warehouse, read in one transaction.

`kilonova.schedule.garbage` decides what is collected.
"""

from __future__ import annotations

import itertools

from sqlalchemy import select

from kilonova.catalog import deferred, tables
from kilonova.catalog.channel_store import channel_states, needed, pinned, placed_by
from kilonova.catalog.database import Transaction
from kilonova.catalog.planner_input import load_planner_input
from kilonova.catalog.registry import live_versions
from kilonova.model.task import Mode
from kilonova.schedule.due import read_ends
from kilonova.schedule.garbage import Consumer, GCRoots, PlacedBlock, Provenance, Reference, Stop
from kilonova.schedule.planning import remaining_ends


def gc_roots(tx: Transaction, provenance: Provenance) -> GCRoots:
    """Return every channel with its consumers, pins and the provenance references of the given level."""
    consumers: dict[str, list[Consumer]] = {}
    running = set(
        tx.connection.execute(
            select(tables.task.c.name).join(tables.claim, tables.claim.c.task_id == tables.task.c.id)
        ).scalars()
    )
    live = live_versions(tx)
    changing = {task for each in deferred.deferred_workflows(tx) for task in each.tasks}
    for version in itertools.chain.from_iterable(live.values()):
        if version.superseded or version.task.name in changing:  # a migration reads the snapshots at its cursors
            for channel, point in version.cursors.items():
                consumers.setdefault(channel, []).append(
                    Consumer(task=version.task.name, cursor=point, started=True, beginning=False, needs_snapshot=True)
                )
        for channel in version.replaced.values():
            cursor = version.cursor(channel)
            consumers.setdefault(channel, []).append(
                Consumer(task=version.task.name, cursor=cursor, started=True, beginning=False, needs_snapshot=True)
            )
        if version.superseded:
            continue
        ports = [port for variant in version.task.variants for port in variant.ports]
        for channel in {port.channel for port in ports}:
            modes = {port.mode for port in ports if port.channel == channel}
            follows = not version.started or channel in version.cursors  # a detached view: `schedule.due.TaskState`
            if follows and any(mode.advances for mode in modes):
                consumers.setdefault(channel, []).append(
                    Consumer(
                        task=version.task.name,
                        cursor=version.cursor(channel),
                        started=version.started,
                        beginning=not version.started and version.task.name in running,
                        needs_snapshot=bool(modes & {Mode.OLD, Mode.CHANGES, Mode.INSERTS}),
                    )
                )
    inputs, output, place = tables.run_input_block, tables.run_output, tables.placement
    written = (
        select(inputs.c.channel_id, inputs.c.block_id, output.c.channel_id.label("of"), output.c.block_id.label("made"))
        .join(output, (output.c.run_id == inputs.c.run_id) & (output.c.task == inputs.c.task))
        .join(place, placed_by(output))
        .where(place.c.live)
    )
    physical = tx.connection.execute(written).all() if provenance is Provenance.PHYSICAL else []
    names = {row.id: row.name for row in tx.connection.execute(select(tables.channel))}
    bounds = needed()
    logical = tx.connection.execute(
        select(tables.run_input, output.c.channel_id.label("made_on"), output.c.point)
        .join(
            output,
            (output.c.run_id == tables.run_input.c.run_id) & (output.c.task == tables.run_input.c.task),
        )
        .join(bounds, (bounds.c.id == output.c.channel_id) & (output.c.point >= bounds.c.since))
        .where(output.c.block_id.is_not(None))
    )
    return GCRoots(
        now=tx.now,
        states=channel_states(tx),
        consumers={channel: tuple(found) for channel, found in consumers.items()},
        stops=_stops(tx) if any(each.task.requires for versions in live.values() for each in versions) else {},
        pins={block: tuple(holders) for block, holders in pinned(tx).items()},
        physical=frozenset(
            (PlacedBlock(names[row.channel_id], row.block_id), PlacedBlock(names[row.of], row.made)) for row in physical
        ),
        logical=frozenset(
            Reference(of=names[row.made_on], at=row.point, channel=names[row.channel_id], point=row.end)
            for row in logical
        ),
    )


def _stops(tx: Transaction) -> dict[str, tuple[Stop, ...]]:
    """Return the points before the newest ones at which logic versions stop reading, by channel."""
    known, found = load_planner_input(tx), dict[str, list[Stop]]()
    for state in itertools.chain.from_iterable(known.versions.values()):
        earlier = state.previous if state.continues else None
        reads = [(each, read_ends(each, known.channels)) for each in (state, earlier) if each is not None]
        if earlier is not None and (remaining := remaining_ends(state, known.channels)) is not None:
            reads.append((earlier, remaining))
        for version, ends in reads:
            for channel in ends.keys() & {*state.task.relies_on, *version.task.relies_on}:
                if not known.channels[channel].is_equivalent(ends[channel], known.channels[channel].latest_readable):
                    stop = Stop(task=state.task.name, cursor=version.cursor(channel), point=ends[channel])
                    found.setdefault(channel, []).append(stop)
    return {channel: tuple(stops) for channel, stops in found.items()}
