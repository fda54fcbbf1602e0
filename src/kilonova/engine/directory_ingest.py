"""Ingest of the files of watched directories: files that are ready become a block, each once.

A file that cannot be read, or does not fit, is quarantined in the transaction that publishes the others. Of several
files with an upsert of one key, the last one's row is ingested. Files that cannot be combined, such as two with a patch
of one key, become successive blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby
from pathlib import Path

from fsspec.core import url_to_fs
from pyspark.sql import DataFrame, SparkSession

from kilonova.catalog import channel_store, files
from kilonova.catalog.database import Transaction
from kilonova.catalog.files import RETRIED, ReadyFile
from kilonova.engine.directory_scan import changed_files, url_of
from kilonova.engine.ingest import (
    IngestSource,
    IngestTarget,
    describe_effects,
    ingest_results,
    ingest_target,
    publication_participants,
    report_malformed,
    write_ingested,
)
from kilonova.engine.run_events import FileQuarantined, RunStarted
from kilonova.engine.run_protocol import ActiveRun, Participant, RunEnvironment, RunPlan, RunResults, execute_run
from kilonova.errors import InputError, KilonovaError
from kilonova.model.block import Block, BlockName
from kilonova.model.channel import Channel
from kilonova.model.encoding import Upsert
from kilonova.model.malformed_lines import MalformedLines
from kilonova.model.run import RunKind
from kilonova.model.task import Production
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.model.watched_file import FileOutcome, FileState
from kilonova.schedule.file_selection import FilesChanged, bisect_batch
from kilonova.warehouse.file_columns import FileSet
from kilonova.warehouse.file_origins import FileOrigin
from kilonova.warehouse.file_readers import format_of, read, union_of_files
from kilonova.warehouse.misfits import count_misfits, with_misfits
from kilonova.warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Maximum number of files, and of their bytes, that become one block; a single file may be larger."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """Input of a run: the channel, the directory, and its files, in order."""

    target: IngestTarget
    directory: WatchedDirectory
    files: tuple[ReadyFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResults(RunResults):
    """Results of a run that ingests files, with the outcome of each, and the lines that did not fit."""

    file_outcomes: tuple[FileOutcome, ...]
    malformed: MalformedLines | None


Writes = Callable[[IngestPlan, Sequence[ReadyFile], int, BlockName], Block | None]
"""Writes the rows of files as a block, with the given point and name; None if nothing changes."""

Counts = Callable[[IngestPlan, Sequence[ReadyFile]], MalformedLines | None]
"""Counts the lines of ingested files that did not fit."""


def ingest_ready_files(
    environment: RunEnvironment, warehouse: Warehouse, base: Path, channel: str, most: BatchLimits
) -> Iterator[tuple[int, FileResults]]:
    """Ingest the files of a channel's directory that are ready, in the order in which they were modified.

    Args:
        environment: the environment of the runs.
        warehouse: the blocks.
        base: the directory that the locations of watched directories are relative to.
        channel: the channel.
        most: the maximum size of one block.

    Yields:
        Each run's number and what it published.

    Raises:
        NotFound: there is no such channel.
        KilonovaError: something other than the files failed: they stay ready.
    """
    spark = warehouse.spark

    def explain(plan: IngestPlan, some: Sequence[ReadyFile], channel: Channel, error: KilonovaError) -> KilonovaError:
        if len(some) > 1 or error.path == some[0].path:  # a file that caused it is tried alone; its format is unknown
            return error
        (files,) = _file_sets(some, base, plan.directory)
        return with_misfits(spark, files, channel, Production.DELTA, error)

    def write(plan: IngestPlan, some: Sequence[ReadyFile], point: int, name: BlockName) -> Block | None:
        source = IngestSource(
            rows=lambda known: _rows(spark, some, base, plan.directory, known),
            production=Production.DELTA,
            bytes=sum(one.fingerprint.size for one in some),
            description=_source(some, plan.directory),
            explain=partial(explain, plan, some),
            in_file_order=_combines(some, plan.target.state.channel),
        )
        try:
            return write_ingested(warehouse, plan.target, source, point, name)
        except InputError:
            warehouse.probe()  # else all files would be quarantined while Spark is broken
            raise

    def count(plan: IngestPlan, some: Sequence[ReadyFile]) -> MalformedLines | None:
        channel = plan.target.state.channel
        found = [
            lines
            for files in _file_sets(some, base, plan.directory)
            if (lines := count_misfits(spark, files, channel, Production.DELTA)) is not None
        ]
        return reduce(lambda one, other: replace(one, count=one.count + other.count), found) if found else None

    limit = most.files
    while done := ingest_batch(environment, base, channel, BatchLimits(limit, most.bytes), write, count):
        yield done
        taken = sum(fate.state is FileState.INGESTED for fate in done[1].file_outcomes)
        if taken:  # where files cannot be combined, larger batches would fail; without any, the first were all bad
            limit = min(most.files, max(4, 2 * taken))


def ingest_batch(
    environment: RunEnvironment,
    base: Path,
    channel: str,
    most: BatchLimits,
    write: Writes,
    count: Counts = lambda _, some: None,
) -> tuple[int, FileResults] | None:
    """Ingest the files that are ready, as far as they fit into one block; see `ingest_ready_files`.

    Args:
        environment: the environment of the run.
        base: the directory that the locations of watched directories are relative to.
        channel: the channel.
        most: the maximum size of one block.
        write: writes the block.
        count: counts the lines that did not fit.

    Returns:
        The run's number and what it published; None if no files are ready, or another run has them.
    """

    def prepare(tx: Transaction) -> RunPlan[IngestPlan] | None:
        directory = channel_store.channel(tx, channel).watch
        found = tuple(_first_batch(files.ready_files(tx, channel, most.files), most.bytes))
        if directory is None or not found:
            return None
        into = ingest_target(tx, channel, Production.DELTA)
        if into.state.channel.sequence_by is not None and into.state.latest_readable < into.state.latest:
            return None  # rows cannot be compared with those that another run is writing
        claim = partial(files.claim_files, channel=channel, paths=tuple(one.path for one in found))
        return RunPlan(
            kind=RunKind.INGEST,
            writes=(channel,),
            pins=into.pins,
            plan=IngestPlan(into, directory, found),
            participants=(Participant(on_start=claim),),
        )

    return execute_run(environment, prepare, lambda run: _ingest(run, base, channel, write, count))


def _ingest(run: ActiveRun[IngestPlan], base: Path, channel: str, write: Writes, count: Counts) -> FileResults:
    """Write a block of the files of a run that can be read together, and return the outcome of each file."""
    plan, point = run.plan, run.points[channel]
    run.notify(RunStarted(run=run.run, steps=(channel,)))

    def attempt(some: Sequence[ReadyFile]) -> Block | None:
        try:
            block = write(plan, some, point, run.name_block(channel))
        except KilonovaError:
            _check_unchanged(some, base)
            raise
        _check_unchanged(some, base)
        return block

    urls = {name: one for one in plan.files for name in (one.path, _spark_url(one, base))}
    with run.step(channel, f"from {_source(plan.files, plan.directory)}") as step:
        named = lambda error: urls.get(error.path or "")  # noqa: E731
        batch = bisect_batch(plan.files, attempt, named, in_order=plan.directory.in_order)
        step.count(batch.result)
        malformed = report_malformed(run, channel, count(plan, batch.ingested) if batch.ingested else None)
    quarantined = tuple(
        FileOutcome(one.path, FileState.QUARANTINED, _file_error(error)) for one, error in batch.quarantined
    )
    for outcome in quarantined:
        run.notify(FileQuarantined(run=run.run, step=channel, path=outcome.path, error=outcome.error or ""))
    outcomes = (
        *(FileOutcome(one.path, FileState.INGESTED) for one in batch.ingested),
        *quarantined,
        *(FileOutcome(one.path, FileState.SETTLING) for one in batch.changed),
    )

    def resolve(tx: Transaction, run: int) -> None:
        files.resolve_files(tx, run, channel, outcomes)
        if quarantined and not channel_store.channel(tx, channel).fits_alike(plan.target.state.channel):
            files.retry_files(tx, channel, None, RETRIED)

    effects = describe_effects(plan.target, batch.result, malformed)
    reason = _reason(batch.ingested, len(quarantined), effects, plan.directory)
    return FileResults(
        outputs=(ingest_results(channel, point, batch.result, reason, step.seconds),),
        participants=(Participant(on_commit=resolve), *publication_participants(plan.target, batch.result)),
        file_outcomes=outcomes,
        malformed=malformed,
    )


def _reason(
    ingested: Sequence[ReadyFile], quarantined: int, effects: Sequence[str], directory: WatchedDirectory
) -> str:
    """Return what a run has done with files, as text."""
    parts = [f"ingested from {_source(ingested, directory)}" if ingested else "nothing was ingested"]
    if quarantined:
        where = "" if ingested else f" of {directory.location}"
        parts.append(f"{quarantined} file{'' if quarantined == 1 else 's'}{where} quarantined")
    return "; ".join((*parts, *effects))


def _first_batch(found: Sequence[ReadyFile], most: int) -> Iterator[ReadyFile]:
    """Yield the first of some files, up to the maximum size of a block, and at least one."""
    total = 0
    for one in found:
        if total and total + one.fingerprint.size > most:
            return
        total += max(1, one.fingerprint.size)
        yield one


def _check_unchanged(some: Sequence[ReadyFile], base: Path) -> None:
    if changed := changed_files(list(some), base):
        raise FilesChanged(changed)


def _spark_url(one: ReadyFile, base: Path) -> str:
    fs, name = url_to_fs(url_of(one.path, base))
    return str(fs.unstrip_protocol(name))


def _file_sets(some: Sequence[ReadyFile], base: Path, directory: WatchedDirectory) -> list[FileSet]:
    """Return files by their format.

    Raises:
        InputError: the format of a file is unknown.
    """

    def format_of_file(one: ReadyFile) -> str:
        format = directory.format or format_of(one.path)
        if format is None:
            raise InputError(
                "the format cannot be inferred from the file name", path=one.path, hint="Declare the directory's format"
            )
        return format

    found = []
    position = {one.path: number for number, one in enumerate(some)}
    for format, group in groupby(sorted(some, key=format_of_file), key=format_of_file):
        members = {_spark_url(one, base): one for one in group}
        found.append(
            FileSet(
                urls=tuple(members),
                format=format,
                bytes=sum(one.fingerprint.size for one in members.values()),
                options=dict(directory.options),
                origins={
                    url: FileOrigin(directory.name(one.path), one.order_time, position[one.path])
                    for url, one in members.items()
                },
            )
        )
    return found


def _rows(
    spark: SparkSession, some: Sequence[ReadyFile], base: Path, directory: WatchedDirectory, channel: Channel
) -> DataFrame:
    """Return the rows of files, which may be of several formats."""
    frames = [
        read(spark, files, channel, Production.DELTA, positions=_combines(some, channel))
        for files in _file_sets(some, base, directory)
    ]
    return union_of_files(frames)


def _combines(some: Sequence[ReadyFile], channel: Channel) -> bool:
    """Return whether files may have rows of the same keys, of which the last file's are ingested."""
    return len(some) > 1 and isinstance(channel.encoding, Upsert)


def _file_error(error: KilonovaError) -> str:
    """Return an error of a file as text, without the channel and the file, with which it is shown."""
    error.channel = error.path = None
    return str(error)


def _source(some: Sequence[ReadyFile], directory: WatchedDirectory) -> str:
    return some[0].path if len(some) == 1 else f"{len(some)} files of {directory.location}"
