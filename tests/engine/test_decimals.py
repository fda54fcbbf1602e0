"""Views of exact numbers of every width beside the same query in Spark: values, and the types that Spark gives them."""

from __future__ import annotations

import random
from decimal import Context, Decimal
from typing import Any

import pytest

import kilonova as kn
from kilonova.service.project import Project
from tests.seeds import SEED

pytestmark = pytest.mark.slow  # beside tests/query/test_decimals.py; this one has more types at once

FIXED = [(5, 2), (15, 2)]
LIMITS = [(1, 0), (1, 1), (16, 16), (24, 2), (25, 2), (27, 16), (27, 17), (28, 6), (29, 0), (38, 0), (38, 6), (38, 38)]
WHOLE = {"tinyint": 7, "int": 31, "bigint": 63}
EXACT = Context(prec=60)

Digits = tuple[int, int]


def columns_of(chance: random.Random) -> dict[str, str]:
    """Columns of two types that are always there, of some at the limits, and of another."""
    limits = [*FIXED, *chance.sample(LIMITS, 4), (precision := chance.randint(1, 38), chance.randint(0, precision))]
    kinds = [*WHOLE, *(f"decimal({precision},{scale})" for precision, scale in limits)]
    return {f"x{place}": kind for place, kind in enumerate(kinds)}


def value_of(chance: random.Random, kind: str) -> Any:
    """A value at the limits or between; those of 38 digits are so small that a hundred have a sum and an average."""
    if chance.random() < 0.1:
        return None
    if kind in WHOLE:
        most = 2 ** WHOLE[kind] - 1
        return chance.choice((1, -1)) * chance.choice((most, 1, 2, chance.randint(0, most)))
    precision, scale = map(int, kind[8:-1].split(","))
    most = 10 ** min(precision, 33) - 1
    unscaled = chance.choice((most, 1, 2, 5, chance.randint(0, most), chance.randint(0, most) % 1000))
    return Decimal(chance.choice((1, -1)) * unscaled).scaleb(-scale, EXACT)


def aggregates(columns: dict[str, str], *, narrow: bool) -> str:
    """Those of columns of few digits can all be added up, so that no other has the groups of these made anew."""
    found = []
    for name, kind in columns.items():
        if narrow and kind not in WHOLE and int(kind[8:].partition(",")[0]) > 24:
            continue
        found += [f"avg({name}) AS avg_{name}", f"avg(CASE WHEN id % 2 = 0 THEN {name} ELSE 0 END) AS some_{name}"]
        found += [f"count({name}) AS n_{name}", *([f"sum({name}) AS sum_{name}"] if kind != "bigint" else [])]
        found += [] if narrow else [f"min({name}) AS min_{name}", f"max(DISTINCT {name}) AS max_{name}"]
    if narrow:
        found += [
            f"avg({x}) AS of{place}" for place, x in enumerate(("x3 * x4", "x3 / -3", "x4 - x3", "CAST(x3 AS DECIMAL)"))
        ]
    return ", ".join(found)


def test_views_of_exact_numbers_are_what_spark_makes_of_them(project: Project) -> None:
    chance = random.Random(SEED)
    columns = columns_of(chance)
    schema = ", ".join(f"{name} {kind}" for name, kind in {"id": "int", "g": "int", **columns}.items())
    wf = kn.Workflow("exact")
    wf.channel("t", schema, key="id")
    queries = {
        "added": f"SELECT g, {aggregates(columns, narrow=True)} FROM t GROUP BY g",
        "total": f"SELECT {aggregates(columns, narrow=True)} FROM t",
        "others": f"SELECT g, {aggregates(columns, narrow=False)} FROM t GROUP BY g",
    }
    for name, query in queries.items():
        wf.view(name, query, refresh="incremental")
    project.apply(wf)
    spark = project.warehouse.spark
    for count in (40, 12):
        rows = [
            (id_, chance.randint(1, 3), *(value_of(chance, kind) for kind in columns.values()), chance.random() < 0.3)
            for id_ in chance.sample(range(60), count)
        ]
        project.ingest("t", spark.createDataFrame(rows, f"{schema}, _deleted boolean"))
        project.run()
        project.read("t").createOrReplaceTempView("t")
        for name, query in queries.items():
            found, wanted = project.read(name), spark.sql(query)
            assert found.dtypes == wanted.dtypes
            one, other = (sorted(map(tuple, frame.collect()), key=lambda row: row[0]) for frame in (found, wanted))
            for row, expected in zip(one, other, strict=True):
                differing = {n: (a, b) for n, a, b in zip(found.columns, row, expected, strict=True) if not alike(a, b)}
                assert not differing, name


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same; averages of whole numbers are floating-point numbers, rounded otherwise."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-12 * max(abs(one), abs(other), 1.0)
    return bool(one == other)
