"""Which plans over aligned blocks shuffle or sort, and which results are aligned themselves.

python docs/design/spark_alignment.py                      a local session
python docs/design/spark_alignment.py hive                 the same with a Hive catalog (Derby)
python docs/design/spark_alignment.py sc://127.0.0.1:15002 a Connect server that shares this file system
python docs/design/spark_alignment.py spark://host:7077    a cluster that shares this file system
"""

import re
import sys
import tempfile
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kilonova.warehouse.session import SparkSettings, open_session

BUCKETS = 4


def settings(where: str) -> SparkSettings:
    """Where to run."""
    if where.startswith("sc://"):
        return SparkSettings(remote=where)
    if where == "hive":
        conf = (("spark.sql.catalogImplementation", "hive"),)
        return SparkSettings(master="local[2]", conf=conf)
    return SparkSettings(master=where)


def write(rows: DataFrame, directory: Path) -> None:
    """Write rows by key, and give the files the names of bucket files."""
    rows.repartition(BUCKETS, "k").sortWithinPartitions("k").write.parquet(str(directory))
    for file in directory.glob("part-*"):
        bucket = int(file.name.split("-")[1])
        file.rename(file.with_name(re.sub(r"-c(\d+)\.", rf"_{bucket:05d}.c\1.", file.name)))


def table(spark: SparkSession, directory: Path) -> tuple[str, DataFrame]:
    """Declare the bucketed table over them."""
    name = f"kn_{uuid.uuid4().hex}"
    spark.sql(
        f"CREATE TABLE {name} (k bigint, v bigint) USING parquet CLUSTERED BY (k) SORTED BY (k)"
        f" INTO {BUCKETS} BUCKETS LOCATION '{directory}'"
    )
    return name, spark.table(name)


def steps(spark: SparkSession, rows: DataFrame) -> tuple[int, int]:
    """How many exchanges and sorts the plan has."""
    rows.createOrReplaceTempView("looked_at")
    plan = spark.sql("EXPLAIN SELECT * FROM looked_at").head()[0]
    return plan.count("Exchange "), len(re.findall(r"[- ]Sort \[", plan))


def misplaced(spark: SparkSession, rows: DataFrame, directory: Path) -> tuple[int, bool]:
    """How many rows stand in the wrong file if the rows are written as they come, and whether files are sorted."""
    directory = directory / uuid.uuid4().hex
    rows.select("k").write.parquet(str(directory))
    written = spark.read.schema("k bigint").parquet(str(directory))
    file = F.regexp_extract(F.col("_metadata.file_name"), r"part-(\d+)", 1).cast("int")
    wrong = written.where(F.pmod(F.hash("k"), F.lit(BUCKETS)) != file).count()
    keys = [[row.k for row in spark.read.parquet(str(part)).collect()] for part in directory.glob("part-*")]
    return wrong, all(some == sorted(some) for some in keys)


def main(where: str) -> None:
    """Print one line per query."""
    spark, _ = open_session(settings(where))
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        root.chmod(0o777)
        write(spark.range(20_000).selectExpr("id k", "id v"), root / "base")
        write(spark.range(100).selectExpr("id * 400 k", "-id v"), root / "delta")
        names, (base, delta) = zip(*(table(spark, root / name) for name in ("base", "delta")), strict=True)
        plain = spark.read.schema(delta.schema).parquet(str(root / "delta"))
        queries = {
            "full outer join": base.join(delta.select("k"), "k", "full_outer"),
            "full outer join, merge": base.join(delta.select("k").hint("merge"), "k", "full_outer"),
            "full outer join, shuffle_hash": base.join(delta.select("k").hint("shuffle_hash"), "k", "full_outer"),
            "full outer join, plain path": base.join(plain.select("k").hint("merge"), "k", "full_outer"),
            "left anti join": base.join(delta, "k", "left_anti"),
            "left anti join, merge": base.join(delta.hint("merge"), "k", "left_anti"),
            "filter": base.where("v % 2 = 0"),
            "union": base.unionByName(delta),
            "union, grouped": base.unionByName(delta).groupBy("k").agg(F.max("v")),
        }
        for auto in ("true", "false"):
            spark.conf.set("spark.sql.sources.bucketing.autoBucketedScan.enabled", auto)
            print(f"autoBucketedScan {auto}")
            for name, rows in queries.items():
                exchanges, sorts = steps(spark, rows)
                wrong, in_order = misplaced(spark, rows, root)
                print(f"  {name:32} {exchanges=} {sorts=} {wrong=} {in_order=}")
        for name in names:
            spark.sql(f"DROP TABLE {name}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "local[2]")
