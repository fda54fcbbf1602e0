"""Tasks of stored relations: each is fully recomputed from whole channels, or updated by its change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from kilonova.model.channel import Channel
from kilonova.model.encoding import Append, Changes, Custom, delta_schema
from kilonova.model.logic import Compilation, Compiled, InputLookup, InputRead, RunScale, Sql
from kilonova.model.read_plan import DeltaRead, ReadPlan, SnapshotRead
from kilonova.model.required_columns import RequiredColumn
from kilonova.model.row_count import RowCount
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Schema, quoted
from kilonova.model.task import FROM_SOURCES, Mode, Port, Production, Task, Variant
from kilonova.query.canonical_form import canonical_text
from kilonova.query.expression import Op, column, compose
from kilonova.query.maintenance import maintenance_delta, refresh_method_of_tree
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.materialized_relation import MaterializedRelation
from kilonova.query.properties import Known, RelationFacts
from kilonova.query.rendering import render
from kilonova.query.rules import OF_CHANGE, OF_RUN, adapt
from kilonova.query.tree import WEIGHT, At, Item, Node, Projection, Scan, names, scans
from kilonova.query.tree_json import tree_from_json, tree_to_json

FULL, INCREMENTAL = "full", "incremental"
"""Names of the variants of a stored relation's task."""


def facts(channel: Channel) -> RelationFacts:
    """Return the properties of a channel that queries may rely on."""
    types = {} if channel.schema is None else {column.name: column.type for column in channel.schema.columns}
    key = () if isinstance(channel.encoding, Custom) else channel.key
    return RelationFacts(types=types, key=key, grows=isinstance(channel.encoding, Append))


def task_of(
    item: MaterializedRelation,
    view: str,
    known: Known,
    *,
    always: bool = False,
    plain: MaterializedRelation | None = None,
) -> Task:
    """Return the task that maintains a stored relation.

    Args:
        item: the relation.
        view: the view that it belongs to.
        known: the channels that it and `plain` read.
        always: whether the incremental variant is preferred even where full recomputation is cheaper; it is then first.
        plain: the same relation over the channels that the view's query names; None if only this one is computed.
    """
    whole = _recomputing(FULL, item, known)
    variants = (whole,) if item.whole is not None else _with_change(item, whole, always)
    if plain is not None:
        columns = tuple(_typed(name, plain.facts.types, item.facts.types) for name in names(plain.tree))
        typed = replace(plain, tree=Projection(plain.tree, columns))
        variants = (*variants, _recomputing(FROM_SOURCES, typed, known))
    return Task(
        name=item.channel,
        writes=(item.channel,),
        variants=variants,
        view=view,
        note=refresh_method_of_tree(item),
        requires=required_columns(item.tree),
    )


def required_columns(tree: Node) -> tuple[RequiredColumn, ...]:
    """Return the columns of channels that a query reads."""
    read = {RequiredColumn(scan.channel, column) for scan in scans(tree) for column, _ in scan.columns}
    return tuple(sorted(read, key=lambda each: (each.channel, each.name)))


def _recomputing(name: str, item: MaterializedRelation, known: Known) -> Variant:
    return Variant(
        name=name,
        ports=tuple(Port(name, name, Mode.ALL) for name in sorted(item.reads)),
        productions=(Production.BASE,),
        logic=Sql(text=with_ports(item.tree, lambda scan: scan.channel)),
        fingerprint=canonical_text(item.tree, known),
    )


def _typed(name: str, have: Mapping[str, str], want: Mapping[str, str]) -> Item:
    """Return a column, cast if its type would differ."""
    same = have[name] == want[name] or not want[name]
    return Item(name, column(name) if same else compose(f"CAST({{}} AS {want[name]})", column(name), op=Op.CALL))


