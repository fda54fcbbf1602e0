"""Composition of a task's function with column functions, each of which computes one column of its rows."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kilonova.declare.fingerprint import fingerprint, source_of
from kilonova.declare.pickling import pickled
from kilonova.errors import DeclarationError, SchemaMismatch, closest_name
from kilonova.model.channel import Channel
from kilonova.model.composed_function import ComposedFunction
from kilonova.model.encoding import DELETED, WEIGHT, Changes, Columns, Upsert
from kilonova.model.schema import RESERVED, quoted
from kilonova.model.task import Mode, Port

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ColumnFunctions = Mapping[str, Callable[..., Any]]
"""A function for each of some columns: its parameters are columns of the task's rows, its result is the column."""


class Composition:
    """Function of a task whose result has the columns of the body's, and those that column functions compute of them.

    Columns of the body's result that the channel does not have are there for column functions: they are left out.

    Args:
        body: the function; its parameters are the ports.
        columns: the column functions.
        names: the columns of the channel that the task writes.
        key: its key.
    """

    def __init__(
        self, body: Callable[..., Any], columns: ColumnFunctions, names: tuple[str, ...], key: tuple[str, ...]
    ) -> None:
        functools.update_wrapper(self, body)
        self.body = body
        self.columns = dict(columns)
        self.names = names
        self.key = key

    def __reduce__(self) -> tuple[Any, ...]:
        return Composition, (self.body, self.columns, self.names, self.key)

    def with_body(self, body: Callable[..., Any]) -> Composition:
        """Return the composition of another function with the same column functions."""
        return Composition(body, self.columns, self.names, self.key)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the rows that the task writes."""
        rows = self.body(*args, **kwargs)
        if not hasattr(rows, "select"):
            return rows
        self._check(rows)
        kept = (rows[quoted(name)] for name in rows.columns if name in self.names or name in RESERVED)
        return rows.select(*kept, *self._computed(rows, self.columns))

    def delta(self, rows: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return the keys of all rows, with the values of some columns.

        Args:
            rows: the whole input of the only port.
            names: the columns.
        """
        made: DataFrame = self.body(rows)
        self._check(made)
        if DELETED[0] in made.columns:
            made = made.where(f"NOT COALESCE({DELETED[0]}, FALSE)")
        if WEIGHT[0] in made.columns:
            made = made.where(f"{WEIGHT[0]} > 0")
        own = [name for name in (*self.key, *names) if name not in self.columns]
        computed = [name for name in names if name in self.columns]
        return made.select(*(made[quoted(name)] for name in own), *self._computed(made, computed))

    def _computed(self, rows: DataFrame, names: Iterable[str]) -> Iterator[Column]:
        for name in names:
            function = self.columns[name]
            read = _parameters(function)
            for parameter in read:
                if parameter not in rows.columns:
                    raise SchemaMismatch(
                        f"its function reads {parameter}, which the task's rows do not have",
                        column=name,
                        hint=f"Name its parameters as the columns that it reads: {', '.join(rows.columns)}",
                    )
            yield function(*(rows[quoted(parameter)] for parameter in read)).alias(name)

    def _check(self, rows: DataFrame) -> None:
        for name in self.columns:
            if name in rows.columns:
                raise SchemaMismatch(
                    "the task returns the column, but it has a function of its own",
                    column=name,
                    hint="Leave it out of the task's result, or out of columns=…",
                )


def composition(body: Callable[..., Any], columns: ColumnFunctions, channel: Channel) -> Composition:
    """Return the composition of a task's function with column functions.

    Args:
        body: the function.
        columns: the column functions.
        channel: the channel that the task writes.

    Raises:
        DeclarationError: the channel has no declared columns or no key, or its encoding has no rows; it has no such
            column, or that is in the key; or a parameter of a function cannot be a column.
    """
    if channel.schema is None:
        raise DeclarationError("columns=… needs the columns of the channel", hint="Declare them with schema=…")
    if not channel.key:
        raise DeclarationError("columns=… needs the key of the rows", hint="Declare it with key=…")
    if not isinstance(channel.encoding, Upsert | Changes | Columns):
        raise DeclarationError(
            "columns=… needs an encoding whose deltas are rows by key", hint="Use upsert, changes or columns"
        )
    for name, function in columns.items():
        if name not in channel.schema.names:
            raise DeclarationError(
                "a function in columns=… computes a column that the channel does not have",
                column=name,
                hint=closest_name(name, list(channel.schema.names)),
            )
        if name in channel.key:
            raise DeclarationError(
                "a function in columns=… computes a column of the key", column=name, hint="Let the task return it"
            )
        _parameters(function, name)
    return Composition(body, columns, channel.schema.names, channel.key)


def check_ports(ports: Sequence[Port], writes: Sequence[str]) -> None:
    """Check that a task's rows may be computed from its input row by row.

    Raises:
        DeclarationError: it has several parameters, or reads its own output.
    """
    if len(ports) != 1 or ports[0].channel in writes or ports[0].mode is Mode.OLD:
        raise DeclarationError(
            "a task with columns=… has one parameter, which is not its own output",
            hint="Join other channels in a task or view before it",
        )


def composed(item: Composition) -> tuple[ComposedFunction, str]:
    """Return a composition pickled by value, with its source, and its fingerprint.

    Raises:
        DeclarationError: it cannot be pickled, or a function has no source.
    """
    body = fingerprint(item.body)
    parts = {name: fingerprint(function) for name, function in sorted(item.columns.items())}
    sources = dict.fromkeys(source_of(each) for each in (item.body, *item.columns.values()))
    found = ComposedFunction(
        pickled=pickled(item),
        source="\n\n".join(source.rstrip("\n") for source in sources) + "\n",
        unseen=tuple(dict.fromkeys(unseen for each in (body, *parts.values()) for unseen in each.unseen)),
        body=body.digest,
        columns=tuple((name, part.digest) for name, part in parts.items()),
    )
    return found, hashlib.sha256(found.parts.encode()).hexdigest()[:32]


def _parameters(function: Callable[..., Any], column: str | None = None) -> list[str]:
    """Return the columns that a column function reads: its parameters without default values.

    Raises:
        DeclarationError: it is not a function of columns.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise DeclarationError(
            "an item of columns=… is not a function whose parameters are known",
            column=column,
            hint="Write a function whose parameters are columns of the task's result",
        ) from None
    required = [each for each in parameters if each.default is each.empty]
    if any(each.kind not in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in required):
        raise DeclarationError(
            "a function in columns=… has parameters that are not columns",
            column=column,
            hint="Name each column that it reads as a parameter of its own",
        )
    return [each.name for each in required]
