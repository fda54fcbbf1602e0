"""Watched directories and their files; see `kilonova.model.watched_file`.

Each file is ingested once: the transaction that starts a run records the files that it claims, and the transaction that
publishes it records them as ingested. A file claimed by a running run is not given to another, a file's path is unique
within its channel, and writing transactions are serialized. Files claimed by a run that did not publish are
automatically free again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, delete, exists, func, insert, or_, select, update

from kilonova.catalog import codec, events, tables
from kilonova.catalog.channel_store import channel_id
from kilonova.catalog.database import Transaction
from kilonova.errors import BrokenInvariant
from kilonova.model.event import EventKind
from kilonova.model.run import RunState
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.model.watched_file import FileOutcome, FileState, Fingerprint, WatchedFile, key_of
from kilonova.schedule.file_selection import FileDecision, FileRecord

BATCH = 500
"""Maximum number of files that are looked up or recorded in one statement."""

RETRIED = "retried with the changed declaration"
"""Why files are no longer quarantined after the declaration of their channel has changed."""

_UNTAKEN = [FileState.SETTLING.value, FileState.READY.value, FileState.QUARANTINED.value]

_CLAIMED = exists().where(tables.run.c.id == tables.file.c.run_id, tables.run.c.state == RunState.RUNNING.value)


# Scanning


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    """Watched directory with the state of its scans.

    Attributes:
        channel: the channel.
        directory: the directory.
        next_scan: the time of the next scan; during a scan, the time when its lease expires.
        error: the error of the last scan; None if it succeeded.
    """

    channel: str
    directory: WatchedDirectory
    next_scan: datetime
    error: str | None


def watched_directories(tx: Transaction, channel: str | None = None) -> list[DirectoryState]:
    """Return the watched directories, or that of one channel if it has one."""
    query = select(tables.channel).where(tables.channel.c.next_scan.is_not(None)).order_by(tables.channel.c.name)
    if channel is not None:
        query = query.where(tables.channel.c.id == channel_id(tx, channel))
    return [
        DirectoryState(
            channel=row.name,
            directory=codec.directory_from_json(row.watch),
            next_scan=row.next_scan,
            error=row.scan_error,
        )
        for row in tx.connection.execute(query)
    ]


def due_for_scan(tx: Transaction) -> list[str]:
    """Return the channels whose directories are due for a scan."""
    query = select(tables.channel.c.name).where(tables.channel.c.next_scan <= tx.now)
    return list(tx.connection.execute(query.order_by(tables.channel.c.next_scan)).scalars())


def next_scan(tx: Transaction, excluded: Collection[str] = ()) -> datetime | None:
    """Return the time of the next scan, except those of the channels in `excluded`; None if no directory is watched."""
    table = tables.channel
    return tx.connection.execute(select(func.min(table.c.next_scan)).where(table.c.name.not_in(excluded))).scalar()


def any_settling(tx: Transaction) -> bool:
    """Return whether there are files that are still settling."""
    query = select(tables.channel.c.id).where(
        tables.channel.c.next_scan.is_not(None),
        exists().where(
            tables.file.c.channel_id == tables.channel.c.id, tables.file.c.state == FileState.SETTLING.value
        ),
    )
    return tx.connection.execute(query.limit(1)).first() is not None


def begin_scan(tx: Transaction, channel: str, lease: timedelta, *, early: bool) -> WatchedDirectory | None:
    """Begin a scan of a directory, under a lease that keeps others from scanning it.

    Args:
        tx: a writing transaction.
        channel: the channel.
        lease: the duration of the lease.
        early: whether to scan even if it is not due.

    Returns:
        The directory; None if none is to be scanned now.
    """
    found = watched_directories(tx, channel)
    if not found or not (early or found[0].next_scan <= tx.now):
        return None
    extend_scan(tx, channel, lease)
    return found[0].directory


def extend_scan(tx: Transaction, channel: str, lease: timedelta) -> None:
    """Extend the lease of a scan in progress."""
    _set(tx, channel, next_scan=tx.now + lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """Result of a scan of a directory.

    Attributes:
        ready: whether there are files to ingest now.
        settles: the time when the next file will have settled if it does not change; None if none is settling.
        error: the reason why not everything could be scanned; None if everything was.
    """

    ready: bool
    settles: datetime | None
    error: str | None


def end_scan(
    tx: Transaction, channel: str, directory: WatchedDirectory, began: datetime, error: str | None
) -> ScanResult:
    """End a scan of a directory. The next is scheduled so that at most half of the time is spent scanning.

    Args:
        tx: a writing transaction.
        channel: the channel.
        directory: the directory.
        began: the time when the scan began.
        error: the reason why not everything could be scanned; an event is recorded when it changes.

    Returns:
        The result of the scan.
    """
    file = tables.file
    mine = file.c.channel_id == channel_id(tx, channel)
    oldest = tx.connection.execute(
        select(func.min(file.c.since)).where(mine, file.c.state == FileState.SETTLING.value)
    ).scalar()
    settles = None if oldest is None else oldest + timedelta(seconds=directory.settle_time)
    regular = tx.now + timedelta(seconds=directory.poll_interval)
    earliest = tx.now + max(tx.now - began, timedelta(seconds=1))
    before = tx.connection.execute(select(tables.channel.c.scan_error).where(tables.channel.c.name == channel))
    if error is not None and error != before.scalar():
        events.record(tx, EventKind.DIRECTORY_UNREADABLE, channels=[channel], text=f"{channel}: {error}")
    _set(tx, channel, next_scan=max(earliest, min(regular, settles or regular)), scan_error=error)
    return ScanResult(ready=bool(ready_files(tx, channel, 1)), settles=settles, error=error)


def _set(tx: Transaction, channel: str, **values: object) -> None:
    table = tables.channel
    tx.connection.execute(update(table).where(table.c.name == channel, table.c.next_scan.is_not(None)).values(**values))


def known(tx: Transaction, channel: str, paths: Collection[str]) -> dict[str, FileRecord]:
    """Return the records of known files, by path."""
    keys = {key_of(path): path for path in paths}
    file = tables.file.c
    columns = (file.key, file.state, file.size, file.modified, file.tag, file.since, file.changed)
    query = select(*columns, _CLAIMED.label("held")).where(
        file.channel_id == channel_id(tx, channel), file.key.in_(keys)
    )
    rows = tx.connection.execute(query)
    return {
        keys[row.key]: FileRecord(
            state=FileState(row.state),
            fingerprint=_fingerprint(row),
            since=row.since,
            reported=row.changed is not None,
            held=row.held,
        )
        for row in rows
    }


def uningested(tx: Transaction, channel: str) -> set[str]:
    """Return the keys of the files that were seen but not ingested."""
    query = select(tables.file.c.key).where(
        tables.file.c.channel_id == channel_id(tx, channel), tables.file.c.state.in_(_UNTAKEN)
    )
    return set(tx.connection.execute(query).scalars())


def record(tx: Transaction, channel: str, decisions: Mapping[str, tuple[Fingerprint, FileDecision]]) -> None:
    """Record the decisions on scanned files, and an event for those that changed after they were ingested.

    Args:
        tx: the writing transaction in which the decisions were made.
        channel: the channel.
        decisions: the fingerprints and decisions, by path.
    """
    number = channel_id(tx, channel)
    late = [path for path, (_, decision) in decisions.items() if decision is FileDecision.REPORT]
    for path in late:
        tx.connection.execute(update(tables.file).where(*_one(number, path)).values(changed=tx.now))
    if late:
        others = f", and {len(late) - 1} others" if len(late) > 1 else ""
        text = f"{channel}: {late[0]}{others}: changed after being ingested; the change is not ingested"
        events.record(tx, EventKind.FILE_CHANGED, channels=[channel], text=text)
    seen = {path: item for path, item in decisions.items() if item[1] is not FileDecision.REPORT}
    these = tables.file.c.channel_id == number, tables.file.c.key.in_([key_of(path) for path in seen])
    _record_released(tx, channel, these, "changed")
    before = tx.connection.execute(select(tables.file).where(*these))
    order_times = {row.key: _kept_order_time(row) for row in before}
    tx.connection.execute(delete(tables.file).where(*these))
    rows = [
        {
            "channel_id": number,
            "key": key_of(path),
            "path": path,
            "state": (FileState.READY if decision is FileDecision.READY else FileState.SETTLING).value,
            "size": fingerprint.size,
            "modified": fingerprint.modified,
            "order_time": order_times.get(key_of(path)) or fingerprint.modified or tx.now,
            "tag": fingerprint.tag,
            "since": tx.now,
        }
        for path, (fingerprint, decision) in seen.items()
    ]
    if rows:
        tx.connection.execute(insert(tables.file), rows)


def _kept_order_time(row: Row[Any]) -> datetime | None:
    """Return the time that orders a file, if it does not change with the file: it was quarantined at some time."""
    kept = row.state == FileState.QUARANTINED.value or row.order_time != row.modified
    return row.order_time if kept else None


def forget(tx: Transaction, channel: str, keys: Iterable[str]) -> None:
    """Delete the records of files that were not ingested and no longer exist."""
    number = channel_id(tx, channel)
    for some in _batches(keys):
        these = *_free(number), tables.file.c.key.in_(some)
        _record_released(tx, channel, these, "removed")
        tx.connection.execute(delete(tables.file).where(*these))


def _record_released(tx: Transaction, channel: str, files: Sequence[ColumnElement[bool]], what: str) -> None:
    """Record an event for those of some files that are quarantined and will not be any more."""
    query = select(tables.file.c.path).where(*files, tables.file.c.state == FileState.QUARANTINED.value)
    paths = tx.connection.execute(query.order_by(tables.file.c.path)).scalars().all()
    if paths:
        more = f", and {len(paths) - 1} more" if len(paths) > 1 else ""
        text = f"{channel}: {paths[0]}{more}: {what}, no longer quarantined"
        events.record(tx, EventKind.FILE_RELEASED, channels=[channel], text=text)


def set_watched_directory(tx: Transaction, channel: str, watch: WatchedDirectory | None) -> None:
    """Set the watched directory of a channel; records of files of the former one that were not ingested are deleted."""
    row = tx.connection.execute(select(tables.channel).where(tables.channel.c.name == channel)).one()
    wanted = None if watch is None else codec.directory_to_json(watch)
    if row.watch == wanted:
        return
    tx.connection.execute(delete(tables.file).where(*_free(row.id)))
    tx.connection.execute(
        update(tables.channel)
        .where(tables.channel.c.id == row.id)
        .values(watch=wanted, next_scan=None if watch is None else tx.now, scan_error=None)
    )


def _free(channel: int) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for files of a channel that were not ingested and that no run is reading."""
    return tables.file.c.channel_id == channel, tables.file.c.state.in_(_UNTAKEN), ~_CLAIMED


