"""Watched directories and their files; see `kilonova.model.file`.

Each file once: a run has the files that it is going to read put down as its own in the transaction that starts it, and
as taken in the one that publishes it. No other run is given a file that a running run has, a file's path is there once
per channel, and writing transactions come one after the other. What a run that did not publish had is anybody's again,
without anyone having to say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, delete, exists, func, insert, select, update

from kilonova.catalog import codec, events, tables
from kilonova.catalog.chains import channel_id
from kilonova.catalog.database import Transaction
from kilonova.errors import BrokenInvariant
from kilonova.model.directory import Directory
from kilonova.model.event import EventKind
from kilonova.model.file import Fate, File, FileState, Fingerprint, key_of
from kilonova.model.run import RunState
from kilonova.schedule.gathering import Known, Verdict

BATCH = 500
"""How many files are looked up or written down at once."""

_UNTAKEN = [FileState.WAITING.value, FileState.READY.value, FileState.ASIDE.value]

_HELD = exists().where(tables.run.c.id == tables.file.c.run_id, tables.run.c.state == RunState.RUNNING.value)


# Looking


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A watched directory, and how looking at it goes.

    Attributes:
        channel: the channel.
        directory: the directory.
        next_look: when it is looked at next; while somebody is at it, when others may.
        error: why it could not be looked at the last time.
    """

    channel: str
    directory: Directory
    next_look: datetime
    error: str | None


def watched(tx: Transaction, channel: str | None = None) -> list[Watched]:
    """The watched directories, or that of one channel if it has one."""
    query = select(tables.channel).where(tables.channel.c.next_look.is_not(None)).order_by(tables.channel.c.name)
    if channel is not None:
        query = query.where(tables.channel.c.id == channel_id(tx, channel))
    return [
        Watched(
            channel=row.name,
            directory=codec.directory_from_json(row.watch),
            next_look=row.next_look,
            error=row.look_error,
        )
        for row in tx.connection.execute(query)
    ]


def due(tx: Transaction) -> list[str]:
    """The channels whose directories are to be looked at now."""
    query = select(tables.channel.c.name).where(tables.channel.c.next_look <= tx.now)
    return list(tx.connection.execute(query.order_by(tables.channel.c.next_look)).scalars())


def next_look(tx: Transaction, but: Collection[str] = ()) -> datetime | None:
    """When the next directory is to be looked at, but for those of some channels; None if none is watched."""
    table = tables.channel
    return tx.connection.execute(select(func.min(table.c.next_look)).where(table.c.name.not_in(but))).scalar()


def any_settling(tx: Transaction) -> bool:
    """Whether there are files that are not complete yet."""
    query = select(tables.channel.c.id).where(
        tables.channel.c.next_look.is_not(None),
        exists().where(tables.file.c.channel_id == tables.channel.c.id, tables.file.c.state == FileState.WAITING.value),
    )
    return tx.connection.execute(query.limit(1)).first() is not None


def begin_look(tx: Transaction, channel: str, lease: timedelta, *, early: bool) -> Directory | None:
    """Somebody is going to look at a directory, which keeps others from doing so for as long as a lease lasts.

    Args:
        tx: a writing transaction.
        channel: the channel.
        lease: for how long others leave it alone.
        early: whether to look although it is not time yet.

    Returns:
        The directory; None if there is none to be looked at now.
    """
    found = watched(tx, channel)
    if not found or not (early or found[0].next_look <= tx.now):
        return None
    prolong_look(tx, channel, lease)
    return found[0].directory


