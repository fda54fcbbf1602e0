"""Migrations of a relation of a view: the variants that turn its rows into those of a changed query.

`kilonova.query.migration` derives their queries from the trees of the old and the new query (logic evolution, 2.7).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kilonova.model.channel import Channel
from kilonova.model.encoding import DELETED, SET, WEIGHT, Changes, Columns
from kilonova.model.logic import Compilation, Compiled, InputRead, RenamingLogic, RunScale, Sql
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Column, Schema, quoted
from kilonova.model.task import Mode, Port, Production, Variant
from kilonova.query.migration.derivation import derive_migration
from kilonova.query.migration.migration import Migration, NoMigration
from kilonova.query.properties import Known
from kilonova.query.rules import OF_CHANGE, adapt
from kilonova.query.selectivity import selectivity
from kilonova.query.tree import Aggregate, At, Filter, Node, Scan, inputs, names, scans
from kilonova.query.tree import channels as channels_of
from kilonova.query.tree_json import tree_from_json, tree_to_json
from kilonova.query.view_tasks import (
    ViewChange,
    cast_columns,
    circumstances,
    input_name,
    port_name,
    relation_of,
    with_ports,
)
from kilonova.query.weighted_reads import splits_rows
from kilonova.query.zset import consolidate

MIGRATION = "migration"
"""Name of the derived migration of a relation's task; those that follow it are numbered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMigration:
    """Logic of a variant that turns the rows of a relation of a view into those of its new query.

    Attributes:
        text: what it does, for display.
        stored: its query, the key of a delta of columns, whether its rows are separate from those of later changes, the
            estimated cost of its only input, the condition of the rows that it only removes, the
            columns after it if all of them are stored, the names before of columns that it renames, the query of the
            relation after it, and the same of a migration that renames columns instead of writing them, as JSON.
    """

    text: str
    stored: str
    language: ClassVar[str] = "sql"
    unseen: ClassVar[tuple[str, ...]] = ()
    methods: ClassVar[tuple[RefreshMethod, ...]] = (RefreshMethod.MIGRATION,)
    derived: ClassVar[bool] = True
    shareable: ClassVar[bool] = False

    def compile(self, run: Compilation) -> Compiled | None:
        """Return the query that changes the relation, with the inputs that it reads; None if nothing changes."""
        (name,) = run.writes
        stored, content = run.states[name].stored_schema, json.loads(self.stored)
        assert stored is not None
        after = self.columns_after(run)
        if content["tree"] is None:
            same = not self.renamed and stored.names == after.names
            return None if same else _without_rows(after, self.renamed)
        tree = tree_from_json(json.dumps(content["tree"]))
        adapted = adapt(OF_CHANGE, tree, *circumstances(run))
        if splits_rows(adapted):
            adapted = consolidate(adapted)
        given = frozenset(names(tree))
        columns = after.only(tuple(column for column in after.names if column in given))
        wanted = columns.plus(*(control for control in (DELETED, SET, WEIGHT) if control[0] in given))
        reads = {
            input_name(scan): InputRead(port_name(scan.channel, scan.at), True, scan.weighed) for scan in scans(adapted)
        }
        alone = run.scale is RunScale.SINGLE_PARTITION
        sql = cast_columns(with_ports(adapted, input_name, alone=alone), wanted)
        encoding = Columns(tuple(content["key"])) if content["key"] else None
        return Compiled(Sql(text=sql), reads, encoding, after, renamed=self.renamed)

    def columns_after(self, run: Compilation) -> Schema:
        """Return the columns of the relation after it: stored ones, or those that Spark finds for its query."""
        content, stored = json.loads(self.stored), run.states[run.writes[0]].stored_schema
        if content.get("stored") is not None and stored is not None:
            before = ((name, self.renamed.get(name, name)) for name in content["stored"])
            return Schema(tuple(Column(name, stored.type_of(old)) for name, old in before))
        assert run.analyse is not None
        return run.analyse(content["relation"], content["channels"])

    @property
    def renamed(self) -> Mapping[str, str]:
        """Names before of columns that it gives other names, by these."""
        found: Mapping[str, str] = json.loads(self.stored).get("former_names", {})
        return found

    @property
    def renaming(self) -> RenamingLogic | None:
        """Logic that does the same by giving columns other names; None if there are none."""
        content = json.loads(self.stored).get("by_reference")
        if content is None:
            return None
        return RenamingLogic(ViewMigration(text=self.text, stored=json.dumps(content)), frozenset(content["ports"]))

    @property
    def reads_rows(self) -> bool:
        """Return whether it reads rows of its inputs."""
        return json.loads(self.stored)["tree"] is not None

    @property
    def removal(self) -> str | None:
        """Condition, in Spark SQL, of the rows of its output that it removes, if that is all it does."""
        found: str | None = json.loads(self.stored).get("removal")
        return found

    @property
    def cost_shares(self) -> Mapping[str, float]:
        """Estimated cost of some of its channels, as a share of what recomputing takes for as many bytes."""
        found: Mapping[str, float] = json.loads(self.stored).get("cost_shares", {})
        return found

    @property
    def sets_columns(self) -> bool:
        """Return whether it gives a delta of columns."""
        return json.loads(self.stored)["key"] is not None


