"""Rows as JSON without loss: what is read can be inserted again, with every digit, byte and special value.

==================  ==========================================================================================
type                JSON
==================  ==========================================================================================
integers, boolean   number, `true` or `false`
float, double       number; `"NaN"`, `"Infinity"` or `"-Infinity"`
decimal             string with all digits, such as `"0.10"`: most JSON parsers would round a number
string              string
binary              string in base64
date                string, `"2024-02-29"`
timestamp           string in UTC, `"2024-02-29T12:00:00.123456Z"`
timestamp_ntz       string, `"2024-02-29T12:00:00.123456"`
array               array
map                 object; keys that are not strings are written as their JSON text
struct              object with all fields
intervals of time   string, as Spark writes it: `"INTERVAL '1 02:03:04.000005' DAY TO SECOND"`
variant             its JSON
==================  ==========================================================================================
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import VariantVal


def json_rows(table: pa.Table) -> bytes:
    """Return rows as a JSON array of objects.

    >>> from decimal import Decimal
    >>> json_rows(pa.table({"n": pa.array([Decimal("1.10"), None]), "at": pa.array([b"ab", b""])})).decode()
    '[{"n":"1.10","at":"YWI="},{"n":null,"at":""}]'
    """
    names = [json.dumps(name, ensure_ascii=False) for name in table.column_names]
    columns = [[text for chunk in column.chunks for text in _texts(chunk)] for column in table.columns]
    rows = ("{" + ",".join(map("{}:{}".format, names, row)) + "}" for row in zip(*columns, strict=True))
    return f"[{','.join(rows)}]".encode()


def _texts(array: pa.Array) -> list[str]:
    """Return each value of an array as JSON."""
    kind = array.type
    if pa.types.is_map(kind):
        return _nested(array, _entries(array), "{{{}}}".format)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _nested(array, _texts(array.values), "[{}]".format)
    if pa.types.is_struct(kind):
        return _variants(array) if _is_variant(kind) else _structs(array)
    if pa.types.is_date(kind):
        return _written(array.cast(pa.int32()), lambda days: f'"{_padded(np.datetime64(days, "D"), 10)}"')
    if pa.types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return _written(array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), lambda time: f'"{_time(time)}{zone}"')
    if pa.types.is_duration(kind):
        return _written(array.cast(pa.duration("us")).cast(pa.int64()), lambda time: f'"{_interval(time)}"')
    return _written(array, _writer(kind))


def _writer(kind: pa.DataType) -> Callable[[Any], str]:
    """Return a function that writes a value of a type that is not nested as JSON."""
    if pa.types.is_float32(kind):
        return lambda value: _number(value, str(np.float32(value)))
    if pa.types.is_float64(kind):
        return lambda value: _number(value, repr(value))
    if pa.types.is_decimal(kind):
        return lambda value: f'"{value:f}"'
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return json.dumps
    return lambda value: json.dumps(str(value), ensure_ascii=False)


def _written(array: pa.Array, write: Callable[[Any], str]) -> list[str]:
    return ["null" if value is None else write(value) for value in array.to_pylist()]


def _nested(array: pa.Array, elements: list[str], enclose: Callable[[str], str]) -> list[str]:
    """Return lists or maps as JSON.

    Args:
        array: the lists.
        elements: the elements to which their offsets refer, as JSON.
        enclose: encloses the elements of one.
    """
    places = pairwise(array.offsets.to_pylist())
    there = array.is_valid().to_pylist()
    return [
        enclose(",".join(elements[start:end])) if valid else "null"
        for (start, end), valid in zip(places, there, strict=True)
    ]


def _entries(maps: pa.MapArray) -> list[str]:
    names = (key if key.startswith('"') else json.dumps(key) for key in _texts(maps.keys))
    return [f"{name}:{value}" for name, value in zip(names, _texts(maps.items), strict=True)]


def _structs(array: pa.Array) -> list[str]:
    names = [json.dumps(field.name, ensure_ascii=False) for field in array.type]
    rows = zip(*map(_texts, array.flatten()), strict=True)
    texts = ("{" + ",".join(map("{}:{}".format, names, row)) + "}" for row in rows)
    return [text if there else "null" for text, there in zip(texts, array.is_valid().to_pylist(), strict=True)]


def _is_variant(kind: pa.DataType) -> bool:
    return any((field.metadata or {}).get(b"variant") == b"true" for field in kind)


def _variants(array: pa.Array) -> list[str]:
    return _written(array, lambda value: VariantVal(value["value"], value["metadata"]).toJson())


def _number(value: float, text: str) -> str:
    if math.isnan(value):
        return '"NaN"'
    return text if math.isfinite(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _time(microseconds: int) -> str:
    return _padded(np.datetime64(microseconds, "us"), 26).removesuffix(".000000")


def _padded(time: np.datetime64, width: int) -> str:
    """Return a date or time with at least four digits of the year, as Spark reads it also before the year 0."""
    text = str(time)
    return f"-{text[1:].zfill(width)}" if text.startswith("-") else text


def _interval(microseconds: int) -> str:
    """Return an interval of time as Spark writes it.

    >>> _interval(-93_784_000_005)
    "INTERVAL '-1 02:03:04.000005' DAY TO SECOND"
    """
    sign, size = "-" if microseconds < 0 else "", abs(microseconds)
    seconds, fraction = divmod(size, 1_000_000)
    days, seconds = divmod(seconds, 86_400)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"INTERVAL '{sign}{days} {clock}" + (f".{fraction:06}" if fraction else "") + "' DAY TO SECOND"
