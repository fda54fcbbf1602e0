"""Which tasks have something to do, in which way each is done, and what the result reflects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kilonova.errors import BrokenInvariant, StateError
from kilonova.model.channel import Channel, Chronicle
from kilonova.model.encoding import Changes, Custom
from kilonova.model.reading import Chain, Diff, Reading, Snapshot
from kilonova.model.run import Extent, Taken, Way
from kilonova.model.task import Mode, Port, Production, Query, Task, Variant
from kilonova.model.version import Version
from kilonova.model.workflow import Workflow
from kilonova.schedule.costs import learned
from kilonova.schedule.shapes import shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a task has come.

    Attributes:
        task: the task at its newest logic version.
        logic: that version.
        started: whether that version has run.
        cursors: the point up to which it has read each channel; absent ones are at 0.
        taken: what its last runs took, newest first.
        waits_until: until when its schedule holds it back; None if it does not.
    """

    task: Task
    logic: int
    started: bool
    cursors: Mapping[str, int]
    taken: tuple[Taken, ...] = ()
    waits_until: datetime | None = None

    def cursor(self, channel: str) -> int:
        """The point up to which the task has read a channel."""
        return self.cursors.get(channel, 0)


def driving(task: Task) -> tuple[str, ...]:
    """The channels whose news make a task due: those read as news, or all where none is.

    A channel read with ALL beside news is a lookup table (Nova, section 2): that it changed is no reason to run.
    """
    ports = [port for variant in task.variants for port in variant.ports if port.channel not in task.writes]
    news = [port.channel for port in ports if port.mode.advances]
    return tuple(dict.fromkeys(news or [port.channel for port in ports]))


def why_due(progress: Progress, chronicles: Mapping[str, Chronicle]) -> str | None:
    """Why a task has something to do; None if it has not, or is held back by its schedule."""
    if progress.waits_until is not None:
        return None
    channels = driving(progress.task)
    if not progress.started:
        if any(chronicles[name].effective for name in channels):
            return "its logic has not run yet"
        return None
    for name in channels:
        chronicle = chronicles[name]
        cursor = progress.cursor(name)
        if not chronicle.same(cursor, chronicle.readable):
            return f"{name} has come from point {cursor} to {chronicle.effective}"
    return None


