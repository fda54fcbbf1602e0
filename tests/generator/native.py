"""The operations of `tests.generator.ops` as PySpark does them; those that are not here collect their rows."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kilonova.errors import KilonovaError
from kilonova.model.schema import Schema
from kilonova.warehouse.blocks import schema_of
from kilonova.warehouse.jobs import fetch
from tests.generator.rows import Rows


def above(constant, a):  # type: ignore[no-untyped-def]
    return (a.where(F.coalesce("v", F.lit(0)) >= constant),)


def lookup(constant, a, b):  # type: ignore[no-untyped-def]
    known = b.select("k").distinct()
    return (a.join(known, a["k"].eqNullSafe(known["k"]), "left_semi"),)


def unknown(constant, a, b):  # type: ignore[no-untyped-def]
    known = b.select("k").distinct()
    return (a.join(known, a["k"].eqNullSafe(known["k"]), "left_anti"),)


def sums(constant, a):  # type: ignore[no-untyped-def]
    amount = F.sum(F.col("_weight") * F.coalesce("v", F.lit(0)))
    return (a.where("k IS NOT NULL").groupBy("k").agg(amount.alias("v"), F.sum("_weight").alias("n")),)


def split(constant, a):  # type: ignore[no-untyped-def]
    low = F.coalesce("v", F.lit(0)) <= constant
    return a.where(low), a.where(~low)


def copy(constant, a):  # type: ignore[no-untyped-def]
    return (a,)


NATIVE: dict[str, Callable[..., Any]] = {each.__name__: each for each in (above, lookup, unknown, sums, split, copy)}


def body_of(function: Callable[..., Any], constant: int, schemas: tuple[Schema, ...]) -> Any:
    """A task's function for PySpark."""
    native = NATIVE.get(function.__name__)

    def body(**frames):  # type: ignore[no-untyped-def]
        if native is not None:
            made = native(constant, **frames)
            return tuple(fitted(frame, schema) for frame, schema in zip(made, schemas, strict=True))
        records = {name: [row.asDict() for row in frame.collect()] for name, frame in frames.items()}
        session = next(iter(frames.values())).sparkSession
        return tuple(
            session.createDataFrame([tuple(record.get(n) for n in schema.names) for record in some], schema.ddl)
            for schema, some in zip(schemas, function(constant, **records), strict=True)
        )

    return body


def fitted(frame: DataFrame, schema: Schema) -> DataFrame:
    """The frame with the columns of a schema, absent ones null."""
    return frame.select(
        *(
            F.col(item.name) if item.name in frame.columns else F.lit(None).cast(item.type).alias(item.name)
            for item in schema.columns
        )
    )


def fetched(frames: Sequence[DataFrame | KilonovaError]) -> list[Any]:
    """The rows of frames, all by one job; errors stay."""
    parts = []
    for number, frame in enumerate(frames):
        if isinstance(frame, DataFrame):
            text = F.to_json(F.struct(*frame.columns), {"ignoreNullFields": "false"})
            parts.append(frame.select(F.lit(number).alias("number"), text.alias("row")))
    found: list[Any] = [Rows(schema_of(f.schema), ()) if isinstance(f, DataFrame) else f for f in frames]
    if not parts:
        return found
    try:
        rows = fetch(functools.reduce(DataFrame.union, parts))
    except KilonovaError as error:
        return [error] if len(frames) == 1 else [one for frame in frames for one in fetched([frame])]
    gathered: dict[int, list[Any]] = {}
    for number, text in rows:
        values = json.loads(text).values()
        gathered.setdefault(number, []).append(tuple(tuple(v) if isinstance(v, list) else v for v in values))
    for number, some in gathered.items():
        found[number] = replace(found[number], rows=tuple(some))
    return found
