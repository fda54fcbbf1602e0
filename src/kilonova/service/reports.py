"""Reports and status of a project, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kilonova.catalog import registry, run_records
from kilonova.catalog.bound_status import BoundStatus
from kilonova.catalog.database import Catalog
from kilonova.catalog.deferred import DeferredWorkflow
from kilonova.catalog.files import DirectoryState
from kilonova.catalog.read_models.point_history import PointRecord
from kilonova.catalog.read_models.run_inputs import PortRead
from kilonova.engine.run_log import format_entry
from kilonova.errors import KilonovaError
from kilonova.model.channel import ChannelState
from kilonova.model.firing import Firing
from kilonova.model.malformed_lines import MalformedLines
from kilonova.model.run import Run, RunState
from kilonova.model.schema import Schema
from kilonova.model.watched_file import WatchedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Report of a run.

    Attributes:
        run: its number.
        made: its output to each channel.
        quarantined: number of files that it quarantined.
        malformed: number of lines of its files that did not fit, which the reader option `mode` allowed.
        repeated: whether it is an earlier run, found by the idempotency key of an ingest.
    """

    run: int
    made: tuple[run_records.OutputRecord, ...]
    quarantined: int = 0
    malformed: int = 0
    repeated: bool = False


def run_report(
    catalog: Catalog,
    run: int,
    *,
    quarantined: int = 0,
    malformed: MalformedLines | None = None,
    repeated: bool = False,
) -> RunReport:
    """Return the report of a committed run."""
    with catalog.reading() as tx:
        return RunReport(
            run=run,
            made=tuple(run_records.outputs(tx, [run])),
            quarantined=quarantined,
            malformed=0 if malformed is None else malformed.count,
            repeated=repeated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsReport:
    """Report of bindings that were run one by one.

    Attributes:
        runs: the reports of the committed runs, by number.
        failed: the errors of the others, by binding; `Conflict` if another run has one of its tasks.
    """

    runs: tuple[RunReport, ...] = ()
    failed: Mapping[str, KilonovaError] = field(default_factory=dict)

    @property
    def made(self) -> tuple[run_records.OutputRecord, ...]:
        """Outputs of the runs to each channel."""
        return tuple(made for report in self.runs for made in report.made)

    @property
    def error(self) -> KilonovaError | None:
        """Error to raise if bindings have failed: the error of the only one, or one that lists all of them."""
        if len(self.failed) < 2:
            return next((error.with_context(binding=name) for name, error in self.failed.items()), None)
        return BindingsFailed(self)


class BindingsFailed(KilonovaError):
    """Failure or conflict of several bindings that were run one by one; the results of the others are published.

    Args:
        report: the report of all bindings.

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
class DirectoryIngestReport:
    """Report of ingesting watched directories.

    Attributes:
        runs: the runs that ingested files.
        unseen: the channels whose directories could not be scanned, or only in part, and why.
        settling: the channels with files that are not complete yet.
        quarantined: number of files of each channel that were quarantined.
    """

    runs: tuple[RunReport, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    settling: tuple[str, ...] = ()
    quarantined: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Run with its output to each channel."""

    run: Run
    made: tuple[run_records.OutputRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """Details of a run from the catalog.

    Attributes:
        run: the run.
        inputs: the reads of its tasks; empty until it has succeeded.
        made: its output to each channel.
        holdings: the reservations, pins and claims that it holds while it is running.
        firings: the firings for which it was started.
        earlier: the number of the run before it.
        later: the number of the run after it.
        succeeded_since: if it has not succeeded, the later runs in which its tasks succeeded first; empty unless all
            of them did.
    """

    run: Run
    inputs: tuple[PortRead, ...]
    made: tuple[run_records.OutputRecord, ...]
    holdings: run_records.RunHoldings
    firings: tuple[Firing, ...]
    earlier: int | None
    later: int | None
    succeeded_since: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """Run with its log."""

    run: Run
    text: str


def closing(run: Run) -> str:
    """Return the last log entry of a run ended by others: its process died, or it was cancelled; else nothing."""
    match run.state:
        case RunState.ABANDONED if run.ended is not None:
            return format_entry(run.ended, "run", f"abandoned: {run.error}")
        case RunState.CANCELLED if run.ended is not None:
            return format_entry(run.ended, "run", str(run.error))
        case _:
            return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Lag of a live logic version of a task: the points up to which it has read a channel, and could read it.

    Of points that are equal because those after the first were cancelled, it is the first.
    """

    task: str
    logic: int
    channel: str
    cursor: int
    newest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatus:
    """Points and blocks of a channel, and the tasks that write it; none for a source."""

    state: ChannelState
    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHistory:
    """Points of a channel, newest first, and the oldest one whose rows can still be read; 0 if there is none."""

    points: tuple[PointRecord, ...]
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """Status of a task.

    Attributes:
        registered: the task at its newest live logic version, and its cursors.
        due: why it is due; None if it is not.
        lags: the lag of each live logic version on each channel that it reads, the newest version first.
        waits_until: the time until which its schedule delays it; None if it does not.
        alert: what it waits for, or stops before, because columns that it requires are missing; None if none is.
        deferred_until: the time at which a deferred definition of it takes effect; None if there is none.
    """

    registered: registry.TaskVersion
    due: str | None
    lags: tuple[Lag, ...]
    waits_until: datetime | None
    alert: str | None
    deferred_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Status of a project.

    Attributes:
        channels: the channels by name.
        tasks: the tasks by name, at their newest live logic versions.
        due: the tasks that are due, and why.
        lags: the lags of tasks, of each live logic version.
        runs: the last runs, newest first.
        waits: the tasks that are delayed by their schedules, and until when.
        alerts: what tasks wait for, or stop before, because columns that they require are missing; by task.
        deferred: the workflows whose changes take effect later.
        bounds: the status of the bounds.
    """

    channels: Mapping[str, ChannelState]
    tasks: Mapping[str, registry.TaskVersion]
    due: Mapping[str, str]
    lags: tuple[Lag, ...]
    runs: tuple[RunSummary, ...]
    waits: Mapping[str, datetime]
    alerts: Mapping[str, str] = field(default_factory=dict)
    deferred: tuple[DeferredWorkflow, ...] = ()
    bounds: tuple[BoundStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAccess:
    """Access of a run to a channel that it reads or writes; None for what is not known, or not published.

    Attributes:
        channel: the channel.
        point: the point up to which it reads, or that it writes.
        rows: rows in the block that it writes.
        bytes: the size of this block.
    """

    channel: str
    point: int | None = None
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Task of a run; None for an ingest."""

    task: str | None
    read: tuple[ChannelAccess, ...] = ()
    written: tuple[ChannelAccess, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLineage:
    """Run of a catalog with what its tasks read and wrote, and the schemas of these channels, as far as known."""

    catalog: str
    run: Run
    steps: tuple[Step, ...]
    schemas: Mapping[str, Schema]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryStatus:
    """Status of the watched directory of a channel, and its files.

    Attributes:
        watched: the directory, and the state of its scans; None if the channel no longer has a watched directory.
        files: its files, those that need a user's action first, then those that were modified last.
    """

    watched: DirectoryState | None
    files: tuple[WatchedFile, ...]
