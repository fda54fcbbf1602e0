"""Rows of tests, as dictionaries: their columns and types are checked, with Kilonova's own errors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.errors import KilonovaError, NotFound, SchemaMismatch
from kilonova.testing import sandbox

COLUMNS = "id bigint, amount decimal(10, 2), share double, at date, tags array<string>"


def shop() -> kn.Workflow:
    workflow = kn.Workflow("shop")
    workflow.channel("orders", COLUMNS, key="id")
    workflow.channel("free")
    return workflow


def test_rows_are_dictionaries_with_any_of_the_columns(spark: SparkSession) -> None:
    with sandbox(shop(), spark) as box:
        box.ingest("orders", [{"id": 1, "amount": Decimal("5.00"), "share": 0.5, "at": None, "tags": ["a"]}])
        whole = {"amount": None, "share": None, "at": None, "tags": None}
        box.ingest("orders", [{"id": 2, **whole}, {"id": 1, "_deleted": True, **whole}])
        box.ingest("orders", [])
        assert box.rows("orders") == [{"id": 2, **whole}]


@pytest.mark.parametrize(
    ("wrong", "column", "problem", "hint"),
    [
        ({"amount": 5}, "amount", "the value 5 is not of the type decimal(10,2)", "Write it as a decimal.Decimal"),
        ({"amount": 5.0}, "amount", "the value 5.0 is not of the type decimal(10,2)", "Write it as a decimal.Decimal"),
        ({"share": 1}, "share", "the value 1 is not of the type double", "Write it as a float"),
        ({"at": "2026-01-01"}, "at", "the value '2026-01-01' is not of the type date", "Write it as a datetime.date"),
        ({"tags": 3}, "tags", "the value 3 is not of the type array<string>", "Write it as a list"),
        ({"id": 2**70}, "id", f"the value {2**70} is not of the type bigint", "Write it as an int within the range"),
        ({"amuont": Decimal(5)}, "amuont", "there is no such column", "Did you mean amount?"),
    ],
)
def test_a_value_of_another_type_is_named(
    spark: SparkSession, wrong: dict[str, Any], column: str, problem: str, hint: str
) -> None:
    with sandbox(shop(), spark) as box:
        with pytest.raises(SchemaMismatch) as refused:
            box.ingest("orders", [{"id": 1}, {"id": 2, **wrong}])
        error: KilonovaError = refused.value
        assert (error.channel, error.column, error.problem) == ("orders", column, problem)
        assert (error.hint or "").startswith(hint)
        assert error.__cause__ is None
        assert error.__context__ is None or error.__suppress_context__


def test_columns_have_to_be_known(spark: SparkSession) -> None:
    with sandbox(shop(), spark) as box:
        with pytest.raises(SchemaMismatch, match="the columns of the channel are not known yet"):
            box.ingest("free", [{"id": 1}])
        with pytest.raises(NotFound, match="Did you mean orders"):
            box.ingest("order", [{"id": 1}])
