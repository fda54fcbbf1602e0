"""Bad input gets one clear error that names the channel, task and column, and changes nothing (DESIGN, 5.6)."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

import kilonova as kn
from kilonova.catalog import channel_store, registry
from kilonova.catalog.read_models import run_queries
from kilonova.errors import (
    DeclarationError,
    EncodingError,
    InputError,
    KeyViolation,
    KilonovaError,
    NotFound,
    SchemaMismatch,
    StorageFailed,
    TaskFailed,
)
from kilonova.service.project import Project


def workflow(body: Callable[[DataFrame], object] = lambda orders: orders.select("id", "customer")) -> kn.Workflow:
    wf = kn.Workflow("bad")
    wf.channel("orders", "id int, customer string, amount decimal(10,2)")
    wf.channel("people", "name string, town string", key="name")
    wf.channel("ledger", "account string", encoding="changes")

    @wf.task(schema="id int, customer string", key="id")
    def kept(orders: kn.New) -> kn.Delta:
        return body(orders)  # type: ignore[return-value]

    return wf


def state(project: Project) -> object:
    """All that a refused ingest or run must leave as it was; a failed run itself, and its point, are on record."""
    with project.catalog.reading() as tx:
        found = channel_store.channel_states(tx)
        cursors = {name: known.cursors for name, known in registry.tasks(tx).items()}
        assert not [run for run in run_queries.runs(tx) if run.state.value == "running"]
        assert channel_store.marked_for_deletion(tx) == []
    readable = {name: (item.latest_distinct, item.blocks) for name, item in found.items()}
    return readable, cursors, project.warehouse.blocks()


@pytest.fixture
def refused(project: Project) -> Iterator[Callable[..., KilonovaError]]:
    """Expects an error, and that nothing changes."""
    project.apply(workflow())
    spark = project.warehouse.spark
    project.ingest("orders", spark.createDataFrame([(1, "ada", None)], "id int, customer string, amount decimal(10,2)"))
    project.ingest("people", spark.createDataFrame([("ada", "Rome")], "name string, town string"))
    project.run()

    def refused(kind: type[KilonovaError], act: Callable[[], object], **fields: object) -> KilonovaError:
        before = state(project)
        with pytest.raises(kind) as caught:
            act()
        assert type(caught.value) is kind
        assert {name: caught.value.fields.get(name) for name in fields} == fields, caught.value
        assert len(str(caught.value)) < 1200
        assert state(project) == before
        return caught.value

    yield refused
    spark.createDataFrame([], "a int").collect()  # the session is as good as before


Refused = Callable[..., KilonovaError]


@pytest.mark.parametrize(
    ("name", "text", "kind", "column"),
    [
        ("a.csv", "id,customer\n1,ada\n", SchemaMismatch, "amount"),
        ("a.csv", "id,customer,amount,more\n1,ada,1.00,x\n", SchemaMismatch, "more"),
        ("a.csv", "id,customer,amount\none,ada,1.00\n", InputError, None),
        ("a.jsonl", '{"id": 1, "customer": "ada"}\n', SchemaMismatch, "amount"),
        ("a.jsonl", '{"id": 1, "customer": "ada", "amount": 1, "more": 2}\n', SchemaMismatch, "more"),
        ("a.jsonl", '{"id": 1, "customer": "ada", "amount": 1}\n{"id": \n', InputError, None),
        ("a.jsonl", '{"id": "x", "customer": "ada", "amount": 1}\n', InputError, None),
        ("a.parquet", "no Parquet at all", InputError, None),
        ("a.txt", "id\n", InputError, None),
    ],
)
def test_a_file_that_does_not_fit(
    project: Project, refused: Refused, tmp_path: Path, name: str, text: str, kind: type[KilonovaError], column: str
) -> None:
    (tmp_path / name).write_text(text)
    expected = {"column": column} if column else {}
    refused(
        kind,
        lambda: project.ingest("orders", tmp_path / name),
        channel=None if name == "a.txt" else "orders",
        **expected,
    )


def test_a_parquet_file_of_another_type(project: Project, refused: Refused, tmp_path: Path) -> None:
    table = pa.table({"id": ["1"], "customer": ["ada"], "amount": pa.array([1], pa.decimal128(10, 2))})
    parquet.write_table(table, tmp_path / "a.parquet")
    refused(SchemaMismatch, lambda: project.ingest("orders", tmp_path / "a.parquet"), channel="orders", column="id")


@pytest.mark.parametrize("format_", ["parquet", "csv", "json"])
def test_an_unreadable_file_in_the_middle(project: Project, refused: Refused, tmp_path: Path, format_: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = [{"name": f"p{number}", "town": "Oslo"} for number in range(3)]
    for number, row in enumerate(rows):
        path = folder / f"{number}.{format_}"
        if format_ == "parquet":
            parquet.write_table(pa.Table.from_pylist([row]), path)
        elif format_ == "csv":
            path.write_text(f"name,town\n{row['name']},{row['town']}\n")
        else:
            path.write_text(json.dumps(row) + "\n")
    middle = folder / f"1.{format_}"
    if format_ == "parquet":
        content = bytearray(middle.read_bytes())
        content[4:40] = bytes(36)  # the footer is whole, the pages are not
        middle.write_bytes(bytes(content))
    else:
        middle.write_bytes(b'name,town\n"p1,Oslo,more,\n' if format_ == "csv" else b"{no json\n")
    refused(InputError, lambda: project.ingest("people", folder), channel="people")


def test_null_and_duplicate_keys(project: Project, refused: Refused) -> None:
    spark = project.warehouse.spark
    schema = "name string, town string"
    twice = spark.createDataFrame([("bo", "A"), ("bo", "B")], schema)
    null = spark.createDataFrame([(None, "A")], schema)
    assert "bo" in str(refused(KeyViolation, lambda: project.ingest("people", twice), channel="people", column="name"))
    refused(KeyViolation, lambda: project.ingest("people", null), channel="people", column="name")
    refused(KeyViolation, lambda: project.ingest("people", twice, replace=True), channel="people")


def test_a_retraction_of_what_is_not_there(project: Project, refused: Refused) -> None:
    rows = project.warehouse.spark.createDataFrame([("cash", -1)], "account string, _weight bigint")
    refused(EncodingError, lambda: project.ingest("ledger", rows), channel="ledger")


def test_names_that_are_not_there(project: Project, refused: Refused, tmp_path: Path) -> None:
    refused(NotFound, lambda: project.ingest("order", tmp_path), channel="order")
    refused(NotFound, lambda: project.run(["keep"]), task="keep")
    refused(NotFound, lambda: project.rows("orders", at=9), channel="orders", point=9)
    refused(InputError, lambda: project.ingest("orders", tmp_path / "none.csv"))
    refused(DeclarationError, lambda: project.ingest("kept", project.read("kept")), channel="kept")


def raising(orders: DataFrame) -> DataFrame:
    raise ValueError("out of luck")


OURS = "a row was retracted more often than it occurs"


def failing_inside(orders: DataFrame) -> DataFrame:
    return orders.select(F.udf(lambda number: 1 // (number - number), "int")("id").alias("id"), "customer")


@pytest.mark.parametrize(
    ("body", "kind", "column", "says"),
    [
        (raising, TaskFailed, None, "out of luck"),
        (lambda orders: None, TaskFailed, None, "instead of 1 DataFrame"),
        (lambda orders: (orders, orders), TaskFailed, None, "instead of 1 DataFrame"),
        (lambda orders: orders.select("nothing"), TaskFailed, None, "nothing"),
        (lambda orders: orders.select("`No space left on device`"), TaskFailed, None, "UNRESOLVED_COLUMN"),
        (lambda orders: orders.selectExpr(f"int(raise_error('{OURS}')) AS id", "customer"), TaskFailed, None, OURS),
        (failing_inside, TaskFailed, None, "ZeroDivisionError"),
        (
            lambda orders: orders.selectExpr("int((SELECT * FROM range(2))) AS id", "customer"),
            TaskFailed,
            None,
            "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row",
        ),
        (lambda orders: orders.selectExpr("2147483647 + id AS id", "customer"), TaskFailed, None, "overflow"),
        (lambda orders: orders.select("id"), SchemaMismatch, "customer", "missing"),
        (lambda orders: orders, SchemaMismatch, "amount", "not part"),
        (lambda orders: orders.selectExpr("string(id) AS id", "customer"), SchemaMismatch, "id", "instead of int"),
        (lambda orders: orders.selectExpr("int(null) AS id", "customer"), KeyViolation, "id", "null"),
        (
            lambda orders: orders.select("id", "customer").union(orders.select("id", "customer")),
            KeyViolation,
            "id",
            "share",
        ),
    ],
)
def test_a_task_that_fails(
    project: Project,
    refused: Refused,
    body: Callable[[DataFrame], object],
    kind: type[KilonovaError],
    column: str | None,
    says: str,
) -> None:
    project.apply(workflow(body))
    error = refused(kind, project.run, task="kept", **({"column": column} if column else {}))
    assert says in str(error)
    with project.catalog.reading() as tx:
        assert [run.state.value for run in run_queries.runs(tx, 1)] == ["failed"]


def test_a_warehouse_that_cannot_be_written(project: Project, tmp_path: Path) -> None:
    project.apply(workflow())
    rows = project.warehouse.spark.createDataFrame([("ada", "Rome")], "name string, town string")
    place = tmp_path / ".kilonova" / "warehouse"
    place.rename(tmp_path / "elsewhere")
    place.write_text("a file where a directory should be")
    with pytest.raises(StorageFailed) as caught:
        project.ingest("people", rows)
    assert caught.value.channel == "people"
    place.unlink()
    (tmp_path / "elsewhere").rename(place)
    assert project.ingest("people", rows).made[0].rows == 1


def test_workflows_that_cannot_be(project: Project) -> None:
    project.apply(workflow())
    other = kn.Workflow("other")
    other.channel("orders", "id int, customer string, amount decimal(10,2)")

    @other.task(writes="kept", schema="id int, customer string", key="id")
    def second(orders: kn.New) -> kn.Delta:
        return orders

    with pytest.raises(DeclarationError) as caught:
        project.apply(other)
    assert caught.value.channel == "kept"

    cyclic = kn.Workflow("cyclic")

    @cyclic.task(schema="n int")
    def one(two: kn.New) -> kn.Delta:
        return two

    @cyclic.task(schema="n int")
    def two(one: kn.New) -> kn.Delta:
        return one

    with pytest.raises(DeclarationError, match="cycle"):
        project.plan(cyclic)

    dangling = kn.Workflow("dangling")

    @dangling.task(schema="n int")
    def three(fore: kn.New) -> kn.Delta:
        return fore

    with pytest.raises(DeclarationError, match="no such channel"):
        project.plan(dangling)

    with pytest.raises(DeclarationError, match="not annotated"):

        @dangling.task(schema="n int")
        def four(three: DataFrame) -> kn.Delta:
            return three


def test_a_source_with_rows_keeps_its_key_and_its_types(project: Project, refused: Refused) -> None:
    changed = kn.Workflow("bad")
    changed.channel("orders", "id smallint, customer string, amount decimal(10,2)")
    refused(DeclarationError, lambda: project.apply(changed), channel="orders", column="id")
    keyed = kn.Workflow("bad")
    keyed.channel("people", "name string, town string", key="town")
    refused(DeclarationError, lambda: project.apply(keyed), channel="people")


def test_a_full_disk(project: Project, tmp_path: Path) -> None:
    project.apply(workflow())
    place = tmp_path / ".kilonova" / "warehouse"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may make a small disk")
    try:
        rows = project.warehouse.spark.range(50_000).selectExpr("uuid() AS name", "uuid() AS town")
        with pytest.raises(StorageFailed, match="disk is full") as caught:
            project.ingest("people", rows)
        assert caught.value.channel == "people"
        assert project.warehouse.blocks() == []
        few = project.warehouse.spark.createDataFrame([("ada", "Rome")], "name string, town string")
        # Other tasks of the job may still write for a moment, and Hadoop leaves a file that it could not flush open,
        # so that its space is taken until the virtual machine's collector has closed it.
        freed = Retrying(
            retry=retry_if_exception_type(StorageFailed),
            before_sleep=lambda _: project.warehouse.spark.sparkContext._jvm.System.gc(),
            stop=stop_after_delay(60),
            wait=wait_fixed(1),
        )
        assert freed(project.ingest, "people", few).made[0].rows == 1
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_definition_whose_module_is_gone(
    project: Project, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "soon_gone.py").write_text("def same(rows):\n    return rows.select('id', 'customer')\n")
    monkeypatch.syspath_prepend(library)
    soon_gone = importlib.import_module("soon_gone")
    project.apply(workflow(lambda orders: soon_gone.same(orders)))
    (library / "soon_gone.py").unlink()
    monkeypatch.delitem(sys.modules, "soon_gone")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    error = refused(TaskFailed, project.run, task="kept")
    assert "soon_gone" in str(error)


def test_sums_that_do_not_fit(project: Project) -> None:
    wf = kn.Workflow("sums")
    wf.channel("counts", "k string, n bigint, amount decimal(4,2)", key="k", encoding=kn.increment("n", "amount"))
    project.apply(wf)
    schema = "k string, n bigint, amount decimal(4,2)"
    for rows in (
        [("a", 2**63 - 1, None), ("a", 1, None)],
        [("a", 1, Decimal("99.99")), ("a", 1, Decimal("0.01"))],
    ):
        with pytest.raises(KilonovaError) as caught:
            project.ingest("counts", project.warehouse.spark.createDataFrame(rows, schema))
        assert caught.value.channel == "counts"
        assert project.warehouse.blocks() == []
        assert project.status().channels["counts"].latest_distinct == 0
