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
from kilonova.warehouse.file_shapes import FileShape
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
    """Keys of the JSON object in `value` that do not fit the columns; null where that is no object.

    Attributes:
        unknown: the first key that is no column; null if there is none.
        lacking: the first required column that is no key; null if there is none.
        twice: the first column that is there under two names; null if there is none.
    """

    unknown: Column
    lacking: Column
    twice: Column


def json_keys(shape: FileShape) -> JsonKeys:
    """Return the keys of JSON lines that do not fit a shape."""
    keys = F.json_object_keys("value")
    several = shape.alternatives
    unknown = F.array_except(keys, _texts(shape.columns.names))
    if shape.ignores:  # but for columns that are written in another case, which are not meant to be ignored
        written = [name.lower() for name in shape.columns.names]
        unknown = F.filter(unknown, lambda key: F.lower(key).isin(written))
    needed = _texts([name for name in shape.required if name not in several])
    lacking = [
        F.when(~F.arrays_overlap(keys, _texts(names)), F.lit(name))
        for name, names in several.items()
        if name in shape.required
    ]
    twice = [F.when(F.size(F.array_intersect(keys, _texts(names))) > 1, F.lit(name)) for name, names in several.items()]
    return JsonKeys(
        unknown=F.get(unknown, 0),
        lacking=F.coalesce(F.get(F.array_except(needed, keys), 0), *lacking),
        twice=F.coalesce(F.lit(None).cast("string"), *twice),
    )


def _texts(names: Iterable[str]) -> Column:
    return F.array(*map(F.lit, names)).cast("array<string>")


def read_lines(
    spark: SparkSession, format: str, options: Mapping[str, str], urls: Sequence[str], shape: FileShape
) -> DataFrame:
    """Return the rows of CSV or JSON files, as the options say; of CSV, with the columns that are read.

    Args:
        spark: the session.
        format: `csv` or `json`.
        options: options for Spark's reader.
        urls: the files.
        shape: the shape of the files.
    """
    match mode_of(options):
        case "FAILFAST" if format == "csv":
            return (
                spark.read.format("csv").options(**csv_options(options)).schema(shape.columns.ddl).load(escaped(urls))
            )
        case "FAILFAST":
            return _strict_json(spark, urls, options, shape)
        case "DROPMALFORMED":
            rows = flagged_lines(spark, format, options, urls, shape)
            return rows.where(F.col(MALFORMED).isNull()).drop(MALFORMED)
        case _:
            rows = flagged_lines(spark, format, options, urls, shape)
            rescued = rescued_column(options)
            return rows.drop(MALFORMED) if rescued is None else rows.withColumnRenamed(MALFORMED, rescued)


def flagged_lines(
    spark: SparkSession, format: str, options: Mapping[str, str], urls: Sequence[str], shape: FileShape
) -> DataFrame:
    """Return the rows of CSV or JSON files, with null for values that do not fit, and the column `MALFORMED`.

    Args:
        spark: see `read_lines`, like the other arguments.
        format: see there.
        options: see there.
        urls: see there.
        shape: see there.
    """
    typed = f"{shape.columns.ddl}, {MALFORMED} string"
    if format == "csv":
        given = lenient_options(csv_options(options))
        return spark.read.format("csv").options(**given).schema(typed).load(escaped(urls))
    keys = json_keys(shape)
    parsed = _filled(json_lines(spark, urls, options)).select(
        "value",
        F.json_object_keys("value").alias("keys"),
        F.coalesce(keys.unknown, keys.lacking, keys.twice).isNotNull().alias("other_columns"),
        F.from_json("value", json_type(typed), lenient_options(options)).alias("row"),
    )
    text = F.when(F.col("other_columns"), F.col("value")).otherwise(F.col(f"row.{MALFORMED}"))
    return parsed.select(*_typed(shape), text.alias(MALFORMED))


def _strict_json(spark: SparkSession, urls: Sequence[str], options: Mapping[str, str], shape: FileShape) -> DataFrame:
    file = F.col("_metadata.file_path")
    keys = json_keys(shape)
    problem = (
        F.when(keys.unknown.isNotNull(), fail(Guard.EXTRA_COLUMN, column=keys.unknown, file=file))
        .when(keys.lacking.isNotNull(), fail(Guard.MISSING_COLUMN, column=keys.lacking, file=file))
        .when(keys.twice.isNotNull(), fail(Guard.COLUMN_TWICE, column=keys.twice, file=file))
    )
    checked = _filled(json_lines(spark, urls, options)).select(
        problem.cast("boolean").alias("_problem"),
        F.json_object_keys("value").alias("keys"),
        F.from_json("value", json_type(shape.columns.ddl), {**options, "mode": "FAILFAST"}).alias("row"),
    )
    return checked.where(F.col("_problem").isNull()).select(*_typed(shape))


def _typed(shape: FileShape) -> list[Column]:
    """Return the columns of the relation from `row`, which was parsed as its `json_type`, and from its `keys`."""
    sources, filled = dict(shape.sources), dict(shape.filled)

    def value(name: str, kind: str) -> Column:
        names = sources.get(name, (name,))
        found = F.coalesce(*(F.col("row")[each].cast(kind) for each in names))
        if name in filled:
            found = F.when(~F.arrays_overlap("keys", _texts(names)), shape.default(name)).otherwise(found)
        return found.alias(name)

    return [value(each.name, each.type) for each in shape.relation.columns]


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
