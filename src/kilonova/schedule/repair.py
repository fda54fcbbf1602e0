"""Pure decision of how to repair damaged channels, from the lost blocks and the writers of channels.

A block whose rows are lost is deleted if the newest point of its channel can be read without it: tasks that have not
read it yet start from scratch then. Else, if the inputs of its channel's only task are intact, or will be, the channel
is recomputed; otherwise its rows must be ingested again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from kilonova.errors import NotFound
from kilonova.model.channel import ChannelState
from kilonova.model.task import Task


class RepairMethod(StrEnum):
    """Method of repairing a damaged channel."""

    MEND = "repair its metadata"
    DROP = "delete blocks that its newest point does not need"
    RECOMPUTE = "recompute it"
    INGEST = "ingest its rows again, with --replace"
    WAIT = "recompute it once its inputs are repaired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Repair of a damaged channel.

    Attributes:
        channel: the channel.
        method: the method.
        task: the task that recomputes it; None for other methods.
        waits_for: the channels that must be repaired before.
    """

    channel: str
    method: RepairMethod
    task: str | None = None
    waits_for: tuple[str, ...] = ()

    @property
    def is_automatic(self) -> bool:
        """Return whether the repair needs no user action."""
        return self.method not in (RepairMethod.INGEST, RepairMethod.WAIT)

    def __str__(self) -> str:
        return f"{self.method}: {', '.join(self.waits_for)}" if self.waits_for else str(self.method)


def remedies(
    lost: Mapping[str, Collection[int]],
    states: Mapping[str, ChannelState],
    tasks: Iterable[Task],
) -> tuple[Remedy, ...]:
    """Decide how to repair damaged channels, inputs before the channels derived from them.

    Args:
        lost: the damaged channels, with the numbers of the blocks whose rows are lost.
        states: these channels.
        tasks: the active tasks, in topological order where there is one: each after those whose output it reads.
    """
    found: dict[str, Remedy] = {}
    broken: set[str] = set()
    for channel, numbers in lost.items():
        if not numbers:
            found[channel] = Remedy(channel=channel, method=RepairMethod.MEND)
        elif _is_needless(states[channel], numbers):
            found[channel] = Remedy(channel=channel, method=RepairMethod.DROP)
        else:
            broken.add(channel)
    order = list(tasks)
    writers = Counter(channel for task in order for channel in task.writes)
    for channel in sorted(broken):
        if writers[channel] != 1 or states[channel].channel.several_writers:
            found[channel] = Remedy(channel=channel, method=RepairMethod.INGEST)
    for task in order:
        inputs = sorted(broken.intersection(task.reads).difference(task.writes))
        absent = tuple(name for name in inputs if name not in found or found[name].method is not RepairMethod.RECOMPUTE)
        for channel in task.writes:
            if channel not in broken or channel in found:
                continue
            if absent:
                found[channel] = Remedy(channel=channel, method=RepairMethod.WAIT, waits_for=absent)
            else:
                found[channel] = Remedy(channel=channel, method=RepairMethod.RECOMPUTE, task=task.name)
    return tuple(found.values())


def _is_needless(state: ChannelState, numbers: Collection[int]) -> bool:
    """Return whether the newest point of a channel can be read without some blocks."""
    rest = replace(state, blocks=tuple(block for block in state.blocks if block.number not in numbers))
    try:
        rest.snapshot(rest.latest_readable)
    except NotFound:
        return False
    return True
