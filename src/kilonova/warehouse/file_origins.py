"""Origins of rows that are read from files: the name, the time and the position of the file of each row.

Spark says from which file a row comes only where the file is read, and only by its URL: rows carry that URL until they
are joined with what is known of each file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kilonova.model.ingest_columns import FILE, FILE_TIME
from kilonova.warehouse.blocks import POSITION, column

_URL = "_kept_url"


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """Origin of the rows of a file.

    Attributes:
        name: its name within its directory.
        time: its modification time; None if it is not known.
        position: its position among files that are ingested together.
    """

    name: str
    time: datetime | None
    position: int


def with_url(rows: DataFrame) -> DataFrame:
    """Return rows, as they are read from files, with the URL of the file of each."""
    return rows.withColumn(_URL, F.col("_metadata.file_path"))


def with_origins(
    spark: SparkSession, rows: DataFrame, origins: Mapping[str, FileOrigin], *, positions: bool
) -> DataFrame:
    """Return rows with the origin of each in the columns `_file` and `_file_time`, where these are null.

    Args:
        spark: the session.
        rows: rows with their URLs, as from `with_url`.
        origins: the origin of each file, by its URL.
        positions: whether to add the position of each row's file.
    """
    known = spark.createDataFrame(
        [(_comparable(url), each.name, each.time, each.position) for url, each in origins.items()],
        "_kept_known string, _kept_name string, _kept_time timestamp, _kept_position bigint",
    )
    found = rows.join(F.broadcast(known), _decoded(column(_URL)) == column("_kept_known"), "left")
    unknown = F.raise_error(F.concat(F.lit("Spark read a file that it was not given: "), column(_URL)))
    filled = {FILE: (column("_kept_name"), unknown.cast("string")), FILE_TIME: (column("_kept_time"),)}
    columns = [F.coalesce(column(n), *filled.get(n, ())).alias(n) for n in rows.columns if n != _URL]
    if positions:
        columns.append(F.coalesce(column("_kept_position"), unknown.cast("bigint")).alias(POSITION))
    return found.select(*columns)


def _comparable(url: str) -> str:
    """Return a URL with one slash after its scheme: Hadoop and fsspec write different numbers of them.

    >>> _comparable("file:///a/b"), _comparable("s3://bucket/a")
    ('file:/a/b', 's3:/bucket/a')
    """
    return re.sub(r"^(\w+):/+", r"\1:/", url)


def _decoded(url: Column) -> Column:
    """Return a percent-encoded URL as `_comparable` does."""
    plain = F.url_decode(F.replace(url, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(plain, r"^(\w+):/+", r"$1:/")
