"""Translation of views to tasks: each query gives the relations that it stores, each with its own task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from textwrap import dedent
from typing import Literal, get_args

from kilonova.declare.checks import check_known_columns
from kilonova.declare.source import Source
from kilonova.errors import DeclarationError, KilonovaError, QueryError, closest_name
from kilonova.model.channel import Channel
from kilonova.model.check import Check
from kilonova.model.encoding import Changes, Encoding, Upsert
from kilonova.model.logic import Sql
from kilonova.model.required_columns import RequiredColumn
from kilonova.model.schedule import Schedule
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.query.materialization import kept_whole, plan_materializations
from kilonova.query.materialized_relation import MaterializedRelation
from kilonova.query.parsing import parse_query
from kilonova.query.properties import RelationFacts
from kilonova.query.syntax import UnsupportedSql, channels_of, expanded, selected_names, with_ports
from kilonova.query.tree import Node, names
from kilonova.query.view_tasks import FULL, facts, task_of

Refresh = Literal["auto", "incremental", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDraft:
    """Draft of a view; see `Workflowette.view`.

    Attributes:
        name: the view's name.
        query: its query.
        key: its key, if it is declared.
        refresh: its permitted refresh methods.
        description: description for users.
        checks: checks of its rows.
        schedule: the schedule on which it runs automatically.
        materialized: whether its rows are stored; otherwise they are computed where it is read.
        retention: seconds for which its points stay readable.
        requires: columns of channels that it reads, which they may not have yet.
        source: the source location of the query, if it is in a file.

    Raises:
        DeclarationError: there is no such refresh method, or a view that is not materialized has a key, a refresh
            method, checks, a schedule or a retention time.
    """

    name: str
    query: str
    key: tuple[str, ...]
    refresh: Refresh
    description: str = ""
    checks: tuple[Check, ...] = ()
    schedule: Schedule | None = None
    materialized: bool = True
    retention: float | None = None
    requires: tuple[RequiredColumn, ...] = ()
    source: Source | None = None

    def __post_init__(self) -> None:
        if self.refresh not in (methods := get_args(Refresh)):
            raise DeclarationError(
                f"there is no refresh method {self.refresh!r}",
                task=self.name,
                hint=closest_name(str(self.refresh), list(methods)),
            )

        stored = self.key or self.refresh != "auto" or self.checks or self.schedule or self.retention
        if not self.materialized and stored:
            raise DeclarationError(
                "a view that is not materialized cannot have a key, refresh method, checks, schedule or retention",
                task=self.name,
                hint="Declare them on the views that read it",
            )

    def blamed(self, error: KilonovaError) -> KilonovaError:
        """Return an error with this view's name and the location in its file."""
        error = error.with_context(task=self.name)
        return error if self.source is None else self.source.located(error)


def derived(
    drafts: Iterable[ViewDraft], channels: Mapping[str, Channel]
) -> tuple[tuple[Channel, ...], Mapping[str, tuple[Task, ...]]]:
    """Return the channels of views, and the tasks of each materialized view, the last of which computes the view.

    Args:
        drafts: the views, in any order.
        channels: the other channels that they may read.

    Raises:
        QueryError: a query cannot be parsed or resolved.
        DeclarationError: views form a cycle, read a channel of unknown columns, or cannot be maintained as declared.
    """
    by_name = {draft.name: draft for draft in drafts}
    known = {name: facts(channel) for name, channel in channels.items()}
    made: list[Channel] = []
    tasks: dict[str, tuple[Task, ...]] = {}
    inlined: dict[str, str] = {}
    for draft in _ordered(by_name):
        try:
            if draft.name in channels and not draft.materialized:
                raise DeclarationError("a channel already has this name", channel=draft.name, hint="Rename the view")
            draft = replace(draft, query=expanded(draft.query, inlined))
            if not draft.materialized:
                _understood(draft, known)
                inlined[draft.name] = draft.query
                continue
            relations = list(_view(draft, _with_required(draft, known), channels))
            made += [channel for channel, _, _ in relations]
            known |= {channel.name: own for channel, _, own in relations}
            tasks[draft.name] = _with_requirements(draft, [task for _, task, _ in relations])
        except KilonovaError as error:
            raise draft.blamed(error) from error.__cause__
    return tuple(made), tasks


def _with_required(draft: ViewDraft, known: Mapping[str, RelationFacts]) -> dict[str, RelationFacts]:
    """Return the properties of channels with the columns that a view requires of them.

    Raises:
        DeclarationError: there is no such channel.
    """
    found = dict(known)
    for column in draft.requires:
        if column.channel not in found:
            hint = closest_name(column.channel, list(known))
            raise DeclarationError(
                "the view requires columns of a channel that does not exist", channel=column.channel, hint=hint
            )
        facts = found[column.channel]
        found[column.channel] = replace(facts, types={**facts.types, column.name: str(column.type)})
    return found


