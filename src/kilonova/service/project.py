"""Project: one catalog and one warehouse, with all operations on them.

Methods that need Spark start a session when first called, and `close` ends it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kilonova.catalog import bindings, channel_store, files, ingest_keys, registry
from kilonova.catalog import runs as records
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.planner_input import load_planner_input
from kilonova.engine.run_events import Listener, RunNotification, RunStarted, no_listener
from kilonova.errors import (
    BlockDamaged,
    Cancelled,
    CatalogFull,
    Conflict,
    DeclarationError,
    InvalidState,
    KilonovaError,
    NotFound,
    SettingsError,
    SparkUnavailable,
)
from kilonova.model.idempotency import IdempotencyKey, digest_of
from kilonova.model.read_plan import ReadPlan, SnapshotRead
from kilonova.model.run import RunState
from kilonova.model.task import Production
from kilonova.model.watched_file import FileState
from kilonova.schedule.garbage import Provenance
from kilonova.schedule.layout import LayoutThresholds
from kilonova.schedule.planning import due_tasks
from kilonova.schedule.repair import RepairMethod
from kilonova.service import workflow_plan
from kilonova.service.commands import ProjectOperator
from kilonova.service.pins import Pins
from kilonova.service.reports import DirectoryIngestReport, RunLog, RunReport, RunsReport, closing
from kilonova.service.settings import FILE, Settings, catalog_url, load_settings, warehouse_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kilonova.catalog.files import ScanResult
    from kilonova.catalog.firings import Claim
    from kilonova.declare.workflow import Declared, Workflow
    from kilonova.engine.garbage import GCReport
    from kilonova.engine.interfaces import BlockStore
    from kilonova.engine.run_order import RunOrder
    from kilonova.engine.run_protocol import RunEnvironment
    from kilonova.engine.run_request import RunRequest
    from kilonova.engine.shared_steps import SharedSteps
    from kilonova.model.block import External
    from kilonova.model.channel import Channel, ChannelState
    from kilonova.service.fsck import FsckReport
    from kilonova.service.recovery import Recovery
    from kilonova.warehouse.file_readers import FileSet
    from kilonova.warehouse.storage import Storage
    from kilonova.warehouse.warehouse import Warehouse


_SOON = timedelta(minutes=1)
"""Maximum time for which a user's command waits for files to be complete."""

_VERIFYING = 5.0
"""Seconds that a server spends on verifying blocks each time it collects garbage."""

_PINNED = 600.0
"""Minimum retention in seconds of blocks that a process was reading when it died."""


