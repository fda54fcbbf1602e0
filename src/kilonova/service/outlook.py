"""What a task would do if it ran now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from kilonova.catalog import registry
from kilonova.catalog.database import Transaction
from kilonova.catalog.observation import observe
from kilonova.engine.spelling import spell
from kilonova.errors import UnknownName
from kilonova.model.block import Block
from kilonova.model.channel import Chronicle
from kilonova.model.reading import Chain, Diff, Reading, Snapshot, Strong
from kilonova.model.run import Way
from kilonova.model.task import Mode, Port, Query
from kilonova.schedule.layout import Sizes
from kilonova.schedule.planning import Choice, Feed, Progress, choose, feed_of, why_due


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What a task would read through a port.

    Attributes:
        port: the port.
        channel: the channel.
        mode: how the port reads.
        start: the point up to which the task has read.
        end: the point up to which it would read.
        how: what is put together of which blocks, in words; why it cannot be, where garbage collection took some.
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
class Outlook:
    """What a task would do.

    Attributes:
        due: why it has something to do; None if it has not, or is held back by its schedule.
        waits_until: until when its schedule holds it back; None if it does not.
        variant: the variant that would run.
        way: the way it would be done.
        reason: why so.
        estimates: what that way and others that are open are estimated to take, in seconds; nothing for fresh.
        reads: what it would read; of a view, the ports that its query reads, and those that tell its changes.
    """

    due: str | None
    waits_until: datetime | None
    variant: str
    way: Way
    reason: str
    estimates: Mapping[Way, float]
    reads: tuple[Prospect, ...]


def outlook(tx: Transaction, task: str) -> Outlook:
    """What a task would do.

    Args:
        tx: an open transaction.
        task: its name.

    Raises:
        UnknownName: there is no such task.
    """
    _, observed, chronicles = observe(tx, [task])
    progress = observed[task]
    choice = choose(progress, chronicles)
    fed = [_fed(port, choice, progress, chronicles) for port in choice.variant.ports]
    read = _read(tx, choice, progress, [each for each in fed if isinstance(each, Feed)], chronicles)
    return Outlook(
        due=why_due(progress, chronicles),
        waits_until=progress.waits_until,
        variant=choice.variant.name,
        way=choice.way,
        reason=choice.reason,
        estimates=choice.estimates,
        reads=tuple(
            each if isinstance(each, Prospect) else _prospect(each)
            for port, each in zip(choice.variant.ports, fed, strict=True)
            if port.name in read
        ),
    )


def _fed(port: Port, choice: Choice, progress: Progress, chronicles: Mapping[str, Chronicle]) -> Feed | Prospect:
    """What a port is fed; if that cannot be read any more, what there is to say of it."""
    try:
        return feed_of(port, choice, progress, chronicles)
    except UnknownName as error:
        return Prospect(
            port=port.name,
            channel=port.channel,
            mode=port.mode,
            start=progress.cursor(port.channel),
            end=chronicles[port.channel].readable,
            how=error.problem,
            blocks=(),
            rows=0,
            bytes=0,
        )


def _read(
    tx: Transaction,
    choice: Choice,
    progress: Progress,
    fed: Sequence[Feed],
    chronicles: Mapping[str, Chronicle],
) -> set[str]:
    """The ports that are worth telling of: of a change of a view, not those that it has no need to look at."""
    ports, logic = choice.variant.ports, choice.variant.logic
    known = len(fed) == len(ports) and all(feed.reading.schema is not None for feed in fed)
    if not isinstance(logic, Query) or not known:
        return {port.name for port in ports}
    strong = bool(registry.followed(tx, progress.task.writes))
    spelled = spell(progress, choice, tuple(fed), chronicles, Sizes(), strong=strong)
    looked_up = {read.port for read in spelled[1].values()} if spelled is not None else set()
    return looked_up | {port.name for port in ports if port.mode.advances}


def _prospect(feed: Feed) -> Prospect:
    blocks = feed.reading.blocks
    return Prospect(
        port=feed.port.name,
        channel=feed.port.channel,
        mode=feed.port.mode,
        start=feed.start,
        end=feed.end,
        how=_how(feed.reading),
        blocks=blocks,
        rows=sum(block.statistics.rows for block in blocks),
        bytes=sum(block.statistics.bytes for block in blocks),
    )


def _how(reading: Reading) -> str:
    if not reading.blocks:
        return "nothing"
    match reading:
        case Snapshot():
            return "snapshot"
        case Chain(deltas=(_,)):
            return "delta"
        case Chain():
            return "chained deltas"
        case Strong():
            return "deltas, with what they replace"
        case Diff(old=old):
            return "difference of two snapshots" if old.blocks else "snapshot"
        case _:
            assert_never(reading)
