"""What a variant does in one run, spelled out: its logic as it is executed, and what that reads of which ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kilonova.model.channel import Channel, Chronicle
from kilonova.model.encoding import Append, Changes
from kilonova.model.reading import Reading, Snapshot
from kilonova.model.run import Way
from kilonova.model.task import Logic, Mode, Query, Sql
from kilonova.query.maintaining import Situation
from kilonova.query.tasks import Read, delta_of, known_of
from kilonova.schedule.layout import Sizes
from kilonova.schedule.planning import Choice, Feed, Progress, extent

_MANY = 4
"""From how many times the rows of a change on those of a view are looked for by key before the change meets them."""


def spell(
    progress: Progress,
    choice: Choice,
    fed: tuple[Feed, ...],
    chronicles: Mapping[str, Chronicle],
    sizes: Sizes,
    *,
    strong: bool,
) -> tuple[Logic, Mapping[str, Read]] | None:
    """What a variant does and what it reads for it, by name.

    Args:
        progress: the task.
        choice: the way it is done.
        fed: what its ports are fed.
        chronicles: the channels that it touches.
        sizes: where physical strategies change over.
        strong: whether somebody reads the changes of what it writes.

    Returns:
        Both; None if it is a query whose channels have not changed.
    """
    task, logic = progress.task, choice.variant.logic
    if not isinstance(logic, Query):
        return logic, {feed.port.name: Read(feed.port.name) for feed in fed}
    moved = frozenset(
        feed.port.channel
        for feed in fed
        if feed.port.mode.advances and not chronicles[feed.port.channel].same(feed.start, feed.end)
    )
    (writes,) = task.writes
    channels = {name: present(chronicles[name]) for name in (*task.reads, writes)}
    own = chronicles[writes]
    complete = own.complete
    assert complete is not None
    changed = sum(_rows(feed.reading) for feed in fed if feed.port.mode in (Mode.CHANGES, Mode.INSERTS))
    snapshots = [(feed.port.channel, feed.reading) for feed in fed if isinstance(feed.reading, Snapshot)]
    single = [name for name in channels if is_single([each for channel, each in snapshots if channel == name])]
    large = {name: chronicles[name].size for name in channels}
    found = Situation(
        moved=moved,
        sizes=large,
        layered=frozenset(
            name for name in channels if chronicles[name].layered and (name == writes or name not in single)
        ),
        few=extent(progress, chronicles).change <= sizes.broadcast,
        alone=sum(large.values()) <= sizes.single,
        large=_rows(own.snapshot(own.readable)) > _MANY * changed,
        strong=strong,
        again=choice.way is Way.PARTITIONWISE,
    )
    delta = delta_of(logic.text, channels[writes], complete, known_of(channels, single), found)
    return None if delta is None else (Sql(text=delta.sql), delta.reads)


def present(chronicle: Chronicle) -> Channel:
    """A channel with the schema that it has by now."""
    return replace(chronicle.channel, schema=chronicle.schema_at(chronicle.readable))


def is_single(snapshots: Sequence[Snapshot]) -> bool:
    """Return whether a channel has one row at most in snapshots, as far as its blocks tell.

    They do not tell how often a row of a strong delta comes.
    """
    return bool(snapshots) and all(map(_has_one_row, snapshots))


def _has_one_row(snapshot: Snapshot) -> bool:
    count = 0 if snapshot.base is None else snapshot.base.statistics.rows
    for block in snapshot.deltas:
        if not isinstance(block.encoding, Append | Changes) or block.statistics.removals is None:
            return False
        count += block.statistics.rows - 2 * block.statistics.removals
    return count <= 1


def _rows(reading: Reading) -> int:
    return sum(block.statistics.rows for block in reading.blocks)
