"""Compilation of a variant for one run: its logic as it is executed, and the columns that it reads of each port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kilonova.model.channel import Channel, ChannelState
from kilonova.model.encoding import Append, Changes
from kilonova.model.read_plan import ReadPlan, SnapshotRead
from kilonova.model.run import RefreshMethod
from kilonova.model.task import Logic, Mode, Query, Sql
from kilonova.query.maintenance import MaintenanceContext
from kilonova.query.view_tasks import ColumnRead, delta_of, known_of
from kilonova.schedule.layout import LayoutThresholds
from kilonova.schedule.planning import PortInput, TaskState, VariantChoice, input_size, limit_channels

_MANY = 4
"""Ratio of a view's rows to a change's rows above which the view is restricted to the change's keys before merging."""


def compile_variant(
    state: TaskState,
    choice: VariantChoice,
    inputs: tuple[PortInput, ...],
    channels: Mapping[str, ChannelState],
    sizes: LayoutThresholds,
    *,
    strong: bool,
) -> tuple[Logic, Mapping[str, ColumnRead]] | None:
    """Compile a variant to the logic to execute and its inputs, by name.

    Args:
        state: the state of the task.
        choice: the chosen variant and refresh method.
        inputs: the inputs of its ports.
        channels: the states of the channels that it reads or writes.
        sizes: the thresholds of physical strategies.
        strong: whether the changes of its output are read.

    Returns:
        The logic and the inputs; None if it is a query whose channels have not changed.
    """
    task, logic = state.task, choice.variant.logic
    if not isinstance(logic, Query):
        return logic, {each.port.name: ColumnRead(each.port.name) for each in inputs}
    channels = limit_channels(channels, choice.ends)
    moved = frozenset(
        each.port.channel
        for each in inputs
        if each.port.mode.advances and not channels[each.port.channel].is_equivalent(each.start, each.end)
    )
    (writes,) = task.writes
    declared = {name: with_current_schema(channels[name]) for name in (*task.reads, writes)}
    own = channels[writes]
    complete = own.stored_schema
    assert complete is not None
    changed = sum(_rows(each.reading) for each in inputs if each.port.mode in (Mode.CHANGES, Mode.INSERTS))
    snapshots = [(each.port.channel, each.reading) for each in inputs if isinstance(each.reading, SnapshotRead)]
    single = [
        name for name in declared if has_at_most_one_row([each for channel, each in snapshots if channel == name])
    ]
    large = {name: channels[name].size for name in declared}
    found = MaintenanceContext(
        moved=moved,
        sizes=large,
        layered=frozenset(
            name for name in declared if channels[name].has_weighted_deltas and (name == writes or name not in single)
        ),
        few=input_size(state, channels).change <= sizes.broadcast_max,
        alone=sum(large.values()) <= sizes.single_task_max,
        large=_rows(own.snapshot(own.latest_readable)) > _MANY * changed,
        strong=strong,
        again=choice.method is RefreshMethod.AFFECTED_GROUPS,
    )
    delta = delta_of(logic.text, declared[writes], complete, known_of(declared, single), found)
    return None if delta is None else (Sql(text=delta.sql), delta.reads)


def with_current_schema(state: ChannelState) -> Channel:
    """Return a channel with its current schema."""
    return replace(state.channel, schema=state.schema_at(state.latest_readable))


def has_at_most_one_row(snapshots: Sequence[SnapshotRead]) -> bool:
    """Return whether a channel has at most one row in snapshots, as far as its blocks' statistics show.

    Statistics do not contain the weights of the rows of a strong delta.
    """
    return bool(snapshots) and all(map(_has_one_row, snapshots))


def _has_one_row(snapshot: SnapshotRead) -> bool:
    count = 0 if snapshot.base is None else snapshot.base.statistics.rows
    for block in snapshot.deltas:
        if not isinstance(block.encoding, Append | Changes) or block.statistics.removals is None:
            return False
        count += block.statistics.rows - 2 * block.statistics.removals
    return count <= 1


def _rows(reading: ReadPlan) -> int:
    return sum(block.statistics.rows for block in reading.blocks)
