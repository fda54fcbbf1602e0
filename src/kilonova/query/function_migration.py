"""Migrations of the output of a Python task that is composed of parts: only the parts that have changed run again.

They are derived if the parts that have not changed would give the same as before (logic evolution, 2.7): the rows of
such a task are computed row by row from one input, and each column by its own function.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kilonova.model.channel import Channel, ChannelState
from kilonova.model.composed_function import ComposedFunction
from kilonova.model.encoding import WEIGHT, Columns, Custom, Encoding, Increment, delta_schema, key_of
from kilonova.model.logic import Compilation, Compiled, InputRead, Runtime, Sql
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.query.migration.migration import NoMigration
from kilonova.query.view_migration import MIGRATION


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMigration:
    """Logic of a variant that computes some columns of a task's output again, of the input as read so far.

    Attributes:
        text: what it does, for display.
        pickled: the composition of the new logic version.
        stored: the columns, and the mode in which the task reads its input, as JSON.
    """

    text: str
    pickled: bytes
    stored: str
    language: ClassVar[str] = "python"
    unseen: ClassVar[tuple[str, ...]] = ()
    methods: ClassVar[tuple[RefreshMethod, ...]] = (RefreshMethod.MIGRATION,)
    derived: ClassVar[bool] = True
    shareable: ClassVar[bool] = False

    def compile(self, run: Compilation) -> Compiled | None:
        """Return what gives the columns by key; None if there are none, or no rows."""
        (name,), (read,) = run.writes, run.reads
        content, own = json.loads(self.stored), run.states[name]
        if not content["columns"] or own.latest_distinct == 0:
            return None
        rows = _as_read(read.port, run.states[read.channel].current, Mode(content["mode"]))
        executable = _SomeColumns(self.pickled, rows, tuple(content["columns"]))
        reads = {read.port: InputRead(read.port)}
        return Compiled(executable, reads, Columns(own.channel.key), own.channel.schema, trusted=False)


@dataclass(frozen=True, slots=True)
class _SomeColumns:
    """Executable of a `FunctionMigration`."""

    pickled: bytes
    rows: Sql
    columns: tuple[str, ...]

    def call(self, runtime: Runtime, inputs: Mapping[str, Any]) -> Any:
        """Return a delta of the columns."""
        composition: Any = runtime.function(self.pickled)
        return composition.delta(self.rows.call(runtime, inputs), self.columns)


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
    values = {"_deleted": "FALSE", "_weight": "1"}
    added = (f"CAST({values.get(c.name, 'NULL')} AS {c.type}) AS {c.name}" for c in control.columns)
    return Sql(text=f"SELECT {', '.join(('*', *added))} FROM {{{port}}}")


def derive_function_migration(
    old: Task, new: Task, from_version: int, own: ChannelState, declared: Channel, inputs: Mapping[str, ChannelState]
) -> tuple[Variant, ...] | NoMigration | None:
    """Return the migrations of the output of a task that is composed of parts.

    Args:
        old: the task that has written the output.
        new: the task as declared.
        from_version: the logic version of `old`.
        own: the channel that it writes, as it is.
        declared: that channel as declared.
        inputs: the channels that it reads.

    Returns:
        The migrations, in the order in which they run; None if the tasks are not composed of parts.
    """
    before, after = _parts(old), _parts(new)
    if before is None or after is None:
        return None
    if (obstacle := _obstacle(old, new, own, declared, inputs)) is not None:
        return NoMigration(reason=obstacle)
    was, now = dict(before[0].columns), dict(after[0].columns)
    stored = own.as_written(own.latest_readable).schema
    there = {(c.name, c.type) for c in (stored.columns if stored is not None else ())}
    relation = declared.schema or Schema(())
    known = {column.name for column in relation.columns if (column.name, column.type) in there}
    again = tuple(name for name in relation.names if name in known and now.get(name) != was.get(name))
    added = tuple(name for name in relation.names if name not in known)
    dropped = tuple(sorted({name for name, _ in there} - {*relation.names}))
    texts = ("computes {} again", again), ("adds {}", added), ("drops {}", dropped)
    (port,) = new.variants[0].ports
    columns = (*again, *added)
    text = ", ".join(text.format(_listed(names)) for text, names in texts if names) or "changes no rows"
    content = json.dumps({"columns": columns, "mode": port.mode.value})
    read = Port(port.name, port.channel, Mode.ALL) if columns else Port(declared.name, declared.name, Mode.ALL)
    return (
        Variant(
            name=MIGRATION,
            ports=(read,),
            productions=(Production.DELTA,),
            logic=FunctionMigration(text=text, pickled=after[0].pickled, stored=content),
            fingerprint=text,
            from_version=from_version,
        ),
    )


def _parts(task: Task) -> tuple[ComposedFunction, ...] | None:
    """Return the functions of a task's variants; None if they are not composed of parts."""
    found = tuple(each.logic for each in task.variants if isinstance(each.logic, ComposedFunction))
    return found if len(found) == len(task.variants) else None


def _obstacle(
    old: Task, new: Task, own: ChannelState, declared: Channel, inputs: Mapping[str, ChannelState]
) -> str | None:
    """Return why the rows and columns that have not changed may not be those of before; None if they are."""
    if _shape(old) != _shape(new):
        return "the task's own function, its ports or its variants have changed"
    blocks = own.snapshot(own.latest_readable).blocks
    if declared.encoding != own.channel.encoding or any(key_of(b.encoding) != declared.key for b in blocks):
        return "the key or the encoding of its output changes"
    for variant in new.variants:
        for port in variant.ports:
            if port.mode is Mode.NEW and not _has_rows(inputs[port.channel].channel.encoding):
                return f"the deltas of {port.channel} are not rows"
    return None


def _shape(task: Task) -> list[object]:
    return [
        (each.name, each.ports, each.productions, each.logic.body if isinstance(each.logic, ComposedFunction) else None)
        for each in task.variants
    ]


def _has_rows(encoding: Encoding) -> bool:
    return not isinstance(encoding, Columns | Increment | Custom)


def _listed(names: Sequence[str]) -> str:
    """Return names as text.

    >>> _listed(("a",)), _listed(("a", "b", "c"))
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
