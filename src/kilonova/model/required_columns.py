r"""Required columns: the schema constraints of a logic version (logic evolution, section 3.3.1).

A logic version *accepts* a channel at a point if the relation has its required columns there:

    accepts(λ, C, p)  ⇔  required(λ, C) ⊆ S(C, V(p))

where S(C, V) is the schema with which the relation was written, see `kilonova.model.schema_function`. The empty
relation of a channel without rows has the declared columns. A logic version reads a channel only up to points that it
accepts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kilonova.model.channel import ChannelState
from kilonova.model.schema import Schema
from kilonova.model.schema_function import ColumnTypes


@dataclass(frozen=True, slots=True, order=True)
class RequiredColumn:
    """Column of an input on which a logic version relies.

    Attributes:
        channel: the channel.
        name: the name of the column; names are compared without case.
        type: the declared type, with which the rows must have been written. None for a column that was inferred from a
            query: it may have any type, and a source channel that declares it may have null in rows without it.
    """

    channel: str
    name: str
    type: str | None = None

    def __str__(self) -> str:
        return f"{self.name} of {self.channel}" if self.type is None else f"{self.name} {self.type} of {self.channel}"


def missing_columns(required: Iterable[RequiredColumn], state: ChannelState, number: int) -> tuple[RequiredColumn, ...]:
    """Return the required columns that a channel does not have at a point; none if it is accepted.

    A channel whose columns are not known, because nothing was written to it, is accepted.
    """
    own = [column for column in required if column.channel == state.channel.name]
    if not own:
        return ()
    declared = _types(state.channel.schema)
    written = _types(state.written_schema(number)) if state.settled(number) else declared
    if not written:
        return ()
    filled = declared if state.has_ingests else {}
    return tuple(each for each in absent_columns(own, written) if each.type or each.name.lower() not in filled)


def absent_columns(required: Iterable[RequiredColumn], columns: ColumnTypes) -> tuple[RequiredColumn, ...]:
    """Return the required columns that are not among columns, or have another type there.

    >>> absent_columns([RequiredColumn("a", "x"), RequiredColumn("a", "Y", "int")], {"x": None, "y": "string"})
    (RequiredColumn(channel='a', name='Y', type='int'),)
    """
    types = {name.lower(): kind for name, kind in columns.items()}
    return tuple(
        column
        for column in required
        if (name := column.name.lower()) not in types or not _is_of_type(types[name], column.type)
    )


def _is_of_type(kind: str | None, wanted: str | None) -> bool:
    return kind is None or wanted is None or kind == wanted


def _types(schema: Schema | None) -> dict[str, str]:
    """Return the types of columns by their names in lower case."""
    return {} if schema is None else {column.name.lower(): column.type for column in schema.columns}


def accepted_end(required: Iterable[RequiredColumn], state: ChannelState, start: int, end: int) -> int | None:
    """Return the newest point after one that was read, up to another, that is accepted.

    Args:
        required: the required columns.
        state: the channel.
        start: the point that was read; 0 if none was.
        end: the newest point that could be read.

    Returns:
        The point; `start` if no later one is accepted; None if no rows were read and none can be.
    """
    own = tuple(required)
    if state.settled(end) == 0:
        return None if missing_columns(own, state, end) else end
    if state.is_equivalent(start, end) or not missing_columns(own, state, end):
        return end
    given = (point.number for point in reversed(state.readable_points) if not point.withheld)
    between = (number for number in given if start < number < end)
    return next((number for number in between if not missing_columns(own, state, number)), start) or None


def as_required(required: Iterable[RequiredColumn], state: ChannelState) -> ChannelState:
    """Return a channel as a logic version reads it: with the columns as they were written, if it relies on them.

    Those that are declared may lack a required column, or have it with another type, until the rows have been written
    with them.
    """
    own = [column for column in required if column.channel == state.channel.name]
    if not own or (written := state.written_schema(state.latest_readable)) is None:
        return state
    declared, types = _types(state.channel.schema), _types(written)
    kept = (
        declared.get(name := column.name.lower()) == types.get(name) for column in own if column.name.lower() in types
    )
    return state if all(kept) else replace(state, channel=state.channel_with(written))


def describe_columns(columns: Iterable[RequiredColumn]) -> str:
    """Return required columns as text.

    >>> describe_columns([RequiredColumn("a", "x"), RequiredColumn("a", "y", "int"), RequiredColumn("b", "x")])
    'x and y int of a, x of b'
    """
    by_channel: dict[str, list[str]] = {}
    for each in columns:
        by_channel.setdefault(each.channel, []).append(each.name if each.type is None else f"{each.name} {each.type}")
    return ", ".join(f"{' and '.join(names)} of {channel}" for channel, names in by_channel.items())
