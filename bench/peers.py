"""Spark's own means on the same work: Structured Streaming, and the materialized views of declarative pipelines.

Line items only arrive here, for a stream takes nothing back. Each way keeps two queries up to date: Kilonova takes
the new file in and runs both views, a stream per query takes all that is available, and a run of the pipeline makes
both materialized views from scratch, as open-source Spark does.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import kilonova as kn
from bench.measure import Timings, spent
from bench.report import Report, Scale
from bench.sandbox import sandbox
from examples.tpch.refresh import Refresh, generate
from examples.tpch.workflow import QUERIES, TABLES
from kilonova.errors import BrokenInvariant
from kilonova.service.project import Project
from kilonova.testing import count_differences

KEPT = ("q01", "q06")
"""Queries that a stream can keep: groups of one table."""

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def measure(scale: Scale) -> list[Report]:
    """All three ways, and what a pipeline takes that does nothing."""
    size, rounds = (0.01, 1) if scale is Scale.QUICK else (1.0, 4)
    place = Path(tempfile.gettempdir()) / "tpch"
    place.mkdir(exist_ok=True)
    data = generate(place, size)
    with sandbox(_workflow()) as (project, directory):
        spark = project.warehouse.spark
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        taken = _timed(project, Refresh(spark, data), directory, rounds)
    timings = Timings.of(taken)
    # The first round after the first time still compiles.
    each = {method: statistics.median(seconds[2:] or seconds[1:]) for method, seconds in timings.seconds.items()}
    each["pipelines, less their start"] = each["pipelines"] - each.pop("an empty pipeline")
    return [
        Report(
            name="peers",
            title=f"Two queries of TPC-H at scale {size:g}, while 1% of the line items arrives in each round",
            columns=("way", "each round, s", "times as long"),
            rows=[(method, seconds, seconds / each["kilonova"]) for method, seconds in each.items()],
            timings={"seconds": timings.rounded()},
            note="q01 and q06. Streams run with `availableNow` and RocksDB in the same warm session as Kilonova, whose"
            " time includes taking the rows in. A pipeline is a process of its own; the last line leaves out what one"
            " takes that has next to nothing to do.",
        )
    ]


def _workflow() -> kn.Workflow:
    workflow = kn.Workflow("peers")
    workflow.channel("lineitem", TABLES["lineitem"][0])
    for name in KEPT:
        workflow.view(name, QUERIES[name])
    return workflow


def _timed(project: Project, refresh: Refresh, directory: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    spark, arrivals = project.warehouse.spark, directory / "lineitem"
    pipeline = _pipeline(directory / "pipeline", {name: _over(name, f"parquet.`{arrivals}`") for name in KEPT})
    nothing = _pipeline(directory / "nothing", {"one": "SELECT 1 AS a"})
    taken: dict[str, list[tuple[float, float]]] = {}
    for number in range(1 + rounds):
        new = refresh.orders(number)["lineitem"].where("NOT _deleted").drop("_deleted") if number else None
        rows = refresh.first("lineitem") if new is None else new
        file = directory / f"round-{number}"
        rows.coalesce(4 if new is None else 1).write.parquet(str(file))
        rows.sparkSession.read.parquet(str(file)).write.mode("append").parquet(str(arrivals))

        def kilonova(file: Path = file) -> None:
            project.ingest("lineitem", str(file))
            project.run()

        methods: dict[str, Callable[[], None]] = {
            "kilonova": kilonova,
            "streaming": lambda: _streamed(spark, arrivals, directory),
            "pipelines": pipeline,
            "an empty pipeline": nothing,
        }
        for method, act in methods.items():
            taken.setdefault(method, []).append(spent(act))
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    for name in KEPT:
        if count_differences(spark.read.parquet(str(directory / "streamed" / name)), project.read(name)):
            raise BrokenInvariant(f"the stream and the view {name} differ")
    return taken


def _over(name: str, table: str) -> str:
    """A query over another table in place of the line items."""
    return QUERIES[name].replace("from lineitem", f"from {table}").strip().rstrip(";")


def _streamed(spark: SparkSession, arrivals: Path, directory: Path) -> None:
    """Let a stream per query take what has arrived."""
    for name in KEPT:
        target = str(directory / "streamed" / name)
        source = spark.readStream.schema(spark.read.parquet(str(arrivals)).schema).parquet(str(arrivals))
        source.createOrReplaceTempView("arriving")

        def replace(rows: DataFrame, _: int, target: str = target) -> None:
            rows.write.mode("overwrite").parquet(target)

        query = (
            spark.sql(_over(name, "arriving").partition("order by")[0])
            .writeStream.outputMode("complete")
            .foreachBatch(replace)
            .option("checkpointLocation", str(directory / "checkpoints" / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def _pipeline(place: Path, views: dict[str, str]) -> Callable[[], None]:
    """A pipeline of materialized views; what runs it."""
    (place / "transformations").mkdir(parents=True)
    for name, query in views.items():
        text = f"CREATE MATERIALIZED VIEW {name} AS {query}\n"
        (place / "transformations" / f"{name}.sql").write_text(text)
    spec = f"name: peers\nstorage: file://{place}/storage\nlibraries:\n  - glob:\n      include: transformations/**\n"
    (place / "spark-pipeline.yml").write_text(spec)
    tool = shutil.which("spark-pipelines", path=sysconfig.get_path("scripts")) or "spark-pipelines"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}

    def run() -> None:
        shutil.rmtree(place / "spark-warehouse", ignore_errors=True)  # its catalog forgets what is there
        done = subprocess.run([tool, "run"], cwd=place, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])

    return run
