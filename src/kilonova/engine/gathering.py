"""Taking the files of watched directories: those that are ready become a block, each once.

A file that cannot be read, or does not fit, is set aside in the transaction that publishes the others. Files that do
not go together, such as two with rows of one key, become blocks one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from pathlib import Path

from fsspec.core import url_to_fs
from pyspark.sql import DataFrame, SparkSession

from kilonova.catalog import chains, files
from kilonova.catalog.database import Transaction
from kilonova.catalog.files import Ready
from kilonova.engine.directories import moved, url_of
from kilonova.engine.ingest import Supply, Target, ingested, insert, target
from kilonova.engine.telling import Started, StepEnded, StepStarted
from kilonova.engine.undertaking import Begun, Prepared, Results, Workplace, carry_out
from kilonova.errors import KilonovaError, UnreadableInput
from kilonova.model.block import Block, BlockName
from kilonova.model.channel import Channel
from kilonova.model.directory import Directory
from kilonova.model.file import Fate, FileState
from kilonova.model.run import RunKind
from kilonova.model.task import Production
from kilonova.schedule.gathering import Moved, sift
from kilonova.warehouse.files import FileSet, format_of, read
from kilonova.warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Most:
    """How much becomes one block at most: so many files, or bytes of them; one file may be larger."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to take: the channel, the directory, and its files, in order."""

    target: Target
    directory: Directory
    files: tuple[Ready, ...]


Writes = Callable[[Plan, Sequence[Ready], int, BlockName], Block | None]
"""Makes the block of a name, at a point, of the rows of files; None if nothing changes."""


def gather(
    workplace: Workplace, warehouse: Warehouse, base: Path, channel: str, most: Most
) -> Iterator[tuple[int, Results]]:
    """Take the files of a channel's directory that are ready, in the order in which they were modified.

    Args:
        workplace: where.
        warehouse: the blocks.
        base: what the places of directories are relative to.
        channel: the channel.
        most: how much becomes one block.

    Yields:
        Each run's number and what it published.

    Raises:
        UnknownName: there is no such channel.
        KilonovaError: what is around the files failed: they stay ready.
    """

    def write(plan: Plan, some: Sequence[Ready], point: int, name: BlockName) -> Block | None:
        supply = Supply(
            rows=lambda known: _rows(warehouse.spark, some, base, plan.directory, known),
            production=Production.DELTA,
            bytes=sum(one.fingerprint.size for one in some),
            source=_source(some, plan.directory),
        )
        try:
            return insert(warehouse, plan.target, supply, point, name)
        except UnreadableInput:
            warehouse.probe()  # or all files were set aside while Spark is ill
            raise

    limit = most.files
    while done := gather_block(workplace, base, channel, Most(limit, most.bytes), write):
        yield done
        taken = sum(fate.state is FileState.TAKEN for fate in done[1].fates)
        limit = min(most.files, max(4, 2 * taken))  # where files do not go together, more would be tried in vain


def gather_block(
    workplace: Workplace, base: Path, channel: str, most: Most, write: Writes
) -> tuple[int, Results] | None:
    """Take the files that are ready, as far as they make one block; see `gather`.

    Args:
        workplace: where.
        base: what the places of directories are relative to.
        channel: the channel.
        most: how much becomes one block.
        write: makes the block.

    Returns:
        The run's number and what it published; None if no files are ready, or another run has them.
    """

    def prepare(tx: Transaction) -> Prepared[Plan] | None:
        directory = chains.channel(tx, channel).watch
        found = tuple(_together(files.ready(tx, channel, most.files), most.bytes))
        if directory is None or not found:
            return None
        into = target(tx, channel, Production.DELTA)
        return Prepared(
            kind=RunKind.INGEST,
            tasks=(),
            writes=(channel,),
            pins=into.pins,
            plan=Plan(into, directory, found),
            files=tuple(one.path for one in found),
        )

    def work(begun: Begun[Plan]) -> Results:
        plan, point = begun.plan, begun.points[channel]
        begun.tell(Started(run=begun.run, steps=(channel,)))
        reason = f"from {_source(plan.files, plan.directory)}"
        begun.tell(StepStarted(run=begun.run, step=channel, reason=reason))
        began = time.monotonic()

        def attempt(some: Sequence[Ready]) -> Block | None:
            try:
                block = write(plan, some, point, begun.name_block(channel))
            except KilonovaError:
                _refuse_moved(some, base)
                raise
            _refuse_moved(some, base)
            return block

        urls = {name: one for one in plan.files for name in (one.path, _spark_url(one, base))}
        with begun.step(channel):
            sifted = sift(plan.files, attempt, lambda error: urls.get(error.path or ""))
        seconds = time.monotonic() - began
        rows = None if sifted.result is None else sifted.result.statistics.rows
        begun.tell(StepEnded(run=begun.run, step=channel, rows=rows, seconds=seconds))
        source = _source(sifted.taken or plan.files, plan.directory)
        return Results(
            inputs=(),
            outputs=(ingested(channel, point, sifted.result, source, seconds),),
            advances=(),
            fates=(
                *(Fate(one.path, FileState.TAKEN) for one in sifted.taken),
                *(Fate(one.path, FileState.ASIDE, _why(error)) for one, error in sifted.aside),
                *(Fate(one.path, None) for one in sifted.moved),
            ),
        )

    return carry_out(workplace, prepare, work)


def _together(found: Sequence[Ready], most: int) -> Iterator[Ready]:
    """The first of some files that are not larger than a block may be, and one in any case."""
    total = 0
    for one in found:
        if total and total + one.fingerprint.size > most:
            return
        total += max(1, one.fingerprint.size)
        yield one


def _refuse_moved(some: Sequence[Ready], base: Path) -> None:
    if changed := moved(list(some), base):
        raise Moved(changed)


def _spark_url(one: Ready, base: Path) -> str:
    fs, name = url_to_fs(url_of(one.path, base))
    return str(fs.unstrip_protocol(name))


def _rows(spark: SparkSession, some: Sequence[Ready], base: Path, directory: Directory, channel: Channel) -> DataFrame:
    """The rows of files, which may be of several formats."""

    def told(one: Ready) -> str:
        format = directory.format or format_of(one.path)
        if format is None:
            raise UnreadableInput(
                "the format cannot be told from the file's name", path=one.path, hint="Declare the directory's format"
            )
        return format

    frames = []
    for format, group in groupby(sorted(some, key=told), key=told):
        members = list(group)
        found = FileSet(
            urls=tuple(_spark_url(one, base) for one in members),
            format=format,
            bytes=sum(one.fingerprint.size for one in members),
            options=dict(directory.options),
        )
        frames.append(read(spark, found, channel, Production.DELTA))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _why(error: KilonovaError) -> str:
    """An error of a file without the channel and the file, beside which it is shown."""
    error.channel = error.path = None
    return str(error)


def _source(some: Sequence[Ready], directory: Directory) -> str:
    return some[0].path if len(some) == 1 else f"{len(some)} files of {directory.place}"