def selected(
    workflow: Workflow, progress: Mapping[str, Progress], chronicles: Mapping[str, Chronicle]
) -> tuple[str, ...]:
    """The tasks that have something to do and all that may have after them, in the order to run them."""
    chosen: dict[str, None] = {}
    for task in workflow.order():
        writers = {writer.name for channel in task.reads for writer in workflow.writers(channel)}
        held = progress[task.name].waits_until is not None
        if not held and (why_due(progress[task.name], chronicles) or not writers.isdisjoint(chosen)):
            chosen[task.name] = None
    return tuple(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The variant that is to run, the way it is done, and why.

    Attributes:
        variant: the variant.
        way: the way it is done.
        reason: why so, for people.
        estimates: what that way and others that were open are estimated to take, in seconds; nothing for fresh.
    """

    variant: Variant
    way: Way
    reason: str
    estimates: Mapping[Way, float] = field(default_factory=dict)


def choose(progress: Progress, chronicles: Mapping[str, Chronicle]) -> Choice:
    """Choose among the variants of a task's newest logic version.

    The first incremental variant that can take the news, as declared; else one that makes the whole relation;
    else an incremental one from nothing. Of a view it is the cheaper, unless its variants stand in an order that
    prefers its change.
    """
    variants = progress.task.variants
    whole = next((variant for variant in variants if _makes_whole(variant, progress.task)), None)
    declared = _as_declared(whole, progress, chronicles)
    if declared.way is Way.FRESH:
        return declared
    size, known = extent(progress, chronicles), learned(progress.taken, shape_of(progress.task))
    costs = {way: known.seconds(way, size) for way in _ways(declared, whole, progress, chronicles)}
    choice = replace(declared, estimates=costs)
    weighed = isinstance(declared.variant.logic, Query) and declared.variant is not variants[0]
    return _cheapest(choice, whole) if weighed and whole is not None else choice


def in_full(progress: Progress, choice: Choice) -> Choice | None:
    """Choice that makes a view anew instead of following its change; None where that was not chosen, or is not open."""
    whole = next((variant for variant in progress.task.variants if _makes_whole(variant, progress.task)), None)
    if whole is None or choice.way.renews or not isinstance(choice.variant.logic, Query):
        return None
    return replace(choice, variant=whole, way=Way.WHOLE)


def _as_declared(whole: Variant | None, progress: Progress, chronicles: Mapping[str, Chronicle]) -> Choice:
    """The choice where costs do not count."""
    variants = progress.task.variants
    if not progress.started:
        reason = "first run" if progress.logic == 0 else f"logic version {progress.logic} is new"
        if whole is not None:
            return Choice(variant=whole, way=Way.WHOLE, reason=reason)
        return Choice(variant=variants[0], way=Way.FRESH, reason=reason)
    obstacle = ""
    for variant in variants:
        if variant is whole:
            continue
        hindrance = _hindrance(variant, progress, chronicles)
        if hindrance is None:
            return Choice(variant=variant, way=Way.INCREMENTAL, reason=f"variant {variant.name} takes the news")
        obstacle = f"{hindrance}, which {variant.name} does not take"
    if whole is not None:
        return Choice(variant=whole, way=Way.WHOLE, reason=obstacle or "the task has no incremental variant")
    return Choice(variant=variants[0], way=Way.FRESH, reason=obstacle)


def _cheapest(news: Choice, whole: Variant) -> Choice:
    """The cheapest way to do a view that can take the news."""
    costs = news.estimates
    best = min(costs, key=lambda way: costs[way])
    others = ", ".join(f"{_NAMES[way]} at {seconds:.1f} s" for way, seconds in costs.items() if way is not best)
    variant = whole if best is Way.WHOLE else news.variant
    return replace(news, variant=variant, way=best, reason=f"estimated at {costs[best]:.1f} s, {others}")


_NAMES = {
    Way.INCREMENTAL: "its change",
    Way.PARTITIONWISE: "making anew the groups that change",
    Way.WHOLE: "making it anew",
}


def _ways(
    declared: Choice, whole: Variant | None, progress: Progress, chronicles: Mapping[str, Chronicle]
) -> tuple[Way, ...]:
    """The ways in which a task can be brought up to date.

    Groups of a view that have sums beside them can be made anew one by one as well, if there are several; groups
    without sums are made so where their change is followed.
    """
    if declared.way is Way.WHOLE or whole is None:
        return (declared.way,)
    if not isinstance(declared.variant.logic, Query):
        return (declared.way, Way.WHOLE)
    chronicle = chronicles[progress.task.name]
    there = chronicle.snapshot(chronicle.readable).complete
    several = sum(block.statistics.rows for block in there.blocks) > 1
    groups = several and there.schema is not None and there.schema.kept.columns
    return (Way.INCREMENTAL, *((Way.PARTITIONWISE,) if groups else ()), Way.WHOLE)


def extent(progress: Progress, chronicles: Mapping[str, Chronicle]) -> Extent:
    """How much there is to read for a task."""
    change = whole = moved = 0
    for name in progress.task.reads:
        chronicle = chronicles[name]
        cursor = min(progress.cursor(name), chronicle.readable)
        everything = chronicle.size
        path = chronicle.path(cursor, chronicle.readable)
        whole += everything
        moved += not chronicle.same(cursor, chronicle.readable)
        change += everything if path is None else sum(block.statistics.bytes for block in path)
    return Extent(change=change, whole=whole, moved=moved)


def _makes_whole(variant: Variant, task: Task) -> bool:
    return all(production is Production.BASE for production in variant.productions) and all(
        port.mode is Mode.ALL and port.channel not in task.writes for port in variant.ports
    )


def _hindrance(variant: Variant, progress: Progress, chronicles: Mapping[str, Chronicle]) -> str | None:
    """Return why a variant cannot take the change of what it reads; None if it can."""
    for port in variant.ports:
        chronicle = chronicles[port.channel]
        start, end = progress.cursor(port.channel), chronicle.readable
        if start > end:
            continue
        if port.mode is Mode.INSERTS and chronicle.may_remove(start, end):
            return f"{port.channel} may have lost rows"
        if port.mode is Mode.NEW and not chronicle.can_say(start, end):
            return f"{port.channel} was written anew since point {start}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What a port is fed: the change from `start` to `end` or the snapshot at one of them, and its blocks."""

    port: Port
    start: int
    end: int
    reading: Reading


def feeds(choice: Choice, progress: Progress, chronicles: Mapping[str, Chronicle]) -> tuple[Feed, ...]:
    """What each port of the chosen variant is fed, in the order of its parameters.

    Raises:
        UnknownName: what a port is to be fed has been collected.
    """
    return tuple(feed_of(port, choice, progress, chronicles) for port in choice.variant.ports)


def feed_of(port: Port, choice: Choice, progress: Progress, chronicles: Mapping[str, Chronicle]) -> Feed:
    """What a port of the chosen variant is fed; a run from nothing finds nothing in the task's own outputs.

    Raises:
        UnknownName: it has been collected.
    """
    chronicle = chronicles[port.channel]
    fresh = choice.way is Way.FRESH
    end = 0 if fresh and port.channel in progress.task.writes else chronicle.readable
    start = 0 if fresh else min(progress.cursor(port.channel), end)
    reading: Reading
    match port.mode:
        case Mode.ALL | Mode.OLD if end == 0:
            reading = _nothing(chronicle)
        case Mode.ALL:
            reading = chronicle.snapshot(end)
        case Mode.OLD if start == 0:
            reading = _nothing(chronicle)
        case Mode.OLD:
            reading = replace(chronicle.snapshot(start), schema=chronicle.schema_at(end))
        case Mode.NEW | Mode.CHANGES | Mode.INSERTS if end == 0:
            encoding = chronicle.channel.encoding if port.mode is Mode.NEW else Changes()
            reading = Chain(start=0, end=0, schema=_nothing(chronicle).schema, encoding=encoding, deltas=())
        case Mode.NEW if start == 0 and not isinstance(chronicle.channel.encoding, Custom):
            reading = Diff(old=_nothing(chronicle), new=chronicle.snapshot(end), encoding=chronicle.channel.encoding)
        case Mode.NEW:
            reading = chronicle.delta(start, end)
        case Mode.CHANGES | Mode.INSERTS:
            reading = chronicle.changes(start, end)
    return Feed(port=port, start=start, end=end, reading=reading)


def advanced(choice: Choice, progress: Progress, chronicles: Mapping[str, Chronicle]) -> tuple[tuple[str, int], ...]:
    """Return the points up to which a task has read its channels once it has been done in the chosen way.

    Of its own outputs it has read what was there before: what the run itself writes is new to the next one. Where
    the run leaves nothing of what was there, all of the output is.

    Args:
        choice: the way it is done.
        progress: the task.
        chronicles: the channels as it read them, without what it writes.
    """
    read = [(channel, chronicles[channel].readable) for channel in progress.task.reads]
    own = [(channel, 0 if choice.way.renews else chronicles[channel].readable) for channel in progress.task.loops]
    return (*read, *own)


def anew(choice: Choice, task: Task, channel: Channel) -> bool:
    """Whether nothing is left in an output of what was there before: never of what others may have written there."""
    base = choice.variant.productions[task.writes.index(channel.name)] is Production.BASE
    return not channel.several_writers and (choice.way.renews or base)


def refuse_again(choice: Choice, progress: Progress, chronicles: Mapping[str, Chronicle]) -> None:
    """Refuse to make from nothing again what others have written to as well.

    Raises:
        StateError: the task has to begin anew, but has written to a channel of several writers.
    """
    task = progress.task.name
    for name in progress.task.writes:
        chronicle = chronicles[name]
        if choice.way.renews and chronicle.channel.several_writers and chronicle.committed.by(task).entries:
            raise StateError(
                f"the task would have to make again what it has written, beside which others write: {choice.reason}",
                channel=name,
                hint="Drop the channel and apply the workflow again, so that all its writers begin from nothing",
            )


def _nothing(chronicle: Chronicle) -> Snapshot:
    """The empty relation, with the newest schema."""
    schema = chronicle.schema_at(chronicle.readable)
    return Snapshot(at=0, schema=schema, encoding=chronicle.channel.encoding, base=None, deltas=())


def reflected(
    choice: Choice,
    progress: Progress,
    fed: Sequence[Feed],
    chronicles: Mapping[str, Chronicle],
    channel: str,
) -> Version:
    """The version of what a task writes, among several writers of what it has brought: see `kilonova.model.version`.

    Args:
        choice: the way it is done.
        progress: the task.
        fed: what its ports were fed.
        chronicles: the channels before the run of the task.
        channel: the output.

    Raises:
        BrokenInvariant: it would lie behind the channel's frontier (logic evolution, 4.1).
    """
    task, logic = progress.task.name, progress.logic
    own = chronicles[channel]
    before = own.committed.by(task) if own.channel.several_writers else own.version(own.readable)
    renewed = anew(choice, progress.task, own.channel)
    version = Version() if renewed else before
    for feed in fed:
        if feed.port.channel in progress.task.writes or feed.port.mode is Mode.OLD:
            continue
        chronicle = chronicles[feed.port.channel]
        end = chronicle.version(feed.end).through(task, logic)
        if renewed:
            version = version.joined(end)
        else:
            start = chronicle.version(feed.start).through(task, logic) if feed.port.mode.advances else end
            version = version.advanced(start, end)
    if version.is_behind(before):
        raise BrokenInvariant(f"the output would go back from {before} to {version}").within(task=task)
    return version
