"""Rows of the reference as DataFrames, and back.

In the reference an array is a tuple, a struct a tuple, and a map a frozenset of pairs; there is one NaN, which is
then equal to itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from kilonova.model.schema import Schema
from kilonova.testing.reference import Bag, Record, records

NAN = math.nan


def frame_of(spark: SparkSession, schema: Schema, rows: Iterable[Record]) -> DataFrame:
    """A DataFrame of the rows; columns that a row lacks are null."""
    values = [tuple(_thawed(record.get(name)) for name in schema.names) for record in rows]
    return spark.createDataFrame(values, schema.ddl)


def frame_of_bag(spark: SparkSession, schema: Schema, bag: Bag) -> DataFrame:
    """A DataFrame of a bag's rows."""
    return frame_of(spark, schema, records(schema, bag))


def records_of(frame: DataFrame) -> list[Record]:
    """The rows of a DataFrame by column name."""
    names = frame.columns
    return [dict(zip(names, _frozen(row), strict=True)) for row in frame.collect()]


def bag_of(frame: DataFrame) -> Bag:
    """The rows of a DataFrame as a bag."""
    return Counter(_frozen(row) for row in frame.collect())


def weights_of(frame: DataFrame) -> dict[tuple[Any, ...], int]:
    """The rows of a strong delta with their weights; each row must occur once."""
    found: dict[tuple[Any, ...], int] = {}
    for record in records_of(frame):
        weight = record.pop("_weight")
        row = tuple(record.values())
        assert row not in found
        found[row] = weight
    return found


def _frozen(value: Any) -> Any:
    match value:
        case float() if math.isnan(value):
            return NAN
        case Row() | list() | tuple():
            return tuple(map(_frozen, value))
        case dict():
            return frozenset((key, _frozen(item)) for key, item in value.items())
        case bytearray():
            return bytes(value)
        case _:
            return value


def _thawed(value: Any) -> Any:
    match value:
        case tuple():
            return tuple(map(_thawed, value))
        case frozenset():
            return {key: _thawed(item) for key, item in value}
        case _:
            return value
