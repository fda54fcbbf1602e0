"""What a generated history has to lead to: the reference's channels and tasks, with everything that can be refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from kilonova.errors import Conflict, DeclarationError, InvalidState, KilonovaError, NotFound
from kilonova.model.channel import PointState
from kilonova.model.encoding import Append, Changes, Columns, Custom, Encoding, delta_schema, optional_columns
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import RESERVED, Schema
from kilonova.model.task import Mode, Port, Production
from kilonova.model.widening import is_wider
from kilonova.service.reports import RunsReport
from kilonova.testing import reference
from kilonova.testing.reference import Bag, Record, ReferenceChannel, Written
from tests.generator.declared import CUSTOM, BindingSpec, ChannelSpec, Spec, TaskSpec, VariantSpec


@dataclass
class Known:
    """A task as it is registered: `started` once its logic has run, with the points up to which it has read."""

    spec: TaskSpec
    outputs: tuple[ChannelSpec, ...]
    started: bool = False
    cursors: dict[str, int] = field(default_factory=dict)

    @property
    def variants(self) -> tuple[VariantSpec, ...]:
        return self.spec.variants


@dataclass(frozen=True)
class Pending:
    """A run that has begun, and how things stood then.

    Attributes:
        happen: does to what is expected what the run does.
        reserved: the points reserved on channels.
        points: the channels' points before.
        tasks: how far the tasks had come.
        claimed: the tasks that it runs.
        declared: the channels and tasks, as they were declared.
    """

    happen: Callable[[], None]
    reserved: list[tuple[str, int]]
    points: dict[str, list[Written]]
    tasks: dict[str, tuple[bool, dict[str, int]]]
    claimed: frozenset[str]
    declared: Declared


@dataclass(frozen=True)
class Declared:
    """What is declared, and how often each channel has been."""

    channels: dict[str, ReferenceChannel]
    specs: dict[str, ChannelSpec]
    tasks: dict[str, Known]
    bindings: tuple[BindingSpec, ...]
    declarations: dict[str, int]


class Expected:
    """The catalog and the warehouse as they have to be."""

    def __init__(self) -> None:
        self.channels: dict[str, ReferenceChannel] = {}
        self.specs: dict[str, ChannelSpec] = {}
        self.tasks: dict[str, Known] = {}
        self.bindings: tuple[BindingSpec, ...] = ()
        self.claimed: frozenset[str] = frozenset()
        self.methods: dict[str, RefreshMethod] = {}
        self.collected = False
        self.lost: dict[str, set[str]] = defaultdict(set)
        self.regained: set[str] = set()
        self.failed: set[str] = set()
        self.authors: dict[tuple[str, int], set[str]] = {}
        self.contributed: set[tuple[str, str]] = set()
        self.overtaken: list[tuple[str, int]] = []
        self.declarations: dict[str, list[ChannelSpec]] = {}

    # Runs that go on

    def begin(self, happen: Callable[[], None], writes: Sequence[str], claimed: Sequence[str]) -> Pending:
        """Reserve what a run writes."""
        points, tasks = self._points(), self._states()
        reserved = [(name, self.channels[name].reserve()) for name in writes]
        self.claimed |= frozenset(claimed)
        return Pending(happen, reserved, points, tasks, frozenset(claimed), self._declared())

    def end(self, pending: Pending, *, commits: bool) -> None:
        """Commit a run that has begun, seeing what it saw then, or take it back.

        Raises:
            KilonovaError: it cannot commit.
        """
        self.claimed -= pending.claimed
        for name, point in pending.reserved:
            self.channels[name].points[point - 1] = Written(PointState.CANCELLED)
        if not commits:
            return
        points, tasks, declared = self._points(), self._states(), self._declared()
        before = pending.declared
        self._declare_all(before)
        self._restore(pending.points, pending.tasks)
        self.contributed = set()
        try:
            pending.happen()
            made, states = self._points(), self._states()
        finally:
            self._declare_all(declared)
            self._restore(points, tasks)
        for name, point in pending.reserved:
            is_new = not _writers(name, before.tasks) and bool(_writers(name, self.tasks))
            if is_new and not self.specs[name].several:
                raise DeclarationError("a task writes the channel by now", channel=name)
            if len(made[name]) >= point:
                written, since = made[name][point - 1], before.specs[name]
                for later in self.declarations[name][before.declarations[name] :]:
                    written, since = _reshaped(written, since, later), later
                self.channels[name].points[point - 1] = written
        for task, output in self.contributed:  # also to what others have filled since the run began
            if filled := self._filled(output):
                self.authors.setdefault((output, filled[-1]), set()).add(task)
        for name, state in states.items():
            if state != pending.tasks[name] and self.tasks.get(name) is before.tasks[name]:
                self.tasks[name].started, self.tasks[name].cursors = state

    def _declared(self) -> Declared:
        times = {name: len(declared) for name, declared in self.declarations.items()}
        return Declared(dict(self.channels), dict(self.specs), dict(self.tasks), self.bindings, times)

    def _declare_all(self, declared: Declared) -> None:
        self.channels, self.specs = dict(declared.channels), dict(declared.specs)
        self.tasks, self.bindings = dict(declared.tasks), declared.bindings

    def _points(self) -> dict[str, list[Written]]:
        return {name: list(channel.points) for name, channel in self.channels.items()}

    def _states(self) -> dict[str, tuple[bool, dict[str, int]]]:
        return {name: (task.started, dict(task.cursors)) for name, task in self.tasks.items()}

    def _restore(self, points: dict[str, list[Written]], tasks: dict[str, tuple[bool, dict[str, int]]]) -> None:
        for name, channel in self.channels.items():
            channel.points = list(points[name])
        for name, task in self.tasks.items():
            task.started, task.cursors = tasks[name][0], dict(tasks[name][1])

    # Declaring

    def apply(self, spec: Spec) -> None:
        """Register a workflow.

        Raises:
            DeclarationError: a source with rows would get another key, encoding or type, or a channel of several
                writers one, or one of these would begin from nothing beside what it has written.
        """
        if self.mixes(spec):
            raise DeclarationError("a writer would begin anew")
        written = {name for task in spec.tasks for name in task.writes}
        for channel in spec.channels:
            old = self.specs.get(channel.name)
            if old is None or old == channel or not self._effective(channel.name):
                continue
            if old.several and not channel.several:
                raise DeclarationError("the channel has several writers", channel=channel.name)
            if channel.name in written and not channel.several:
                continue
            types = dict(old.columns)
            retyped = [(n, t) for n, t in channel.columns if types.get(n, t) != t]
            if old.encoding != channel.encoding or not all(is_wider(kind, types[name]) for name, kind in retyped):
                raise DeclarationError("the source has rows", channel=channel.name)
        altered = {c.name for c in spec.channels if self.specs.get(c.name, c) != c and not c.several}
        for channel in spec.channels:
            self._declare(channel)
        known = {}
        for task in spec.tasks:
            before = self.tasks.get(task.name)
            outputs = tuple(spec.channel(name) for name in task.writes)
            keep = before is not None and before.spec == task and altered.isdisjoint(task.writes)
            known[task.name] = before if keep else Known(task, outputs)
        self.tasks = known
        self.bindings = spec.bindings

    def mixes(self, spec: Spec) -> bool:
        """Whether a task would begin from nothing beside what it has contributed to a channel of several writers."""
        again = [task for task in spec.tasks if task.name not in self.tasks or self.tasks[task.name].spec != task]
        return any(
            spec.channel(n).several and self._has_contributed(task.name, n) for task in again for n in task.writes
        )

    def _has_contributed(self, task: str, channel: str) -> bool:
        """Whether points reflect what a task has read, be it that its run has changed nothing."""
        return any(task in self.authors.get((channel, number), ()) for number in self._filled(channel))

    def _filled(self, channel: str) -> list[int]:
        points = self.channels[channel].points if channel in self.channels else []
        return [number for number, point in enumerate(points, 1) if point.state is PointState.FILLED]

    def _declare(self, channel: ChannelSpec) -> None:
        old, self.specs[channel.name] = self.specs.get(channel.name), channel
        self.declarations.setdefault(channel.name, []).append(channel)
        function: Any = CUSTOM[channel.kind]() if channel.kind in CUSTOM else None
        found = ReferenceChannel(channel.name, channel.schema, channel.encoding, function)
        if old is not None:
            if not self.lost[channel.name].isdisjoint(channel.schema.names):
                self.regained.add(channel.name)
            self.lost[channel.name] |= {*old.schema.names} - {*channel.schema.names}
            before = self.channels[channel.name]
            points = before.points if old.encoding == channel.encoding else _as_wholes(before)
            found.points = [_reshaped(written, old, channel) for written in points]
        self.channels[channel.name] = found

    def drop(self, channel: str) -> None:
        """Take a channel away, and the task that writes it.

        Raises:
            UnknownName: there is no such channel.
            DeclarationError: a task reads it, or its writer writes others too.
        """
        self.known(channel)
        if any(channel in task.spec.reads for task in self.tasks.values()):
            raise DeclarationError("the channel is read", channel=channel)
        if self.channels[channel].readable < len(self.channels[channel].points):
            raise Conflict("the channel is being written", channel=channel)
        writers = [name for name, task in self.tasks.items() if channel in task.spec.writes]
        if any(len(self.tasks[name].spec.writes) > 1 for name in writers):
            raise DeclarationError("its task writes others too", channel=channel)
        for name in writers:
            del self.tasks[name]
        del self.channels[channel], self.specs[channel]
        self.authors = {place: task for place, task in self.authors.items() if place[0] != channel}

    # Ingesting

    def ingest(self, channel: str, columns: Schema, rows: Sequence[Record], *, replace: bool) -> None:
        """Insert a delta, or a whole relation, into a source channel.

        Raises:
            KilonovaError: it cannot be.
        """
        self.known(channel)
        spec = self.specs[channel]
        if not spec.several and _writers(channel, self.tasks):
            raise DeclarationError("a task writes the channel", channel=channel)
        if spec.several and replace:
            raise DeclarationError("others write the channel", channel=channel)
        if spec.shapes:
            columns, rows = _shaped(spec, columns, rows)
        if replace:
            spec.schema.validate(columns)
        elif spec.sequence:
            spec.schema.validate(columns)
            if self.channels[channel].readable < len(self.channels[channel].points):
                raise Conflict("rows must be compared", channel=channel)
        else:
            wanted = delta_schema(spec.encoding, spec.schema)
            wanted.validate(columns, optional=optional_columns(spec.encoding, spec.schema))
        production = Production.BASE if replace else Production.DELTA
        if spec.sequence:
            now = self.channels[channel]
            old = [] if replace else reference.records(now.schema, now.at(now.readable))
            rows = reference.newest(("k",), "v", rows, old)
        self._publish(channel, production, rows)
        self.authors.pop((channel, len(self.channels[channel].points)), None)

    def _publish(self, name: str, production: Production, rows: Sequence[Record], *, anew: bool = False) -> None:
        """Write the next point of a channel; cancel it if nothing changes, as far as that can be told."""
        channel = self.channels[name]
        encoding, schema, function = channel.encoding, channel.schema, channel.function
        settled = channel.readable == len(channel.points)
        if production is Production.BASE or anew:
            if production is Production.BASE:
                new = reference.relation_of(encoding, schema, rows)
            else:
                part = reference.delta_of(encoding, schema, rows)
                new = reference.merge(encoding, schema, Counter(), part, function=function)
            nothing = settled and not new and not self._effective(name)
            channel.write(channel.reserve(), **({} if nothing else {"whole": new}))
            return
        if not settled and isinstance(encoding, Changes) and encoding.key:
            raise Conflict("keys must be unique", channel=name)
        part = reference.delta_of(encoding, schema, rows)
        if not settled and isinstance(encoding, Changes) and any(weight < 0 for weight in part.values()):
            raise Conflict("removed rows must exist", channel=name)
        if settled:
            old = channel.at(channel.readable)
            part = reference.effective(encoding, schema, part, old, function=function)
            reference.merge(encoding, schema, old, part, function=function)
        channel.write(channel.reserve(), **({"part": part} if part else {}))

    # Running

    def due(self, task: Known) -> bool:
        """Whether what makes a task due has come: what an advancing port reads, or any port without such."""
        ports = [port for variant in task.variants for port in variant.ports if port.channel not in task.spec.writes]
        advancing = [port.channel for port in ports if port.mode.advances]
        driving = advancing or [port.channel for port in ports]
        if not task.started:
            return any(self._effective(name) for name in driving)
        return any(self._advanced(self.channels[n], task.cursors.get(n, 0)) for n in driving)

    def run(self, names: Sequence[str] | None) -> None:
        """Run the tasks that are due, or the named ones, as one run that happens or does not.

        Raises:
            UnknownName: there is no such task.
            KilonovaError: one fails.
        """
        self._run_part(self.selected(names), asked=names is not None)

    def run_each(self, names: Sequence[str] | None) -> None:
        """Run the tasks that are due, or the named ones, those of each binding as a run of its own.

        Raises:
            UnknownName: there is no such task.
            KilonovaError: one fails, or several.
        """
        refused: dict[str, KilonovaError] = {}
        owner = {name: name for name in self.tasks} | {n: each.name for each in self.bindings for n in each.tasks}
        again = True
        while again:
            again = False
            chosen = [name for name in self.selected(names) if owner[name] not in refused]
            parts: dict[str, list[str]] = {owner[name]: [] for name in chosen}
            for name in chosen if names is not None else self.tasks:
                if owner[name] in parts:
                    parts[owner[name]].append(name)
            for binding in self._in_order(parts):
                members = parts[binding]
                try:
                    again |= self._run_part(members, asked=names is not None) and names is None
                except KilonovaError as error:
                    refused[binding] = error
        if (error := RunsReport(failed=refused).error) is not None:
            raise error

    def _in_order(self, parts: Mapping[str, Sequence[str]]) -> Iterable[str]:
        """Bindings, each after those whose output it reads; as they come if some read each other's."""

        def channels(name: str, at: str) -> set[str]:
            return {channel for member in parts[name] for channel in getattr(self.tasks[member].spec, at)}

        writes = {name: channels(name, "writes") for name in parts}
        after = {
            name: [other for other in parts if other != name and not writes[other].isdisjoint(channels(name, "reads"))]
            for name in parts
        }
        try:
            return list(TopologicalSorter(after).static_order())
        except CycleError:
            return parts

    def _run_part(self, members: Sequence[str], *, asked: bool) -> bool:
        """Run the tasks of a binding as one run; whether there was something to do."""
        among = members if asked else [name for name in self.selected(None, among=members)]
        if not self.claimed.isdisjoint(among):
            raise Conflict("another run has one of the tasks")
        with self._all_or_nothing():
            for name in among:
                task = self.tasks[name]
                if self.due(task) or (asked and any(map(self._effective, task.spec.reads))):
                    self._execute(task)
        return bool(among)

    def launched(self, names: Collection[str], *, complete: bool) -> None:
        """Run those of the tasks of a binding that were done, which are those that are due at least.

        Raises:
            AssertionError: one that is due was left out, though the run is complete.
            KilonovaError: one fails.
        """
        with self._all_or_nothing():
            for name, task in self.tasks.items():
                if name in names and name in self.methods:
                    self._execute(task)
                elif name in names and complete:
                    assert not self.due(task), f"{name} was left out"

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Forget what was written, read and contributed if an error is raised."""
        points, tasks = self._points(), self._states()
        authors = {place: set(names) for place, names in self.authors.items()}
        self.overtaken = []
        try:
            yield
        except BaseException:
            self._restore(points, tasks)
            self.authors = authors
            raise
        for name, number in self.overtaken:
            self.channels[name].points[number] = Written(PointState.RESERVED)

    def selected(self, names: Sequence[str] | None, among: Collection[str] | None = None) -> tuple[str, ...]:
        """The tasks of a run: those named, or those that are due, at most among some, and all that may be after them.

        Raises:
            UnknownName: there is no such task.
        """
        for name in names or ():
            if name not in self.tasks:
                raise NotFound("there is no such task", task=name)
        if names is not None:
            return tuple(name for name in self.tasks if name in names)
        chosen: dict[str, None] = {}
        for name, task in self.tasks.items():
            writers = {other for other in chosen if not set(self.tasks[other].spec.writes).isdisjoint(task.spec.reads)}
            if (among is None or name in among) and (writers or self.due(task)):
                chosen[name] = None
        return tuple(chosen)

    def _execute(self, task: Known) -> None:
        variant, fresh = self._chosen(task)
        ends = {name: self.channels[name].readable for name in task.spec.reads}
        own = {name: 0 if fresh else self.channels[name].readable for name in task.spec.writes}
        fed = {}
        for port in variant.ports:
            start = 0 if fresh else task.cursors.get(port.channel, 0)
            fed[port.name] = records_of(self.channels[port.channel], port.mode, start, (ends | own)[port.channel])
        made = variant.function(task.spec.constant, **fed)
        for output, production, records in zip(task.outputs, variant.productions, made, strict=True):
            columns = variant.columns(output, production)
            shaped = [dict.fromkeys(columns.names) | _only(record, columns) for record in records]
            several = self.specs[output.name].several
            if not several:
                self._overtake(output.name)
            if several and fresh and self._has_contributed(task.spec.name, output.name):
                raise InvalidState("others write the channel", channel=output.name)
            self._publish(output.name, production, shaped, anew=fresh and not several)
            self._contribute(task, output.name)
        task.started, task.cursors = True, ends | own

    def _overtake(self, output: str) -> None:
        """Let later tasks of a run see what a task writes, although the channel has points that are still reserved.

        They are of ingests which began before a task wrote the channel, and will be refused.
        """
        for number, written in enumerate(self.channels[output].points):
            if written.state is PointState.RESERVED:
                self.overtaken.append((output, number))
                self.channels[output].points[number] = Written(PointState.CANCELLED)

    def _contribute(self, task: Known, output: str) -> None:
        """Record that the newest point that is filled reflects what a task has read, if there was anything."""
        ports = (port for variant in task.spec.variants for port in variant.ports if port.mode is not Mode.OLD)
        if any(self._filled(port.channel) for port in ports):
            self.contributed.add((task.spec.name, output))
            if filled := self._filled(output):
                self.authors.setdefault((output, filled[-1]), set()).add(task.spec.name)

    def _chosen(self, task: Known) -> tuple[VariantSpec, bool]:
        """The variant that is to run, and whether it begins from nothing.

        Where a port reads what came since its cursor, and that has been made anew meanwhile or its past collected, it
        is as good to begin from nothing; what was done is known from `methods`. So it is where a port is fed inserted
        rows only, and rows were removed meanwhile, though none in the end: one that was added may be removed again,
        and where the channel has lost a column, removed rows may be the same as others without it. If a column of the
        name that one had comes back, it is another one, whose former values the change would lack.
        """
        whole = next((v for v in task.variants if self._makes_whole(v, task)), None)
        anew = (whole, False) if whole is not None else (task.variants[0], True)
        if not task.started:
            return anew
        for variant in task.variants:
            if variant is not whole and not any(self._hinders(task, port) for port in variant.ports):
                broken = self.collected or any(self._broken(task, port) for port in variant.ports)
                renews = self.methods.get(task.spec.name, RefreshMethod.INCREMENTAL).renews
                return anew if broken and renews else (variant, False)
        return anew

    def _broken(self, task: Known, port: Port) -> bool:
        channel = self.channels[port.channel]
        start, end = task.cursors.get(port.channel, 0), channel.readable
        if port.channel in self.regained and port.mode in (Mode.CHANGES, Mode.OLD, Mode.INSERTS):
            return True
        hidden = port.mode is Mode.INSERTS and (
            bool(self.lost[port.channel])
            or any(
                weight < 0
                for point in range(start, end)
                for weight in channel.read(Mode.CHANGES, point, point + 1).values()
            )
        )
        return hidden or any(written.whole is not None for written in channel.points[start:end])

    @staticmethod
    def _makes_whole(variant: VariantSpec, task: Known) -> bool:
        return set(variant.productions) == {Production.BASE} and all(
            port.mode is Mode.ALL and port.channel not in task.spec.writes for port in variant.ports
        )

    def _hinders(self, task: Known, port: Port) -> bool:
        """Whether a port cannot be fed the change of what it reads."""
        channel = self.channels[port.channel]
        start = task.cursors.get(port.channel, 0)
        written_anew = any(written.whole is not None for written in channel.points[start : channel.readable])
        without_diff = isinstance(channel.encoding, Custom) and not hasattr(channel.function, "diff")
        if port.mode is Mode.NEW and without_diff:
            return written_anew
        if not self._effective_at(channel, start):
            return False
        if port.mode is Mode.INSERTS:
            change = channel.read(Mode.CHANGES, start, channel.readable)
            return any(weight < 0 for weight in change.values())
        return port.mode is Mode.NEW and written_anew and isinstance(channel.encoding, Append)

    @staticmethod
    def _advanced(channel: ReferenceChannel, cursor: int) -> bool:
        """Whether there is something to read after a cursor, which may be ahead of a point that is still reserved."""
        return cursor < channel.readable and not channel.same(cursor, channel.readable)

    @staticmethod
    def _effective_at(channel: ReferenceChannel, point: int) -> bool:
        return not channel.same(0, point)

    # Looking

    def _effective(self, name: str) -> bool:
        """Whether anything has been written to a channel that can be read."""
        channel = self.channels[name]
        return self._effective_at(channel, channel.readable)

    def known(self, channel: str) -> None:
        if channel not in self.channels:
            raise NotFound("there is no such channel", channel=channel)


def _writers(channel: str, tasks: Mapping[str, Known]) -> list[str]:
    return [name for name, task in tasks.items() if channel in task.spec.writes]


def records_of(channel: ReferenceChannel, mode: Mode, start: int, end: int) -> list[Record]:
    """What a port is fed, as records."""
    value = channel.read(mode, start, end)
    match mode:
        case Mode.NEW:
            return reference.rows_of(channel.encoding, channel.schema, value)
        case Mode.CHANGES:
            return reference.rows_of(Changes(), channel.schema, value)
        case _:
            return reference.records(channel.schema, value)


def _only(record: Record, columns: Schema) -> Record:
    return {name: value for name, value in record.items() if name in columns.names}


def _as_wholes(channel: ReferenceChannel) -> list[Written]:
    """What was written before a channel got another encoding: relations, as deltas are in the encoding of before."""
    return [
        replace(written, whole=channel.at(number), part=None) if written.part is not None else written
        for number, written in enumerate(channel.points, 1)
    ]


def _reshaped(written: Written, old: ChannelSpec, new: ChannelSpec) -> Written:
    """What was written before a channel got and lost columns, with those that it has now."""
    if old.schema == new.schema:
        return written

    def moved(row: Any) -> Any:
        known = dict(zip(old.schema.names, row, strict=True))
        return tuple(known.get(name) for name in new.schema.names)

    def bag(rows: Any) -> Bag:
        found: Bag = Counter()
        for row, times in rows.items():
            found[moved(row)] += times
        return found

    whole = None if written.whole is None else bag(written.whole)
    part = written.part
    if part is not None:
        encoding: Encoding = new.encoding
        if isinstance(encoding, Append):
            part = bag(part)
        elif isinstance(encoding, Changes):
            part = {row: weight for row, weight in bag(part).items() if weight}
        elif isinstance(encoding, Columns):
            names = new.schema.names
            part = {k: None if p is None else {n: v for n, v in p.items() if n in names} for k, p in part.items()}
        else:
            part = {key: None if row is None else moved(row) for key, row in part.items()}
    return Written(written.state, whole, part)


def _shaped(spec: ChannelSpec, columns: Schema, rows: Sequence[Record]) -> tuple[Schema, Sequence[Record]]:
    """Rows of some shape, and their columns, as those of a channel by its rules."""
    control = [name for name in columns.names if name in RESERVED]
    types: Record = {column.name: column.type for column in columns.columns}
    names = [*spec.schema.names, *control]
    _, (found,) = reference.by_rules([types], names, spec.rules, dict.fromkeys(spec.defaults, "string"))
    return Schema.of(*found.items()), reference.by_rules(rows, names, spec.rules, spec.defaults)[1]
