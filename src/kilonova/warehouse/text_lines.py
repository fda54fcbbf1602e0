"""Lines of CSV and JSON files as rows, and what becomes of those that do not fit the columns.

The reader option `mode` says what: FAILFAST, the default, stops; PERMISSIVE stores null in place of the values that do
not fit; DROPMALFORMED drops the row. With PERMISSIVE, the column that `columnNameOfCorruptRecord` names keeps the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructField, StructType

from kilonova.model.reader_options import mode_of, rescued_column
from kilonova.model.schema import Schema
from kilonova.warehouse.guards import Guard, fail

MALFORMED = "_malformed"
"""Column with the text of a line that does not fit; null for the others."""

_CSV = {"header": "true", "escape": '"'}

_PATTERN = re.compile(r"[\[\]{}*?\\]")
"""Characters that Spark interprets as part of a glob pattern."""


def escaped(urls: Iterable[str]) -> list[str]:
    """Escape file names so that Spark does not take them for glob patterns."""
    return [_PATTERN.sub(r"\\\g<0>", url) for url in urls]


def csv_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with which CSV files are read, defaults included."""
    return {**_CSV, **options, "mode": mode_of(options)}


def lenient_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for Spark with which lines that do not fit become rows: their text is in `MALFORMED`."""
    return {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}


def json_lines(spark: SparkSession, urls: Iterable[str], options: Mapping[str, str]) -> DataFrame:
    """Return the lines of JSON files, with the column `value`."""
    given = {"lineSep": options["lineSep"]} if "lineSep" in options else {}
    return spark.read.options(**given).text(escaped(urls))


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonKeys:
    """Keys of the JSON object in `value` that differ from the columns; null where that is no object.

    Attributes:
        unknown: the first key that is no column; null if there is none.
        lacking: the first required column that is no key; null if there is none.
    """

    unknown: Column
    lacking: Column


def json_keys(columns: Schema, required: Sequence[str]) -> JsonKeys:
    """Return how the keys of JSON lines differ from the columns, and from those that every line must have."""
    keys = F.json_object_keys("value")
    known = F.array(*map(F.lit, columns.names)).cast("array<string>")
    needed = F.array(*map(F.lit, required)).cast("array<string>")
    return JsonKeys(unknown=F.get(F.array_except(keys, known), 0), lacking=F.get(F.array_except(needed, keys), 0))


def read_lines(
    spark: SparkSession,
    format: str,
    options: Mapping[str, str],
    urls: Sequence[str],
    columns: Schema,
    required: Sequence[str],
) -> DataFrame:
    """Return the rows of CSV or JSON files, as the options say.

    Args:
        spark: the session.
        format: `csv` or `json`.
        options: options for Spark's reader.
        urls: the files.
        columns: the columns of the files, in their order if they are CSV.
        required: the columns that every JSON line must have.
    """
    match mode_of(options):
        case "FAILFAST" if format == "csv":
            return spark.read.format("csv").options(**csv_options(options)).schema(columns.ddl).load(escaped(urls))
        case "FAILFAST":
            return _strict_json(spark, urls, options, columns, required)
        case "DROPMALFORMED":
            rows = flagged_lines(spark, format, options, urls, columns, required)
            return rows.where(F.col(MALFORMED).isNull()).drop(MALFORMED)
        case _:
            rows = flagged_lines(spark, format, options, urls, columns, required)
            rescued = rescued_column(options)
            return rows.drop(MALFORMED) if rescued is None else rows.withColumnRenamed(MALFORMED, rescued)


def flagged_lines(
    spark: SparkSession,
    format: str,
    options: Mapping[str, str],
    urls: Sequence[str],
    columns: Schema,
    required: Sequence[str],
) -> DataFrame:
    """Return the rows of CSV or JSON files, with null for values that do not fit, and the column `MALFORMED`.

    Args:
        spark: see `read_lines`, like the other arguments.
        format: see there.
        options: see there.
        urls: see there.
        columns: see there.
        required: see there.
    """
    typed = f"{columns.ddl}, {MALFORMED} string"
    if format == "csv":
        given = lenient_options(csv_options(options))
        return spark.read.format("csv").options(**given).schema(typed).load(escaped(urls))
    keys = json_keys(columns, required)
    parsed = _filled(json_lines(spark, urls, options)).select(
        "value",
        F.coalesce(keys.unknown, keys.lacking).isNotNull().alias("other_columns"),
        F.from_json("value", json_type(typed), lenient_options(options)).alias("row"),
    )
    text = F.when(F.col("other_columns"), F.col("value")).otherwise(F.col(f"row.{MALFORMED}"))
    return parsed.select(*_typed(columns), text.alias(MALFORMED))


def _strict_json(
    spark: SparkSession, urls: Sequence[str], options: Mapping[str, str], columns: Schema, required: Sequence[str]
) -> DataFrame:
    file = F.col("_metadata.file_path")
    keys = json_keys(columns, required)
    problem = F.when(keys.unknown.isNotNull(), fail(Guard.EXTRA_COLUMN, column=keys.unknown, file=file)).when(
        keys.lacking.isNotNull(), fail(Guard.MISSING_COLUMN, column=keys.lacking, file=file)
    )
    checked = _filled(json_lines(spark, urls, options)).select(
        problem.cast("boolean").alias("_problem"),
        F.from_json("value", json_type(columns.ddl), {**options, "mode": "FAILFAST"}).alias("row"),
    )
    return checked.where(F.col("_problem").isNull()).select(*_typed(columns))


def _typed(columns: Schema) -> list[Column]:
    """Return the columns of `row`, which was parsed as its `json_type`, with their types."""
    return [F.col("row")[each.name].cast(each.type).alias(each.name) for each in columns.columns]


def json_type(ddl: str) -> StructType:
    """Return the type as which Spark parses JSON objects with some columns: there, keys of maps are strings.

    Keys that cannot be cast from strings keep their type, which Spark refuses.
    """
    return cast(StructType, _with_text_keys(StructType.fromDDL(ddl)))


def _with_text_keys(kind: DataType) -> DataType:
    match kind:
        case MapType():
            exact = isinstance(kind.keyType, ArrayType | BinaryType | MapType | StructType)
            key = kind.keyType if exact else StringType()
            return MapType(key, _with_text_keys(kind.valueType), kind.valueContainsNull)
        case ArrayType():
            return ArrayType(_with_text_keys(kind.elementType), kind.containsNull)
        case StructType():
            return StructType([StructField(each.name, _with_text_keys(each.dataType), each.nullable) for each in kind])
        case _:
            return kind


def _filled(lines: DataFrame) -> DataFrame:
    """Return the lines that are not blank."""
    return lines.where(F.length(F.trim("value")) > 0)
