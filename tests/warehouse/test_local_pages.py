"""Pages that this process reads from small blocks equal those that Spark reads, row by row."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kilonova.errors import BlockDamaged
from kilonova.model.block import BlockName, Delta
from kilonova.model.encoding import WEIGHT, Append
from kilonova.model.read_plan import ReadPlan
from kilonova.model.schema import Schema
from kilonova.model.version import Version
from kilonova.model.write_plan import WritePlan
from kilonova.query.row_order import SortKey
from kilonova.warehouse.jobs import write_page
from kilonova.warehouse.local_pages import PageReader
from tests.seeds import SEED, some
from tests.warehouse.test_local_checks import same
from tests.warehouse.test_local_read import ENCODINGS, History

VALUES = {
    "double": "('NaN'), ('Infinity'), ('-Infinity'), ('0'), ('1.5'), ('-1e308'), (NULL)",
    "float": "('NaN'), ('Infinity'), ('-Infinity'), ('0'), ('1.5'), ('-1e-45'), (NULL)",
    "string": "(''), ('z'), ('Z'), ('é'), ('é'), ('\uffff'), ('🦜'), ('a\u0000'), ('a'), (NULL)",
    "binary": "(X''), (X'00'), (X'7f'), (X'80'), (X'ff'), (X'00ff'), (NULL)",
    "boolean": "(true), (false), (NULL)",
    "decimal(38,10)": "(-1.5), (0), (12345678901234567890.0123456789), (0.0000000001), (NULL)",
    "date": "('0001-01-01'), ('1970-01-01'), ('9999-12-31'), (NULL)",
    "timestamp": "('0001-01-01T00:00:00Z'), ('2024-02-29T12:00:00.000001Z'), ('2024-02-29T12:00:00Z'), (NULL)",
}
ORDERS = [SortKey("v", descending, nulls_first) for descending in (False, True) for nulls_first in (False, True)]


def by_spark(made: History, reading: ReadPlan, first: tuple[SortKey, ...], place: Path) -> list[Any]:
    file = str(place / "page.arrow")
    write_page(made.warehouse(local_check_max=0).open(reading), file, first, 0, 10_000)
    with pa.ipc.open_stream(file) as stream:
        return listed(stream.read_all())


def listed(table: pa.Table) -> list[Any]:
    return [tuple(map(repr, same(tuple(row.values())))) for row in table.to_pylist()]


def written(spark: SparkSession, place: Path, schema: Schema, rows: str) -> History:
    """A channel with one delta, of the rows of a query."""
    made = History(spark, place, Append(), random.Random(SEED), schema)
    plan = WritePlan(name=BlockName(1, ""), kind=Delta(0, 1), schema=schema, encoding=Append(), derived=True)
    cast = (f"CAST({column.name} AS {column.type}) AS {column.name}" for column in schema.columns)
    query = f"SELECT {', '.join(cast)} FROM ({rows}) t({', '.join(schema.names)})"
    block = made.warehouse().write(spark.sql(query), plan)
    assert block is not None
    made.state = made.state.with_block(block, Version(), 1)
    return made


@pytest.mark.parametrize("kind", VALUES)
def test_values_are_in_the_order_of_spark(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    made = written(spark, tmp_path / "warehouse", Schema.of(("v", kind)), f"VALUES {VALUES[kind]}")
    here, reading = PageReader(made.storage, checksums=False), made.state.snapshot(1)
    for key in ORDERS:
        found = here.page(reading, [key], 0, 100)
        assert found is not None
        assert listed(found) == by_spark(made, reading, (key,), tmp_path), key


def test_zeros_of_either_sign_are_equal(spark: SparkSession, tmp_path: Path) -> None:
    rows = "VALUES ('0', 4), ('-0', 3), ('0', 2), ('-0', 1)"
    made = written(spark, tmp_path, Schema.of(("v", "double"), ("w", "int")), rows)
    found = PageReader(made.storage, checksums=False).page(made.state.snapshot(1), [SortKey("v")], 0, 9)
    assert found is not None
    assert found.to_pydict() == {"v": [-0.0, 0.0, -0.0, 0.0], "w": [1, 2, 3, 4]}


@pytest.mark.parametrize("encoding", some(ENCODINGS, 2))
def test_pages_of_a_history_equal_those_of_spark(spark: SparkSession, tmp_path: Path, encoding: str) -> None:
    chance = random.Random(f"{SEED} {encoding}")
    made = History(spark, tmp_path / "warehouse", ENCODINGS[encoding], chance)
    for strong in (False, *chance.sample([False, True, True], 3)):
        made.add(8, strong=strong, base=not made.state.blocks and chance.random() < 0.5)
    here = PageReader(made.storage, checksums=True)
    for reading in {reading for reading, weighed in made.readings() if not weighed}:
        names = [*made.schema.names, WEIGHT[0]]
        first = tuple(SortKey(name, chance.random() < 0.5, chance.random() < 0.5) for name in chance.sample(names, 3))
        found = here.page(reading, first, 0, 1000)
        assert found is not None or not made.exact
        if found is None:  # floating-point numbers are not added up here
            continue
        assert listed(found) == by_spark(made, reading, first, tmp_path), (reading, first)
        ends = sorted({0, found.num_rows, *chance.choices(range(found.num_rows + 1), k=3)})
        parts = [here.page(reading, first, start, end - start) for start, end in pairwise(ends)]
        assert [row for part in parts if part is not None for row in listed(part)] == listed(found)


def test_a_damaged_block_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    made = written(spark, tmp_path, Schema.of(("v", "string")), "VALUES ('a'), ('b')")
    reading = made.state.snapshot(1)
    (block,) = reading.blocks
    file = next(tmp_path / block.name.directory / each.name for each in block.stored or ())
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(BlockDamaged):
        PageReader(made.storage, checksums=False).page(reading, (), 0, 9)
