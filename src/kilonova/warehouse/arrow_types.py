"""Types whose values Arrow stores, orders and compares as Spark does.

Floating-point keys and maps, which Spark compares by rules of its own, are left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

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


def stored_types(schema: Schema) -> bool:
    """Return whether Arrow stores the values of all columns as Spark does."""
    return all(_arrow_type(column.type) is not None for column in schema.columns)


def comparable_types(schema: Schema, names: Iterable[str], *, as_key: bool = False) -> bool:
    """Return whether Arrow compares the values of some columns as Spark does, and stores them alike."""
    kinds = [schema.type_of(name) for name in names]
    refused = ("<", *_NOT_KEYS) if as_key else ("map<",)
    return all(_arrow_type(kind) is not None and not any(part in kind for part in refused) for kind in kinds)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return a schema of `stored_types` as Arrow's."""
    return pa.schema([(column.name, _arrow_type(column.type)) for column in schema.columns])


@cache
def _arrow_type(kind: str) -> pa.DataType | None:
    """Return a type as Arrow's; None if it is not one of those that are stored alike."""
    if kind in _TYPES:
        return _TYPES[kind]
    if kind.startswith("decimal("):
        precision, scale = map(int, kind[len("decimal(") : -1].split(","))
        return pa.decimal128(precision, scale)
    outer, _, inner = kind.removesuffix(">").partition("<")
    match outer, _parts(inner):
        case "array", [element] if (inside := _arrow_type(element)) is not None:
            return pa.list_(pa.field("element", inside))
        case "map", [key, value] if None not in (types := [_arrow_type(key), _arrow_type(value)]):
            return pa.map_(*types)
        case "struct", parts:
            fields = {name: _arrow_type(each) for name, _, each in (part.partition(":") for part in parts)}
            return pa.struct(fields.items()) if len(fields) == len(parts) and None not in fields.values() else None
        case _:
            return None


def _parts(text: str) -> list[str]:
    """Split the text of a type at the commas outside of its brackets.

    >>> _parts("a:decimal(10,2),b:map<string,int>")
    ['a:decimal(10,2)', 'b:map<string,int>']
    """
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