def _with_requirements(draft: ViewDraft, tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks of a view as it declares them, each with the columns that it requires.

    The tasks of a view that materializes relations require the same columns, so that all of them wait for these.
    """
    own = {name for task in tasks for name in task.writes}
    declared = {(each.channel, each.name) for each in draft.requires}
    inferred = dict.fromkeys(each for task in tasks for each in task.requires if each.channel not in own)
    requires = (*draft.requires, *(each for each in inferred if (each.channel, each.name) not in declared))
    return tuple(
        replace(task, schedule=draft.schedule, written=_as_written(draft, task), requires=requires) for task in tasks
    )


def _as_written(draft: ViewDraft, task: Task) -> str:
    """Return the view's query for its own task; an empty text for tasks of intermediate relations."""
    return dedent(draft.query).strip() if task.name == draft.name else ""


def _ordered(drafts: Mapping[str, ViewDraft]) -> Iterable[ViewDraft]:
    """Return the views in topological order, each after those that it reads."""
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


def _understood(draft: ViewDraft, known: Mapping[str, RelationFacts]) -> None:
    """Validate the query of a view that is not materialized."""
    with suppress(UnsupportedSql):
        parse_query(draft.query, known)


def _view(
    draft: ViewDraft, known: Mapping[str, RelationFacts], channels: Mapping[str, Channel]
) -> Iterable[tuple[Channel, Task, RelationFacts]]:
    for table in channels_of(draft.query, known):
        if table not in known:
            raise QueryError("there is no such channel", channel=table, hint=closest_name(table, list(known)))
        if table in channels and channels[table].schema is None and not known[table].types:
            raise DeclarationError(
                "a view reads this channel, but its columns are not known",
                channel=table,
                hint="Declare its schema, or run the task that writes it first",
            )
    try:
        tree = parse_query(draft.query, known)
    except UnsupportedSql as error:
        if draft.refresh == "incremental":
            raise _refused(error.construct, error.advice) from None
        return [_opaque(draft, known, error)]
    *parts, whole = _relations(draft, tree, known)
    plain = kept_whole(draft.name, tree, known, draft.key) if parts and draft.refresh == "auto" else None
    known = {**known, **{item.channel: item.facts for item in parts}}
    return [*(_kept(item, draft, known) for item in parts), _kept(whole, draft, known, plain)]


def _relations(draft: ViewDraft, tree: Node, known: Mapping[str, RelationFacts]) -> tuple[MaterializedRelation, ...]:
    for name in draft.key:
        if name not in names(tree):
            raise DeclarationError(
                "the key names a column that the query does not return",
                column=name,
                hint="Select it, or declare a key of selected columns",
            )
    if draft.refresh == "full":
        return (replace(kept_whole(draft.name, tree, known, draft.key), whole='it is declared with refresh="full"'),)
    items = plan_materializations(draft.name, tree, known, draft.key)
    whole = next((item.whole for item in items if item.whole is not None), None)
    if whole is not None and draft.refresh == "incremental":
        raise _refused(whole, "")
    return items


def _refused(construct: str, advice: str) -> DeclarationError:
    return DeclarationError(
        f"the view cannot be refreshed incrementally: {construct}", hint=advice or 'Leave out refresh="incremental"'
    )


def _kept(
    item: MaterializedRelation,
    draft: ViewDraft,
    known: Mapping[str, RelationFacts],
    plain: MaterializedRelation | None = None,
) -> tuple[Channel, Task, RelationFacts]:
    task = task_of(item, draft.name, known, always=draft.refresh == "incremental", plain=plain)
    channel = Channel(name=item.channel, schema=None, encoding=item.encoding)
    if item.channel == draft.name:
        check_known_columns(draft.checks, item.facts.types)
        channel = replace(channel, description=draft.description, checks=draft.checks, retention=draft.retention)
    return channel, task, item.facts


def _opaque(
    draft: ViewDraft, known: Mapping[str, RelationFacts], why: UnsupportedSql
) -> tuple[Channel, Task, RelationFacts]:
    """Return a view whose query has constructs unsupported by the tree, and which is fully recomputed in each run."""
    encoding: Encoding = Upsert(draft.key) if draft.key else Changes()
    text = with_ports(draft.query, known)
    variant = Variant(
        name=FULL,
        ports=tuple(Port(name, name, Mode.ALL) for name in channels_of(draft.query, known)),
        productions=(Production.BASE,),
        logic=Sql(text=text),
        fingerprint=text,
    )
    note = f"fully recomputed in each run, because of {why.construct}" + (f" ({why.advice})" if why.advice else "")
    task = Task(name=draft.name, writes=(draft.name,), variants=(variant,), view=draft.name, note=note)
    if columns := selected_names(draft.query):
        check_known_columns(draft.checks, columns)
    channel = Channel(
        name=draft.name,
        schema=None,
        encoding=encoding,
        description=draft.description,
        checks=draft.checks,
        retention=draft.retention,
    )
    return channel, task, RelationFacts(types={}, key=draft.key)
