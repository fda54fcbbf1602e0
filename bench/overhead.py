"""What a run adds to the reading and writing that it does: a task that copies, against bare Spark."""

from __future__ import annotations

import itertools
from pathlib import Path

import kilonova as kn
from bench.measure import Timings, interleaved
from bench.report import Goal, Report, Scale
from bench.sandbox import COLUMNS, files_of, rows, sandbox, write
from kilonova.service.project import Project


def measure(scale: Scale) -> list[Report]:
    """Tasks from an append channel to one, and from a keyed channel to one."""
    quick = scale is Scale.QUICK
    sizes = {1_000: 5 if quick else 9, 100_000 if quick else 1_000_000: 3 if quick else 5}
    table, timings, goals = [], {}, []
    for keyed in (False, True):
        with sandbox(_workflow(keyed)) as (project, place):
            for size, rounds in sizes.items():
                taken = _copying(project, place, size, rounds)
                kind = "keyed (checked, sorted)" if keyed else "append"
                timings[f"{kind}, {size} rows"] = taken.rounded()
                ratio, more = taken.ratio("run", "bare"), taken.difference("run", "bare")
                table.append(
                    (kind, size, taken.median("bare"), taken.median("run"), more, ratio, taken.cpu_ratio("run", "bare"))
                )
                what = f"{size:,} rows, {'keyed' if keyed else 'append'}"
                if size == 1_000:
                    goals.append(Goal(f"{what}: seconds more than bare Spark", more, 0.2))
                    goals.append(Goal(f"{what}: times bare Spark's CPU", taken.cpu_ratio("run", "bare"), 1.5))
                else:
                    goals.append(Goal(f"{what}: times bare Spark", ratio, 1.3))
    return [
        Report(
            name="overhead",
            title="A task that copies its input, run by Kilonova, against bare Spark with the same files",
            columns=("channels", "rows", "bare Spark, s", "`project.run`, s", "seconds more", "ratio", "ratio of CPU"),
            rows=table,
            goals=goals,
            timings=timings,
            note="A keyed channel's block is sorted by key and checked for null and repeated keys, and Kilonova looks"
            " whether it changes anything; bare Spark does none of that.",
        )
    ]


def _workflow(keyed: bool) -> kn.Workflow:
    workflow = kn.Workflow("copying")
    key = "k" if keyed else None
    workflow.channel("source", COLUMNS, key=key)
    workflow.channel("copied", COLUMNS, key=key)

    @workflow.task
    def copied(source: kn.New) -> kn.Delta:
        return source

    return workflow


def _copying(project: Project, place: Path, size: int, rounds: int) -> Timings:
    spark = project.warehouse.spark
    given = place / "given"
    batches = itertools.count()
    schema = rows(spark.range(0), 0).schema

    def arrive() -> None:
        number = next(batches)
        write(rows(spark.range(number * size, (number + 1) * size, numPartitions=2), number), given)
        project.ingest("source", given)

    def bare() -> None:
        write(spark.read.schema(schema).parquet(*map(str, files_of(given))), place / "copy")

    return interleaved({"run": lambda: project.run(), "bare": bare}, rounds, warm=True, before=arrive)
