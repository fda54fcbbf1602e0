"""Views as tasks: each query becomes the relations that it keeps, each with a task of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from textwrap import dedent
from typing import Literal, get_args

from kilonova.declare.checks import refuse_unknown
from kilonova.declare.source import Source
from kilonova.errors import DeclarationError, KilonovaError, QueryError, closest
from kilonova.model.channel import Channel
from kilonova.model.check import Check
from kilonova.model.encoding import Changes, Encoding, Upsert
from kilonova.model.schedule import Schedule
from kilonova.model.task import Mode, Port, Production, Sql, Task, Variant
from kilonova.query.parsing import parsed
from kilonova.query.properties import Facts
from kilonova.query.storing import Stored, kept_whole, stored
from kilonova.query.syntax import Beyond, channels_of, expanded, selected_names, with_ports
from kilonova.query.tasks import FULL, facts, task_of
from kilonova.query.tree import Node, names

Maintenance = Literal["auto", "incremental", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDraft:
    """A view as declared; see `Workflow.view`.

    Attributes:
        name: the view's.
        query: its query.
        key: its key, where it is declared.
        mode: how it may be kept up to date.
        description: what it is, for people.
        checks: what its rows must satisfy.
        schedule: when it may run by itself.
        stored: whether its rows are stored; otherwise they are computed where it is read.
        source: where the query is written, if it is in a file.

    Raises:
        DeclarationError: there is no such mode, or something is said of rows that are not stored.
    """

    name: str
    query: str
    key: tuple[str, ...]
    mode: Maintenance
    description: str = ""
    checks: tuple[Check, ...] = ()
    schedule: Schedule | None = None
    stored: bool = True
    source: Source | None = None

    def __post_init__(self) -> None:
        if self.mode not in (modes := get_args(Maintenance)):
            raise DeclarationError(
                f"there is no mode {self.mode!r}", task=self.name, hint=closest(str(self.mode), list(modes))
            )

        if not self.stored and (self.key or self.mode != "auto" or self.checks or self.schedule):
            raise DeclarationError(
                "a view that is not stored has no key, mode, checks or schedule",
                task=self.name,
                hint="Say it of the views that read it",
            )

    def blamed(self, error: KilonovaError) -> KilonovaError:
        """An error of this view, with the place in its file."""
        error = error.within(task=self.name)
        return error if self.source is None else self.source.located(error)


def derived(
    drafts: Iterable[ViewDraft], channels: Mapping[str, Channel]
) -> tuple[tuple[Channel, ...], Mapping[str, tuple[Task, ...]]]:
    """The channels that views come to, and the tasks of each view that is stored, the last of which makes the view.

    Args:
        drafts: the views, in any order.
        channels: the other channels that they may read.

    Raises:
        QueryError: a query cannot be understood.
        DeclarationError: views form a cycle, read a channel of unknown columns, or cannot do what they promise.
    """
    by_name = {draft.name: draft for draft in drafts}
    known = {name: facts(channel) for name, channel in channels.items()}
    made: list[Channel] = []
    tasks: dict[str, tuple[Task, ...]] = {}
    unstored: dict[str, str] = {}
    for draft in _ordered(by_name):
        try:
            if draft.name in channels and not draft.stored:
                raise DeclarationError("there is a channel of this name", channel=draft.name, hint="Call it otherwise")
            draft = replace(draft, query=expanded(draft.query, unstored))
            if not draft.stored:
                _understood(draft, known)
                unstored[draft.name] = draft.query
                continue
            for channel, task, own in _view(draft, known, channels):
                made.append(channel)
                tasks[draft.name] = (
                    *tasks.get(draft.name, ()),
                    replace(task, schedule=draft.schedule, written=_as_written(draft, task)),
                )
                known[channel.name] = own
        except KilonovaError as error:
            raise draft.blamed(error) from error.__cause__
    return tuple(made), tasks


def _as_written(draft: ViewDraft, task: Task) -> str:
    """The view's query, for its own task; nothing for those that keep something on the way."""
    return dedent(draft.query).strip() if task.name == draft.name else ""


