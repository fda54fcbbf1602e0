"""Migration of a relation of a view together with its new input, as one delta.

Where a query changes while input arrives, the delta from B(V, λ) to B(V, λ′) and the one from there to B(V′, λ′) can be
published as one (logic evolution, 2.6), for half the overhead: if the second does not depend on the rows of the
relation, it is the change of the new query from V to V′, wherever the relation was before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from kilonova.model.logic import Compilation, Compiled, Sql
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production, Variant
from kilonova.query.delta_rules import delta_of_tree
from kilonova.query.expression import Op, compose
from kilonova.query.maintenance import removes_nothing
from kilonova.query.rules import OF_CHANGE, OF_RUN, adapt
from kilonova.query.tree import Aggregate, At, Filter, Node, Projection, Scan, Top, Window, at
from kilonova.query.tree_json import tree_from_json
from kilonova.query.view_migration import ViewMigration
from kilonova.query.view_tasks import ViewChange, circumstances, delta_query, port_name
from kilonova.query.zset import consolidate, union_changes, with_weight


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationAndInput:
    """Logic of a variant that migrates a relation of a view, and applies the new input of its query.

    Attributes:
        migration: the migration.
        change: the logic that maintains the relation from then on.
    """

    migration: ViewMigration
    change: ViewChange
    language: ClassVar[str] = "sql"
    unseen: ClassVar[tuple[str, ...]] = ()
    methods: ClassVar[tuple[RefreshMethod, ...]] = (RefreshMethod.MIGRATION,)
    derived: ClassVar[bool] = True
    shareable: ClassVar[bool] = False
    removal: ClassVar[None] = None
    renaming: ClassVar[None] = None
    reads_rows: ClassVar[bool] = True
    cost_shares: ClassVar[Mapping[str, float]] = {}

    @property
    def text(self) -> str:
        """Description for display."""
        return self.migration.text

    def compile(self, run: Compilation) -> Compiled:
        """Return the query that changes the relation, with the inputs that it reads."""
        (name,) = run.writes
        content, renamed = json.loads(self.migration.stored), self.migration.renamed
        after = self.migration.columns_after(run)
        known, context = circumstances(run)
        query = adapt(OF_RUN, self.change.tree, known, context)
        migrated = None if content["tree"] is None else at(tree_from_json(json.dumps(content["tree"])), At.OLD)
        parts = [part for part in (migrated, delta_of_tree(query, context.moved, known)) if part is not None]
        both = union_changes(parts or [_no_rows(name, after, renamed)], after.names)
        separate = migrated is None or content.get("separate", False)
        if not separate or not removes_nothing(query, known, context):
            both = consolidate(both)
        delta = delta_query(adapt(OF_CHANGE, both, known, context), run.states[name].current, after, run.scale)
        return Compiled(Sql(text=delta.sql), delta.reads, None, after, renamed=renamed)


def with_new_input(migration: Variant, incremental: Variant, own: str) -> Variant | None:
    """Return the variant that migrates a relation and applies its new input in one step; None if these are two.

    They are two where the migration sets columns or gives the whole relation, and where the change of the relation is
    computed from its own rows, as that of groups is.

    Args:
        migration: the last migration of the relation.
        incremental: the variant that updates it from then on.
        own: the channel that holds the relation.
    """
    first, then = migration.logic, incremental.logic
    if not isinstance(first, ViewMigration) or not isinstance(then, ViewChange):
        return None
    if first.sets_columns or migration.productions != (Production.DELTA,) or _reads_own_rows(then.tree):
        return None
    before = (Port(port_name(port.channel, At.OLD), port.channel, Mode.OLD) for port in migration.ports)
    ports = dict.fromkeys((*incremental.ports, *(port for port in before if port.channel != own)))
    logic = MigrationAndInput(migration=first, change=then)
    return replace(incremental, name=migration.name, ports=tuple(ports), logic=logic)


def _reads_own_rows(tree: Node) -> bool:
    """Return whether the change of a relation is computed from its own rows."""
    while isinstance(tree, Projection | Filter):
        tree = tree.input
    return isinstance(tree, Aggregate | Window | Top)


def _no_rows(channel: str, after: Schema, renamed: Mapping[str, str]) -> Node:
    """Return no rows of a relation, as a change."""
    rows = Scan(channel, tuple((renamed.get(name, name), name) for name in after.names), At.OLD)
    return with_weight(Filter(rows, compose("FALSE", op=Op.BOOLEAN)), 1)
