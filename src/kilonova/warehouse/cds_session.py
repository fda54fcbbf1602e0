"""Small Spark session that uses the same parts of Spark as Kilonova, and whose Java writes a class-data archive.

Run as `python -m kilonova.warehouse.cds_session ARCHIVE` by `kilonova.jvm.cds_archive`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kilonova.jvm.cds_archive import is_being_made
from kilonova.jvm.runtime import find_java
from kilonova.warehouse.session import SparkSettings, open_session

_SECONDS_TO_MAKE = 240


def use_spark(session: SparkSession, directory: Path) -> None:
    """Write, read, join and group blocks, count rows, and call Python."""
    rows = session.range(2000).select(
        (F.col("id") % 500).alias("key"),
        F.concat(F.lit("name "), F.col("id").cast("string")).alias("name"),
        (F.col("id") / 3).cast("decimal(12,2)").alias("amount"),
        F.timestamp_seconds(F.col("id")).alias("at"),
    )
    for name in ("old", "new"):
        (
            rows.dropDuplicates(["key"])
            .repartition(2, "key")
            .sortWithinPartitions("key")
            .write.mode("overwrite")
            .parquet(str(directory / name))
        )
    old, new = (session.read.schema(rows.schema).parquet(str(directory / name)) for name in ("old", "new"))
    merged = old.alias("o").join(new.alias("n"), "key", "full_outer").hint("merge")
    merged.select("key", F.coalesce("n.name", "o.name").alias("name")).collect()
    old.unionByName(new).groupBy("key").agg(F.sum("amount").alias("amount"), F.count("*").alias("n")).toArrow()
    old.join(new.where("key < 3"), "key", "left_anti").createOrReplaceTempView("rest")
    session.sql("SELECT name, rank() OVER (PARTITION BY key ORDER BY at) AS r FROM rest ORDER BY r").take(5)
    session.createDataFrame(pd.DataFrame({"key": [1, 2], "name": ["a", "b"]})).exceptAll(
        new.select("key", "name")
    ).collect()
    new.mapInPandas(_unchanged, new.schema).count()
    rows.coalesce(1).write.mode("overwrite").json(str(directory / "json"))
    session.read.schema(rows.schema).json(str(directory / "json")).count()


def _unchanged(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    yield from frames


def main(archive: Path) -> None:
    """Make the archive, and return when it exists or when it is clear that it will not."""
    option = is_being_made(find_java(os.environ), archive)
    session, _ = open_session(
        SparkSettings(
            master="local[2]",
            class_data_archive=False,
            conf=(("spark.driver.extraJavaOptions", option), ("spark.driver.memory", "1g")),
        )
    )
    gateway = SparkContext._gateway
    use_spark(session, archive.parent)
    session.stop()
    if gateway is not None:
        gateway.proc.stdin.close()  # PySpark's Java exits at the end of its input
        gateway.proc.wait(timeout=_SECONDS_TO_MAKE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
