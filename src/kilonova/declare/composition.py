"""Composition of a task's function with functions of single columns, and a condition on its rows."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kilonova.declare.fingerprint import fingerprint, source_of
from kilonova.declare.pickling import pickled
from kilonova.errors import DeclarationError, SchemaMismatch, closest_name
from kilonova.model.channel import Channel
from kilonova.model.composed_function import ComposedFunction
from kilonova.model.encoding import DELETED, WEIGHT, Append, Changes, Columns, Upsert
from kilonova.model.schema import RESERVED, quoted
from kilonova.model.task import Port, Production
from kilonova.query.expression_syntax import condition_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ColumnFunctions = Mapping[str, Callable[..., Any]]
"""A function for each of some columns: its parameters are columns of the task's rows, its result is the column."""


class Composition:
    """Function of a task that adds columns to the rows of the body, and keeps those that satisfy a condition.

    Columns of the body's result that the channel does not have are there for column functions and the condition: they
    are left out. Where the result is a delta of upserts, keys whose rows do not satisfy the condition are deleted.

    Args:
        body: the function; its parameters are the ports.
        columns: the column functions.
        where: the condition, in Spark SQL; None for all rows.
        channel: the channel that the task writes.
        production: whether the result is the whole relation or a delta.
        per_row: whether each row of the result depends on one row of the only input.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        columns: ColumnFunctions,
        where: str | None,
        channel: Channel,
        production: Production,
        per_row: bool,
    ) -> None:
        functools.update_wrapper(self, body)
        self.body = body
        self.columns = dict(columns)
        self.where = where
        self.channel = channel
        self.production = production
        self.per_row = per_row

    def __reduce__(self) -> tuple[Any, ...]:
        channel = Channel(name=self.channel.name, schema=self.channel.schema, encoding=self.channel.encoding)
        return Composition, (self.body, self.columns, self.where, channel, self.production, self.per_row)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the rows that the task writes."""
        made = self.body(*args, **kwargs)
        if not hasattr(made, "select"):
            return made
        rows = self._whole(made)
        if self.where is not None and self._deletes:
            fails = f"NOT COALESCE({self.where}, FALSE)"
            others = [quoted(name) for name in rows.columns if name != DELETED[0]]
            known = f"COALESCE({DELETED[0]}, FALSE) OR " if len(others) < len(rows.columns) else ""
            rows = rows.selectExpr(*others, f"{known}{fails} AS {DELETED[0]}")
        elif self.where is not None:
            rows = rows.where(self.where)
        names = {*(self.channel.schema.names if self.channel.schema is not None else rows.columns), *RESERVED}
        return rows.select(*(rows[quoted(name)] for name in rows.columns if name in names))

    def delta(self, rows: DataFrame, names: Sequence[str], where: str | None, *, deletes: bool) -> DataFrame:
        """Return a delta of the whole output, of some rows and columns of it.

        Args:
            rows: the whole input of the only port.
            names: the columns, besides those of the key.
            where: the condition that the rows satisfy; None for all.
            deletes: whether it deletes the rows, rather than add them or set the columns.
        """
        made = self._whole(self.body(rows))
        if DELETED[0] in made.columns:
            made = made.where(f"NOT COALESCE({DELETED[0]}, FALSE)")
        if WEIGHT[0] in made.columns:
            made = made.where(f"{WEIGHT[0]} > 0")
        if where is not None:
            made = made.where(where)
        key = self.channel.key
        columns = [quoted(name) for name in dict.fromkeys((*key, *names))]
        if key:
            return made.selectExpr(*columns, *([f"TRUE AS {DELETED[0]}"] if deletes else []))
        if isinstance(self.channel.encoding, Append):
            return made.selectExpr(*columns)
        weight = WEIGHT[0] if WEIGHT[0] in made.columns else "1"
        return made.selectExpr(*columns, f"CAST({'-' if deletes else ''}{weight} AS BIGINT) AS {WEIGHT[0]}")

    @property
    def _deletes(self) -> bool:
        """Return whether rows that do not satisfy the condition delete those before them."""
        return self.production is Production.DELTA and isinstance(self.channel.encoding, Upsert)

    def _whole(self, rows: DataFrame) -> DataFrame:
        """Return rows of the body with the columns that column functions compute."""
        self._check(rows)
        return rows.select("*", *self._computed(rows, self.columns)) if self.columns else rows

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of the function of a task, besides the body.

    Attributes:
        columns: the column functions.
        where: the condition, in Spark SQL; None if there is none.
        per_row: whether each row of the result depends on one row of the only input.
        channel: the channel that the task writes.

    Raises:
        DeclarationError: the channel has no declared columns or no key, or its encoding has no rows; it has no such
            column, or that is in the key; or a parameter of a function cannot be a column.
    """

    columns: ColumnFunctions
    where: str | None
    per_row: bool
    channel: Channel

    def __post_init__(self) -> None:
        channel = self.channel
        if self.where is not None and not isinstance(channel.encoding, Append | Upsert | Changes):
            raise DeclarationError(
                "where=… needs an encoding whose deltas are whole rows", hint="Use append, upsert or changes"
            )
        if not self.columns:
            return
        if channel.schema is None:
            raise DeclarationError("columns=… needs the columns of the channel", hint="Declare them with schema=…")
        if not channel.key:
            raise DeclarationError("columns=… needs the key of the rows", hint="Declare it with key=…")
        if not isinstance(channel.encoding, Upsert | Changes | Columns):
            raise DeclarationError(
                "columns=… needs an encoding whose deltas are rows by key", hint="Use upsert, changes or columns"
            )
        for name, function in self.columns.items():
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

    def composed(
        self, body: Callable[..., Any], ports: Sequence[Port], writes: Sequence[str], production: Production
    ) -> Composition:
        """Return the composition of a variant's function with them.

        Args:
            body: the function.
            ports: its ports.
            writes: the channels that the task writes.
            production: what its result is.

        Raises:
            DeclarationError: the rows must depend on one row of an input each, but it has several parameters, or
                reads its own output.
        """
        per_row = self.per_row or bool(self.columns)
        if per_row and (len(ports) != 1 or ports[0].channel in writes):
            raise DeclarationError(
                f"a task with {'columns=…' if self.columns else 'per_row=True'} has one parameter, which is not its "
                "own output",
                hint="Join other channels in a task or view before it",
            )
        where = None if self.where is None else condition_of(self.where).sql
        return Composition(body, self.columns, where, self.channel, production, per_row)


def composed(item: Composition) -> tuple[ComposedFunction, str]:
    """Return a composition pickled by value, with its source, and its fingerprint.

    Raises:
        DeclarationError: it cannot be pickled, or a function has no source.
    """
    body = fingerprint(item.body)
    parts = {name: fingerprint(function) for name, function in sorted(item.columns.items())}
    sources = dict.fromkeys(source_of(each) for each in (item.body, *item.columns.values()))
    condition = [] if item.where is None else [f"# where {item.where}"]
    found = ComposedFunction(
        pickled=pickled(item),
        source="\n\n".join(source.rstrip("\n") for source in (*sources, *condition)) + "\n",
        unseen=tuple(dict.fromkeys(unseen for each in (body, *parts.values()) for unseen in each.unseen)),
        body=body.digest,
        columns=tuple((name, part.digest) for name, part in parts.items()),
        where=item.where,
        per_row=item.per_row,
    )
    return found, found.fingerprint


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
