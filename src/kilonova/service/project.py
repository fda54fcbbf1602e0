"""A project: one catalog and one warehouse, with everything that can be done to them.

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

from kilonova.catalog import bindings, chains, files, ingest_keys, registry
from kilonova.catalog import runs as records
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.observation import observe
from kilonova.engine.telling import Listener, Started, Telling, unheard
from kilonova.errors import (
    BlockDamaged,
    Busy,
    Cancelled,
    CatalogFull,
    DeclarationError,
    KilonovaError,
    SettingsError,
    SparkUnavailable,
    StateError,
    UnknownName,
)
from kilonova.model.file import FileState
from kilonova.model.idempotency import IdempotencyKey, digest_of
from kilonova.model.reading import Reading, Snapshot
from kilonova.model.run import RunState
from kilonova.model.task import Production
from kilonova.schedule.collection import Provenance
from kilonova.schedule.layout import Sizes
from kilonova.schedule.planning import selected
from kilonova.schedule.repair import Way
from kilonova.service import changes
from kilonova.service.pins import Pins
from kilonova.service.reports import Gathered, RunLog, RunReport, RunsReport, closing
from kilonova.service.settings import FILE, Settings, catalog_url, load_settings, warehouse_url
from kilonova.service.steering import Steering

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kilonova.catalog.files import Looked
    from kilonova.catalog.firings import Claimed
    from kilonova.declare.workflow import Declared, Workflow
    from kilonova.engine.joint import Joint
    from kilonova.engine.occasion import Occasion
    from kilonova.engine.reclaim import Collected
    from kilonova.engine.seam import Files
    from kilonova.engine.sequence import Sequence
    from kilonova.engine.undertaking import Results, Workplace
    from kilonova.model.block import External
    from kilonova.model.channel import Channel, Chronicle
    from kilonova.service.fsck import Verified
    from kilonova.service.recovery import Recovery
    from kilonova.warehouse.storage import Storage
    from kilonova.warehouse.warehouse import Warehouse


_SOON = timedelta(minutes=1)
"""How long a person waits for files to be complete."""

_PINNED = 600.0
"""Seconds for which blocks stay at least that a process was reading when it died."""


class Project(Steering):
    """A catalog and a warehouse.

    Args:
        settings: the settings.
        directory: what relative paths are relative to.
        listener: hears how runs go.
        session: a session to use; without one, one is started when needed.
    """

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        *,
        listener: Listener = unheard,
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
        self._pins = Pins(self.catalog, timedelta(seconds=max(_PINNED, settings.lease)))

    def __enter__(self) -> Project:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the Spark session, if this project started it, and let go of the catalog and of what was read."""
        self._pins.close()
        if self._opened and self._spark is not None:
            self._spark.stop()
        self._spark, self._warehouse, self._opened = None, None, False
        self.catalog.close()

    def prepare_next_start(self) -> None:
        """Where a Spark session was started here, make the archive that lets the next one start faster.

        It is made once per machine and release, by a process of its own in the background.
        """
        from kilonova.warehouse.class_data import make_in_background

        if self._opened and self.settings.spark.class_data_archive and self.settings.spark.remote is None:
            make_in_background()

    # Registering

    def create(self) -> None:
        """Make the catalog and the warehouse, or bring an older catalog up to this release.

        Raises:
            CatalogError: the catalog was made by a newer release, or cannot be reached; or the warehouse belongs to
                another catalog.
        """
        from kilonova.service.ownership import refuse_foreign
        from kilonova.warehouse.storage import Storage

        storage = Storage(warehouse_url(self.settings, self.directory))
        if self.catalog.revision() is None:
            refuse_foreign(storage)
        self.catalog.create()
        storage.create()
        self._storage(self.catalog)

    def recover(self, progress: Callable[[int, int], None] = lambda done, total: None) -> Recovery:
        """Have the catalog, a new one if there is none, know the blocks of its warehouse again.

        Nothing in the warehouse is changed or deleted but whose it is. Tasks begin anew at their next run; in a new
        catalog, they are there once their workflows are applied.

        Args:
            progress: hears how many blocks have been looked at, of how many.

        Returns:
            What was recovered, and what was left and why.

        Raises:
            Busy: a run goes on.
            CatalogError: the catalog has blocks of another warehouse, or it cannot be told whose the blocks are.
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
        """Workflows as values: each may read what is registered, and what those before it declare.

        Raises:
            DeclarationError: a workflow cannot be.
        """
        self.catalog.check()
        found: list[Declared] = []
        for workflow in workflows:
            with self.catalog.reading() as tx:
                others = {channel.name: channel for channel in changes.others(tx, workflow.name)}
            others |= {channel.name: channel for earlier in found for channel in earlier.workflow.channels}
            found.append(workflow.declared(others.values()))
        return tuple(found)

    def plan(self, workflow: Workflow | Declared) -> changes.Plan:
        """What registering a workflow would change.

        Spark is started if a view is new or changed, to analyse it.

        Raises:
            DeclarationError: the workflow cannot be, or does not fit what is registered.
            QueryError: Spark refuses the query of a view.
        """
        return self.plan_all([workflow])[0]

    def plan_all(self, workflows: Iterable[Workflow | Declared]) -> tuple[changes.Plan, ...]:
        """What registering workflows would change, each of which may read what those before it declare.

        Raises:
            DeclarationError: a workflow cannot be, or does not fit what is registered.
            QueryError: Spark refuses the query of a view.
        """
        self.catalog.check()
        declared = self._declared(workflows)
        if not declared:
            return ()
        plans, known = self._rehearse(declared)
        return tuple(
            changes.noted(plan, self._analyse(each, plan, known)) for each, plan in zip(declared, plans, strict=True)
        )

    def _rehearse(self, declared: Iterable[Declared]) -> tuple[list[changes.Plan], Mapping[str, Chronicle]]:
        """Propose to register workflows one after another.

        Returns:
            A plan for each, and the channels as the last of them finds them.
        """
        *earlier, last = declared
        with self.catalog.rehearsing() if earlier else self.catalog.reading() as tx:
            plans = []
            for each in earlier:
                plans.append(changes.propose(tx, each.workflow, each.functions))
                changes.carry_out(tx, plans[-1])
            plans.append(changes.propose(tx, last.workflow, last.functions))
            return plans, chains.chronicles(tx)

    def _analyse(self, declared: Declared, plan: changes.Plan, known: Mapping[str, Chronicle]) -> Mapping[str, str]:
        """Have Spark analyse the views that are new or changed.

        Args:
            declared: the workflow.
            plan: what registering it changes.
            known: the channels that are there by then.

        Returns:
            What there is to say of some, by the names of their tasks.

        Raises:
            QueryError: Spark refuses a view.
        """
        from kilonova.engine.analysis import analysed, is_view

        anew = {item.task.name for item in plan.tasks if item.anew and is_view(item.task)}
        if not anew or not self.settings.spark.analyse:
            return {}
        channels = {name: each.channel for name, each in known.items()}
        channels |= {channel.name: channel for channel in declared.workflow.channels}
        complete = {name: schema for name, each in known.items() if (schema := each.complete) is not None}
        told = {name: channel.schema for name, channel in channels.items() if channel.schema is not None}
        try:
            warehouse = self.warehouse
        except SparkUnavailable as error:
            return dict.fromkeys(anew, f"not analysed: {error.problem}")
        problems = analysed(warehouse, declared.workflow.order(), channels, complete | told, anew)
        return {name: f"made anew at each run: {problem}" for name, problem in problems.items()}

    def _declared(self, workflows: Iterable[Workflow | Declared]) -> tuple[Declared, ...]:
        from kilonova.declare.workflow import Declared

        given = list(workflows)
        values = tuple(each for each in given if isinstance(each, Declared))
        return (
            values
            if len(values) == len(given)
            else self.declared(each for each in given if not isinstance(each, Declared))
        )

    def apply(self, workflow: Workflow | Declared) -> changes.Plan:
        """Register a workflow; tasks whose definition changed get a new logic version.

        Checks that come to rows which stay are tried on those rows first.

        Returns:
            What changed.

        Raises:
            DeclarationError: the workflow cannot be, or does not fit what is registered; nothing has changed.
            QueryError: Spark refuses the query of a view; nothing has changed.
            CheckFailed: rows that are there violate a check that comes; nothing has changed.
            Busy: a run is writing rows to which a check comes.
        """
        return self.apply_all([workflow])[0]

    def apply_all(self, workflows: Iterable[Workflow | Declared]) -> tuple[changes.Plan, ...]:
        """Register workflows as `apply` does, each of which may read what those before it declare: all or none.

        Raises:
            KilonovaError: what `apply` raises; nothing has changed.
        """
        self.catalog.check()
        declared = self._declared(workflows)
        if not declared:
            return ()
        plans, known = self._rehearse(declared)
        notes = [self._analyse(each, plan, known) for each, plan in zip(declared, plans, strict=True)]
        seen = {item.channel.name: self._verify(item) for plan in plans for item in plan.channels if item.unseen}
        done = []
        with self.catalog.writing() as tx:
            for each in declared:
                plan = changes.propose(tx, each.workflow, each.functions)
                changes.refuse_unseen(tx, plan, seen)
                changes.carry_out(tx, plan)
                done.append(plan)
        return tuple(changes.noted(plan, said) for plan, said in zip(done, notes, strict=True))

    def _verify(self, change: changes.ChannelChange) -> int:
        """Try the checks that come to a channel on the rows that are there.

        Returns:
            The point that was looked at.
        """
        name = change.channel.name
        with self.catalog.reading() as tx:
            if not chains.chronicle(tx, name).effective:
                return 0
        with self._reading(name, None, None) as reading:
            assert isinstance(reading, Snapshot)
            try:
                self.warehouse.verify(replace(reading, schema=change.channel.schema or reading.schema), change.unseen)
            except KilonovaError as error:
                raise error.within(channel=name) from error.__cause__
            return reading.at

    def drop(self, channel: str) -> tuple[str, ...]:
        """Take a channel and its data away, and the task that writes it out of service.

        Returns:
            The tasks that went with it.

        Raises:
            UnknownName: there is no such channel.
            DeclarationError: a task reads the channel, or its writer writes others too.
            Busy: a run is writing it.
        """
        from kilonova.engine.reclaim import sweep

        self.catalog.check()
        self.take_up()
        with self.catalog.writing() as tx:
            chronicle = chains.chronicle(tx, channel)
            tasks = registry.tasks(tx)
            readers = [n for n, known in tasks.items() if channel in known.task.reads]
            if readers:
                raise DeclarationError(
                    f"the channel is read by {', '.join(readers)}", channel=channel, hint="Drop those first"
                )
            if chronicle.readable < chronicle.newest:
                raise Busy("a run is writing the channel", channel=channel, hint="Wait until it has ended")
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
            chains.drop_channel(tx, channel)
            bindings.forget(tx, channel)
        sweep(self.catalog, self._files())
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
            format: `parquet`, `csv`, `json` or any format that Spark reads; told from the names if None.
            options: options for Spark's reader.
            replace: whether the rows are the whole relation rather than what is new.
            in_place: whether the files become the block where they lie, and are read there until a compaction writes
                their rows into the warehouse; Parquet, ORC, CSV or JSON. They are never changed or deleted, and must
                not be by others.
            idempotency_key: name of this ingest: asked for again under the same name, it is not carried out again, and
                the first report is returned, marked as repeated.
            content_digest: digest of the bytes of the files, by which an ingest that is asked for again is known in
                place of their names and sizes.

        Raises:
            UnknownName: there is no such channel.
            DeclarationError: a task writes the channel.
            SchemaMismatch: the rows do not fit it.
            KeyViolation: keys are null or occur twice.
            CheckFailed: rows violate a check of the channel.
            UnreadableInput: a file cannot be read.
            KeyReused: the idempotency key stands for an ingest of something else.
            Busy: the ingest of the idempotency key goes on.
        """
        from kilonova.engine.ingest import Supply, ingest
        from kilonova.warehouse.files import external_files, find_files, read

        production = Production.BASE if replace else Production.DELTA
        self.catalog.check()
        with self.catalog.reading() as tx:
            chains.channel_id(tx, channel)
        asked: dict[str, object] = {"production": production.value, "in_place": in_place}
        if isinstance(source, str | Path):
            files = find_files(str(source), format, options or {})
            sizes = content_digest or [(url, files.seen[url].size) for url in files.urls]
            asked |= {"files": sizes, "format": files.format, "options": dict(files.options)}

            def rows(known: Channel) -> DataFrame | External:
                if in_place:
                    return external_files(files, known, production)
                return read(self.warehouse.spark, files, known, production)

            supply = Supply(
                rows=rows,
                production=production,
                bytes=files.bytes,
                source=str(source),
            )
        else:
            if in_place:
                raise DeclarationError(
                    "a DataFrame lies nowhere", channel=channel, hint="Name files to register in place"
                )
            frame = source
            if idempotency_key is not None:
                asked["columns"] = self.warehouse.schema_of(frame).ddl
            supply = Supply(rows=lambda _: frame, production=production, bytes=None, source="a DataFrame")
        key = None if idempotency_key is None else IdempotencyKey(idempotency_key, digest_of(asked))
        if key is not None and (earlier := self._ingested(channel, key)) is not None:
            return earlier
        done = ingest(self._workplace(), self.warehouse, channel, supply, key)
        return self._report(done.run, repeated=done.repeated)

    def _ingested(self, channel: str, key: IdempotencyKey) -> RunReport | None:
        """Return what the ingest of an idempotency key has done, without Spark; None if it has not been carried out.

        Raises:
            KeyReused: the key stands for an ingest of something else.
            Busy: the ingest goes on.
        """
        self.take_up()
        with self.catalog.reading() as tx:
            run = ingest_keys.finished(tx, channel, key)
        return None if run is None else self._report(run, repeated=True)

    def look(self, channel: str, *, early: bool = False) -> Looked | None:
        """Look at the watched directory of a channel, without taking anything.

        Args:
            channel: the channel.
            early: whether to look although it is not time yet, or somebody else is looking.

        Returns:
            How things stand; None if there is nothing to look at now.

        Raises:
            UnknownName: there is no such channel.
        """
        from kilonova.engine.directories import look

        self.catalog.check()
        return look(self.catalog, self.directory, channel, timedelta(seconds=self.settings.lease), early=early)

    def take(self, channel: str, *, seconds: float = float("inf")) -> tuple[RunReport, ...]:
        """Take the files of a watched directory that are ready, as one block or a few.

        Args:
            channel: the channel.
            seconds: begin no further block after so many.

        Returns:
            What was done.

        Raises:
            UnknownName: there is no such channel.
            KilonovaError: Spark, the warehouse or the directory failed; the files stay ready.
        """
        from kilonova.engine.gathering import Most, gather

        self.catalog.check()
        with self.catalog.reading() as tx:
            if not files.ready(tx, channel, 1):
                return ()
        section = self.settings.gather
        most = Most(section.files, section.bytes)
        runs = gather(self._workplace(), self.warehouse, self.directory, channel, most)
        end = time.monotonic() + seconds
        reports = []
        for done in runs:
            reports.append(self._report(*done))
            if time.monotonic() > end:
                break
        return tuple(reports)

    def gather(self, channels: Iterable[str] | None = None, *, early: bool = True) -> Gathered:
        """Look at watched directories, and take the files that are ready.

        Args:
            channels: the channels; None for all that are watched.
            early: whether to look although it is not time yet, and to wait once for files that will soon be complete.

        Returns:
            What was done.

        Raises:
            UnknownName: there is no such channel.
            DeclarationError: a named channel takes no files.
            KilonovaError: Spark or the warehouse failed; the files stay ready.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            for name in channels or ():
                if not files.watched(tx, name):
                    raise DeclarationError(
                        "the channel takes no files of a directory",
                        channel=name,
                        hint="Declare it with watch=kilonova.directory(…)",
                    )
            names = tuple(channels or (each.channel for each in files.watched(tx)))
        looked = {name: self.look(name, early=early) for name in names}
        soon = self.catalog.clock() + _SOON
        waiting = {name: each.settles for name, each in looked.items() if each and each.settles and each.settles < soon}
        if early and waiting:
            time.sleep(max(0.0, (max(waiting.values()) - self.catalog.clock()).total_seconds()))
            looked |= {name: self.look(name, early=True) for name in waiting}
        done = {name: self.take(name) for name in names}
        aside = {name: sum(report.aside for report in reports) for name, reports in done.items()}
        found = {name: each for name, each in looked.items() if each is not None}
        return Gathered(
            runs=tuple(report for reports in done.values() for report in reports),
            unseen={name: each.error for name, each in found.items() if each.error is not None},
            settling=tuple(name for name, each in found.items() if each.settles is not None),
            aside={name: count for name, count in aside.items() if count},
        )

    def run(self, tasks: Iterable[str] | None = None, *, all_or_nothing: bool = False) -> RunsReport | None:
        """Run the tasks that have something to do, or the named ones: those of each binding as one run.

        A binding that reads what another writes runs after it, others side by side. The failure of one holds back no
        other.

        Args:
            tasks: the tasks to run, whether they have something to do or not and whatever their schedules, each view
                with what it keeps besides itself, or bindings, for their tasks; None for all that have something to do.
            all_or_nothing: whether all of them are one run, of which everything is published or nothing.

        Returns:
            What they did; None if there was nothing to do.

        Raises:
            UnknownName: there is no such task.
            Busy: another run has one of the tasks.
            TaskFailed: a task's code raised or returned the wrong thing.
            SchemaMismatch: its rows do not fit their channel.
            KeyViolation: its keys are null or occur twice.
            CheckFailed: its rows violate a check of their channel.
            BindingsFailed: several bindings failed; what the others made is published, and the report is attached.
        """
        done = self.run_each(tasks) if not all_or_nothing else self._run_as_one(tasks)
        if done.error is not None:
            raise done.error
        return done if done.runs else None

    def run_each(self, tasks: Iterable[str] | None = None, *, but: Collection[str] = ()) -> RunsReport:
        """Run tasks as `run` does, but report the failures of bindings instead of raising them.

        Args:
            tasks: the tasks or bindings to run; None for all that have something to do.
            but: bindings that are left out.

        Raises:
            UnknownName: there is no such task.
        """
        from kilonova.engine.sequence import run_in_order

        self.catalog.check()
        self.take_up()
        begun: set[int] = set()
        interrupted = threading.Event()

        def heard(telling: Telling) -> None:
            if isinstance(telling, Started):
                begun.add(telling.run)
                if interrupted.is_set():
                    raise Cancelled("the run was interrupted", run=telling.run, hint="Nothing of it was published")
            self.listener(telling)

        def interrupt() -> None:
            interrupted.set()
            for run in tuple(begun):  # others are still beginning
                with suppress(StateError):
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
        from kilonova.engine.occasion import Asked, Due

        self.catalog.check()
        self.take_up()
        if tasks is None and not self.due():
            return RunsReport()
        report = self._run(Due() if tasks is None else Asked(self._asked(tasks)))
        return RunsReport(runs=() if report is None else (report,))

    def _asked(self, names: Iterable[str]) -> tuple[str, ...]:
        from kilonova.service.explanation import tasks_named

        with self.catalog.reading() as tx:
            return tasks_named(tx, names)

    def _parts(self, asked: tuple[str, ...] | None, but: Collection[str]) -> tuple[dict[str, Occasion], Sequence]:
        """What to run of each binding, and the order of bindings."""
        from kilonova.engine.occasion import Asked, Due
        from kilonova.engine.sequence import sequence

        with self.catalog.reading() as tx:
            workflow, progress, chronicles = observe(tx, asked)
            owner = bindings.by_task(tx)
        chosen = set(selected(workflow, progress, chronicles) if asked is None else asked)
        order = [task for task in workflow.order() if task.name in chosen and owner[task.name] not in but]
        members: dict[str, list[str]] = {owner[task.name]: [] for task in order}
        for task in workflow.order() if asked is None else order:
            if owner[task.name] in members:
                members[owner[task.name]].append(task.name)
        kind = Due if asked is None else Asked
        return {name: kind(tuple(names)) for name, names in members.items()}, sequence(order, owner)

    def launch(
        self, claimed: Claimed, *, joint: Joint | None = None, begun: Callable[[int], object] = lambda _: None
    ) -> RunReport | None:
        """Run what a server has claimed.

        Args:
            claimed: the binding and its firings.
            joint: what it has in common with others that are launched at the same time: see `sharing`.
            begun: told the run's number once it has begun; from then on its firings end with it.

        Returns:
            What it did; None if there was nothing to do.

        Raises:
            Busy: another run has one of the tasks.
            LeaseLost: another server has taken it over.
            KilonovaError: what `run` raises.
        """
        from kilonova.engine.occasion import Fired

        def heard(telling: Telling) -> None:
            if isinstance(telling, Started):
                begun(telling.run)
            self.listener(telling)

        return self._run(Fired(claimed, joint), heard)

    @contextmanager
    def sharing(self, parts: Iterable[Claimed]) -> Iterator[Joint]:
        """Let what several claimed bindings read or do in common be read or done once, until the end of the block."""
        from kilonova.engine.joint import Joint
        from kilonova.engine.occasion import common

        with self.catalog.reading() as tx:
            readings = common(tx, parts)
        with self.warehouse.holding(readings):
            yield Joint()

    def _run(self, occasion: Occasion, listener: Listener | None = None) -> RunReport | None:
        from kilonova.engine.tasks import Retries, run_tasks

        retries = Retries(attempts=self.settings.retry.attempts, wait=self.settings.retry.wait)
        workplace = self._workplace() if listener is None else replace(self._workplace(), listener=listener)
        done = run_tasks(workplace, self.warehouse, occasion, retries)
        return None if done is None else self._report(*done)

    def compact(self, channel: str, *, deltas: bool = False) -> RunReport | None:
        """Write down the newest snapshot of a channel as a base.

        Args:
            channel: the channel.
            deltas: put small neighbouring deltas together instead, of a channel whose deltas only add rows: as long as
                tasks read what is new only, a base of all that there is would be of no use.

        Returns:
            What it did; None if there was nothing to merge.

        Raises:
            UnknownName: there is no such channel.
        """
        from kilonova.engine.compaction import compact, is_compactable

        if deltas:
            return self._merge_deltas(channel, few=True)
        self.catalog.check()
        self.take_up()
        with self.catalog.reading() as tx:
            chronicle = chains.chronicle(tx, channel)
            if not is_compactable(chronicle.snapshot(chronicle.readable)):
                return None
        done = compact(self._workplace(), self.warehouse, channel)
        return None if done is None else self._report(*done)

    def _merge_deltas(self, channel: str, *, few: bool) -> RunReport | None:
        from kilonova.engine.compaction import merge_deltas

        self.catalog.check()
        self.take_up()
        done = merge_deltas(self._workplace(), self.warehouse, channel, few=few)
        return None if done is None else self._report(*done)

    def tidy(self, channel: str | None, *, deltas: bool = False) -> RunReport | None:
        """Compact a channel, if one is given, and collect garbage, there or everywhere; then also forget old events.

        Args:
            channel: the channel.
            deltas: put its small neighbouring deltas together instead, where there are many.

        Returns:
            What the compaction did; None if there was nothing to merge.

        Raises:
            UnknownName: there is no such channel.
        """
        report = None
        if channel is not None:
            report = self._merge_deltas(channel, few=False) if deltas else self.compact(channel)
        self.collect_garbage(None if channel is None else [channel])
        if channel is None:
            self.forget(timedelta(days=self.settings.history))
        return report

    def collect_garbage(
        self, channels: Iterable[str] | None = None, *, dry_run: bool = False, provenance: str | None = None
    ) -> Collected:
        """Delete the blocks that nothing needs any more, and the logs that are too old.

        Where the disk of the catalog is full, files are deleted before that is written down.

        Args:
            channels: the channels to collect; None for all, and logs.
            dry_run: only say what would go, and what holds the rest.
            provenance: `logical` or `physical`; None takes the project's setting.

        Raises:
            UnknownName: there is no such channel.
            CatalogFull: the disk of the catalog is full, and nothing could be deleted there.
        """
        from kilonova.engine.reclaim import collect_garbage

        chosen = None if channels is None else tuple(channels)

        def collected(catalog: Catalog, *, full: bool) -> Collected:
            catalog.check()
            return collect_garbage(
                catalog,
                self._warehouse or self._storage(catalog),
                self.listener,
                channels=chosen,
                provenance=Provenance(provenance or self.settings.provenance),
                logs=None if chosen is not None else timedelta(days=self.settings.logs),
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
        """The catalog, such that it can be read though its disk is full."""
        try:
            self.catalog.check()
        except CatalogFull:  # nobody else has it open
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
    ) -> Verified:
        """Compare the blocks in the warehouse with what was written.

        Args:
            channels: the channels to verify; None for all.
            checksums: whether contents are compared, besides names and sizes.
            repair: whether what can be mended without rows from elsewhere is mended: derived channels are recomputed,
                blocks that nobody needs are deleted, and what is beside the rows is written again.
            progress: hears how many blocks have been verified, of how many.

        Returns:
            What was found, and which channels were mended.

        Raises:
            UnknownName: there is no such channel.
            Busy: another run has a task that must run again.
            StorageFailed: the warehouse cannot be read, or written.
        """
        from kilonova.service.fsck import verify

        self.catalog.check()
        storage = self._storage(self.catalog)
        found = verify(self.catalog, storage, channels, checksums=checksums, progress=progress)
        return self._mended(found, storage) if repair else found

    def _mended(self, found: Verified, storage: Storage) -> Verified:
        """Mend what was found to be damaged, as far as that is possible, and say which channels are whole then."""
        from kilonova.engine.reclaim import sweep
        from kilonova.service.fsck import give_up, lost_blocks, mend

        mend(self.catalog, storage, found)
        lost = dict(lost_blocks(found))
        dropped = [each.channel for each in found.remedies if each.way is Way.DROP]
        give_up(self.catalog, {channel: lost[channel] for channel in dropped})
        again = {each.channel: each.task for each in found.remedies if each.task is not None}
        if again:
            with self.catalog.writing() as tx:
                for task in set(again.values()):
                    registry.move_cursors(tx, task, 0, ())  # so that it begins anew, as after a change of its logic
            self.run(dict.fromkeys(again.values()))
            give_up(self.catalog, {channel: lost[channel] for channel in again})
        sweep(self.catalog, self._files())
        mended = [each.channel for each in found.remedies if each.is_automatic]
        return replace(found, mended=tuple(sorted(mended)))

    # Looking

    def read(self, channel: str, *, at: int | None = None, since: int | None = None) -> DataFrame:
        """The rows of a channel, or its changes since a point as a strong delta.

        Its blocks stay for as long as the DataFrame lives, or, in a session that is no Spark Connect client, a
        DataFrame that was made of it; at most until this project is closed. Where it is joined to a DataFrame that
        comes first and from elsewhere, keep both.

        Args:
            channel: the channel.
            at: the point; None for the newest.
            since: give what changed after this point, with a `_weight` per row.

        Raises:
            UnknownName: there is no such channel or point.
        """
        reading, holder = self._pinned(channel, at, since)
        try:
            frame, anchor = self.warehouse.open_apart(reading)
            weakref.finalize(anchor, self._pins.give_up, holder).atexit = False
        except BaseException as error:
            self._pins.release(holder)
            if isinstance(error, BlockDamaged):
                raise error.within(channel=channel) from None
            raise
        return frame

    def rows(
        self, channel: str, *, at: int | None = None, since: int | None = None, limit: int | None = None
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Column names and rows of a channel, fetched; see `read`."""
        from kilonova.warehouse.jobs import fetch

        with self._reading(channel, at, since) as reading:
            frame = self.warehouse.open(reading)
            return tuple(frame.columns), fetch(frame, limit)

    def page(
        self, channel: str, file: str, *, at: int | None = None, since: int | None = None, offset: int, limit: int
    ) -> tuple[int, str]:
        """Write a page of the rows of a channel to a file, as an Arrow stream; see `read`.

        Rows come in the order of the channel's key, or of all columns that can be ordered, so that the pages of one
        point are the whole of it.

        Args:
            channel: the channel.
            file: the file.
            at: the point; None for the newest.
            since: give what changed after this point, with a `_weight` per row.
            offset: how many rows are before the page.
            limit: how many rows it has at most.

        Returns:
            The point, by which to ask for further pages, and the file.
        """
        from kilonova.warehouse.jobs import write_page

        with self.catalog.reading() as tx:
            chronicle = chains.chronicle(tx, channel)
        end = chronicle.readable if at is None else at
        with self._reading(channel, end, since) as reading:
            write_page(self.warehouse.open(reading), file, chronicle.channel.key, offset, limit)
        return end, file

    def log(self, run: int | None = None) -> RunLog:
        """What a run did and what its code said, as far as it is known by now.

        Args:
            run: its number; None for the last run.

        Raises:
            UnknownName: there is no such run, or its log is not kept any more.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            found = records.one(tx, run)
        text = self._storage(self.catalog).log(found.number, found.started.date())
        if text is None and found.state is not RunState.RUNNING:
            raise UnknownName(
                "the run has no log", run=found.number, hint=f"Logs are kept for {self.settings.logs} days"
            )
        return RunLog(run=found, text=(text or "") + closing(found))

    def export(
        self, channel: str, target: str, format: str, *, at: int | None = None, since: int | None = None
    ) -> None:
        """Write the rows of a channel to a directory, as `parquet`, `csv` or `json`; see `read`.

        Raises:
            SettingsError: there is something already.
            StorageFailed: the directory cannot be written.
        """
        from kilonova.warehouse.jobs import export

        with self._reading(channel, at, since) as reading:
            export(self.warehouse.open(reading), target, format)

    # Spark

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse, with a Spark session behind it."""
        from kilonova.warehouse.kept import kept
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
                        return kept(registry.function(tx, name).pickled)

                self._warehouse = Warehouse(
                    self._spark,
                    storage,
                    self.catalog.check(),
                    functions,
                    Sizes(**self.settings.sizes.model_dump()),
                    checksums=self.settings.verify == "checksums",
                )
            return self._warehouse

    def warm(self) -> None:
        """Start Spark, and let it do something, so that what comes next does not wait for that."""
        self.warehouse.spark.range(1).count()

    def take_up(self) -> None:
        """End the runs whose processes went silent: the points that they reserved hide what came after."""
        from kilonova.engine.reclaim import take_up

        take_up(self.catalog, self._files(), self.listener)

    def _files(self) -> Files:
        """The files of the warehouse, which can be deleted without Spark."""
        return self._warehouse or self._storage(self.catalog)

    def _storage(self, catalog: Catalog) -> Storage:
        """The directory of the warehouse, which is seen once to be this catalog's.

        Args:
            catalog: the catalog, as it can be read now.

        Raises:
            CatalogError: it is another's.
        """
        from kilonova.service.ownership import verify
        from kilonova.warehouse.storage import Storage

        if self._verified is None:
            storage = Storage(warehouse_url(self.settings, self.directory))
            verify(catalog, storage)
            self._verified = storage
        return self._verified

    def _workplace(self) -> Workplace:
        from kilonova.engine.undertaking import Workplace

        warehouse = self.warehouse
        return Workplace(
            catalog=self.catalog,
            files=warehouse,
            counting=warehouse.counting,
            owner=self.owner,
            lease=timedelta(seconds=self.settings.lease),
            listener=self.listener,
        )

    def _report(self, run: int, results: Results | None = None, *, repeated: bool = False) -> RunReport:
        aside = sum(fate.state is FileState.ASIDE for fate in (results.fates if results else ()))
        with self.catalog.reading() as tx:
            return RunReport(run=run, made=tuple(records.outputs(tx, [run])), aside=aside, repeated=repeated)

    @contextmanager
    def _reading(self, channel: str, at: int | None, since: int | None) -> Iterator[Reading]:
        """A reading whose blocks stay until the end of the block."""
        reading, holder = self._pinned(channel, at, since)
        try:
            yield reading
        except BlockDamaged as error:
            raise error.within(channel=channel) from None
        finally:
            self._pins.release(holder)

    def _pinned(self, channel: str, at: int | None, since: int | None) -> tuple[Reading, str]:
        """Return a reading whose blocks stay until the pins are released that are returned with it."""
        self.catalog.check()
        with self.catalog.writing() as tx:
            reading = _reading(tx, channel, at, since)
            if reading.schema is None:
                raise UnknownName(
                    "the channel has no schema yet, because nothing was written to it",
                    channel=channel,
                    hint="Run the task that writes it first",
                )
            holder = self._pins.pin(tx, [block.number for block in reading.blocks])
        self._pins.hold(holder)
        return reading, holder


def _reading(tx: Transaction, channel: str, at: int | None, since: int | None) -> Reading:
    chronicle = chains.chronicle(tx, channel)
    end = chronicle.readable if at is None else at
    if since is None:
        return chronicle.snapshot(end)
    if since > end:
        raise UnknownName(
            f"it lies after point {end}",
            channel=channel,
            point=since,
            hint="Give an earlier point to --since",
        )
    return chronicle.changes(since, end)


def open_project(
    directory: str | Path = ".",
    *,
    listener: Listener = unheard,
    session: SparkSession | None = None,
    **settings: Any,
) -> Project:
    """Open the project of a directory.

    Args:
        directory: where `kilonova.toml` is, if there is one, and what paths in it are relative to.
        listener: hears how runs go.
        session: a session to use; without one, one is started when needed.
        settings: settings that go before the file's and the environment's; see `Settings`.

    Raises:
        SettingsError: a setting is unknown or has a value that cannot be.
    """
    place = Path(directory)
    return Project(load_settings(place, **settings), place, listener=listener, session=session)