def _ordered(drafts: Mapping[str, ViewDraft]) -> Iterable[ViewDraft]:
    """Views, each after those that it reads."""
    graph = {}
    for name, draft in drafts.items():
        try:
            graph[name] = [table for table in channels_of(draft.query, drafts) if table in drafts]
        except QueryError as error:
            raise draft.blamed(error) from None
    try:
        return [drafts[name] for name in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        found = DeclarationError(
            f"the views form a cycle: {' → '.join(error.args[1])}", hint="A view cannot read itself"
        )
        raise drafts[error.args[1][0]].blamed(found) from None


def _understood(draft: ViewDraft, known: Mapping[str, Facts]) -> None:
    """Refuse the query of a view that is not stored, if it makes no sense by itself."""
    with suppress(Beyond):
        parsed(draft.query, known)


def _view(
    draft: ViewDraft, known: Mapping[str, Facts], channels: Mapping[str, Channel]
) -> Iterable[tuple[Channel, Task, Facts]]:
    for table in channels_of(draft.query, known):
        if table not in known:
            raise QueryError("there is no such channel", channel=table, hint=closest(table, list(known)))
        if table in channels and channels[table].schema is None:
            raise DeclarationError(
                "a view reads it, but its columns are not known",
                channel=table,
                hint="Declare its schema, or run what writes it first",
            )
    try:
        tree = parsed(draft.query, known)
    except Beyond as error:
        if draft.mode == "incremental":
            raise _refused(error.construct, error.advice) from None
        return [_opaque(draft, known, error)]
    return [_kept(item, draft) for item in _relations(draft, tree, known)]


def _relations(draft: ViewDraft, tree: Node, known: Mapping[str, Facts]) -> tuple[Stored, ...]:
    for name in draft.key:
        if name not in names(tree):
            raise DeclarationError("the key names a column that the query does not give", column=name)
    if draft.mode == "full":
        return (replace(kept_whole(draft.name, tree, known, draft.key), whole="it is declared so"),)
    items = stored(draft.name, tree, known, draft.key)
    whole = next((item.whole for item in items if item.whole is not None), None)
    if whole is not None and draft.mode == "incremental":
        raise _refused(whole, "")
    return items


def _refused(construct: str, advice: str) -> DeclarationError:
    return DeclarationError(f"its change cannot be derived: {construct}", hint=advice or 'Leave out mode="incremental"')


def _kept(item: Stored, draft: ViewDraft) -> tuple[Channel, Task, Facts]:
    task = task_of(item, always=draft.mode == "incremental")
    channel = Channel(name=item.channel, schema=None, encoding=item.encoding)
    if item.channel == draft.name:
        refuse_unknown(draft.checks, item.facts.types)
        channel = replace(channel, description=draft.description, checks=draft.checks)
    return channel, task, item.facts


def _opaque(draft: ViewDraft, known: Mapping[str, Facts], why: Beyond) -> tuple[Channel, Task, Facts]:
    """A query that the tree has no operators for: made anew as it stands."""
    encoding: Encoding = Upsert(draft.key) if draft.key else Changes()
    variant = Variant(
        name=FULL,
        ports=tuple(Port(name, name, Mode.ALL) for name in channels_of(draft.query, known)),
        productions=(Production.BASE,),
        logic=Sql(text=with_ports(draft.query, known)),
        fingerprint=draft.query,
    )
    note = f"made anew at each run, because of {why.construct}" + (f" ({why.advice})" if why.advice else "")
    task = Task(name=draft.name, writes=(draft.name,), variants=(variant,), note=note)
    if columns := selected_names(draft.query):
        refuse_unknown(draft.checks, columns)
    channel = Channel(
        name=draft.name, schema=None, encoding=encoding, description=draft.description, checks=draft.checks
    )
    return channel, task, Facts(types={}, key=draft.key)