# Ingesting


@dataclass(frozen=True, slots=True)
class ReadyFile:
    """File that is ready to be ingested.

    Attributes:
        path: its path; see `kilonova.model.watched_directory`.
        fingerprint: its fingerprint.
        order_time: its modification time, or that before it was quarantined; files are ordered by it.
    """

    path: str
    fingerprint: Fingerprint
    order_time: datetime


def ready_files(tx: Transaction, channel: str, limit: int) -> list[ReadyFile]:
    """Return the next files to ingest, in order; none while a running run has claimed some.

    In a directory that is ingested in order, the files after one that is settling or quarantined are not among them.
    """
    file = tables.file.c
    number, order = channel_id(tx, channel), (file.order_time, file.path)
    mine = and_(file.channel_id == number, file.state == FileState.READY.value)
    if tx.connection.execute(select(file.key).where(mine, _CLAIMED).limit(1)).first() is not None:
        return []
    query = select(tables.file).where(mine).order_by(*order).limit(limit)
    if any(each.directory.in_order for each in watched_directories(tx, channel)):
        pending = file.state.in_([FileState.SETTLING.value, FileState.QUARANTINED.value])
        first = select(*order).where(file.channel_id == number, pending).order_by(*order).limit(1)
        if (stop := tx.connection.execute(first).first()) is not None:
            same = and_(file.order_time == stop.order_time, file.path < stop.path)
            query = query.where(or_(file.order_time < stop.order_time, same))
    return [ReadyFile(row.path, _fingerprint(row), row.order_time) for row in tx.connection.execute(query)]


