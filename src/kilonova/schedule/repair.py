"""Decides how damaged channels are mended: purely, from what is lost and who writes what.

A block whose rows are lost goes where the newest point of its channel can be read without it: tasks that have yet to
read what it says begin anew then. Else, if what its channel's only task reads is whole, or will be, the channel is
recomputed; or somebody has to ingest its rows again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from kilonova.errors import UnknownName
from kilonova.model.channel import Chronicle
from kilonova.model.task import Task


class Way(StrEnum):
    """How a damaged channel is mended."""

    MEND = "mend what is beside its rows"
    DROP = "delete blocks that its newest point does not need"
    RECOMPUTE = "recompute it"
    INGEST = "ingest its rows again, with --replace"
    WAIT = "recompute it once what it is made of is whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """How a damaged channel is mended.

    Attributes:
        channel: the channel.
        way: how.
        task: the task that recomputes it; None for other ways.
        waits_for: the channels that must be whole before.
    """

    channel: str
    way: Way
    task: str | None = None
    waits_for: tuple[str, ...] = ()

    @property
    def is_automatic(self) -> bool:
        """Whether nobody has to bring anything for it."""
        return self.way not in (Way.INGEST, Way.WAIT)

    def __str__(self) -> str:
        return f"{self.way}: {', '.join(self.waits_for)}" if self.waits_for else str(self.way)


def remedies(
    lost: Mapping[str, Collection[int]],
    chronicles: Mapping[str, Chronicle],
    tasks: Iterable[Task],
) -> tuple[Remedy, ...]:
    """Decide how damaged channels are mended, those first that others are made of.

    Args:
        lost: the damaged channels, with the numbers of the blocks whose rows are lost.
        chronicles: these channels.
        tasks: the active tasks, in an order in which each comes after those whose output it reads, where there is one.
    """
    found: dict[str, Remedy] = {}
    broken: set[str] = set()
    for channel, numbers in lost.items():
        if not numbers:
            found[channel] = Remedy(channel=channel, way=Way.MEND)
        elif _is_needless(chronicles[channel], numbers):
            found[channel] = Remedy(channel=channel, way=Way.DROP)
        else:
            broken.add(channel)
    writers: dict[str, list[Task]] = {channel: [] for channel in broken}
    order = list(tasks)
    for task in order:
        for channel in task.writes:
            if channel in broken:
                writers[channel].append(task)
    sure = {channel for channel in broken if len(writers[channel]) == 1}
    sure -= {channel for channel in broken if chronicles[channel].channel.several_writers}
    for channel in sorted(broken - sure):
        found[channel] = Remedy(channel=channel, way=Way.INGEST)
    for task in order:
        absent = tuple(
            name
            for name in sorted(task.reads)
            if name in broken and name not in task.writes and found.get(name, _UNDECIDED).way is not Way.RECOMPUTE
        )
        for channel in task.writes:
            if channel in sure:
                way = Way.WAIT if absent else Way.RECOMPUTE
                found[channel] = Remedy(channel=channel, way=way, task=None if absent else task.name, waits_for=absent)
    return tuple(found.values())


_UNDECIDED = Remedy(channel="", way=Way.WAIT)


def _is_needless(chronicle: Chronicle, numbers: Collection[int]) -> bool:
    """Return whether the newest point of a channel can be read without some blocks."""
    rest = replace(chronicle, blocks=tuple(block for block in chronicle.blocks if block.number not in numbers))
    try:
        rest.snapshot(rest.readable)
    except UnknownName:
        return False
    return True