def _without_rows(after: Schema, renamed: Mapping[str, str]) -> Compiled:
    """Return a change of no rows, after which a relation has the given columns, state columns included.

    Args:
        after: the columns.
        renamed: the names before of those that are columns with other names before it, by their names.
    """
    columns = ", ".join(f"CAST(NULL AS {each.type}) AS {quoted(each.name)}" for each in after.plus(WEIGHT).columns)
    text = f"SELECT {columns} WHERE FALSE".replace("{", "{{").replace("}", "}}")
    return Compiled(Sql(text=text), {}, None, after, renamed=renamed, without_rows=True)


_READING = 0.5
"""Part of the cost of a column of an input that is the same however many of its rows a condition keeps."""


def cost_shares(step: Migration, own: str) -> dict[str, float]:
    """Return the share of a migration's input; none if it reads several besides its output `own`."""
    channels = set() if step.delta is None else {scan.channel for scan in scans(step.delta)} - {own}
    if step.delta is None or len(channels) != 1:
        return {}
    (channel,) = channels
    recomputed = _cost(step.tree, channel)
    return {channel: min(1.0, _cost(step.delta, channel) / recomputed)} if recomputed else {}


def _cost(tree: Node, channel: str) -> float:
    """Return the cost of reading a channel: by columns, as they are stored apart, and by rows that conditions keep."""
    columns = {source for scan in scans(tree) if scan.channel == channel for source, _ in scan.columns}
    return len(columns) * (_READING + (1 - _READING) * min(1.0, _kept(tree, channel)))


def _kept(tree: Node, channel: str) -> float:
    """Return the share of a channel's rows that conditions keep, those on grouping keys included."""
    if isinstance(tree, Scan):
        return float(tree.channel == channel)
    kept = sum(_kept(below, channel) for below in inputs(tree))
    if not isinstance(tree, Filter):
        return kept
    groups = isinstance(tree.input, Aggregate) and not tree.condition.columns <= {k.name for k in tree.input.keys}
    return kept if groups else kept * selectivity(tree.condition)


def derive_variants(
    old: ViewChange, new: ViewChange, from_version: int, own: Channel, known: Known, *, whole: bool = False
) -> tuple[Variant, ...] | NoMigration:
    """Return the migrations of a relation of a view from one query to another, in the order in which they run.

    Args:
        old: the logic that has computed the relation.
        new: the logic that will maintain it.
        from_version: the logic version of `old`.
        own: the channel that holds the relation.
        known: the channels that both queries read.
        whole: whether its rows are all written again, because they get another key.
    """
    found = derive_migration(old.tree, new.tree, relation_of(old.tree, own), known, whole=whole)
    if isinstance(found, NoMigration):
        return found
    every: list[Variant] = []
    step: Migration | None = found
    while step is not None:
        name = f"{MIGRATION} {len(every) + 1}" if every else MIGRATION
        every.append(_variant(name, step, from_version, own))
        step = step.then
    return tuple(every)


def derive_takeover(
    relation: ViewChange, stored: Channel, new: ViewChange, from_version: int, own: Channel, known: Known
) -> Variant | None:
    """Return the migration of a view to rows that follow from a relation which it has stored; None if more is read.

    Args:
        relation: the logic that has computed the relation.
        stored: the channel that holds it.
        new: the logic that will maintain the view.
        from_version: the logic version of the view from which it is migrated.
        own: the channel of the view.
        known: the channels that both queries read.
    """
    found = derive_migration(relation.tree, new.tree, relation_of(relation.tree, stored), known, whole=True)
    if isinstance(found, NoMigration) or not found.reads.keys() <= {stored.name}:
        return None
    text = f"takes the rows of {stored.name}, which it has stored apart"
    return _variant(MIGRATION, replace(found, description=text, renamed={}), from_version, own)


def _variant(name: str, step: Migration, from_version: int, own: Channel) -> Variant:
    ports, content = _ports(step, own), _content(step, own)
    if (other := step.by_reference) is not None:
        names = [port.name for port in _ports(other, own)]
        if {*names} <= {port.name for port in ports}:
            content["by_reference"] = _content(other, own) | {"ports": names}
    whole = step.encoding is None and step.delta is not None
    return Variant(
        name=name,
        ports=ports,
        productions=(Production.BASE if whole else Production.DELTA,),
        logic=ViewMigration(text=step.description, stored=json.dumps(content)),
        fingerprint=step.description,
        from_version=from_version,
    )


def _ports(step: Migration, own: Channel) -> tuple[Port, ...]:
    read = [] if step.delta is None else [(scan.channel, scan.at) for scan in scans(step.delta)]
    unique = dict.fromkeys(read or [(own.name, At.OLD)])
    return tuple(Port(port_name(channel, at), channel, Mode.ALL) for channel, at in unique)


def _content(step: Migration, own: Channel) -> dict[str, Any]:
    """Return what is stored of a step; see `ViewMigration.stored`."""
    return {
        "tree": None if step.delta is None else json.loads(tree_to_json(step.delta)),
        "key": list(step.encoding.key) if isinstance(step.encoding, Columns) else None,
        "separate": step.separate,
        "cost_shares": cost_shares(step, own.name),
        "removal": None if step.removal is None else step.removal.sql,
        "stored": list(names(step.tree)) if isinstance(step.encoding, Changes) else None,
        "former_names": dict(step.renamed),
        "relation": with_ports(step.tree, lambda scan: scan.channel),
        "channels": channels_of(step.tree),
    }
