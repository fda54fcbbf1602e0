"""What a project tells of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kilonova.catalog import bindings, registry, servers
from kilonova.catalog import runs as records
from kilonova.catalog.consumption import Consumed
from kilonova.catalog.files import Watched
from kilonova.catalog.points import PointRecord
from kilonova.engine.log import entry_of
from kilonova.errors import KilonovaError
from kilonova.model.channel import Chronicle
from kilonova.model.file import File
from kilonova.model.firing import Firing
from kilonova.model.run import Run, RunState
from kilonova.model.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run did.

    Attributes:
        run: its number.
        made: what it made of each channel.
        aside: how many files it set aside.
        repeated: whether it did so earlier, and was found by the idempotency key of an ingest.
    """

    run: int
    made: tuple[records.Made, ...]
    aside: int = 0
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsReport:
    """What bindings did that were run one by one.

    Attributes:
        runs: what the runs did that were committed, in that order.
        failed: why others were not, by binding; `Busy` where another run has one of its tasks.
    """

    runs: tuple[RunReport, ...] = ()
    failed: Mapping[str, KilonovaError] = field(default_factory=dict)

    @property
    def made(self) -> tuple[records.Made, ...]:
        """What they made of each channel."""
        return tuple(made for report in self.runs for made in report.made)

    @property
    def error(self) -> KilonovaError | None:
        """What to raise where bindings have failed: the error of the one, or one that lists all of them."""
        if len(self.failed) < 2:
            return next((error.within(binding=name) for name, error in self.failed.items()), None)
        return BindingsFailed(self)


class BindingsFailed(KilonovaError):
    """Several bindings that were run one by one failed, or were busy; what others made is published.

    Args:
        report: what all of them did.

    Attributes:
        report: the same.
    """

    code = "bindings"

    def __init__(self, report: RunsReport) -> None:
        every = "; ".join(f"{name}: {error}" for name, error in report.failed.items())
        hint = f"{len(report.runs)} other runs were committed" if report.runs else None
        super().__init__(f"{len(report.failed)} bindings failed: {every}", hint=hint)
        self.report = report


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What became of watched directories.

    Attributes:
        runs: the runs that took files.
        unseen: the channels whose directories could not be looked at, or not everywhere, and why.
        settling: the channels with files that are not complete yet.
        aside: how many files of each channel were set aside.
    """

    runs: tuple[RunReport, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    settling: tuple[str, ...] = ()
    aside: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run among others.

    Attributes:
        run: the run.
        made: what it made of each channel.
    """

    run: Run
    made: tuple[records.Made, ...]

    @property
    def binding(self) -> str | None:
        """The binding that it runs."""
        return self.run.binding


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """A run, and all that the catalog knows of it.

    Attributes:
        run: the run.
        inputs: what its tasks read; nothing before it has succeeded.
        made: what it made of each channel.
        holdings: what it keeps from others while it goes on.
        firings: what it was started for.
        earlier: the number of the run before it.
        later: the number of the run after it.
    """

    run: Run
    inputs: tuple[Consumed, ...]
    made: tuple[records.Made, ...]
    holdings: records.Holdings
    firings: tuple[Firing, ...]
    earlier: int | None
    later: int | None

    @property
    def binding(self) -> str | None:
        """The binding that it runs."""
        return self.run.binding


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """A run, and its log."""

    run: Run
    text: str


def closing(run: Run) -> str:
    """What a run cannot say itself in its log, because others ended it: its process died, or it was cancelled."""
    match run.state:
        case RunState.ABANDONED if run.ended is not None:
            return entry_of(run.ended, "run", f"abandoned: {run.error}")
        case RunState.CANCELLED if run.ended is not None:
            return entry_of(run.ended, "run", str(run.error))
        case _:
            return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a task is behind on a channel.

    Attributes:
        task: the task.
        channel: the channel that it reads.
        cursor: the point up to which it has read.
        newest: the newest readable point.
    """

    task: str
    channel: str
    cursor: int
    newest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatus:
    """How a channel stands.

    Attributes:
        chronicle: its points and blocks.
        writers: the tasks that write it; none for a source.
    """

    chronicle: Chronicle
    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The points of a channel, newest first, and the oldest one whose rows can still be read; 0 if there is none."""

    points: tuple[PointRecord, ...]
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """How a task stands.

    Attributes:
        registered: the task, and how far it has read.
        due: why it has something to do; None if it has not.
        lags: how far it is behind on each channel that it reads.
        waits_until: until when its schedule holds it back; None if it does not.
    """

    registered: registry.Registered
    due: str | None
    lags: tuple[Lag, ...]
    waits_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How things stand.

    Attributes:
        channels: the channels by name.
        tasks: the tasks by name.
        due: the tasks that have something to do, and why.
        lags: how far tasks are behind.
        runs: the last runs, newest first.
        waits: the tasks that are held back by their schedules, and until when.
    """

    channels: Mapping[str, Chronicle]
    tasks: Mapping[str, registry.Registered]
    due: Mapping[str, str]
    lags: tuple[Lag, ...]
    runs: tuple[RunSummary, ...]
    waits: Mapping[str, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What runs by itself, and how that goes.

    Attributes:
        bindings: the bindings by name, with their triggers.
        firings: the last firings, newest first.
        servers: the servers, those that started last first.
    """

    bindings: Mapping[str, bindings.Bound]
    firings: tuple[Firing, ...]
    servers: tuple[servers.Server, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A channel that a task reads, and up to which point; None if that is not known."""

    channel: str
    point: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A channel that a run writes, and what it has published there; None for what it has not.

    Attributes:
        channel: the channel.
        point: the point.
        rows: rows in the block.
        bytes: its size.
    """

    channel: str
    point: int | None = None
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A task within a run; None for what an ingest does."""

    task: str | None
    read: tuple[Read, ...] = ()
    written: tuple[Written, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A run with what its tasks read and wrote, for those outside.

    Attributes:
        catalog: the identity of the catalog.
        run: the run.
        steps: its tasks.
        schemas: the schemas of the channels, as far as they are known.
    """

    catalog: str
    run: Run
    steps: tuple[Step, ...]
    schemas: Mapping[str, Schema]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbox:
    """The watched directory of a channel, and its files.

    Attributes:
        watched: the directory, and how looking at it goes; None if the channel takes no files any more.
        files: its files, those that wait for somebody first, then those that were modified last.
    """

    watched: Watched | None
    files: tuple[File, ...]
