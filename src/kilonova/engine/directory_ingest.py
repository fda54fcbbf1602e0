"""Ingest of the files of watched directories: files that are ready become a block, each once.

A file that cannot be read, or does not fit, is quarantined in the transaction that publishes the others. Files that
cannot be combined, such as two with rows of one key, become successive blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from pathlib import Path

from fsspec.core import url_to_fs
from pyspark.sql import DataFrame, SparkSession

from kilonova.catalog import channel_store, files
from kilonova.catalog.database import Transaction
from kilonova.catalog.files import ReadyFile
from kilonova.engine.directory_scan import changed_files, url_of
from kilonova.engine.ingest import IngestSource, IngestTarget, ingest_results, ingest_target, write_ingested
from kilonova.engine.run_events import RunStarted
from kilonova.engine.run_protocol import ActiveRun, Participant, RunEnvironment, RunPlan, RunResults, execute_run
from kilonova.errors import InputError, KilonovaError
from kilonova.model.block import Block, BlockName
from kilonova.model.channel import Channel
from kilonova.model.run import RunKind
from kilonova.model.task import Production
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.model.watched_file import FileOutcome, FileState
from kilonova.schedule.file_selection import FilesChanged, bisect_batch
from kilonova.warehouse.file_readers import FileSet, format_of, read
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
    """Results of a run that ingests files, with the outcome of each."""

    file_outcomes: tuple[FileOutcome, ...]


Writes = Callable[[IngestPlan, Sequence[ReadyFile], int, BlockName], Block | None]
"""Writes the rows of files as a block, with the given point and name; None if nothing changes."""


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

    def write(plan: IngestPlan, some: Sequence[ReadyFile], point: int, name: BlockName) -> Block | None:
        source = IngestSource(
            rows=lambda known: _rows(warehouse.spark, some, base, plan.directory, known),
            production=Production.DELTA,
            bytes=sum(one.fingerprint.size for one in some),
            description=_source(some, plan.directory),
        )
        try:
            return write_ingested(warehouse, plan.target, source, point, name)
        except InputError:
            warehouse.probe()  # else all files would be quarantined while Spark is broken
            raise

    limit = most.files
    while done := ingest_batch(environment, base, channel, BatchLimits(limit, most.bytes), write):
        yield done
        taken = sum(fate.state is FileState.INGESTED for fate in done[1].file_outcomes)
        limit = min(most.files, max(4, 2 * taken))  # where files cannot be combined, larger batches would fail


def ingest_batch(
    environment: RunEnvironment, base: Path, channel: str, most: BatchLimits, write: Writes
) -> tuple[int, FileResults] | None:
    """Ingest the files that are ready, as far as they fit into one block; see `ingest_ready_files`.

    Args:
        environment: the environment of the run.
        base: the directory that the locations of watched directories are relative to.
        channel: the channel.
        most: the maximum size of one block.
        write: writes the block.

    Returns:
        The run's number and what it published; None if no files are ready, or another run has them.
    """

    def prepare(tx: Transaction) -> RunPlan[IngestPlan] | None:
        directory = channel_store.channel(tx, channel).watch
        found = tuple(_first_batch(files.ready_files(tx, channel, most.files), most.bytes))
        if directory is None or not found:
            return None
        into = ingest_target(tx, channel, Production.DELTA)
        claim = partial(files.claim_files, channel=channel, paths=tuple(one.path for one in found))
        return RunPlan(
            kind=RunKind.INGEST,
            writes=(channel,),
            pins=into.pins,
            plan=IngestPlan(into, directory, found),
            participants=(Participant(on_start=claim),),
        )

    return execute_run(environment, prepare, lambda run: _ingest(run, base, channel, write))


def _ingest(run: ActiveRun[IngestPlan], base: Path, channel: str, write: Writes) -> FileResults:
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
        batch = bisect_batch(plan.files, attempt, lambda error: urls.get(error.path or ""))
        step.count(batch.result)
    outcomes = (
        *(FileOutcome(one.path, FileState.INGESTED) for one in batch.ingested),
        *(FileOutcome(one.path, FileState.QUARANTINED, _file_error(error)) for one, error in batch.quarantined),
        *(FileOutcome(one.path, None) for one in batch.changed),
    )
    resolve = partial(files.resolve_files, channel=channel, outcomes=outcomes)
    source = _source(batch.ingested or plan.files, plan.directory)
    return FileResults(
        outputs=(ingest_results(channel, point, batch.result, source, step.seconds),),
        participants=(Participant(on_commit=resolve),),
        file_outcomes=outcomes,
    )


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


def _rows(
    spark: SparkSession, some: Sequence[ReadyFile], base: Path, directory: WatchedDirectory, channel: Channel
) -> DataFrame:
    """Return the rows of files, which may be of several formats."""

    def format_of_file(one: ReadyFile) -> str:
        format = directory.format or format_of(one.path)
        if format is None:
            raise InputError(
                "the format cannot be inferred from the file name", path=one.path, hint="Declare the directory's format"
            )
        return format

    frames = []
    for format, group in groupby(sorted(some, key=format_of_file), key=format_of_file):
        members = list(group)
        found = FileSet(
            urls=tuple(_spark_url(one, base) for one in members),
            format=format,
            bytes=sum(one.fingerprint.size for one in members),
            options=dict(directory.options),
        )
        frames.append(read(spark, found, channel, Production.DELTA))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _file_error(error: KilonovaError) -> str:
    """Return an error of a file as text, without the channel and the file, with which it is shown."""
    error.channel = error.path = None
    return str(error)


def _source(some: Sequence[ReadyFile], directory: WatchedDirectory) -> str:
    return some[0].path if len(some) == 1 else f"{len(some)} files of {directory.location}"