class Project(ProjectOperator):
    """Project of a catalog and a warehouse.

    Args:
        settings: the settings.
        directory: the directory to which relative paths refer.
        listener: receives the notifications of runs.
        session: the Spark session to use; without it, one is started when needed.
    """

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        *,
        listener: Listener = no_listener,
        session: SparkSession | None = None,
    ) -> None:
        self.settings = settings
        self.directory = directory
        self.listener = listener
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
        super().__init__(Catalog(catalog_url(settings, directory)))
        self._spark = session
        self._opened = False
        self._warehouse: Warehouse | None = None
        self._verified: Storage | None = None
        self._lock = threading.Lock()
        self._pins = Pins(self.catalog, timedelta(seconds=max(_PINNED, settings.run_lease)))

    def __enter__(self) -> Project:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the Spark session, if this project started it, and release the catalog and all pins."""
        self._pins.close()
        if self._opened and self._spark is not None:
            self._spark.stop()
        self._spark, self._warehouse, self._opened = None, None, False
        self.catalog.close()

    def prepare_next_start(self) -> None:
        """Create the class data archive that speeds up the next start of Spark, if a session was started here.

        It is created once per machine and release, by a background process of its own.
        """
        from kilonova.jvm.cds_archive import make_in_background

        if self._opened and self.settings.spark.class_data_archive and self.settings.spark.remote is None:
            make_in_background()

    # Registering

    def create(self) -> None:
        """Create the catalog and the warehouse, or upgrade an older catalog to this release.

        Raises:
            CatalogError: the catalog was created by a newer release, or cannot be reached; or the warehouse belongs to
                another catalog.
        """
        from kilonova.service.ownership import check_owner
        from kilonova.warehouse.storage import Storage

        storage = Storage(warehouse_url(self.settings, self.directory))
        if self.catalog.revision() is None:
            check_owner(storage)
        self.catalog.create()
        storage.create()
        self._storage(self.catalog)

    def recover(self, progress: Callable[[int, int], None] = lambda done, total: None) -> Recovery:
        """Recover the catalog, a new one if there is none, from the blocks of its warehouse.

        Nothing in the warehouse is changed or deleted except its recorded owner. Tasks start from scratch at their next
        run; in a new catalog, they exist once their workflows are applied.

        Args:
            progress: called with the number of blocks inspected, and the number of all.

        Returns:
            The recovered channels and blocks, and those that were not recovered, with the reasons.

        Raises:
            Conflict: a run is in progress.
            CatalogError: the catalog has blocks of another warehouse, or the owner of the blocks is ambiguous.
            StorageFailed: the warehouse cannot be read, or written.
        """
        from kilonova.service.recovery import recover
        from kilonova.warehouse.storage import Storage

        self.catalog.create()
        storage = Storage(warehouse_url(self.settings, self.directory))
        storage.create()
        done = recover(self.catalog, storage, progress)
        self._verified = None
        return done

    def declared(self, workflows: Iterable[Workflow]) -> tuple[Declared, ...]:
        """Return workflows as values: each may read registered channels, and those that earlier workflows declare.

        Raises:
            DeclarationError: a workflow is invalid.
        """
        found: list[Declared] = []
        for workflow in workflows:
            with self.catalog.reading() as tx:
                others = {channel.name: channel for channel in workflow_plan.others(tx, workflow.name)}
            others |= {channel.name: channel for earlier in found for channel in earlier.workflow.channels}
            found.append(workflow.declared(others.values()))
        return tuple(found)

    def plan(self, workflow: Workflow | Declared) -> workflow_plan.WorkflowPlan:
        """Return the changes that registering a workflow would make.

        Spark is started to analyse views that are new or changed.

        Raises:
            DeclarationError: the workflow is invalid, or conflicts with what is registered.
            QueryError: Spark rejects the query of a view.
        """
        return self.plan_all([workflow])[0]

    def plan_all(self, workflows: Iterable[Workflow | Declared]) -> tuple[workflow_plan.WorkflowPlan, ...]:
        """Return the changes that registering workflows would make; each may read what earlier ones declare.

        Raises:
            DeclarationError: a workflow is invalid, or conflicts with what is registered.
            QueryError: Spark rejects the query of a view.
        """
        declared = self._declared(workflows)
        if not declared:
            return ()
        plans, known = self._rehearse(declared)
        return tuple(
            workflow_plan.unseen_definitions(plan, self._analyse(each, plan, known))
            for each, plan in zip(declared, plans, strict=True)
        )

    def _rehearse(
        self, declared: Iterable[Declared]
    ) -> tuple[list[workflow_plan.WorkflowPlan], Mapping[str, ChannelState]]:
        """Plan the registration of workflows one after another, without committing it.

        Returns:
            A plan for each, and the channels that the last plan is based on.
        """
        *earlier, last = declared
        with self.catalog.rehearsing() if earlier else self.catalog.reading() as tx:
            plans = []
            for each in earlier:
                plans.append(workflow_plan.plan_changes(tx, each.workflow, each.functions))
                workflow_plan.apply_plan(tx, plans[-1])
            plans.append(workflow_plan.plan_changes(tx, last.workflow, last.functions))
            return plans, channel_store.channel_states(tx)

    def _analyse(
        self, declared: Declared, plan: workflow_plan.WorkflowPlan, known: Mapping[str, ChannelState]
    ) -> Mapping[str, str]:
        """Analyse new and changed views with Spark.

        Args:
            declared: the workflow.
            plan: the plan of registering it.
            known: the channels that exist by then.

        Returns:
            Notes on some views, by the names of their tasks.

        Raises:
            QueryError: Spark rejects a view.
        """
        from kilonova.engine.view_analysis import analyse_views, is_view

        anew = {item.task.name for item in plan.tasks if item.anew and is_view(item.task)}
        if not anew or not self.settings.spark.analyse:
            return {}
        channels = {name: each.channel for name, each in known.items()}
        channels |= {channel.name: channel for channel in declared.workflow.channels}
        complete = {name: schema for name, each in known.items() if (schema := each.stored_schema) is not None}
        told = {name: channel.schema for name, channel in channels.items() if channel.schema is not None}
        try:
            warehouse = self.warehouse
        except SparkUnavailable as error:
            return dict.fromkeys(anew, f"not analysed: {error.problem}")
        problems = analyse_views(warehouse, declared.workflow.order(), channels, complete | told, anew)
        return {name: f"fully recomputed in each run: {problem}" for name, problem in problems.items()}

    def _declared(self, workflows: Iterable[Workflow | Declared]) -> tuple[Declared, ...]:
        from kilonova.declare.workflow import Declared

        given = list(workflows)
        values = tuple(each for each in given if isinstance(each, Declared))
        return (
            values
            if len(values) == len(given)
            else self.declared(each for each in given if not isinstance(each, Declared))
        )

    def apply(self, workflow: Workflow | Declared) -> workflow_plan.WorkflowPlan:
        """Register a workflow; tasks whose definition changed get a new logic version.

        Added checks are first run on existing rows that are retained.

        Returns:
            The changes.

        Raises:
            DeclarationError: the workflow is invalid, or conflicts with what is registered; nothing has changed.
            QueryError: Spark rejects the query of a view; nothing has changed.
            CheckFailed: existing rows violate an added check; nothing has changed.
            Conflict: a run is writing to a channel to which a check is added.
        """
        return self.apply_all([workflow])[0]

    def apply_all(self, workflows: Iterable[Workflow | Declared]) -> tuple[workflow_plan.WorkflowPlan, ...]:
        """Register workflows as `apply` does, all or none; each may read what earlier ones declare.

        Raises:
            KilonovaError: any error that `apply` raises; nothing has changed.
        """
        declared = self._declared(workflows)
        if not declared:
            return ()
        plans, known = self._rehearse(declared)
        notes = [self._analyse(each, plan, known) for each, plan in zip(declared, plans, strict=True)]
        seen = {item.channel.name: self._verify(item) for plan in plans for item in plan.channels if item.unseen}
        done = []
        with self.catalog.writing() as tx:
            for each in declared:
                plan = workflow_plan.plan_changes(tx, each.workflow, each.functions)
                workflow_plan.check_all_seen(tx, plan, seen)
                workflow_plan.apply_plan(tx, plan)
                done.append(plan)
        return tuple(workflow_plan.unseen_definitions(plan, said) for plan, said in zip(done, notes, strict=True))

    def _verify(self, change: workflow_plan.ChannelChange) -> int:
        """Run the checks added to a channel on its existing rows.

        Returns:
            The point that was checked.
        """
        name = change.channel.name
        with self.catalog.reading() as tx:
            if not channel_store.channel_state(tx, name).latest_distinct:
                return 0
        with self._reading(name, None, None) as reading:
            assert isinstance(reading, SnapshotRead)
            try:
                self.warehouse.verify(replace(reading, schema=change.channel.schema or reading.schema), change.unseen)
            except KilonovaError as error:
                raise error.with_context(channel=name) from error.__cause__
            return reading.at

    def drop(self, channel: str) -> tuple[str, ...]:
        """Drop a channel with its data, and the task that writes it.

        Returns:
            The tasks that were dropped with it.

        Raises:
            NotFound: there is no such channel.
            DeclarationError: a task reads the channel, or its writer writes others too.
            Conflict: a run is writing it.
        """
        from kilonova.engine.run_recovery import delete_doomed_blocks

        self.recover_expired_runs()
        with self.catalog.writing() as tx:
            state = channel_store.channel_state(tx, channel)
            tasks = registry.tasks(tx)
            readers = [n for n, known in tasks.items() if channel in known.task.reads]
            if readers:
                raise DeclarationError(
                    f"the channel is read by {', '.join(readers)}", channel=channel, hint="Drop those first"
                )
            if state.latest_readable < state.latest:
                raise Conflict("a run is writing the channel", channel=channel, hint="Wait until it has ended")
            writers = [known.task for known in tasks.values() if channel in known.task.writes]
            for task in writers:
                if len(task.writes) > 1:
                    raise DeclarationError(
                        "its task writes other channels too",
                        channel=channel,
                        task=task.name,
                        hint="Apply the workflow without that task first",
                    )
                registry.drop_task(tx, task.name)
            channel_store.drop_channel(tx, channel)
            bindings.forget(tx, channel)
        delete_doomed_blocks(self.catalog, self._files())
        return tuple(task.name for task in writers)

    # Running

    def ingest(
        self,
        channel: str,
        source: str | Path | DataFrame,
        *,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        replace: bool = False,
        in_place: bool = False,
        idempotency_key: str | None = None,
        content_digest: str | None = None,
    ) -> RunReport:
        """Insert a block into a source channel.

        Args:
            channel: the channel.
            source: a file, a directory, a URL, or a DataFrame.
            format: `parquet`, `csv`, `json` or any format that Spark reads; inferred from the names if None.
            options: options for Spark's reader.
            replace: whether the rows are the whole relation rather than new input.
            in_place: whether the files become the block at their present location, and are read there until a
                compaction writes their rows into the warehouse; Parquet, ORC, CSV or JSON. Kilonova never changes or
                deletes them; others must not either.
            idempotency_key: key of this ingest: a repeated ingest with the same key is not executed, and returns the
                first report, marked as repeated.
            content_digest: digest of the bytes of the files, by which a repeated ingest is recognized instead of by
                their names and sizes.

        Raises:
            NotFound: there is no such channel.
            DeclarationError: a task writes the channel.
            SchemaMismatch: the rows do not fit the channel's schema.
            KeyViolation: keys are null or occur twice.
            CheckFailed: rows violate a check of the channel.
            InputError: a file cannot be read.
            KeyReused: the idempotency key belongs to an ingest of something else.
            Conflict: the ingest of the idempotency key is running.
        """
        from kilonova.engine.ingest import IngestSource, ingest
        from kilonova.warehouse.file_readers import external_files, find_files, read

        production = Production.BASE if replace else Production.DELTA
        with self.catalog.reading() as tx:
            channel_store.channel_id(tx, channel)
        asked: dict[str, object]
        if isinstance(source, str | Path):
            files = find_files(str(source), format, options or {})
            asked = _request_for(files, production, in_place, content_digest)

            def rows(known: Channel) -> DataFrame | External:
                if in_place:
                    return external_files(files, known, production)
                return read(self.warehouse.spark, files, known, production)

            ingest_source = IngestSource(
                rows=rows,
                production=production,
                bytes=files.bytes,
                description=str(source),
            )
        else:
            if in_place:
                raise DeclarationError(
                    "a DataFrame cannot be registered in place", channel=channel, hint="Name files to register in place"
                )
            frame = source
            asked = {"production": production.value, "in_place": in_place}
            if idempotency_key is not None:
                asked["columns"] = self.warehouse.schema_of(frame).ddl
            ingest_source = IngestSource(
                rows=lambda _: frame, production=production, bytes=None, description="a DataFrame"
            )
        key = None if idempotency_key is None else IdempotencyKey(idempotency_key, digest_of(asked))
        if key is not None and (earlier := self._ingested(channel, key)) is not None:
            return earlier
        done = ingest(self._environment(), self.warehouse, channel, ingest_source, key)
        return self._report(done.run, repeated=done.repeated)

    def completed_ingest(
        self,
        channel: str,
        source: str | Path,
        *,
        idempotency_key: str,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        replace: bool = False,
        content_digest: str | None = None,
    ) -> RunReport | None:
        """Return the report of an ingest of files that was executed earlier, without Spark; None if there is none.

        Args:
            channel: the channel.
            source: as given to `ingest`, like the other arguments.
            idempotency_key: the key of the ingest.
            format: see `ingest`.
            options: see `ingest`.
            replace: see `ingest`.
            content_digest: see `ingest`.

        Raises:
            NotFound: there is no such channel.
            InputError: a file cannot be read.
            KeyReused: the key belongs to an ingest of something else.
            Conflict: the ingest is running.
        """
        from kilonova.warehouse.file_readers import find_files

        production = Production.BASE if replace else Production.DELTA
        asked = _request_for(find_files(str(source), format, options or {}), production, False, content_digest)
        return self._ingested(channel, IdempotencyKey(idempotency_key, digest_of(asked)))

    def _ingested(self, channel: str, key: IdempotencyKey) -> RunReport | None:
        """Return the report of the ingest of an idempotency key, without Spark; None if it has not been executed.

        Raises:
            KeyReused: the key belongs to an ingest of something else.
            Conflict: the ingest is running.
        """
        self.recover_expired_runs()
        with self.catalog.reading() as tx:
            run = ingest_keys.finished(tx, channel, key)
        return None if run is None else self._report(run, repeated=True)

    def scan_directory(self, channel: str, *, early: bool = False) -> ScanResult | None:
        """Scan the watched directory of a channel, without ingesting files.

        Args:
            channel: the channel.
            early: whether to scan before the next scan is due, or while another process is scanning.

        Returns:
            The result of the scan; None if there is nothing to scan now.

        Raises:
            NotFound: there is no such channel.
        """
        from kilonova.engine.directory_scan import scan_directory

        return scan_directory(
            self.catalog, self.directory, channel, timedelta(seconds=self.settings.run_lease), early=early
        )

    def ingest_ready_files(self, channel: str, *, seconds: float = float("inf")) -> tuple[RunReport, ...]:
        """Ingest the files of a watched directory that are ready, as one or more blocks.

        Args:
            channel: the channel.
            seconds: the time in seconds after which no further block is begun.

        Returns:
            The reports of the runs.

        Raises:
            NotFound: there is no such channel.
            KilonovaError: Spark, the warehouse or the directory failed; the files stay ready.
        """
        from kilonova.engine.directory_ingest import BatchLimits, ingest_ready_files

        with self.catalog.reading() as tx:
            if not files.ready_files(tx, channel, 1):
                return ()
        section = self.settings.scan
        most = BatchLimits(section.max_files, section.max_bytes)
        runs = ingest_ready_files(self._environment(), self.warehouse, self.directory, channel, most)
        end = time.monotonic() + seconds
        reports = []
        for run, results in runs:
            aside = sum(each.state is FileState.QUARANTINED for each in results.file_outcomes)
            reports.append(self._report(run, aside=aside))
            if time.monotonic() > end:
                break
        return tuple(reports)

    def ingest_directories(self, channels: Iterable[str] | None = None, *, early: bool = True) -> DirectoryIngestReport:
        """Scan watched directories, and ingest the files that are ready.

        Args:
            channels: the channels; None for all that are watched.
            early: whether to scan before the next scan is due, and to wait once for files that will soon be complete.

        Returns:
            The report.

        Raises:
            NotFound: there is no such channel.
            DeclarationError: a named channel has no watched directory.
            KilonovaError: Spark or the warehouse failed; the files stay ready.
        """
        with self.catalog.reading() as tx:
            for name in channels or ():
                if not files.watched_directories(tx, name):
                    raise DeclarationError(
                        "the channel has no watched directory",
                        channel=name,
                        hint="Declare it with watch=kilonova.watched_directory(…)",
                    )
            names = tuple(channels or (each.channel for each in files.watched_directories(tx)))
        looked = {name: self.scan_directory(name, early=early) for name in names}
        soon = self.catalog.clock() + _SOON
        waiting = {name: each.settles for name, each in looked.items() if each and each.settles and each.settles < soon}
        if early and waiting:
            time.sleep(max(0.0, (max(waiting.values()) - self.catalog.clock()).total_seconds()))
            looked |= {name: self.scan_directory(name, early=True) for name in waiting}
        done = {name: self.ingest_ready_files(name) for name in names}
        aside = {name: sum(report.aside for report in reports) for name, reports in done.items()}
        found = {name: each for name, each in looked.items() if each is not None}
        return DirectoryIngestReport(
            runs=tuple(report for reports in done.values() for report in reports),
            unseen={name: each.error for name, each in found.items() if each.error is not None},
            settling=tuple(name for name, each in found.items() if each.settles is not None),
            aside={name: count for name, count in aside.items() if count},
        )

    def run(self, tasks: Iterable[str] | None = None, *, all_or_nothing: bool = False) -> RunsReport | None:
        """Run the tasks that are due, or the named ones: those of each binding as one run.

        A binding that reads what another writes runs after it, others run in parallel. The failure of one does not stop
        the others.

        Args:
            tasks: the tasks to run, whether due or not and whatever their schedules, each view with the relations that
                are maintained for it, or bindings, for their tasks; None for all tasks that are due.
            all_or_nothing: whether all of them are one run, which publishes everything or nothing.

        Returns:
            The report; None if there was nothing to do.

        Raises:
            NotFound: there is no such task.
            Conflict: another run has one of the tasks.
            TaskFailed: a task's code raised or returned an invalid result.
            SchemaMismatch: its rows do not fit their channel.
            KeyViolation: its keys are null or occur twice.
            CheckFailed: its rows violate a check of their channel.
            BindingsFailed: several bindings failed; the output of the others is published, and the report is attached.
        """
        done = self.run_each(tasks) if not all_or_nothing else self._run_as_one(tasks)
        if done.error is not None:
            raise done.error
        return done if done.runs else None

    def run_each(self, tasks: Iterable[str] | None = None, *, but: Collection[str] = ()) -> RunsReport:
        """Run tasks as `run` does, but report the failures of bindings instead of raising them.

        Args:
            tasks: the tasks or bindings to run; None for all tasks that are due.
            but: the bindings to exclude.

        Raises:
            NotFound: there is no such task.
        """
        from kilonova.engine.run_order import run_in_order

        self.recover_expired_runs()
        begun: set[int] = set()
        interrupted = threading.Event()

        def heard(notification: RunNotification) -> None:
            if isinstance(notification, RunStarted):
                begun.add(notification.run)
                if interrupted.is_set():
                    raise Cancelled("the run was interrupted", run=notification.run, hint="Nothing was published")
            self.listener(notification)

        def interrupt() -> None:
            interrupted.set()
            for run in tuple(begun):  # a copy, as other runs may be starting
                with suppress(InvalidState):
                    self.cancel(run)

        reports: list[RunReport] = []
        failed: dict[str, KilonovaError] = {}
        asked = None if tasks is None else self._asked(tasks)
        while True:
            parts, order = self._parts(asked, {*but, *failed})
            run = partial(self._run, listener=heard)
            done, refused = run_in_order(order.waits_for, parts, run, interrupt)
            reports += [report for report in done if report is not None]
            failed |= refused
            if asked is not None or not order.circular or not any(done):
                return RunsReport(runs=tuple(sorted(reports, key=lambda report: report.run)), failed=failed)

    def _run_as_one(self, tasks: Iterable[str] | None) -> RunsReport:
        from kilonova.engine.run_request import RunDue, RunTasks

        self.recover_expired_runs()
        if tasks is None and not self.due():
            return RunsReport()
        report = self._run(RunDue() if tasks is None else RunTasks(self._asked(tasks)))
        return RunsReport(runs=() if report is None else (report,))

    def _asked(self, names: Iterable[str]) -> tuple[str, ...]:
        from kilonova.service.explain_view import tasks_named

        with self.catalog.reading() as tx:
            return tasks_named(tx, names)

    def _parts(self, asked: tuple[str, ...] | None, but: Collection[str]) -> tuple[dict[str, RunRequest], RunOrder]:
        """Return the tasks to run of each binding, and the order of bindings."""
        from kilonova.engine.run_order import run_order
        from kilonova.engine.run_request import RunDue, RunTasks

        with self.catalog.reading() as tx:
            workflow, progress, states = load_planner_input(tx, asked)
            owner = bindings.by_task(tx)
        chosen = set(due_tasks(workflow, progress, states) if asked is None else asked)
        order = [task for task in workflow.order() if task.name in chosen and owner[task.name] not in but]
        members: dict[str, list[str]] = {owner[task.name]: [] for task in order}
        for task in workflow.order() if asked is None else order:
            if owner[task.name] in members:
                members[owner[task.name]].append(task.name)
        kind = RunDue if asked is None else RunTasks
        return {name: kind(tuple(names)) for name, names in members.items()}, run_order(order, owner)

    def run_claim(
        self,
        claimed: Claim,
        *,
        shared_steps: SharedSteps | None = None,
        begun: Callable[[int], object] = lambda _: None,
    ) -> RunReport | None:
        """Run a binding that a server has claimed.

        Args:
            claimed: the binding and its firings.
            shared_steps: the steps shared with others that are launched at the same time: see `shared_batch`.
            begun: called with the run's number once it has started; from then on its firings end with the run.

        Returns:
            The report; None if there was nothing to do.

        Raises:
            Conflict: another run has one of the tasks.
            LeaseLost: another server has taken it over.
            KilonovaError: any error that `run` raises.
        """
        from kilonova.engine.run_request import RunFirings

        def heard(notification: RunNotification) -> None:
            if isinstance(notification, RunStarted):
                begun(notification.run)
            self.listener(notification)

        return self._run(RunFirings(claimed, shared_steps), heard)

    @contextmanager
    def shared_batch(self, parts: Iterable[Claim]) -> Iterator[SharedSteps]:
        """Share the common reads and steps of several claimed bindings, until the end of the `with` block."""
        from kilonova.engine.run_request import shared_reads
        from kilonova.engine.shared_steps import SharedSteps

        with self.catalog.reading() as tx:
            readings = shared_reads(tx, parts)
        with self.warehouse.holding(readings):
            yield SharedSteps()

    def _run(self, request: RunRequest, listener: Listener | None = None) -> RunReport | None:
        from kilonova.engine.executor import RetryPolicy, run_tasks

        retries = RetryPolicy(attempts=self.settings.retry.attempts, wait=self.settings.retry.wait)
        environment = self._environment() if listener is None else replace(self._environment(), listener=listener)
        done = run_tasks(environment, self.warehouse, request, retries)
        return None if done is None else self._report(done[0])

    def compact(self, channel: str, *, deltas: bool = False) -> RunReport | None:
        """Compact a channel: write its newest snapshot as a base.

        Args:
            channel: the channel.
            deltas: merge small adjacent deltas instead, of an append-only channel: as long as tasks read only new
                input, a base of the whole relation would be of no use.

        Returns:
            The report; None if there was nothing to merge.

        Raises:
            NotFound: there is no such channel.
        """
        from kilonova.engine.compaction import compact, is_compactable

        if deltas:
            return self._merge_deltas(channel, few=True)
        self.recover_expired_runs()
        with self.catalog.reading() as tx:
            state = channel_store.channel_state(tx, channel)
            if not is_compactable(state.snapshot(state.latest_readable)):
                return None
        done = compact(self._environment(), self.warehouse, channel)
        return None if done is None else self._report(done[0])

    def _merge_deltas(self, channel: str, *, few: bool) -> RunReport | None:
        from kilonova.engine.compaction import merge_deltas

        self.recover_expired_runs()
        done = merge_deltas(self._environment(), self.warehouse, channel, few=few)
        return None if done is None else self._report(done[0])

    def maintain(self, channel: str | None, *, deltas: bool = False) -> RunReport | None:
        """Compact a channel and collect its garbage; without a channel, collect all garbage and verify some blocks.

        Without a channel, old events are deleted too.

        Args:
            channel: the channel; None for the maintenance of the whole project.
            deltas: merge its small adjacent deltas instead, if there are many.

        Returns:
            The report of the compaction; None if there was nothing to merge.

        Raises:
            NotFound: there is no such channel.
        """
        report = None
        if channel is not None:
            report = self._merge_deltas(channel, few=False) if deltas else self.compact(channel)
        self.collect_garbage(None if channel is None else [channel])
        if channel is None:
            self.forget(timedelta(days=self.settings.history_retention_days))
            self._verify_some()
        return report

    def _verify_some(self) -> None:
        """Verify the least recently verified blocks for some seconds."""
        from kilonova.service.fsck import verify_some

        if days := self.settings.serve.verify:
            verify_some(self.catalog, self._storage(self.catalog), timedelta(days=days), _VERIFYING)

    def collect_garbage(
        self, channels: Iterable[str] | None = None, *, dry_run: bool = False, provenance: str | None = None
    ) -> GCReport:
        """Delete the blocks that are no longer needed, and expired logs.

        If the disk of the catalog is full, files are deleted before the deletion is recorded.

        Args:
            channels: the channels to collect; None for all, and logs.
            dry_run: whether to only report what would be deleted, and what retains the rest.
            provenance: `logical` or `physical`; None for the project's setting.

        Raises:
            NotFound: there is no such channel.
            CatalogFull: the disk of the catalog is full, and nothing could be deleted there.
        """
        from kilonova.engine.garbage import collect_garbage

        chosen = None if channels is None else tuple(channels)

        def collected(catalog: Catalog, *, full: bool) -> GCReport:
            return collect_garbage(
                catalog,
                self._files(catalog),
                self.listener,
                channels=chosen,
                provenance=Provenance(provenance or self.settings.provenance),
                logs=None if chosen is not None else timedelta(days=self.settings.log_retention_days),
                dry_run=dry_run,
                full=full,
            )

        self._pins.settle()
        try:
            return collected(self.catalog, full=False)
        except CatalogFull:
            with self._full_catalog() as catalog:
                return collected(catalog, full=True)

    @contextmanager
    def _full_catalog(self) -> Iterator[Catalog]:
        """Yield the catalog in a mode in which it can be read although its disk is full."""
        try:
            self.catalog.identity()
        except CatalogFull:  # no other process has it open
            alone = Catalog(self.catalog.url, self.catalog.clock, alone=True)
            try:
                yield alone
            finally:
                alone.close()
        else:
            yield self.catalog

    def fsck(
        self,
        channels: Iterable[str] | None = None,
        *,
        checksums: bool = False,
        repair: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> FsckReport:
        """Compare the blocks in the warehouse with what was written.

        Args:
            channels: the channels to verify; None for all.
            checksums: whether contents are compared, besides names and sizes.
            repair: whether to repair all damage that needs no rows from elsewhere: derived channels are recomputed,
                blocks that are not needed are deleted, and manifests and markers are rewritten.
            progress: called with the number of blocks verified, and the number of all.

        Returns:
            The result of the verification, and the channels that were repaired.

        Raises:
            NotFound: there is no such channel.
            Conflict: another run has a task that must run again.
            StorageFailed: the warehouse cannot be read, or written.
        """
        from kilonova.service.fsck import verify

        storage = self._storage(self.catalog)
        found = verify(self.catalog, storage, channels, checksums=checksums, progress=progress)
        return self._mended(found, storage) if repair else found

    def _mended(self, found: FsckReport, storage: Storage) -> FsckReport:
        """Repair damage as far as possible, and return the report with the channels that are repaired."""
        from kilonova.engine.run_recovery import delete_doomed_blocks
        from kilonova.service.fsck import drop_blocks, lost_blocks, mend

        mend(self.catalog, storage, found)
        lost = dict(lost_blocks(found))
        dropped = [each.channel for each in found.remedies if each.method is RepairMethod.DROP]
        drop_blocks(self.catalog, {channel: lost[channel] for channel in dropped})
        again = {each.channel: each.task for each in found.remedies if each.task is not None}
        if again:
            with self.catalog.writing() as tx:
                for task in set(again.values()):
                    registry.move_cursors(tx, task, 0, ())  # to start from scratch, as after a change of its logic
            self.run(dict.fromkeys(again.values()))
            drop_blocks(self.catalog, {channel: lost[channel] for channel in again})
        delete_doomed_blocks(self.catalog, self._files())
        mended = [each.channel for each in found.remedies if each.is_automatic]
        return replace(found, mended=tuple(sorted(mended)))

    # Reading

    def read(self, channel: str, *, at: int | None = None, since: int | None = None) -> DataFrame:
        """Return the rows of a channel, or its changes since a point as a strong delta.

        Its blocks are pinned for the lifetime of the DataFrame, or, in a session that is no Spark Connect client, of
        any DataFrame derived from it; at most until this project is closed. If it is joined as the second operand to
        a DataFrame of another source, keep references to both.

        Args:
            channel: the channel.
            at: the point; None for the newest.
            since: give what changed after this point, with a `_weight` per row.

        Raises:
            NotFound: there is no such channel or point.
        """
        reading, holder = self._pinned(channel, at, since)
        try:
            frame, anchor = self.warehouse.open_apart(reading)
            weakref.finalize(anchor, self._pins.give_up, holder).atexit = False
        except BaseException as error:
            self._pins.release(holder)
            if isinstance(error, BlockDamaged):
                raise error.with_context(channel=channel) from None
            raise
        return frame

    def rows(
        self, channel: str, *, at: int | None = None, since: int | None = None, limit: int | None = None
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Return column names and rows of a channel, fetched; see `read`."""
        from kilonova.warehouse.jobs import fetch

        with self._reading(channel, at, since) as reading:
            frame = self.warehouse.open(reading)
            return tuple(frame.columns), fetch(frame, limit)

    def page(
        self, channel: str, file: str, *, at: int | None = None, since: int | None = None, offset: int, limit: int
    ) -> tuple[int, str]:
        """Write a page of the rows of a channel to a file, as an Arrow stream; see `read`.

        Rows are ordered by the channel's key, or by all columns that can be ordered, so that the pages of one point
        together are the whole relation.

        Args:
            channel: the channel.
            file: the file.
            at: the point; None for the newest.
            since: give what changed after this point, with a `_weight` per row.
            offset: the number of rows before the page.
            limit: the maximum number of rows of the page.

        Returns:
            The point, with which to request further pages, and the file.
        """
        from kilonova.warehouse.jobs import write_page

        with self.catalog.reading() as tx:
            state = channel_store.channel_state(tx, channel)
        end = state.latest_readable if at is None else at
        with self._reading(channel, end, since) as reading:
            write_page(self.warehouse.open(reading), file, state.channel.key, offset, limit)
        return end, file

    def log(self, run: int | None = None) -> RunLog:
        """Return the log of a run, with the output of its code, as far as it is known by now.

        Args:
            run: its number; None for the last run.

        Raises:
            NotFound: there is no such run, or its log is no longer retained.
        """
        with self.catalog.reading() as tx:
            found = records.find_run(tx, run)
        text = self._storage(self.catalog).log(found.number, found.started.date())
        if text is None and found.state is not RunState.RUNNING:
            raise NotFound(
                "the run has no log",
                run=found.number,
                hint=f"Logs are kept for {self.settings.log_retention_days} days",
            )
        return RunLog(run=found, text=(text or "") + closing(found))

    def export(
        self, channel: str, target: str, format: str, *, at: int | None = None, since: int | None = None
    ) -> None:
        """Write the rows of a channel to a directory, as `parquet`, `csv` or `json`; see `read`.

        Raises:
            SettingsError: the target exists already.
            StorageFailed: the directory cannot be written.
        """
        from kilonova.warehouse.jobs import export

        with self._reading(channel, at, since) as reading:
            export(self.warehouse.open(reading), target, format)

    # Spark

    @property
    def warehouse(self) -> Warehouse:
        """Warehouse, with a Spark session that is started on first use."""
        from kilonova.warehouse.pickled_functions import pickled_functions
        from kilonova.warehouse.session import SparkSettings, open_session
        from kilonova.warehouse.warehouse import Warehouse

        storage = self._storage(self.catalog)
        with self._lock:
            if self._warehouse is None:
                section = self.settings.spark
                if self._spark is None:
                    try:
                        wanted = SparkSettings(
                            master=section.master,
                            remote=section.remote,
                            conf=tuple(section.conf.items()),
                            class_data_archive=section.class_data_archive,
                        )
                    except ValueError as error:
                        raise SettingsError(str(error), path=FILE) from None
                    self._spark, self._opened = open_session(wanted)

                def functions(name: str) -> Any:
                    with self.catalog.reading() as tx:
                        return pickled_functions(registry.function(tx, name).pickled)

                self._warehouse = Warehouse(
                    self._spark,
                    storage,
                    self.catalog.identity(),
                    functions,
                    LayoutThresholds(**self.settings.sizes.model_dump()),
                    checksums=self.settings.verify == "checksums",
                )
            return self._warehouse

    def warm(self) -> None:
        """Start Spark and run a small job, so that the next operation does not wait for the start."""
        self.warehouse.spark.range(1).count()

    def recover_expired_runs(self) -> None:
        """Expire the runs whose processes went silent: the points that they reserved hide later ones."""
        from kilonova.engine.run_recovery import recover_expired_runs

        recover_expired_runs(self.catalog, self._files(), self.listener)

    def _files(self, catalog: Catalog | None = None) -> BlockStore:
        """Return the block store of the warehouse, which can delete files without Spark.

        Args:
            catalog: the catalog to read; None for the project's own.
        """
        return self._warehouse or self._storage(catalog or self.catalog)

    def _storage(self, catalog: Catalog) -> Storage:
        """Return the storage of the warehouse; its ownership by this catalog is checked once.

        Args:
            catalog: the catalog to read.

        Raises:
            CatalogError: it belongs to another catalog.
        """
        from kilonova.service.ownership import verify
        from kilonova.warehouse.storage import Storage

        if self._verified is None:
            storage = Storage(warehouse_url(self.settings, self.directory))
            verify(catalog, storage)
            self._verified = storage
        return self._verified

    def _environment(self) -> RunEnvironment:
        from kilonova.engine.run_protocol import RunEnvironment

        warehouse = self.warehouse
        return RunEnvironment(
            catalog=self.catalog,
            files=warehouse,
            counting=warehouse.counting,
            owner=self.owner,
            lease=timedelta(seconds=self.settings.run_lease),
            listener=self.listener,
        )

    def _report(self, run: int, *, aside: int = 0, repeated: bool = False) -> RunReport:
        with self.catalog.reading() as tx:
            return RunReport(run=run, made=tuple(records.outputs(tx, [run])), aside=aside, repeated=repeated)

    @contextmanager
    def _reading(self, channel: str, at: int | None, since: int | None) -> Iterator[ReadPlan]:
        """Yield a read plan whose blocks are pinned until the end of the `with` block."""
        reading, holder = self._pinned(channel, at, since)
        try:
            yield reading
        except BlockDamaged as error:
            raise error.with_context(channel=channel) from None
        finally:
            self._pins.release(holder)

    def _pinned(self, channel: str, at: int | None, since: int | None) -> tuple[ReadPlan, str]:
        """Return a read plan whose blocks are pinned, and the holder of the pins."""
        with self.catalog.writing() as tx:
            reading = _reading(tx, channel, at, since)
            if reading.schema is None:
                raise NotFound(
                    "the channel has no schema yet, because nothing was written to it",
                    channel=channel,
                    hint="Run the task that writes it first",
                )
            holder = self._pins.pin(tx, [block.number for block in reading.blocks])
        self._pins.hold(holder)
        return reading, holder