def prolong_look(tx: Transaction, channel: str, lease: timedelta) -> None:
    """Whoever is looking at a directory is still at it."""
    _set(tx, channel, next_look=tx.now + lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """How things stand after a look.

    Attributes:
        ready: whether there are files to be taken.
        settles: when the next file will be complete if it stays as it is; None if none is awaited.
        error: why not everything could be looked at.
    """

    ready: bool
    settles: datetime | None
    error: str | None


def end_look(tx: Transaction, channel: str, directory: Directory, began: datetime, error: str | None) -> Looked:
    """Somebody has looked at a directory. At most half of the time is spent with looking.

    Args:
        tx: a writing transaction.
        channel: the channel.
        directory: the directory.
        began: when the look began.
        error: why not everything could be looked at, which is told once.

    Returns:
        How things stand.
    """
    file = tables.file
    mine = file.c.channel_id == channel_id(tx, channel)
    oldest = tx.connection.execute(
        select(func.min(file.c.since)).where(mine, file.c.state == FileState.WAITING.value)
    ).scalar()
    settles = None if oldest is None else oldest + timedelta(seconds=directory.settle)
    regular = tx.now + timedelta(seconds=directory.every)
    earliest = tx.now + max(tx.now - began, timedelta(seconds=1))
    before = tx.connection.execute(select(tables.channel.c.look_error).where(tables.channel.c.name == channel))
    if error is not None and error != before.scalar():
        events.tell(tx, EventKind.UNSEEN, channels=[channel], said=f"{channel}: {error}")
    _set(tx, channel, next_look=max(earliest, min(regular, settles or regular)), look_error=error)
    ready = select(file.c.key).where(mine, file.c.state == FileState.READY.value).limit(1)
    return Looked(ready=tx.connection.execute(ready).first() is not None, settles=settles, error=error)


def _set(tx: Transaction, channel: str, **values: object) -> None:
    table = tables.channel
    tx.connection.execute(update(table).where(table.c.name == channel, table.c.next_look.is_not(None)).values(**values))


def known(tx: Transaction, channel: str, paths: Collection[str]) -> dict[str, Known]:
    """What is known of files, by path."""
    keys = {key_of(path): path for path in paths}
    file = tables.file.c
    columns = (file.key, file.state, file.size, file.modified, file.tag, file.since, file.changed)
    query = select(*columns, _HELD.label("held")).where(file.channel_id == channel_id(tx, channel), file.key.in_(keys))
    rows = tx.connection.execute(query)
    return {
        keys[row.key]: Known(
            state=FileState(row.state),
            fingerprint=_fingerprint(row),
            since=row.since,
            told=row.changed is not None,
            held=row.held,
        )
        for row in rows
    }


def untaken(tx: Transaction, channel: str) -> set[str]:
    """The keys of the files that were seen, but not taken."""
    query = select(tables.file.c.key).where(
        tables.file.c.channel_id == channel_id(tx, channel), tables.file.c.state.in_(_UNTAKEN)
    )
    return set(tx.connection.execute(query).scalars())


def record(tx: Transaction, channel: str, verdicts: Mapping[str, tuple[Fingerprint, Verdict]]) -> None:
    """Write down what follows from seeing files, and tell of those that changed too late.

    Args:
        tx: the writing transaction in which it was found that this follows.
        channel: the channel.
        verdicts: what was seen and what follows, by path.
    """
    number = channel_id(tx, channel)
    late = [path for path, (_, verdict) in verdicts.items() if verdict is Verdict.TELL]
    for path in late:
        tx.connection.execute(update(tables.file).where(*_one(number, path)).values(changed=tx.now))
    if late:
        others = f", and {len(late) - 1} others" if len(late) > 1 else ""
        said = f"{channel}: {late[0]}{others}: changed after it was taken, which is not taken again"
        events.tell(tx, EventKind.CHANGED, channels=[channel], said=said)
    seen = {path: item for path, item in verdicts.items() if item[1] is not Verdict.TELL}
    keys = [key_of(path) for path in seen]
    tx.connection.execute(delete(tables.file).where(tables.file.c.channel_id == number, tables.file.c.key.in_(keys)))
    rows = [
        {
            "channel_id": number,
            "key": key_of(path),
            "path": path,
            "state": (FileState.READY if verdict is Verdict.READY else FileState.WAITING).value,
            "size": fingerprint.size,
            "modified": fingerprint.modified,
            "tag": fingerprint.tag,
            "since": tx.now,
        }
        for path, (fingerprint, verdict) in seen.items()
    ]
    if rows:
        tx.connection.execute(insert(tables.file), rows)


def forget(tx: Transaction, channel: str, keys: Iterable[str]) -> None:
    """Files that were not taken are there no more."""
    number = channel_id(tx, channel)
    for some in _batches(keys):
        tx.connection.execute(delete(tables.file).where(*_free(number), tables.file.c.key.in_(some)))


def rewatch(tx: Transaction, channel: str, watch: Directory | None) -> None:
    """A channel takes the files of this directory from now on; those of before that were not taken are forgotten."""
    row = tx.connection.execute(select(tables.channel).where(tables.channel.c.name == channel)).one()
    wanted = None if watch is None else codec.directory_to_json(watch)
    if row.watch == wanted:
        return
    tx.connection.execute(delete(tables.file).where(*_free(row.id)))
    tx.connection.execute(
        update(tables.channel)
        .where(tables.channel.c.id == row.id)
        .values(watch=wanted, next_look=None if watch is None else tx.now, look_error=None)
    )


def _free(channel: int) -> tuple[ColumnElement[bool], ...]:
    """The files of a channel that were not taken, and that no run is reading."""
    return tables.file.c.channel_id == channel, tables.file.c.state.in_(_UNTAKEN), ~_HELD


# Taking


@dataclass(frozen=True, slots=True)
class Ready:
    """A file that is to be taken."""

    path: str
    fingerprint: Fingerprint


def ready(tx: Transaction, channel: str, limit: int) -> list[Ready]:
    """The files that are to be taken next, in the order in which they were modified; none while a run has some."""
    number = channel_id(tx, channel)
    mine = and_(tables.file.c.channel_id == number, tables.file.c.state == FileState.READY.value)
    if tx.connection.execute(select(tables.file.c.key).where(mine, _HELD).limit(1)).first() is not None:
        return []
    query = select(tables.file).where(mine).order_by(tables.file.c.modified, tables.file.c.path).limit(limit)
    return [Ready(row.path, _fingerprint(row)) for row in tx.connection.execute(query)]


def claim(tx: Transaction, run: int, channel: str, paths: Sequence[str]) -> None:
    """A run is going to read files; no other is given them while it runs."""
    number = channel_id(tx, channel)
    for some in _batches(map(key_of, paths)):
        tx.connection.execute(
            update(tables.file)
            .where(tables.file.c.channel_id == number, tables.file.c.key.in_(some))
            .values(run_id=run)
        )


def settle(tx: Transaction, run: int, channel: str, fates: Sequence[Fate]) -> None:
    """A run says what became of files that it had, in the transaction that publishes it.

    Raises:
        BrokenInvariant: it had not all of them, or one was taken already.
    """
    number = channel_id(tx, channel)
    mine = and_(
        tables.file.c.channel_id == number,
        tables.file.c.run_id == run,
        tables.file.c.state == FileState.READY.value,
    )
    taken = [key_of(fate.path) for fate in fates if fate.state is FileState.TAKEN]
    count = 0
    for some in _batches(taken):
        values = {"state": FileState.TAKEN.value, "since": tx.now}
        count += tx.connection.execute(
            update(tables.file).where(mine, tables.file.c.key.in_(some)).values(**values)
        ).rowcount
    for fate in fates:
        where = and_(mine, tables.file.c.key == key_of(fate.path))
        match fate.state:
            case FileState.ASIDE:
                values = {"state": FileState.ASIDE.value, "since": tx.now, "error": fate.error}
                count += tx.connection.execute(update(tables.file).where(where).values(**values)).rowcount
                events.tell(
                    tx, EventKind.SET_ASIDE, run=run, channels=[channel], said=f"{channel}: {fate.path}: {fate.error}"
                )
            case None:
                count += tx.connection.execute(delete(tables.file).where(where)).rowcount
    if count != len(fates):
        raise BrokenInvariant("a run had not all of the files that it read", run=run, channel=channel)


def retry(tx: Transaction, channel: str, path: str | None) -> int:
    """Let a file that is set aside, or all of them, be tried again.

    Returns:
        How many.
    """
    number = channel_id(tx, channel)
    where = [tables.file.c.channel_id == number, tables.file.c.state == FileState.ASIDE.value]
    if path is not None:
        where += _one(number, path)
    values = {"state": FileState.READY.value, "since": tx.now, "error": None, "run_id": None}
    count = tx.connection.execute(update(tables.file).where(*where).values(**values)).rowcount
    _set(tx, channel, next_look=tx.now)
    return count


# Showing


def files(tx: Transaction, channel: str, state: FileState, limit: int) -> list[File]:
    """Files of a channel, those that were modified last first."""
    query = (
        select(tables.file)
        .where(tables.file.c.channel_id == channel_id(tx, channel), tables.file.c.state == state.value)
        .order_by(tables.file.c.modified.desc(), tables.file.c.path.desc())
        .limit(limit)
    )
    return [_file(row) for row in tx.connection.execute(query)]


def one(tx: Transaction, channel: str, path: str) -> File | None:
    """A file of a channel; None if it was never seen."""
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


def _file(row: Row[Any]) -> File:
    return File(
        path=row.path,
        state=FileState(row.state),
        fingerprint=_fingerprint(row),
        since=row.since,
        run=row.run_id,
        error=row.error,
        changed=row.changed,
    )
