"""Columns whose types are widened while data stay: blocks keep theirs, and all readings give the wider one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.errors import DeclarationError, SchemaMismatch
from kilonova.model.schema import Schema
from kilonova.model.watched_file import FileState
from kilonova.service.project import Project, open_project
from tests.frames import frame_of
from tests.seeds import SEED, some

PATHS: dict[str, list[tuple[str, Any]]] = {
    "integers": [("tinyint", -128), ("smallint", 32767), ("int", -(2**31)), ("bigint", 2**40)],
    "decimals": [("int", 2**31 - 1), ("decimal(12,2)", Decimal("0.25")), ("decimal(22,4)", Decimal(10) ** 17)],
    "floats": [("float", 0.5), ("double", 1e300)],
    "int to double": [("smallint", 7), ("float", 0.1015625), ("double", -0.3)],
    "dates": [("date", date(1, 1, 1)), ("timestamp_ntz", datetime(2026, 1, 2, 3, 4, 5, 6))],
}
"""Types of a column, each wider than the one before, with a value that only it and those after it hold."""

HOW: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"key": "id"},
    "sequence": {"key": "id", "sequence_by": "x"},
    "changes": {"encoding": "changes"},
    "keyed": {"key": "id", "encoding": "changes"},
    "columns": {"key": "id", "encoding": "columns"},
}


@pytest.fixture(params=[True, False], ids=["local", "spark"])
def either(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Iterator[Project]:
    """A project that reads small blocks in this process, or by Spark."""
    sizes = {} if request.param else {"local_check_max": 0}
    with open_project(tmp_path, session=spark, sizes=sizes) as fresh:
        fresh.create()
        yield fresh


def workflow(kind: str, **how: Any) -> kn.Workflow:
    wf = kn.Workflow("wide")
    wf.channel("c", f"id int, x {kind}, y string", **how)
    wf.view("few", "SELECT id, x FROM c WHERE x IS NOT NULL AND id > 1")
    wf.view("per_y", "SELECT y, count(x) AS n, max(x) AS most FROM c GROUP BY y")

    @wf.task(encoding="changes")
    def copied(c: kn.Changes) -> kn.Delta:
        return c

    return wf


def bag(project: Project, channel: str, **when: int) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in project.read(channel, **when).collect())


@pytest.mark.parametrize("path", some(PATHS, 1))
@pytest.mark.parametrize("encoding", some(HOW, 2))
def test_all_readings_give_the_values_in_the_wider_type(either: Project, encoding: str, path: str) -> None:
    chance, how = random.Random(f"{SEED}/{encoding}/{path}"), HOW[encoding]
    spark, keyed = either.warehouse.spark, "key" in how
    relation: dict[int, tuple[Any, ...]] = {}
    rows: list[tuple[Any, ...]] = []
    now: list[tuple[Any, ...]] = []
    for place, (kind, _) in enumerate(PATHS[path]):
        either.apply(workflow(kind, **how))
        values = [None, *(value for _, value in PATHS[path][: place + 1])]
        schema = Schema.of(("id", "int"), ("x", kind), ("y", "string"))
        for _ in range(chance.randint(1, 3)):
            pool = [number for number in range(16) if encoding != "keyed" or number not in relation]
            keys = chance.sample(pool, k=min(2, len(pool)))
            given = [{"id": key, "x": _as(kind, chance.choice(values)), "y": chance.choice(["a", "b"])} for key in keys]
            if not given:
                continue
            either.ingest("c", frame_of(spark, schema, given))
            for row in given:
                old = relation.get(row["id"])
                if encoding == "sequence" and old is not None and not _newer(row["x"], _as(kind, old[1])):
                    continue
                relation[row["id"]] = tuple(row.values())
                rows.append(tuple(row.values()))
            now = [(id, _as(kind, x), y) for id, x, y in (relation.values() if keyed else rows)]
            assert bag(either, "c") == Counter(now)
            match chance.randrange(4):
                case 0:
                    either.compact("c")
                case 1:
                    either.compact("c", deltas=True)
                case 2:
                    either.run()
    assert bag(either, "c") == Counter(now)
    assert either.read("c").schema["x"].dataType.simpleString() == PATHS[path][-1][0]
    either.run()
    assert not either.due()
    assert bag(either, "copied") == Counter(now)
    few = Counter(row[:2] for row in now if row[1] is not None and row[0] > 1)
    assert bag(either, "few") == few
    groups: dict[str, list[Any]] = {}
    for row in now:
        groups.setdefault(row[2], []).append(row[1])
    counted = {y: [x for x in found if x is not None] for y, found in groups.items()}
    assert bag(either, "per_y") == Counter((y, len(xs), max(xs, default=None)) for y, xs in counted.items())


def _as(kind: str, value: Any) -> Any:
    """A value of a narrower type as one of a type."""
    match kind.partition("(")[0], value:
        case _, None:
            return None
        case "decimal", int():
            return Decimal(value)
        case "float" | "double", int():
            return float(value)
        case "timestamp_ntz", date() if not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day)
        case _:
            return value


def _newer(new: Any, old: Any) -> bool:
    return old is None or (new is not None and new >= old)


def test_changes_across_a_widening_are_those_of_values(either: Project) -> None:
    spark = either.warehouse.spark
    either.apply(workflow("int", key="id"))
    either.ingest("c", spark.createDataFrame([(1, 5, "a"), (2, 6, "a")], "id int, x int, y string"))
    either.apply(workflow("bigint", key="id"))
    either.ingest("c", spark.createDataFrame([(1, 5, "a"), (2, 2**40, "a")], "id int, x bigint, y string"))
    assert bag(either, "c", since=1) == Counter({(2, 6, "a", -1): 1, (2, 2**40, "a", 1): 1})
    again = spark.createDataFrame([(1, 5, "a")], "id int, x bigint, y string")
    assert not any(made.rows for made in either.ingest("c", again).made)
    assert bag(either, "c", at=1) == Counter({(1, 5, "a"): 1, (2, 6, "a"): 1})
    assert either.read("c", at=1).schema["x"].dataType.simpleString() == "int"


def test_amounts_of_a_wider_type_add_up(either: Project) -> None:
    spark = either.warehouse.spark
    for kind, amount in (("int", 2**31 - 1), ("bigint", 2**31), ("decimal(21,1)", Decimal("0.5"))):
        wf = kn.Workflow("sums")
        wf.channel("c", f"id int, n {kind}", key="id", encoding=kn.increment("n"))
        either.apply(wf)
        either.ingest("c", spark.createDataFrame([(1, amount)], f"id int, n {kind}"))
    assert bag(either, "c") == Counter({(1, Decimal(2**32) - Decimal("0.5")): 1})
    either.compact("c")
    assert bag(either, "c") == Counter({(1, Decimal(2**32) - Decimal("0.5")): 1})


def test_a_large_base_in_buckets_is_read_with_the_wider_type(tmp_path: Path, spark: SparkSession) -> None:
    sizes = {"local_check_max": 0, "bucketing_min": 1, "single_task_max": 0, "broadcast_max": 0}
    with open_project(tmp_path, session=spark, sizes=sizes) as project:
        project.create()
        project.apply(workflow("int", key="id"))
        many = spark.range(2000).selectExpr("int(id) AS id", "int(id) AS x", "'a' AS y")
        project.ingest("c", many, replace=True)
        project.apply(workflow("bigint", key="id"))
        project.ingest("c", spark.createDataFrame([(7, 2**40, "b")], "id int, x bigint, y string"))
        expected = Counter({(n, n, "a"): 1 for n in range(2000) if n != 7} | {(7, 2**40, "b"): 1})
        assert bag(project, "c") == expected
        project.compact("c")
        assert bag(project, "c") == expected


def test_other_types_and_keys_are_refused(project: Project) -> None:
    project.apply(workflow("int", key="id"))
    project.ingest("c", project.warehouse.spark.createDataFrame([(1, 5, "a")], "id int, x int, y string"))
    for kind in ("smallint", "float", "decimal(11,2)", "string", "date"):
        with pytest.raises(DeclarationError, match=rf"as int, which cannot become {kind.partition('(')[0]}"):
            project.apply(workflow(kind, key="id"))
    wf = kn.Workflow("wide")
    wf.channel("c", "id bigint, x int, y string", key="id")
    with pytest.raises(DeclarationError, match="part of the key"):
        project.apply(wf)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_narrower_files_are_read_into_the_wider_column(project: Project, tmp_path: Path, suffix: str) -> None:
    wf = kn.Workflow("files")
    wf.channel("c", "id bigint, a decimal(20,2), b double, d timestamp_ntz")
    project.apply(wf)
    path = tmp_path / f"a.{suffix}"
    match suffix:
        case "parquet":
            types = [("id", pa.int32()), ("a", pa.int64()), ("b", pa.int32()), ("d", pa.date32())]
            rows = [{"id": 1, "a": 2, "b": 3, "d": date(2026, 1, 2)}]
            parquet.write_table(pa.Table.from_pylist(rows, pa.schema(types)), path)
        case "csv":
            path.write_text("id,a,b,d\n1,2,3,2026-01-02\n")
        case _:
            path.write_text('{"id": 1, "a": 2, "b": 3, "d": "2026-01-02"}\n')
    expected = Counter({(1, Decimal(2), 3.0, datetime(2026, 1, 2)): 1})
    if suffix == "parquet":
        with pytest.raises(SchemaMismatch, match="int64, which does not match decimal"):
            project.ingest("c", path)
        wf = kn.Workflow("files")
        wf.channel("c", "id bigint, a decimal(21,2), b double, d timestamp_ntz")
        project.apply(wf)
    project.ingest("c", path)
    assert bag(project, "c") == expected
    project.ingest("c", path, in_place=True, replace=True)
    assert bag(project, "c") == expected


def test_a_file_with_a_larger_value_is_retried_once_its_column_is_wide_enough(project: Project, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    inbox = kn.watched_directory("in", settle_time="0 seconds")
    project.apply(workflow("int", watch=inbox))
    (tmp_path / "in" / "a.csv").write_text("id,x,y\n1,5,a\n")
    (tmp_path / "in" / "b.csv").write_text("id,x,y\n2,3000000000,a\n")
    project.directories.ingest()
    [file] = project.reader.files("c", state=FileState.QUARANTINED).files
    assert (file.error or "").startswith("line 2: '3000000000' is not of type int")
    plan = project.apply(workflow("bigint", watch=inbox))
    assert plan.channels[0].detail == "column x int becomes bigint, retries 1 quarantined file"
    project.directories.ingest()
    project.run()
    assert bag(project, "few") == Counter({(2, 3000000000): 1})


def test_the_output_of_views_is_recomputed_if_types_that_they_read_change(project: Project) -> None:
    spark = project.warehouse.spark

    def declared(kind: str) -> kn.Workflow:
        wf = workflow(kind)
        wf.view("ids", "SELECT id, y FROM c")
        wf.view("tops", "SELECT max(x) AS top FROM few")
        return wf

    others = kn.Workflow("others")
    others.view("xs", "SELECT x FROM c")
    others.view("x_per_id", "SELECT id, sum(x) AS xs FROM few GROUP BY id")
    project.apply(declared("int"))
    project.ingest("c", spark.createDataFrame([(2, 5, "a")], "id int, x int, y string"))
    project.run()
    project.apply(others)
    project.run()
    plan = project.apply(declared("decimal(12,2)"))
    anew = {item.task.name: item.detail for item in plan.tasks if item.anew}
    assert anew.keys() == {"few", "per_y", "tops", "xs", "x_per_id"}
    assert anew["few"].startswith("logic version 0 → 1: the types of columns of c change")
    assert anew["xs"].startswith("of the workflow others: logic version 0 → 1: the types of columns of c change")
    assert project.apply(declared("decimal(12,2)")).empty
    row = (3, Decimal("0.25"), "a")
    project.ingest("c", spark.createDataFrame([row], "id int, x decimal(12,2), y string"))
    project.run()
    assert bag(project, "few") == Counter({(2, 5): 1, row[:2]: 1})
    assert bag(project, "tops") == Counter({(5,): 1})
    assert bag(project, "xs") == Counter({(5,): 1, (Decimal("0.25"),): 1})
    assert bag(project, "x_per_id") == Counter({(2, 5): 1, row[:2]: 1})
    assert bag(project, "ids") == Counter({(2, "a"): 1, (3, "a"): 1})
    assert bag(project, "copied") == Counter({(2, 5, "a"): 1, row: 1})
