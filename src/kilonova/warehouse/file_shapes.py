"""Shapes of files: files of one shape have the same columns, which become those of their channel in the same way."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kilonova.model.schema import Schema
from kilonova.warehouse.blocks import column


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """Columns of files, and what becomes of them.

    Attributes:
        columns: the columns that are read, by their names in the files; in CSV, all of them in their order.
        relation: the columns that the rows have in their channel.
        sources: the column read for each of those, if it has another name; in JSON, a line may have either.
        filled: the columns that files, or lines of JSON, lack, each with its default as text or null.
        required: the columns of the relation that every line of JSON must have.
        ignores: whether lines of JSON may have other columns.
    """

    columns: Schema
    relation: Schema
    sources: tuple[tuple[str, tuple[str, ...]], ...] = ()
    filled: tuple[tuple[str, str | None], ...] = ()
    required: tuple[str, ...] = ()
    ignores: bool = False

    @classmethod
    def of(cls, columns: Schema, required: tuple[str, ...] = (), relation: Schema | None = None) -> FileShape:
        """Return the shape of files that have a channel's columns by their names, maybe with narrower types."""
        return cls(columns=columns, relation=relation or columns, required=required)

    @property
    def alternatives(self) -> dict[str, tuple[str, ...]]:
        """The names under which files may have a column, for those that have several."""
        return {name: names for name, names in self.sources if len(names) > 1}

    def default(self, name: str) -> Column:
        """Return the default of a column."""
        return F.lit(dict(self.filled)[name]).cast(self.relation.type_of(name))


def with_relation_columns(rows: DataFrame, shape: FileShape) -> DataFrame:
    """Return rows of CSV, Parquet or ORC files, as they are read, with the columns of their channel, and any others."""
    if shape == FileShape.of(shape.columns, shape.required):
        return rows
    sources, types = dict(shape.sources), {each.name: each.type for each in shape.columns.columns}

    def value(name: str, kind: str) -> Column:
        (source,) = sources.get(name, (name,))
        if source not in types:
            return shape.default(name).alias(name)
        return (column(source) if types[source] == kind else column(source).cast(kind)).alias(name)

    others = [name for name in rows.columns if name not in types]
    return rows.select(*(value(each.name, each.type) for each in shape.relation.columns), *map(column, others))