def claim_files(tx: Transaction, run: int, channel: str, paths: Sequence[str]) -> None:
    """Claim files for a run; no other run is given them while it is running."""
    number = channel_id(tx, channel)
    for some in _batches(map(key_of, paths)):
        tx.connection.execute(
            update(tables.file)
            .where(tables.file.c.channel_id == number, tables.file.c.key.in_(some))
            .values(run_id=run)
        )


def resolve_files(tx: Transaction, run: int, channel: str, outcomes: Sequence[FileOutcome]) -> None:
    """Record the outcomes of the files of a run, in the transaction that publishes it.

    Raises:
        BrokenInvariant: the run had not claimed all of them, or one was already ingested.
    """
    number = channel_id(tx, channel)
    mine = and_(
        tables.file.c.channel_id == number,
        tables.file.c.run_id == run,
        tables.file.c.state == FileState.READY.value,
    )
    ingested = [key_of(outcome.path) for outcome in outcomes if outcome.state is FileState.INGESTED]
    count = 0
    for some in _batches(ingested):
        values = {"state": FileState.INGESTED.value, "since": tx.now}
        count += tx.connection.execute(
            update(tables.file).where(mine, tables.file.c.key.in_(some)).values(**values)
        ).rowcount
    for outcome in outcomes:
        where = and_(mine, tables.file.c.key == key_of(outcome.path))
        match outcome.state:
            case FileState.QUARANTINED:
                values = {"state": FileState.QUARANTINED.value, "since": tx.now, "error": outcome.error}
                count += tx.connection.execute(update(tables.file).where(where).values(**values)).rowcount
                events.record(
                    tx,
                    EventKind.FILE_QUARANTINED,
                    run=run,
                    channels=[channel],
                    text=f"{channel}: {outcome.path}: {outcome.error}",
                )
            case FileState.SETTLING:
                values = {"state": FileState.SETTLING.value, "since": tx.now}
                count += tx.connection.execute(update(tables.file).where(where).values(**values)).rowcount
    if count != len(outcomes):
        raise BrokenInvariant("a run did not hold all files that it read", run=run, channel=channel)


