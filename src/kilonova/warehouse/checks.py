"""Checks on rows: the metrics to observe, and the violations to report.

Row checks are observed by the job that writes the rows. Uniqueness across rows takes a separate job over the unique
columns only: the values that a delta touches, looked up in the existing rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any, assert_never

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kilonova.errors import CheckFailed, KeyViolation, QueryError
from kilonova.model.block import Base, Kind
from kilonova.model.check import AcceptedValues, Check, NotNull, RowCheck, RowCondition, Unique, describe_check
from kilonova.model.encoding import Changes, Encoding, Upsert
from kilonova.model.schema import Schema
from kilonova.warehouse.blocks import column

_SHOWN = 300
"""Maximum number of characters shown of an example."""


def weight(kind: Kind, encoding: Encoding) -> Column:
    """Return how often each row of a block is added to the relation: 0 for rows that are removed."""
    match encoding:
        case Upsert() if not isinstance(kind, Base):
            return F.when(column("_deleted"), F.lit(0)).otherwise(F.lit(1))
        case Changes() if not isinstance(kind, Base):
            return F.greatest(column("_weight"), F.lit(0))
        case _:
            return F.lit(1)


def metrics(rows: DataFrame, checks: Sequence[RowCheck], schema: Schema, added: Column) -> dict[str, Column]:
    """Return the metrics to observe: for each check the number of violating rows, and an example.

    Args:
        rows: the rows.
        checks: the checks on each row.
        schema: the columns to show of an example.
        added: how often each row is added; see `weight`.

    Raises:
        QueryError: Spark cannot analyze a condition.
    """
    shown = F.to_json(F.struct(*map(column, schema.names)), {"ignoreNullFields": "false"})
    found: dict[str, Column] = {}
    for number, check in enumerate(checks):
        bad = _violates(check, schema) & (added > 0)
        if isinstance(check, RowCondition):
            try:
                _ = rows.select(bad).schema
            except PySparkException as error:
                why = str(error).strip().splitlines()[0]
                raise QueryError(
                    f"Spark rejected the condition: {why}", check=describe_check(check), hint="Correct the condition"
                ) from error
        found[_count(number)] = F.sum(F.when(bad, added))
        found[_example(number)] = F.min(F.when(bad, shown))
    return found


def check_violations(seen: Mapping[str, Any], checks: Sequence[RowCheck]) -> None:
    """Check that no violations were observed.

    Args:
        seen: the observed `metrics`.
        checks: the checks.

    Raises:
        CheckFailed: there are violations.
    """
    violated = [(number, check) for number, check in enumerate(checks) if seen.get(_count(number))]
    for number, check in violated[:1]:
        more = ", ".join(describe_check(other) for _, other in violated[1:])
        raise _failed(check, seen[_count(number)], seen[_example(number)], f"Also violated: {more}" if more else None)


def check_keys(seen: Mapping[str, Any], key: tuple[str, ...]) -> None:
    """Check that no null or duplicate keys were observed.

    Args:
        seen: the metrics: `nulls` and `duplicates`, numbers of rows, and an `example`.
        key: the key columns.

    Raises:
        KeyViolation: there are some.
    """
    if seen.get("nulls"):
        raise KeyViolation(
            f"{seen['nulls']} rows have a null in their key",
            column=", ".join(key),
            hint="Every row needs its key",
        )
    if seen.get("duplicates"):
        raise KeyViolation(
            f"{seen['duplicates']} rows share their key with another, for example {seen['example']}",
            column=", ".join(key),
            hint="Keep one row per key",
        )


def check_repeated(check: Unique, found: Sequence[tuple[Any, ...]]) -> None:
    """Check that no values occur more than once.

    Args:
        check: the check.
        found: the rows of `repeated`.

    Raises:
        CheckFailed: there are repeated values.
    """
    number, example = found[0]
    if number:
        raise _failed(check, number, example, None)


def repeated(rows: DataFrame, check: Unique, touched: DataFrame | None) -> DataFrame:
    """Count the rows that share their values in some columns with another, with an example.

    Args:
        rows: the relation.
        check: the columns.
        touched: the values to check, from `values`; None for all.
    """
    columns = [column(name) for name in check.columns]
    given = values(rows, check)
    if touched is not None:
        given = given.join(touched, list(check.columns), "left_semi")
    groups = given.groupBy(*columns).agg(F.count(F.lit(1)).alias("_rows")).where(column("_rows") > 1)
    return groups.agg(F.sum("_rows"), F.min(F.to_json(F.struct(*columns))))


def values(rows: DataFrame, check: Unique) -> DataFrame:
    """Return the values that must be unique, except those that contain a null."""
    columns = [column(name) for name in check.columns]
    return rows.where(reduce(and_, (item.isNotNull() for item in columns))).select(*columns)


def _violates(check: RowCheck, schema: Schema) -> Column:
    match check:
        case NotNull(name):
            return column(name).isNull()
        case AcceptedValues(name, accepted):
            kind = schema.type_of(name)
            among = reduce(or_, (column(name).eqNullSafe(F.lit(value).try_cast(kind)) for value in accepted))
            return column(name).isNotNull() & ~among
        case RowCondition(text):
            return ~F.coalesce(F.expr(text), F.lit(True))
        case _:
            assert_never(check)


def _failed(check: Check, number: int, example: str, more: str | None) -> CheckFailed:
    cut = example if len(example) <= _SHOWN else f"{example[:_SHOWN]}…"
    rows = "1 row violates it" if number == 1 else f"{number} rows violate it"
    return CheckFailed(f"{rows}, for example {cut}", check=describe_check(check), hint=more)


def _count(number: int) -> str:
    return f"check_{number}"


def _example(number: int) -> str:
    return f"check_{number}_example"