def _with_change(item: MaterializedRelation, whole: Variant, always: bool) -> tuple[Variant, ...]:
    change = Mode.INSERTS if isinstance(item.encoding, Append) else Mode.CHANGES
    ports = [
        Port(port_name(name, at), name, mode)
        for name in sorted(item.reads)
        for at, mode in ((At.CHANGE, change), (At.OLD, Mode.OLD), (At.NEW, Mode.ALL))
    ]
    incremental = Variant(
        name=INCREMENTAL,
        ports=(*ports, Port(port_name(item.channel, At.OLD), item.channel, Mode.ALL)),
        productions=(Production.DELTA,),
        logic=ViewChange(text=render(item.tree, lambda scan: quoted(scan.channel)), stored=tree_to_json(item.tree)),
        fingerprint=whole.fingerprint,
    )
    return (incremental, whole) if always else (whole, incremental)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """Logic of a variant that updates a relation of a view by the change of its query.

    Attributes:
        text: the query as SQL over channels, for display.
        stored: its tree as JSON; see `kilonova.query.tree_json`.
    """

    text: str
    stored: str
    language: ClassVar[str] = "sql"
    unseen: ClassVar[tuple[str, ...]] = ()
    methods: ClassVar[tuple[RefreshMethod, ...]] = (RefreshMethod.INCREMENTAL, RefreshMethod.AFFECTED_GROUPS)
    derived: ClassVar[bool] = True
    shareable: ClassVar[bool] = False
    removal: ClassVar[None] = None
    renaming: ClassVar[None] = None
    reads_rows: ClassVar[bool] = True
    cost_shares: ClassVar[Mapping[str, float]] = {}

    @property
    def tree(self) -> Node:
        """Tree of the query."""
        return tree_from_json(self.stored)

    def compile(self, run: Compilation) -> Compiled | None:
        """Return the query that updates the relation in a run, with the inputs that it reads."""
        (name,) = run.writes
        complete = run.states[name].stored_schema
        assert complete is not None
        known, context = circumstances(run)
        delta = delta_of(self.tree, run.states[name].current, complete, known, context)
        return None if delta is None else Compiled(Sql(text=delta.sql), delta.reads)


def circumstances(run: Compilation) -> tuple[Known, MaintenanceContext]:
    """Return what the change of a relation of a view depends on in a run."""
    (name,) = run.writes
    own = run.states[name]
    channels = {each: run.states[each].current for each in dict.fromkeys(read.channel for read in run.reads)}
    snapshots = {
        each: [r.reading for r in run.reads if r.channel == each and isinstance(r.reading, SnapshotRead)]
        for each in channels
    }
    single = [each for each in channels if has_at_most_one_row(snapshots[each])]
    changes = [read for read in run.reads if read.changed]
    context = MaintenanceContext(
        moved=frozenset(read.channel for read in changes),
        sizes={each: run.states[each].size for each in channels},
        layered=frozenset(
            each for each in channels if run.states[each].has_weighted_deltas and (each == name or each not in single)
        ),
        scale=run.scale,
        large=_rows(own.snapshot(own.latest_readable)) > _MANY * sum(_rows(read.reading) for read in changes),
        strong=run.strong,
        again=run.method is RefreshMethod.AFFECTED_GROUPS,
        adding=frozenset(read.channel for read in changes if _adds(read.reading)),
    )
    return known_of(channels, single), context


_MANY = 4
"""Ratio of a view's rows to a change's rows above which the view is restricted to the change's keys before merging."""


def has_at_most_one_row(snapshots: Sequence[SnapshotRead]) -> bool:
    """Return whether a channel has at most one row in snapshots, as far as its blocks' statistics show."""
    return bool(snapshots) and all(map(_has_one_row, snapshots))


def _has_one_row(snapshot: SnapshotRead) -> bool:
    most = RowCount.of(snapshot.blocks).most
    return most is not None and most <= 1


def _adds(reading: ReadPlan) -> bool:
    """Return whether a change is read from deltas that are known to remove nothing."""
    return isinstance(reading, DeltaRead) and not any(block.removes for block in reading.deltas)


def _rows(reading: ReadPlan) -> int:
    return sum(block.statistics.rows for block in reading.blocks)


def change_of(task: Task) -> ViewChange | None:
    """Return the logic by which a task maintains a relation of a view; None if it can only recompute it."""
    return next((each.logic for each in task.variants if isinstance(each.logic, ViewChange)), None)


def reads_any(task: Task, channel: str, columns: Collection[str] | None) -> bool:
    """Return whether a view may read some columns of a channel that it reads.

    Args:
        task: the task of a relation of the view.
        channel: the channel.
        columns: the columns; None for all.
    """
    change = change_of(task)
    if change is None or columns is None:
        return columns is None or bool(columns)
    read = {name for scan in scans(change.tree) if scan.channel == channel for name, _ in scan.columns}
    return not read.isdisjoint(columns)


@dataclass(frozen=True, slots=True)
class DeltaQuery:
    """Query that updates a relation in one run.

    Attributes:
        sql: the query, with the names of its inputs in braces.
        reads: the ports that are read, by those names.
    """

    sql: str
    reads: Mapping[str, InputRead]


