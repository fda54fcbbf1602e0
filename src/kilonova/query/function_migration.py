"""Migrations of the output of a Python task that is composed of parts: logic that runs only what has changed again.

`kilonova.query.function_derivation` derives them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kilonova.model.channel import Channel
from kilonova.model.encoding import DELETED, WEIGHT, Columns, delta_schema
from kilonova.model.logic import Compilation, Compiled, InputRead, Runtime, Sql
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Schema, quoted
from kilonova.model.task import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMigration:
    """Logic of a variant that changes some rows or columns of a task's output.

    It deletes rows of the output, or runs the task's function for all input that has been read so far.

    Attributes:
        text: what it does, for display.
        pickled: the composition of the new logic version.
        stored: the columns that it gives besides the key, the condition on the rows, whether it deletes them or adds
            them, rather than sets columns, the condition if it only removes rows by one that has the same result
            whenever it is evaluated, and the mode in which the task reads its input, as JSON.
    """

    text: str
    pickled: bytes
    stored: str
    language: ClassVar[str] = "python"
    unseen: ClassVar[tuple[str, ...]] = ()
    methods: ClassVar[tuple[RefreshMethod, ...]] = (RefreshMethod.MIGRATION,)
    derived: ClassVar[bool] = True
    shareable: ClassVar[bool] = False
    renaming: ClassVar[None] = None
    cost_shares: ClassVar[Mapping[str, float]] = {}

    @property
    def reads_rows(self) -> bool:
        """Return whether it reads rows of its inputs."""
        content = json.loads(self.stored)
        return bool(content["columns"] or content["deletes"])

    @property
    def removal(self) -> str | None:
        """Condition, in Spark SQL, of the rows of its output that it removes, if that is all it does."""
        found: str | None = json.loads(self.stored).get("removal")
        return found

    def compile(self, run: Compilation) -> Compiled | None:
        """Return what gives the delta; None if nothing changes."""
        (name,), (read,) = run.writes, run.reads
        content, own = json.loads(self.stored), run.states[name]
        columns, where, deletes = tuple(content["columns"]), content["where"], content["deletes"]
        if not self.reads_rows or (own.latest_distinct == 0 and not content["adds"]):
            return None
        key = own.channel.key
        reads = {read.port: InputRead(read.port)}
        encoding = Columns(key) if key else None
        if read.channel == name:
            relation = own.channel.schema or Schema(())
            deletion = _deletion(read.port, key or relation.names, where, weighted=not key)
            return Compiled(deletion, reads, encoding, own.channel.schema)
        rows = _as_read(read.port, run.states[read.channel].current, Mode(content["mode"]))
        some = _Some(pickled=self.pickled, rows=rows, columns=columns, where=where, deletes=deletes)
        return Compiled(some, reads, encoding, own.channel.schema, trusted=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Some:
    """Executable of a `FunctionMigration` that runs the function."""

    pickled: bytes
    rows: Sql
    columns: tuple[str, ...]
    where: str | None
    deletes: bool

    def call(self, runtime: Runtime, inputs: Mapping[str, Any]) -> Any:
        """Return the delta."""
        composition: Any = runtime.function(self.pickled)
        return composition.delta(self.rows.call(runtime, inputs), self.columns, self.where, deletes=self.deletes)


def _deletion(port: str, columns: tuple[str, ...], where: str, *, weighted: bool) -> Sql:
    """Return a query for the rows of the output to delete."""
    control = f"CAST(-1 AS BIGINT) AS {WEIGHT[0]}" if weighted else f"TRUE AS {DELETED[0]}"
    text = f"SELECT {', '.join(map(quoted, columns))}, {control} FROM \x02 WHERE {where}"
    return Sql(text=text.replace("{", "{{").replace("}", "}}").replace("\x02", f"{{{port}}}"))


def _as_read(port: str, channel: Channel, mode: Mode) -> Sql:
    """Return a query for a whole relation in the form in which a task reads it from scratch."""
    relation = Schema(()) if channel.schema is None else channel.schema
    match mode:
        case Mode.NEW:
            control = delta_schema(channel.encoding, relation).without(*relation.names)
        case Mode.CHANGES:
            control = Schema.of(WEIGHT)
        case _:
            control = Schema(())
    values = {DELETED[0]: "FALSE", WEIGHT[0]: "1"}
    added = (f"CAST({values[c.name]} AS {c.type}) AS {c.name}" for c in control.columns)
    return Sql(text=f"SELECT {', '.join(('*', *added))} FROM {{{port}}}")
