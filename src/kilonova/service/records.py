"""What can be done to a project with its catalog alone: looking, and telling servers and people what they may do."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kilonova.catalog import bindings, chains, events, files, firings, monitoring, outlets, registry, servers, tokens
from kilonova.catalog import runs as records
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.files import Watched
from kilonova.catalog.monitoring import Counts
from kilonova.catalog.observation import observe
from kilonova.catalog.stretches import stretches
from kilonova.engine.log import entry_of
from kilonova.errors import DeclarationError, UnknownName, closest
from kilonova.model.channel import Chronicle
from kilonova.model.event import Event, EventKind
from kilonova.model.file import File, FileState
from kilonova.model.firing import Firing
from kilonova.model.outlet import Webhook
from kilonova.model.policy import Policy
from kilonova.model.role import Role
from kilonova.model.run import Input, Run, RunState
from kilonova.model.schema import Schema
from kilonova.model.task import Task
from kilonova.schedule.compacting import Stretch
from kilonova.schedule.planning import why_due

if TYPE_CHECKING:
    from kilonova.service.explanation import Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run did.

    Attributes:
        run: its number.
        made: what it made of each channel.
        aside: how many files it set aside.
    """

    run: int
    made: tuple[records.Made, ...]
    aside: int = 0


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
class RunRecord:
    """A run, as the catalog knows it.

    Attributes:
        run: the run.
        made: what it made of each channel.
        firings: what it was started for.
    """

    run: Run
    made: tuple[records.Made, ...]
    firings: tuple[Firing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """A run, and its log."""

    run: Run
    text: str


def closing(run: Run) -> str:
    """What the log of a run whose process died cannot say itself; empty for others."""
    if run.state is not RunState.ABANDONED or run.ended is None:
        return ""
    return entry_of(run.ended, "run", f"abandoned: {run.error}")


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
        writer: the task that writes it; None for a source.
    """

    chronicle: Chronicle
    writer: str | None


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
        made: what they made.
        waits: the tasks that are held back by their schedules, and until when.
    """

    channels: Mapping[str, Chronicle]
    tasks: Mapping[str, registry.Registered]
    due: Mapping[str, str]
    lags: tuple[Lag, ...]
    runs: tuple[Run, ...]
    made: tuple[records.Made, ...]
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


class Records:
    """A project's catalog, for those who need no Spark.

    Args:
        catalog: the catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    # Looking

    def due(self) -> dict[str, str]:
        """The tasks that have something to do themselves, and why."""
        with self.catalog.reading() as tx:
            _, progress, chronicles = observe(tx)
        return {name: why for name, item in progress.items() if (why := why_due(item, chronicles))}

    def status(self, limit: int = 5) -> Status:
        """Channels, tasks, cursors, lags and the last runs."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            _, progress, chronicles = observe(tx)
            tasks = registry.tasks(tx)
            history = records.history(tx, limit)
            made = records.outputs(tx, [run.number for run in history])
        lags = tuple(
            Lag(task=name, channel=channel, cursor=known.cursor(channel), newest=chronicles[channel].effective)
            for name, known in tasks.items()
            for channel in known.task.reads
        )
        return Status(
            channels=chronicles,
            tasks=tasks,
            due={name: why for name, item in progress.items() if (why := why_due(item, chronicles))},
            lags=lags,
            runs=tuple(history),
            made=tuple(made),
            waits={name: item.waits_until for name, item in progress.items() if item.waits_until is not None},
        )

    def channel(self, name: str) -> ChannelStatus:
        """How a channel stands.

        Raises:
            UnknownName: there is no such channel.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return _channels(tx, [name])[0]

    def channels(self, after: str = "", limit: int | None = None) -> list[ChannelStatus]:
        """How the channels stand, by name: those after a name, and at most so many."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return _channels(tx, chains.channel_names(tx, after, limit))

    def task(self, name: str) -> TaskStatus:
        """How a task stands.

        Raises:
            UnknownName: there is no such task.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return _tasks(tx, [name])[0]

    def tasks(self, after: str = "", limit: int | None = None) -> list[TaskStatus]:
        """How the tasks stand, by name: those after a name, and at most so many."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return _tasks(tx, registry.task_names(tx, after, limit))

    def binding(self, name: str) -> bindings.Bound:
        """A binding.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return bindings.bindings(tx, [name])[name]

    def bindings(self, after: str = "", limit: int | None = None) -> list[bindings.Bound]:
        """The bindings by name: those after a name, and at most so many."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return list(bindings.bindings(tx, bindings.binding_names(tx, after, limit)).values())

    def firings(self, limit: int, binding: str | None = None, before: int | None = None) -> list[Firing]:
        """The firings, of all bindings or one, newest first: those before a number, and at most so many.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            if binding is not None:
                bindings.binding_id(tx, binding)
            return firings.firings(tx, limit, binding, before)

    def servers(self, limit: int) -> list[servers.Server]:
        """The servers, those that started last first."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return servers.servers(tx, limit)

    def operation(self, limit: int = 20, binding: str | None = None) -> Operation:
        """What runs by itself, and how that goes.

        Args:
            limit: how many of the last firings and servers to tell of.
            binding: a binding, to tell of it and its firings only.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return Operation(
                bindings=bindings.bindings(tx, None if binding is None else [binding]),
                firings=tuple(firings.firings(tx, limit, binding)),
                servers=tuple(servers.servers(tx, limit)),
            )

    def counts(self) -> Counts:
        """How much there is of what, for monitoring."""
        with self.catalog.reading() as tx:
            return monitoring.counts(tx)

    def known_channel(self, name: str) -> None:
        """Refuse a channel that is not there.

        Raises:
            UnknownName: there is no such channel.
        """
        with self.catalog.reading() as tx:
            chains.channel_id(tx, name)

    def newest_event(self) -> int:
        """The number of the last event; 0 if there is none."""
        with self.catalog.reading() as tx:
            return events.newest(tx)

    def events(self, since: int = 0, limit: int | None = None) -> list[Event]:
        """What has happened after an event, in order."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return events.since(tx, since, limit)

    def forget(self, age: timedelta) -> None:
        """Forget events, firings that have ended and servers that have stopped longer ago than that."""
        with self.catalog.writing() as tx:
            for forget in (events.forget, firings.forget, servers.forget):
                forget(tx, tx.now - age)

    def explain(self, view: str, runs: int = 5) -> tuple[Kept, ...]:
        """How a view is kept up to date: see `kilonova.service.explanation`.

        Args:
            view: its name.
            runs: how many of its last runs to tell of.

        Raises:
            UnknownName: there is no such view.
        """
        from kilonova.service.explanation import explain

        self.catalog.check()
        with self.catalog.reading() as tx:
            return explain(tx, view, runs)

    def history(self, limit: int | None = None, before: int | None = None) -> tuple[list[Run], list[records.Made]]:
        """The runs, newest first, and what they made: those before a number, and at most so many."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            history = records.history(tx, limit, before)
            return history, records.outputs(tx, [run.number for run in history])

    def one_run(self, number: int | None = None) -> RunRecord:
        """A run, what it made, and what it was started for.

        Args:
            number: its number; None for the last run.

        Raises:
            UnknownName: there is no such run.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            if number is None:
                newest = records.history(tx, 1)
                if not newest:
                    raise UnknownName("there are no runs yet", hint="Make one with: kilonova run")
                number = newest[0].number
            run = records.one(tx, number)
            made, fired = records.outputs(tx, [number]), firings.of_run(tx, number)
        return RunRecord(run=run, made=tuple(made), firings=tuple(fired))

    def told(self, number: int) -> Told:
        """A run with what its tasks read and wrote; as they are declared, for those that have published nothing.

        Raises:
            UnknownName: there is no such run.
        """
        catalog = self.catalog.check()
        with self.catalog.reading() as tx:
            run = records.one(tx, number)
            made = records.outputs(tx, [number])
            read = [item for _, item in records.inputs(tx, [number])]
            reserved = records.written_by(tx, number)
            try:
                declared = {name: known.task for name, known in registry.tasks(tx, run.tasks).items()}
            except UnknownName:  # one was taken out of service in the meantime
                declared = {}
            steps = tuple(_step(task, made, read, declared.get(task or ""), reserved) for task in run.tasks or (None,))
            named = {each.channel for step in steps for each in step.read}
            named |= {each.channel for step in steps for each in step.written}
            present = named & set(chains.channel_names(tx))
            schemas = {name: chains.channel(tx, name).schema for name in present}
        known = {name: schema for name, schema in schemas.items() if schema is not None}
        return Told(catalog=catalog, run=run, steps=steps, schemas=known)

    # Telling the outside

    def add_webhook(
        self, name: str, url: str, on: Iterable[str], binding: str | None = None, secret: str | None = None
    ) -> None:
        """Let servers tell an HTTP endpoint of what happens from now on.

        Args:
            name: the webhook's name.
            url: where events are sent.
            on: the kinds of events, such as `failed`.
            binding: a binding, to tell of its events only.
            secret: the variable in the servers' environment that holds the secret by which to sign; None not to.

        Raises:
            DeclarationError: there is a webhook of that name, or it cannot be.
            UnknownName: there is no such kind or binding.
        """
        self.catalog.check()
        kinds = frozenset(map(_kind, on))
        webhook = Webhook(name=name, url=url, kinds=kinds, binding=binding, secret=secret)
        with self.catalog.writing() as tx:
            outlets.add(tx, webhook)

    def remove_webhook(self, name: str) -> None:
        """Tell a webhook of nothing more.

        Raises:
            UnknownName: there is no such webhook.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            outlets.remove(tx, name)

    def outlets(self) -> list[outlets.Installed]:
        """The webhooks, and OpenLineage if servers have told it of something, with how far each has come."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return outlets.outlets(tx)

    def try_webhook(self, name: str) -> None:
        """Send a message to a webhook from here.

        Raises:
            UnknownName: there is no such webhook.
            Undelivered: it was not taken.
        """
        from kilonova.service.webhooks import send, trial

        catalog = self.catalog.check()
        with self.catalog.reading() as tx:
            webhook, now = outlets.webhook(tx, name), tx.now
        send(webhook, trial(catalog, now), now, os.environ)

    # Compaction

    def stretches(self) -> list[Stretch]:
        """The channels that have deltas after their newest base, and what merging them costs; by name."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return sorted(stretches(tx), key=lambda each: each.channel)

    def set_policy(self, channel: str, policy: Policy) -> None:
        """Say when a channel is compacted by itself.

        Raises:
            UnknownName: there is no such channel.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            chains.set_policy(tx, channel, policy)

    # Files

    def files(self, channel: str, limit: int = 20, state: FileState | None = None) -> Inbox:
        """The files of a watched directory.

        Args:
            channel: the channel.
            limit: how many to tell of at most.
            state: tell only of those that stand there.

        Raises:
            UnknownName: there is no such channel.
        """
        self.catalog.check()
        order = (FileState.ASIDE, FileState.WAITING, FileState.READY, FileState.TAKEN)
        with self.catalog.reading() as tx:
            watched = files.watched(tx, channel)
            found = [file for each in order if state in (None, each) for file in files.files(tx, channel, each, limit)]
        return Inbox(watched=watched[0] if watched else None, files=tuple(found[:limit]))

    def retry(self, channel: str, path: str | None = None) -> int:
        """Let files that are set aside be tried again.

        Args:
            channel: the channel.
            path: the file; None for all.

        Returns:
            How many.

        Raises:
            UnknownName: there is no such channel, or the file is not set aside.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            count = files.retry(tx, channel, path)
            if path is not None and not count:
                raise _not_aside(files.one(tx, channel, path), channel, path)
            return count

    # Triggers

    def fire(self, binding: str) -> None:
        """Let a server start a binding, as if one of its triggers had fired.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            firings.fire_by_hand(tx, binding, f"by hand, {getpass.getuser()}")

    def pause(self, binding: str) -> None:
        """Hold the triggers of a binding back until `resume`; what they wait for meanwhile they see then.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            bindings.pause(tx, binding, True)

    def resume(self, binding: str) -> None:
        """Let the triggers of a binding go again.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            bindings.pause(tx, binding, False)

    # Letting in

    def create_token(self, name: str, role: str) -> str:
        """Make a token for the HTTP API.

        Args:
            name: whose it is.
            role: what it is good for: `read`, `operate` or `admin`.

        Returns:
            The secret, which is kept nowhere.

        Raises:
            DeclarationError: there is a token of that name, or no such role.
        """
        self.catalog.check()
        roles = [each.value for each in Role]
        if role not in roles:
            raise DeclarationError(f"there is no role {role}", hint=closest(role, roles))
        with self.catalog.writing() as tx:
            return tokens.create(tx, name, Role(role))

    def revoke_token(self, name: str) -> None:
        """Make a token good for nothing.

        Raises:
            UnknownName: there is no such token.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            tokens.revoke(tx, name)

    def tokens(self) -> list[tokens.Token]:
        """The tokens, by name, without their secrets."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return tokens.tokens(tx)


def _channels(tx: Transaction, names: Sequence[str]) -> list[ChannelStatus]:
    found, writers = chains.chronicles(tx, names), registry.writers(tx, names)
    return [ChannelStatus(chronicle=found[name], writer=writers.get(name)) for name in names]


def _tasks(tx: Transaction, names: Sequence[str]) -> list[TaskStatus]:
    _, progress, chronicles = observe(tx, names)
    known = registry.tasks(tx, names)
    return [
        TaskStatus(
            registered=known[name],
            due=why_due(progress[name], chronicles),
            lags=tuple(
                Lag(
                    task=name, channel=channel, cursor=known[name].cursor(channel), newest=chronicles[channel].effective
                )
                for channel in known[name].task.reads
            ),
            waits_until=progress[name].waits_until,
        )
        for name in names
    ]


def _kind(name: str) -> EventKind:
    """A kind of events by its name, in which blanks may be dashes."""
    names = [kind.value.replace(" ", "-") for kind in EventKind]
    if name.replace(" ", "-") not in names:
        raise UnknownName(f"there are no events {name}", hint=closest(name, names))
    return EventKind(name.replace("-", " "))


def _step(
    task: str | None,
    made: Sequence[records.Made],
    read: Sequence[Input],
    declared: Task | None,
    reserved: Sequence[str],
) -> Step:
    """What a task of a run read and wrote, as it is recorded; as it is declared, where nothing is."""
    points = {item.channel: item.end for item in read if item.task == task}
    written = {
        item.channel: Written(channel=item.channel, point=item.point, rows=item.rows, bytes=item.bytes)
        if item.block is not None
        else Written(channel=item.channel)
        for item in made
        if item.task == task
    }
    reads = list(points) or list(declared.reads if declared else ())
    writes = list(written) or (list(declared.writes if declared else ()) if task is not None else reserved)
    return Step(
        task=task,
        read=tuple(Read(channel=name, point=points.get(name)) for name in reads),
        written=tuple(written.get(name, Written(channel=name)) for name in writes),
    )


def _not_aside(file: File | None, channel: str, path: str) -> UnknownName:
    if file is None:
        return UnknownName(
            "there is no such file", channel=channel, path=path, hint=f"kilonova files {channel} shows which there are"
        )
    taken = file.state is FileState.TAKEN
    hint = f"To take it again nevertheless: kilonova ingest {channel} {path}" if taken else "It is going to be taken"
    where = f"was taken by run {file.run}" if taken else f"is {file.state.value}"
    return UnknownName(f"the file {where}", channel=channel, path=path, hint=hint)