def delta_of(
    tree: Node, channel: Channel, complete: Schema, known: Known, found: MaintenanceContext
) -> DeltaQuery | None:
    """Return the query that updates a stored relation.

    Args:
        tree: the relation's query.
        channel: the channel that holds it.
        complete: its columns, including those stored in addition.
        known: the channels that it reads.
        found: their state at the start of the run.

    Returns:
        The query; None if nothing changes.
    """
    change = maintenance_delta(relation_of(adapt(OF_RUN, tree, known, found), channel), known, found)
    if change is None:
        return None
    return delta_query(adapt(OF_CHANGE, change, known, found), channel, complete, found.scale)


def delta_query(tree: Node, channel: Channel, complete: Schema, scale: RunScale) -> DeltaQuery:
    """Return the query of a delta of a stored relation, in the relation's encoding, or a strong one.

    Args:
        tree: the delta.
        channel: the channel that holds the relation.
        complete: its columns, including those stored in addition.
        scale: the scale of the run.
    """
    inputs = _named_inputs(tree)
    sql = with_ports(tree, lambda scan: inputs[_without_columns(scan)], alone=scale is RunScale.SINGLE_PARTITION)
    wanted = delta_schema(Changes() if WEIGHT in names(tree) else channel.encoding, complete)
    columns: dict[str, set[str]] = {}
    for scan in scans(tree):
        columns.setdefault(inputs[_without_columns(scan)], set()).update(name for name, _ in scan.columns)
    reads = {name: _input_read(scan, columns[name]) for scan, name in inputs.items()}
    return DeltaQuery(cast_columns(sql, wanted), reads)


def _named_inputs(tree: Node) -> dict[Scan, str]:
    """Return the inputs of a query, as scans without columns, with their names."""
    named: dict[Scan, str] = {}
    for scan in map(_without_columns, scans(tree)):
        named.setdefault(scan, input_name(scan) if scan.lookup is None else f"{input_name(scan)}__by_key_{len(named)}")
    return named


def _without_columns(scan: Scan) -> Scan:
    return replace(scan, columns=())


def _input_read(scan: Scan, columns: Collection[str]) -> InputRead:
    """Return what is read for an input of a query, of which some columns are used."""
    port, lookup = port_name(scan.channel, scan.at), scan.lookup
    if lookup is None:
        return InputRead(port, True, scan.weighed)
    values = tuple((port_name(channel, At.CHANGE), column) for channel, column in lookup.values)
    return InputRead(port, True, scan.weighed, InputLookup(lookup.column, values, tuple(sorted(columns))))


def relation_of(tree: Node, channel: Channel) -> MaterializedRelation:
    """Return a stored relation from its query and the channel that holds it."""
    return MaterializedRelation(channel=channel.name, tree=tree, encoding=channel.encoding, facts=facts(channel))


def cast_columns(sql: str, wanted: Schema) -> str:
    """Return a query whose columns are cast to exactly these types."""
    columns = ", ".join(f"CAST({quoted(c.name)} AS {c.type}) AS {quoted(c.name)}" for c in wanted.columns)
    return f"SELECT {columns} FROM ({sql})"


def port_name(channel: str, at: At) -> str:
    """Return the name of the port through which a state of a channel is read."""
    return f"{channel}__{at.value}"


def input_name(scan: Scan) -> str:
    """Return the name of a scan as an input of a query."""
    return f"{port_name(scan.channel, scan.at)}{'__weighed' if scan.weighed else ''}"


_LEFT, _RIGHT = "\x02", "\x03"


def with_ports(tree: Node, port: Callable[[Scan], str], *, alone: bool = False) -> str:
    """Render a tree as SQL with ports in braces, its own braces doubled."""
    sql = render(tree, lambda scan: f"{_LEFT}{port(scan)}{_RIGHT}", alone=alone)
    return sql.replace("{", "{{").replace("}", "}}").replace(_LEFT, "{").replace(_RIGHT, "}")


def known_of(channels: Mapping[str, Channel], single: Collection[str] = ()) -> Known:
    """Return the properties of channels that queries may rely on.

    Args:
        channels: the channels by name.
        single: those known to have at most one row, before a change and after it.
    """
    return {
        name: replace(facts(channel), single=name in single, one_row=name in single)
        for name, channel in channels.items()
    }
