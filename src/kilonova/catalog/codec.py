"""How the model's values are written down in JSON columns, and read back."""

from __future__ import annotations

from typing import Any, assert_never

from kilonova.errors import CatalogError
from kilonova.model.encoding import Append, Changes, Columns, Custom, Encoding, Increment, Upsert
from kilonova.model.schema import Column, Schema
from kilonova.model.version import Reflection, Version


def schema_to_json(schema: Schema) -> list[list[str]]:
    """A schema as [[name, type], …]."""
    return [[column.name, column.type] for column in schema.columns]


def schema_from_json(value: list[list[str]]) -> Schema:
    """The inverse of `schema_to_json`."""
    return Schema(tuple(Column(name, type_) for name, type_ in value))


def encoding_to_json(encoding: Encoding) -> dict[str, Any]:
    """An encoding with its parameters."""
    match encoding:
        case Append():
            return {"encoding": "append"}
        case Upsert(key):
            return {"encoding": "upsert", "key": list(key)}
        case Changes(key):
            return {"encoding": "changes", "key": list(key)}
        case Increment(key, measures):
            return {"encoding": "increment", "key": list(key), "measures": list(measures)}
        case Columns(key):
            return {"encoding": "columns", "key": list(key)}
        case Custom(key, function):
            return {"encoding": "custom", "key": list(key), "function": function}
        case _:
            assert_never(encoding)


def encoding_from_json(value: dict[str, Any]) -> Encoding:
    """The inverse of `encoding_to_json`.

    Raises:
        CatalogError: the encoding is not one that this release knows.
    """
    key = tuple(value.get("key", ()))
    match value["encoding"]:
        case "append":
            return Append()
        case "upsert":
            return Upsert(key)
        case "changes":
            return Changes(key)
        case "increment":
            return Increment(key, tuple(value["measures"]))
        case "columns":
            return Columns(key)
        case "custom":
            return Custom(key, value["function"])
        case other:
            raise CatalogError(f"the catalog names an unknown encoding, {other}", hint="Upgrade Kilonova")


def version_to_json(version: Version) -> list[Any]:
    """A version as [[path, [[logic, first, last], …]], …]."""
    return [
        [list(path), [[list(item.logic), item.first, item.last] for item in entry]] for path, entry in version.entries
    ]


def version_from_json(value: list[Any]) -> Version:
    """The inverse of `version_to_json`."""
    return Version(
        tuple(
            (tuple(path), tuple(Reflection(tuple(logic), first, last) for logic, first, last in entry))
            for path, entry in value
        )
    )
