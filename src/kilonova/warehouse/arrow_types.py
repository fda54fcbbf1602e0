"""Types whose values Arrow stores, orders and compares as Spark does.

Nested values and floating-point keys, which Spark compares by rules of its own, are left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from kilonova.model.schema import Schema

_TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NOT_KEYS = ("float", "double", "binary")


def comparable_types(schema: Schema, names: Iterable[str], *, as_key: bool = False) -> bool:
    """Return whether Arrow compares the values of some columns as Spark does."""
    kinds = (schema.type_of(name).partition("(")[0] for name in names)
    return all((kind in _TYPES or kind == "decimal") and not (as_key and kind in _NOT_KEYS) for kind in kinds)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return a schema of comparable types as Arrow's."""
    return pa.schema([(column.name, _arrow_type(column.type)) for column in schema.columns])


def _arrow_type(kind: str) -> pa.DataType:
    if kind.startswith("decimal"):
        precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
        return pa.decimal128(precision, scale)
    return _TYPES[kind]
