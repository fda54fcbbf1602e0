"""A run is one execution that commits everything or nothing.

::

    RUNNING ── commit ──▶ SUCCEEDED
       │
       ├───── fail ─────▶ FAILED        the work raised; its files are removed
       ├──── cancel ────▶ CANCELLED     a person ended it; its process notices, and stops
       └──── expire ────▶ ABANDONED     its process went silent; whoever finds it cleans up after it

Only RUNNING runs hold reserved points, pins and task claims.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kilonova.errors import BrokenInvariant
from kilonova.model.block import Block
from kilonova.model.headway import Headway
from kilonova.model.version import Version


class RunState(enum.Enum):
    """Where a run stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


class RunEvent(enum.Enum):
    """What can happen to a run."""

    COMMIT = "commit"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"


class RunKind(enum.Enum):
    """What a run is for."""

    TASKS = "tasks"
    INGEST = "ingest"
    COMPACTION = "compaction"
    RECOVERY = "recovery"


_NEXT: Mapping[tuple[RunState, RunEvent], RunState] = {
    (RunState.RUNNING, RunEvent.COMMIT): RunState.SUCCEEDED,
    (RunState.RUNNING, RunEvent.FAIL): RunState.FAILED,
    (RunState.RUNNING, RunEvent.CANCEL): RunState.CANCELLED,
    (RunState.RUNNING, RunEvent.EXPIRE): RunState.ABANDONED,
}


def next_state(state: RunState, event: RunEvent) -> RunState:
    """The state after an event.

    Raises:
        BrokenInvariant: the event cannot happen in that state.
    """
    try:
        return _NEXT[state, event]
    except KeyError:
        raise BrokenInvariant(f"a run that {state.value} cannot {event.value}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What a task read through a port: the change from `start` to `end`, or the snapshot at `end`."""

    task: str
    port: str
    channel: str
    start: int
    end: int
    blocks: tuple[int, ...] = ()


class Way(enum.Enum):
    """How a task is done.

    INCREMENTAL turns news into news; PARTITIONWISE makes those groups of a view anew that the news touch; WHOLE makes
    the whole relation of whole relations, as the variant is written; FRESH runs an incremental variant once, from
    nothing, over everything.
    """

    INCREMENTAL = "incremental"
    PARTITIONWISE = "partition-wise"
    WHOLE = "whole"
    FRESH = "fresh"

    @property
    def renews(self) -> bool:
        """Whether nothing is left of what was there before."""
        return self in (Way.WHOLE, Way.FRESH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much there is to read for a task.

    Attributes:
        change: what has changed since the cursors, in bytes of Parquet.
        whole: the relations as they are now, in bytes of Parquet.
        moved: how many of the relations have changed.
    """

    change: int
    whole: int
    moved: int = 1


@dataclass(frozen=True, slots=True)
class Taken:
    """What a task took in one run."""

    way: Way
    extent: Extent
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a run makes of a point that it reserved: a block, or nothing (the point is cancelled).

    Attributes:
        channel: the channel written.
        point: the reserved point, or the compacted one.
        block: the block written; None if nothing changed.
        version: what the point reflects.
        task: the task that wrote it; None for ingests and compactions.
        reason: how it was made and why so, for people.
        seconds: how long it took.
        way: how the task was done; None for ingests and compactions.
        extent: how much there was to read for it.
        estimates: what the ways in which it could be done were estimated to take, in seconds.
        merges: the numbers of the deltas that the block is put together of, if it is a delta that a compaction wrote.
    """

    channel: str
    point: int
    block: Block | None
    version: Version
    task: str | None
    reason: str
    seconds: float
    way: Way | None = None
    extent: Extent | None = None
    estimates: Mapping[Way, float] = field(default_factory=dict)
    merges: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as the catalog keeps it.

    Attributes:
        number: 1, 2, 3, … in the order in which runs began.
        kind: what it is for.
        state: where it stands.
        tasks: the tasks that it runs.
        owner: the process that runs it.
        started: when it began.
        ended: when it ended.
        lease_until: until when it is safe from being taken over without a heartbeat.
        error: what happened, if it did not succeed.
        binding: the binding that it runs; None if a person started it, or it runs none.
        progress: how far it has come, while it goes on.
    """

    number: int
    kind: RunKind
    state: RunState
    tasks: tuple[str, ...]
    owner: str
    started: datetime
    ended: datetime | None
    lease_until: datetime
    error: str | None
    binding: str | None = None
    progress: Headway | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The run's results are visible."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Another process took the run over; nothing was published."""


CommitResult = Committed | Expired
