"""Frames of the warehouse in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kilonova.model.schema import Schema

Record = dict[str, Any]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Rows:
    """A frame: rows in the order of their schema."""

    schema: Schema
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, schema: Schema, records: Iterable[Mapping[str, Any]]) -> Rows:
        """The records as rows; columns that one lacks are null."""
        return cls(schema, tuple(tuple(record.get(name) for name in schema.names) for record in records))

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def records(self) -> list[Record]:
        return [dict(zip(self.schema.names, row, strict=True)) for row in self.rows]
