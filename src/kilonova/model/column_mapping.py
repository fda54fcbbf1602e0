"""Column mapping: how the columns of one shape of input become those of a channel, by its column rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kilonova.errors import SchemaMismatch
from kilonova.model.channel import Channel
from kilonova.model.column_rules import STRICT, ColumnRules, OnNewColumn
from kilonova.model.encoding import Encoding, delta_schema, optional_columns
from kilonova.model.ingest_columns import ingest_columns
from kilonova.model.schema import KEPT, RESERVED, Schema
from kilonova.model.task import Production


@dataclass(frozen=True, slots=True)
class InputColumns:
    """Columns that rows of a channel have when they are ingested.

    Attributes:
        schema: the columns, control columns included.
        optional: the names of those that input may lack without a rule.
        rules: the rules for other columns.
        added: the names of those that ingests have added, which input may lack, too.
    """

    schema: Schema
    optional: tuple[str, ...]
    rules: ColumnRules = STRICT
    added: tuple[str, ...] = ()

    @property
    def defaults(self) -> dict[str, str | None]:
        """The values of columns that input may lack by the rules, as text that casts to their types."""
        return dict.fromkeys(self.added) | dict(self.rules.defaults)

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the columns that input must have."""
        may_lack = {*self.optional, *self.defaults}
        return tuple(name for name in self.schema.names if name not in may_lack)

    @property
    def positional(self) -> Schema:
        """The columns of input whose columns have no names."""
        return self.schema.without(*self.optional)


def input_columns(channel: Channel, production: Production) -> InputColumns:
    """Return the columns of rows to be ingested into a channel.

    Args:
        channel: the channel.
        production: whether the rows are a delta in the channel's encoding or the whole relation.

    Raises:
        SchemaMismatch: the channel has no schema yet.
    """
    if channel.schema is None:
        raise SchemaMismatch("the channel has no schema yet", channel=channel.name, hint="Declare it with its columns")
    deltas = production is Production.DELTA and channel.sequence_by is None  # else no rows can be deleted
    columns = columns_of_rows(channel.schema, channel.encoding if deltas else None, channel.rules)
    return replace(columns, added=channel.added)


def columns_of_rows(relation: Schema, encoding: Encoding | None, rules: ColumnRules) -> InputColumns:
    """Return the columns of rows with deltas in an encoding, or, without one, with a relation."""
    optional = ingest_columns(relation)
    if encoding is None:
        return InputColumns(relation, optional, rules)
    return InputColumns(delta_schema(encoding, relation), (*optional, *optional_columns(encoding, relation)), rules)


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Columns of one shape of input, and what becomes of them.

    Attributes:
        targets: for each column of the input, in order, the column of the channel; None if it is ignored.
        added: the names of those that the channel does not have yet.
        filled: the columns of the channel that are lacking and have a default, with it.
    """

    targets: tuple[str | None, ...]
    added: tuple[str, ...]
    filled: tuple[tuple[str, str | None], ...]


def map_columns(names: Sequence[str], columns: InputColumns, what: str = "the file") -> ColumnMapping:
    """Return how the columns of input become those of a channel.

    Args:
        names: the names of the input's columns, in order.
        columns: the columns of rows to be ingested into the channel.
        what: the input, for messages.

    Raises:
        SchemaMismatch: a column is missing, is not one of the channel's, or is there twice, such as under its former
            name and its present one.

    >>> rules = ColumnRules(on_new_column=OnNewColumn.IGNORE, rename=(("headline", "title"),), defaults=(("n", "0"),))
    >>> columns = InputColumns(Schema.of(("id", "int"), ("title", "string"), ("n", "int")), (), rules)
    >>> map_columns(["ID", "headline", "more"], columns)
    ColumnMapping(targets=('id', 'title', None), added=(), filled=(('n', '0'),))
    """
    rules = columns.rules
    known = {old.lower(): new for old, new in rules.rename} | {name.lower(): name for name in columns.schema.names}
    own = [known.get(name.lower()) for name in names]
    for name in columns.required:
        if name not in own:
            raise SchemaMismatch(
                f"{what} lacks the column (it has: {', '.join(names)})",
                column=name,
                hint="Add it to the file, or declare the channel without it, or with a default for it",
            )
    new = [name for name, target in zip(names, own, strict=True) if target is None]
    for name in new:
        _check_new(name, columns, what)
    added = tuple(new) if rules.on_new_column is OnNewColumn.ADD else ()
    targets = [name if name in added else target for name, target in zip(names, own, strict=True)]
    sources: dict[str, str] = {}
    for name, target in zip(names, targets, strict=True):
        if target is None:
            continue
        if (other := sources.get(target.lower())) is not None:
            raise SchemaMismatch(
                f"{what} has the column twice{'' if name == other else f', as {other} and as {name}'}",
                column=target,
                hint="Remove one of them",
            )
        sources[target.lower()] = name
    filled = tuple((name, value) for name, value in columns.defaults.items() if name.lower() not in sources)
    return ColumnMapping(tuple(targets), added, filled)


def _check_new(name: str, columns: InputColumns, what: str) -> None:
    """Check that a column that the channel does not have can be added or ignored."""
    control = name.lower() in RESERVED or name.lower().startswith(KEPT)
    if columns.rules.on_new_column is OnNewColumn.QUARANTINE or control:
        raise SchemaMismatch(
            f"{what} has a column that the channel does not have",
            column=name,
            hint=f"Remove it{'' if control else ', or declare it'}; the columns are: {', '.join(columns.schema.names)}",
        )
    if columns.rules.on_new_column is OnNewColumn.ADD and not name:
        raise SchemaMismatch(f"{what} has a column without a name", hint="Name it, or remove it")
