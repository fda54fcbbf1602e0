"""Columns with other names: of the relation that a migration changes, and of channels that a query reads.

A column is the same one under every name (`kilonova.model.schema.Column.identity`): blocks keep the names with which
they were written, and no row is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from kilonova.model.encoding import WEIGHT
from kilonova.model.logic import Compilation, Compiled, Sql
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Column, Schema, quoted
from kilonova.query.tree import Node, Scan, inputs, with_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRenaming:
    """Logic of a variant that gives columns of a relation other names, and leaves out others.

    Attributes:
        text: what it does, for display.
        names: the names before of the columns after it, state columns included, by their names after it.
    """

    text: str
    names: Mapping[str, str]
    language: ClassVar[str] = "sql"
    unseen: ClassVar[tuple[str, ...]] = ()
    methods: ClassVar[tuple[RefreshMethod, ...]] = (RefreshMethod.MIGRATION,)
    derived: ClassVar[bool] = True
    shareable: ClassVar[bool] = False
    removal: ClassVar[None] = None
    renaming: ClassVar[None] = None
    reads_rows: ClassVar[bool] = False
    cost_shares: ClassVar[Mapping[str, float]] = {}

    def compile(self, run: Compilation) -> Compiled:
        """Return a query without rows, and the columns after it."""
        stored = run.states[run.writes[0]].stored_schema
        assert stored is not None
        after = Schema(tuple(Column(name, stored.type_of(before)) for name, before in self.names.items()))
        return without_rows(after, {name: before for name, before in self.names.items() if name != before})


def with_new_names(tree: Node, names: Mapping[str, Mapping[str, str]]) -> Node:
    """Return a query over channels whose columns have been renamed: it reads the same columns by their new names.

    Args:
        tree: the query over the channels before.
        names: the new names of columns, by their names before, of each channel of which some are renamed.
    """
    if isinstance(tree, Scan):
        new = names.get(tree.channel, {})
        return replace(tree, columns=tuple((new.get(source, source), name) for source, name in tree.columns))
    return with_inputs(tree, tuple(with_new_names(below, names) for below in inputs(tree)))


def without_rows(after: Schema, renamed: Mapping[str, str] | None = None) -> Compiled:
    """Return a change of no rows, after which a relation has the given columns, state columns included.

    Args:
        after: the columns.
        renamed: the names before of those that are columns with other names before it, by their names.
    """
    columns = ", ".join(f"CAST(NULL AS {each.type}) AS {quoted(each.name)}" for each in after.plus(WEIGHT).columns)
    text = f"SELECT {columns} WHERE FALSE".replace("{", "{{").replace("}", "}}")
    return Compiled(Sql(text=text), {}, None, after, renamed=renamed or {}, without_rows=True)
