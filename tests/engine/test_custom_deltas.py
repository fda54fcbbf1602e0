"""Channels of custom encodings beside the reference: what they hold, and the change that lagging readers get."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kilonova as kn
from kilonova.errors import EncodingError, KeyViolation, KilonovaError, SchemaMismatch
from kilonova.model.encoding import Custom, delta_schema
from kilonova.model.schema import Schema
from kilonova.service.project import Project
from kilonova.testing import reference
from tests.frames import bag_of, frame_of
from tests.seeds import SEED, some

Rows = list[dict[str, Any]]
SCHEMA = Schema.of(("k", "string"), ("n", "bigint"))


class Taken:
    """A delta says how many pieces were taken out."""

    def merge(self, base: Rows, delta: Rows) -> Rows:
        left = sum(row["n"] for row in base) - sum(row["n"] for row in delta)
        return [{"k": (base + delta)[0]["k"], "n": left}]

    def chain(self, first: Rows, second: Rows) -> Rows:
        return [{"k": first[0]["k"], "n": sum(row["n"] for row in first + second)}]

    def diff(self, old: Rows, new: Rows) -> Rows:
        return [{"k": (old + new)[0]["k"], "n": sum(row["n"] for row in old) - sum(row["n"] for row in new)}]


class Orders:
    """A delta has columns of its own, and functions take several at once; there is no diff."""

    def merge(self, base: Rows, *orders: Rows) -> Rows:
        rows = [row for order in orders for row in order]
        left = sum(row["n"] for row in base) + sum(row["amount"] * (1 if row["inwards"] else -1) for row in rows)
        return [{"k": rows[0]["k"], "n": left}] if left else []

    def chain(self, *orders: Rows) -> Rows:
        return [row for order in orders for row in order]


OWN = "k string, inwards boolean, amount int"
KINDS: dict[str, tuple[Any, Custom]] = {
    "taken": (Taken(), Custom(("k",), "taken")),
    "orders": (
        Orders(),
        Custom(("k",), "orders", Schema.of(("k", "string"), ("inwards", "boolean"), ("amount", "int"))),
    ),
}


class Reversible(Orders):
    def diff(self, old: Rows, new: Rows) -> Rows:
        more = sum(row["n"] for row in new) - sum(row["n"] for row in old)
        return [{"k": (old + new)[0]["k"], "inwards": more > 0, "amount": abs(more)}]


KINDS["reversible"] = (Reversible(), KINDS["orders"][1])


def stock(kind: str) -> kn.Workflow:
    functions, encoding = KINDS[kind]
    delta = encoding.delta
    wf = kn.Workflow("stock")
    wf.channel("stock", SCHEMA.ddl, key="k", encoding=kn.custom(functions, delta=delta.ddl if delta else None))

    @wf.task(schema=delta_schema(encoding, SCHEMA).ddl)
    def news(stock: kn.New) -> kn.Delta:
        return stock

    return wf


@pytest.mark.parametrize("kind", some(KINDS, 1))
def test_the_relation_and_its_changes_are_those_of_the_reference(project: Project, kind: str) -> None:
    """NEW is the chain of the deltas also from point 0, and the user's diff where a base is all that is left."""
    chance = random.Random(f"{SEED}/{kind}")
    functions, encoding = KINDS[kind]
    spark, own = project.warehouse.spark, delta_schema(encoding, SCHEMA)
    project.apply(stock(kind))
    now: Counter[Any] = Counter()
    read: Counter[Any] = Counter()
    news: Counter[Any] = Counter()
    for step in range(4):
        rows = []
        for _ in range(chance.randint(1, 3)):
            row: dict[str, Any] = {"k": chance.choice("abc"), "n": chance.randint(-3, 3)}
            row |= {"inwards": chance.random() < 0.7, "amount": chance.randint(1, 3)}
            rows.append({name: row[name] for name in own.names})
        if step == 2:
            bad = [rows[0] | {"k": None}]
            with pytest.raises(KeyViolation):
                project.ingest("stock", frame_of(spark, own, bad))
        now = reference.merge(encoding, SCHEMA, now, reference.delta_of(encoding, SCHEMA, rows), function=functions)
        project.ingest("stock", frame_of(spark, own, rows))
        assert bag_of(project.read("stock")) == now, rows
        if step in (1, 3):
            project.run()
            given = bag_of(project.read("news"))
            change = reference.delta_of(encoding, SCHEMA, reference.records(own, given - news))
            assert reference.merge(encoding, SCHEMA, read, change, function=functions) == now
            read, news = now, given
    project.compact("stock")
    assert bag_of(project.read("stock")) == now


def test_a_reader_from_point_0_of_a_base_gets_the_diff_or_a_refusal(project: Project) -> None:
    spark = project.warehouse.spark
    for kind in ("reversible", "orders"):
        project.apply(stock(kind))
        project.ingest("stock", frame_of(spark, SCHEMA, [{"k": "a", "n": 3}]), replace=True)
        if kind == "reversible":
            project.run()
            assert [tuple(row) for row in project.read("news").collect()] == [("a", True, 3)]
        else:
            with pytest.raises((EncodingError, KilonovaError), match="has no diff"):
                project.run()


def test_a_delta_with_other_columns_than_declared_is_refused(project: Project) -> None:
    project.apply(stock("orders"))
    spark = project.warehouse.spark
    with pytest.raises(SchemaMismatch):
        project.ingest("stock", frame_of(spark, SCHEMA, [{"k": "a", "n": 3}]))


class Failing(Taken):
    """Raises as soon as there is a file."""

    def __init__(self, file: str) -> None:
        self.file = file

    def merge(self, base: Rows, delta: Rows) -> Rows:
        if os.path.exists(self.file):
            raise ValueError("pieces cannot be put back")
        return super().merge(base, delta)


def test_functions_that_raise_while_rows_are_read_are_named(project: Project, tmp_path: Path) -> None:
    workflow = kn.Workflow("stock")
    workflow.channel("stock", "k string, n bigint", key="k", encoding=kn.custom(Failing(str(tmp_path / "raise"))))
    project.apply(workflow)
    for amount in (5, 1):
        project.ingest("stock", project.warehouse.spark.createDataFrame([("nut", amount)], "k string, n bigint"))
    (tmp_path / "raise").touch()
    with pytest.raises(EncodingError) as refused:
        project.rows("stock")
    assert refused.value.channel == "stock"
    assert "ValueError: pieces cannot be put back" in refused.value.problem
    assert refused.value.hint == "Correct them, and apply the workflow"
