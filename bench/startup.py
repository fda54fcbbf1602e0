"""How long a command takes in a process of its own, with and without an archive of Java's classes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.measure import interleaved
from bench.report import Goal, Report, Scale
from bench.sandbox import sandbox
from kilonova.jvm.cds_archive import make_class_data_archive

WORKFLOW = """
import kilonova as kn

flow = kn.Workflow("flow")
flow.channel("source", "k bigint, v string")

@flow.task
def copied(source: kn.All) -> kn.Base:
    return source
"""

BARE = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.schema("k bigint, v string").json("rows.jsonl")
rows.write.mode("overwrite").parquet("out")
"""


def measure(scale: Scale) -> list[Report]:
    """`kilonova status`, and `kilonova run` of a task with a few rows, against a script that does it with Spark."""
    quick = scale is Scale.QUICK
    archive = make_class_data_archive()
    with sandbox() as (_, place):
        (place / "flow.py").write_text(WORKFLOW)
        (place / "bare.py").write_text(BARE)
        (place / "rows.jsonl").write_text("".join(f'{{"k": {k}, "v": "row {k}"}}\n' for k in range(1000)))
        _call(place, "kilonova", "init")
        _call(place, "kilonova", "apply", "flow.py")
        _call(place, "kilonova", "ingest", "source", "rows.jsonl")

        def run(archived: bool) -> None:
            (place / "kilonova.toml").write_text(f"[spark]\nclass_data_archive = {str(archived).lower()}\n")
            _call(place, "kilonova", "run", "copied")

        status = interleaved({"status": lambda: _call(place, "kilonova", "status")}, 3 if quick else 7, warm=True)
        runs = interleaved(
            {
                "with": lambda: run(True),
                "without": lambda: run(False),
                "bare": lambda: _call(place, "python", "bare.py"),
            },
            1 if quick else 5,
            warm=not quick,
        )
    names = {
        "bare": "a script with bare Spark",
        "without": "`kilonova run`, no archive",
        "with": "`kilonova run`, archive",
    }
    table: list[tuple[object, ...]] = [("`kilonova status`", status.median("status"), "")]
    table += [(label, runs.median(method), runs.ratio(method, "bare")) for method, label in names.items()]
    return [
        Report(
            name="startup",
            title="Commands in a process of their own",
            columns=("", "seconds", "in times bare Spark"),
            rows=table,
            goals=[Goal("`kilonova status`, seconds", status.median("status"), 1.0)],
            timings={"commands": status.rounded() | runs.rounded()},
            note="" if archive else "There was no archive here, because Java could not make one.",
        )
    ]


def _call(place: Path, program: str, *arguments: str) -> None:
    path = Path(sys.executable).parent / program
    done = subprocess.run([path, *arguments], cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{program} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