def _reading(tx: Transaction, channel: str, at: int | None, since: int | None) -> ReadPlan:
    state = channel_store.channel_state(tx, channel)
    end = state.latest_readable if at is None else at
    if since is None:
        return state.snapshot(end)
    if since > end:
        raise NotFound(
            f"the point is after point {end}",
            channel=channel,
            point=since,
            hint="Give an earlier point to --since",
        )
    return state.changes(since, end)


def _request_for(
    files: FileSet, production: Production, in_place: bool, content_digest: str | None
) -> dict[str, object]:
    """Return what identifies an ingest of files under an idempotency key."""
    sizes = content_digest or [(url, files.seen[url].size) for url in files.urls]
    return {
        "production": production.value,
        "in_place": in_place,
        "files": sizes,
        "format": files.format,
        "options": dict(files.options),
    }


def open_project(
    directory: str | Path = ".",
    *,
    listener: Listener = no_listener,
    session: SparkSession | None = None,
    **settings: Any,
) -> Project:
    """Open the project of a directory.

    Args:
        directory: the directory of `kilonova.toml`, if there is one, to which paths in it are relative.
        listener: receives the notifications of runs.
        session: the Spark session to use; without it, one is started when needed.
        settings: settings that override the file's and the environment's; see `Settings`.

    Raises:
        SettingsError: a setting is unknown or has an invalid value.
    """
    place = Path(directory)
    return Project(load_settings(place, **settings), place, listener=listener, session=session)
