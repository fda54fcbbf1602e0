"""Migration that gives columns of a relation other names: blocks keep the names with which they were written.

A column is the same one under every name (`kilonova.model.schema.Column.identity`), so that no row is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kilonova.model.encoding import WEIGHT
from kilonova.model.logic import Compilation, Compiled, Sql
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Column, Schema, quoted


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
    selects: ClassVar[tuple[str, ...]] = ()

    def compile(self, run: Compilation) -> Compiled:
        """Return a query without rows, and the columns after it."""
        stored = run.states[run.writes[0]].stored_schema
        assert stored is not None
        after = Schema(tuple(Column(name, stored.type_of(before)) for name, before in self.names.items()))
        return without_rows(after, {name: before for name, before in self.names.items() if name != before})


def without_rows(after: Schema, renamed: Mapping[str, str] | None = None) -> Compiled:
    """Return a change of no rows, after which a relation has the given columns, state columns included.

    Args:
        after: the columns.
        renamed: the names before of those that are columns with other names before it, by their names.
    """
    columns = ", ".join(f"CAST(NULL AS {each.type}) AS {quoted(each.name)}" for each in after.plus(WEIGHT).columns)
    text = f"SELECT {columns} WHERE FALSE".replace("{", "{{").replace("}", "}}")
    return Compiled(Sql(text=text), {}, None, after, renamed=renamed or {})