def retry_files(tx: Transaction, channel: str, path: str | None, what: str = "retried") -> int:
    """Make a quarantined file, or all of them, ready to be ingested again.

    Args:
        tx: a writing transaction.
        channel: the channel.
        path: the file; None for all.
        what: what happens to them, for the event.

    Returns:
        The number of files.
    """
    number = channel_id(tx, channel)
    where = [tables.file.c.channel_id == number, tables.file.c.state == FileState.QUARANTINED.value]
    if path is not None:
        where += _one(number, path)
    _record_released(tx, channel, where, what)
    values = {"state": FileState.READY.value, "since": tx.now, "error": None, "run_id": None}
    count = tx.connection.execute(update(tables.file).where(*where).values(**values)).rowcount
    _set(tx, channel, next_scan=tx.now)
    return count


# Listing


def files(tx: Transaction, channel: str, state: FileState, limit: int) -> list[WatchedFile]:
    """Return the files of a channel in a state, the last in order first."""
    query = (
        select(tables.file)
        .where(tables.file.c.channel_id == channel_id(tx, channel), tables.file.c.state == state.value)
        .order_by(tables.file.c.order_time.desc(), tables.file.c.path.desc())
        .limit(limit)
    )
    return [_file(row) for row in tx.connection.execute(query)]


def count_files(tx: Transaction, channel: str, state: FileState) -> int:
    """Return the number of files of a channel in a state."""
    mine = tables.file.c.channel_id == channel_id(tx, channel), tables.file.c.state == state.value
    return int(tx.connection.execute(select(func.count()).where(*mine)).scalar_one())


def file_record(tx: Transaction, channel: str, path: str) -> WatchedFile | None:
    """Return the record of a file of a channel; None if it was never seen."""
    row = tx.connection.execute(select(tables.file).where(*_one(channel_id(tx, channel), path))).first()
    return None if row is None else _file(row)


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    left = iter(keys)
    while some := list(islice(left, BATCH)):
        yield some


def _one(channel: int, path: str) -> tuple[ColumnElement[bool], ...]:
    return tables.file.c.channel_id == channel, tables.file.c.key == key_of(path)


def _fingerprint(row: Row[Any]) -> Fingerprint:
    return Fingerprint(row.size, row.modified, row.tag)


def _file(row: Row[Any]) -> WatchedFile:
    return WatchedFile(
        path=row.path,
        state=FileState(row.state),
        fingerprint=_fingerprint(row),
        since=row.since,
        run=row.run_id,
        error=row.error,
        changed=row.changed,
    )
