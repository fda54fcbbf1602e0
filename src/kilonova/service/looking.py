"""Looking at a project, for which its catalog is enough."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from kilonova.catalog import (
    bindings,
    chains,
    events,
    files,
    firings,
    history,
    monitoring,
    outlets,
    points,
    prospects,
    registry,
    schemas,
    servers,
    tokens,
)
from kilonova.catalog import runs as records
from kilonova.catalog.consumption import consumed
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.monitoring import Counts
from kilonova.catalog.observation import observe
from kilonova.catalog.overview import Overview, headways, overview
from kilonova.catalog.past import Past, past
from kilonova.catalog.prospects import Pending, Upcoming
from kilonova.catalog.stretches import stretches
from kilonova.errors import UnknownName
from kilonova.model.event import Event, EventKind
from kilonova.model.file import FileState
from kilonova.model.firing import Firing, FiringState
from kilonova.model.headway import Headway
from kilonova.model.policy import Policy
from kilonova.model.run import Input, Run, RunKind, RunState
from kilonova.model.task import Task
from kilonova.schedule.compacting import Stretch
from kilonova.schedule.planning import why_due
from kilonova.service.assembly import Assembly, assembly
from kilonova.service.growth import Size, growth
from kilonova.service.reports import (
    Chain,
    ChannelStatus,
    Inbox,
    Lag,
    Operation,
    Read,
    RunDetail,
    RunSummary,
    Status,
    Step,
    TaskStatus,
    Told,
    Written,
)

if TYPE_CHECKING:
    from kilonova.service.explanation import Kept
    from kilonova.service.outlook import Outlook


class Looking:
    """How things stand, as the catalog says.

    Args:
        catalog: the catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def due(self, among: Iterable[str] | None = None) -> dict[str, str]:
        """The tasks that have something to do themselves, and why.

        Args:
            among: names of tasks, views or bindings, for those of their tasks; None for all.

        Raises:
            UnknownName: there is no such task.
        """
        from kilonova.service.explanation import tasks_named

        with self.catalog.reading() as tx:
            _, progress, chronicles = observe(tx, None if among is None else tasks_named(tx, among))
        return {name: why for name, item in progress.items() if (why := why_due(item, chronicles))}

    def status(self, limit: int = 5) -> Status:
        """Channels, tasks, cursors, lags and the last runs."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            _, progress, chronicles = observe(tx)
            tasks = registry.tasks(tx)
            runs = _summaries(tx, history.runs(tx, limit))
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
            runs=tuple(runs),
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

    def chain(self, channel: str, before: int | None = None, limit: int = 100) -> Chain:
        """The points of a channel and all that became of them, newest first.

        Args:
            channel: the channel.
            before: only those before this number; None for all.
            limit: at most so many.

        Raises:
            UnknownName: there is no such channel.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return Chain(points=points.point_records(tx, channel, before, limit), first=points.first_kept(tx, channel))

    def growth(self, channel: str, limit: int = 200) -> tuple[Size, ...]:
        """How large a channel was at its last filled points, at most so many, oldest first.

        Raises:
            UnknownName: there is no such channel.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return growth(tx, channel, limit)

    def schemas(self, channel: str, limit: int = 20) -> tuple[schemas.SchemaRecord, ...]:
        """The last changes of a channel's schema, at most so many, newest first.

        Raises:
            UnknownName: there is no such channel.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return schemas.schemas(tx, channel, limit)

    def readers(self, channel: str) -> tuple[Lag, ...]:
        """Which tasks read a channel, those left out that write it, by name, and how far each is behind.

        Raises:
            UnknownName: there is no such channel.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            newest = chains.newest(tx, channel)
            return tuple(
                Lag(task=name, channel=channel, cursor=known.cursor(channel), newest=newest)
                for name, known in registry.readers(tx, channel).items()
            )

    def assembly(self, channel: str, at: int | None = None) -> Assembly:
        """How a snapshot of a channel would be put together now, and what that costs.

        Args:
            channel: the channel.
            at: the point; None for the newest.

        Raises:
            UnknownName: there is no such channel, or the point is not readable, or has been collected.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return assembly(tx, channel, at)

    def outlook(self, task: str) -> Outlook:
        """What a task would do if it ran now.

        Raises:
            UnknownName: there is no such task.
        """
        from kilonova.service.outlook import outlook

        self.catalog.check()
        with self.catalog.reading() as tx:
            return outlook(tx, task)

    def past(self, task: str, before: int | None = None, limit: int = 100) -> tuple[Past, ...]:
        """The last runs of a task that made something or found nothing changed, newest first.

        Args:
            task: the task.
            before: only those before this number; None for all.
            limit: at most so many.

        Raises:
            UnknownName: there is no such task.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return past(tx, task, before, limit)

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

    def prospects(self, after: str = "", limit: int | None = None, names: Iterable[str] | None = None) -> list[Pending]:
        """What the triggers of bindings wait for, by name.

        Args:
            after: only bindings after this name.
            limit: how many at most.
            names: these bindings, instead of a page of all.

        Raises:
            UnknownName: a name is not that of a binding.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return prospects.prospects(tx, bindings.binding_names(tx, after, limit) if names is None else names)

    def upcoming(self, limit: int) -> list[Upcoming]:
        """The triggers whose times come next, soonest first."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return prospects.upcoming(tx, limit)

    def firings(
        self, limit: int, binding: str | None = None, before: int | None = None, state: FiringState | None = None
    ) -> list[Firing]:
        """The firings, of all bindings or one, newest first: those before a number or in a state, and at most so many.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return firings.firings(tx, limit, binding, before, state)

    def attendance(self, limit: int) -> list[servers.Attending]:
        """The servers, those that are alive first, and what each has taken on."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return servers.attendance(tx, limit)

    def takeovers(self, limit: int) -> list[Event]:
        """When servers went silent or runs did not end by themselves, so that others took over; newest first."""
        return self.events_before(None, limit, (EventKind.SERVER_SILENT, EventKind.ABANDONED))

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

    def overview(self) -> Overview:
        """All channels and tasks at a glance."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return overview(tx)

    def running(self) -> dict[int, Headway | None]:
        """The runs that go on, and how far they have come, if that is known."""
        with self.catalog.reading() as tx:
            return headways(tx)

    def events_before(
        self,
        before: int | None,
        limit: int,
        kinds: Collection[EventKind] | None = None,
        binding: str | None = None,
        channel: str | None = None,
        *,
        since: int = 0,
    ) -> list[Event]:
        """What has happened, newest first.

        Args:
            before: only what happened before this event; None for the newest.
            limit: how many at most.
            kinds: only events of these kinds.
            binding: only those that concern this binding.
            channel: only those that concern this channel, among the 5,000 newest that the other filters leave.
            since: only what happened after this event.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            return events.before(tx, before, limit, kinds=kinds or (), binding=binding, channel=channel, since=since)

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

    def runs(
        self,
        limit: int,
        before: int | None = None,
        *,
        after: int | None = None,
        state: RunState | None = None,
        kind: RunKind | None = None,
        binding: str | None = None,
        task: str | None = None,
        channel: str | None = None,
    ) -> list[RunSummary]:
        """The runs, newest first, and what they made.

        Args:
            limit: how many at most.
            before: only those before this number.
            after: only those after this number, the oldest of them where there are more than `limit`.
            state: only those that stand there.
            kind: only those for that.
            binding: only those that were started for this binding.
            task: only those of this task, whatever came of it.
            channel: only those that have written this channel or were to, and its compactions.

        Raises:
            UnknownName: there is no such binding, task or channel.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            page = history.runs(
                tx, limit, before, after=after, state=state, kind=kind, binding=binding, task=task, channel=channel
            )
            return _summaries(tx, page)

    def concurrent(self, first: datetime, last: datetime, limit: int = 500) -> list[Run]:
        """The runs that went on between two moments, by when they began: see `kilonova.catalog.history.concurrent`."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return history.concurrent(tx, first, last, limit)

    def run_detail(self, number: int) -> RunDetail:
        """A run: what it read, made, holds, and was started for.

        Raises:
            UnknownName: there is no such run.
        """
        self.catalog.check()
        with self.catalog.reading() as tx:
            run = records.one(tx, number)
            earlier, later = history.beside(tx, number)
            return RunDetail(
                run=run,
                inputs=tuple(consumed(tx, run)),
                made=tuple(records.outputs(tx, [number])),
                holdings=records.holdings(tx, number),
                firings=tuple(firings.of_run(tx, number)),
                earlier=earlier,
                later=later,
            )

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

    def outlets(self) -> list[outlets.Installed]:
        """The webhooks, and OpenLineage if servers have told it of something, with how far each has come."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return outlets.outlets(tx)

    def policy(self, channel: str) -> Policy:
        """When a channel is compacted by itself.

        Raises:
            UnknownName: there is no such channel.
        """
        with self.catalog.reading() as tx:
            return chains.policy(tx, channel)

    def stretches(self) -> list[Stretch]:
        """The channels that have deltas after their newest base, and what merging them costs; by name."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return sorted(stretches(tx), key=lambda each: each.channel)

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

    def tokens(self) -> list[tokens.Token]:
        """The tokens, by name, without their secrets."""
        self.catalog.check()
        with self.catalog.reading() as tx:
            return tokens.tokens(tx)


def _summaries(tx: Transaction, runs: Sequence[Run]) -> list[RunSummary]:
    made: dict[int, list[records.Made]] = {run.number: [] for run in runs}
    for item in records.outputs(tx, made):
        made[item.run].append(item)
    return [RunSummary(run=run, made=tuple(made[run.number])) for run in runs]


def _channels(tx: Transaction, names: Sequence[str]) -> list[ChannelStatus]:
    found, writers = chains.chronicles(tx, names), registry.writers(tx, names)
    return [ChannelStatus(chronicle=found[name], writers=writers[name]) for name in names]


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
