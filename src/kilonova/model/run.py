"""A run is one execution that commits everything or nothing.

::

    RUNNING ── commit ──▶ SUCCEEDED
       │
       ├───── fail ─────▶ FAILED        the work raised; its files are removed
       ├──── cancel ────▶ CANCELLED     cancelled by a person; its process notices, and stops
       └──── expire ────▶ ABANDONED     its process sent no heartbeat; another process cleans up after it

Only RUNNING runs hold reserved points, pins and task claims.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kilonova.errors import BrokenInvariant
from kilonova.model.block import Block
from kilonova.model.progress import RunProgress
from kilonova.model.version import Version


class RunState(enum.Enum):
    """State of a run."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


class RunEvent(enum.Enum):
    """Event that changes the state of a run."""

    COMMIT = "commit"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"


class RunFailure(enum.Enum):
    """Kind of a run's failure, which determines what becomes of its firings.

    FINAL: they fail. TRANSIENT: they are queued again, up to a maximum of attempts. LOST: the run was lost with its
    server or machine, so that it is unknown whether it would have succeeded: they are queued again without counting as
    an attempt.
    """

    FINAL = "final"
    TRANSIENT = "transient"
    LOST = "lost"


class RunKind(enum.Enum):
    """Kind of work that a run does."""

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
    """Return the state after an event.

    Raises:
        BrokenInvariant: the event cannot happen in that state.
    """
    try:
        return _NEXT[state, event]
    except KeyError:
        raise BrokenInvariant(f"a run that {state.value} cannot {event.value}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """Record of what a task read through a port: the change from `start` to `end`, or the snapshot at `end`."""

    task: str
    port: str
    channel: str
    start: int
    end: int
    blocks: tuple[int, ...] = ()


class RefreshMethod(enum.Enum):
    """Method by which a task's output is brought up to date.

    INCREMENTAL computes the output's change from the inputs' changes; AFFECTED_GROUPS recomputes the groups of a
    view that the inputs' changes affect; FULL recomputes the whole relation from whole relations, as the variant is
    written; FROM_SOURCES does so for a view from the channels that its query names, not from the relations that it
    materializes; INITIAL runs an incremental variant once, from the empty relation, over all input; MIGRATION changes
    the output of an earlier logic version to that of the present one, over the same input (logic evolution, 2.6).
    """

    INCREMENTAL = "incremental"
    AFFECTED_GROUPS = "affected groups"
    FULL = "full"
    FROM_SOURCES = "from sources"
    INITIAL = "initial"
    MIGRATION = "migration"

    @property
    def renews(self) -> bool:
        """Return whether the whole previous output is replaced."""
        return self in (RefreshMethod.FULL, RefreshMethod.FROM_SOURCES, RefreshMethod.INITIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSize:
    """Size of the input of a task.

    Attributes:
        change: size of the changes since the cursors, in bytes of Parquet.
        whole: size of the current relations, in bytes of Parquet.
        moved: number of the relations that have changed.
    """

    change: int
    whole: int
    moved: int = 1


@dataclass(frozen=True, slots=True)
class CostSample:
    """Time that a task took in one run.

    Attributes:
        method: its refresh method.
        input_size: the size of its input.
        seconds: how long it took.
        written: the bytes that it wrote, 0 if nothing changed; None if unknown.
    """

    method: RefreshMethod
    input_size: InputSize
    seconds: float
    written: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """Output of a run at a point that it reserved: a block, or nothing (the point is cancelled).

    Attributes:
        channel: the channel written.
        point: the reserved point, or the compacted one.
        block: the block written; None if nothing changed.
        version: the version that the point reflects.
        task: the task that wrote it; None for ingests and compactions.
        reason: how it was computed and why so, for display.
        seconds: how long it took.
        method: the refresh method of the task; None for ingests and compactions.
        input_size: the size of the task's input.
        estimates: estimated seconds of each refresh method that was possible.
        merges: the numbers of the deltas that the block was merged from, if it is a delta that a compaction wrote.
    """

    channel: str
    point: int
    block: Block | None
    version: Version
    task: str | None
    reason: str
    seconds: float
    method: RefreshMethod | None = None
    input_size: InputSize | None = None
    estimates: Mapping[RefreshMethod, float] = field(default_factory=dict)
    merges: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as recorded in the catalog.

    Attributes:
        number: 1, 2, 3, … in the order in which runs began.
        kind: the kind of work that it does.
        state: its state.
        tasks: the tasks that it runs.
        owner: the process that runs it.
        started: time at which it began.
        ended: time at which it ended.
        lease_until: time at which its lease expires without a heartbeat, so that another process may take it over.
        error: the reason, if it did not succeed.
        binding: the binding that it runs; None if a person started it, or it runs none.
        progress: its progress, while it is running.
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
    progress: RunProgress | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """Outcome of a commit that succeeded: the run's results are visible."""


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    """Outcome of a commit that failed: another process took the run over; nothing was published."""


CommitResult = Committed | LeaseExpired
