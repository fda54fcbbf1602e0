"""Nova's Figures 3 and 4: reading a channel of n blocks against reading one compacted block with the same rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import kilonova as kn
from bench.measure import interleaved
from bench.report import Draw, Report, Scale
from bench.sandbox import COLUMNS, noop, rows, sandbox, write
from kilonova.service.project import Project

BLOCKS = (1, 2, 5, 10, 20, 50)

WAYS: dict[str, dict[str, int]] = {
    "aligned": {"bucketing_min": 1, "single_task_max": 0},
    "shuffled": {"bucketing_min": 1 << 50, "single_task_max": 0, "broadcast_max": 0},
    "broadcast": {"bucketing_min": 1 << 50, "single_task_max": 0, "broadcast_max": 1 << 50},
    "together": {"bucketing_min": 1 << 50, "single_task_max": 1 << 50},
}
"""Sizes that make Kilonova merge in a certain way."""


@dataclass
class Curves:
    """How many times as long as the compacted block each way takes, by number of blocks."""

    rows_per_block: int
    blocks: list[int] = field(default_factory=list)
    ratios: dict[str, list[float]] = field(default_factory=dict)
    timings: dict[str, dict[str, list[float]]] = field(default_factory=dict)


def measure(scale: Scale) -> list[Report]:
    """Large blocks, where moving rows costs, and small ones, where every block does."""
    quick = scale is Scale.QUICK
    blocks = (1, 2, 5, 10) if quick else BLOCKS
    large = _curves(20_000 if quick else 100_000, blocks, 1 if quick else 2)
    small = _curves(1_000, blocks, 1 if quick else 2)
    return [_report("merging_large", "Nova, Figure 3", large), _report("merging_small", "Nova, Figure 4", small)]


def _report(name: str, title: str, curves: Curves) -> Report:
    methods = list(curves.ratios)
    return Report(
        name=name,
        title=f"{title}: reading n blocks of {curves.rows_per_block:,} rows, in times the compacted block",
        columns=("blocks", *methods),
        rows=[(n, *(curves.ratios[method][i] for method in methods)) for i, n in enumerate(curves.blocks)],
        timings=curves.timings,
        note="All merge to the same rows, as no key occurs twice: whatever is slower is so because of merging."
        " *Append* needs none. Kilonova chooses among the others by size.",
        panels=2,
        draw=_drawn(curves),
    )


def _drawn(curves: Curves) -> Draw:
    def draw(axes: Any) -> None:
        for axis, sink in zip(axes, ("write", "scan"), strict=True):
            for method, marker in zip(("append", *WAYS), "osD^v", strict=True):
                axis.plot(curves.blocks, curves.ratios[f"{method}, {sink}"], marker=marker, markersize=4, label=method)
            axis.axhline(1, color="black", linewidth=0.8)
            axis.set(xscale="log", xlabel="blocks", ylabel="times the compacted block", title=f"read and {sink}")
            axis.set_xticks(curves.blocks, map(str, curves.blocks))
            axis.minorticks_off()
            axis.set_ylim(bottom=0)
        axes[0].legend()

    return draw


def _curves(size: int, blocks: tuple[int, ...], rounds: int) -> Curves:
    """Grow a channel block by block, and read it at some lengths in each way.

    There is one project with a channel whose base is laid out in buckets and one whose base is not; each way is a
    project of its own over the same catalog and warehouse.
    """
    curves = Curves(size)
    with ExitStack() as stack:
        plain, place = stack.enter_context(sandbox(_workflow(), sizes=WAYS["shuffled"]))
        spark = plain.warehouse.spark
        opened = {
            method: stack.enter_context(kn.open_project(place / "project", sizes=sizes))
            for method, sizes in WAYS.items()
        }
        for number in range(1, blocks[-1] + 1):
            block = str(_block(spark, size, number, blocks[-1], place / "block"))
            plain.ingest("appended", block)
            plain.ingest("keyed", block)
            opened["aligned"].ingest("bucketed", block)
            if number not in blocks:
                continue
            curves.blocks.append(number)
            plain.ingest("compacted", plain.read("appended"), replace=True)
            readers: dict[str, tuple[Project, str]] = {"compacted": (plain, "compacted"), "append": (plain, "appended")}
            for method, project in opened.items():
                readers[method] = (project, "bucketed" if method == "aligned" else "keyed")
            for sink, do in (("write", lambda frame: write(frame, place / "out")), ("scan", noop)):
                ways = {method: partial(_read, project, name, do) for method, (project, name) in readers.items()}
                taken = interleaved(ways, rounds, warm=number == 1 and rounds > 1)
                for method in ("append", *WAYS):
                    curves.ratios.setdefault(f"{method}, {sink}", []).append(taken.ratio(method, "compacted"))
                curves.timings[f"{number} blocks, {sink}"] = taken.rounded()
    return curves


def _read(project: Project, channel: str, do: Callable[[DataFrame], None]) -> None:
    do(project.read(channel))


def _workflow() -> kn.Workflow:
    workflow = kn.Workflow("reading")
    workflow.channel("appended", COLUMNS)
    workflow.channel("compacted", COLUMNS)
    workflow.channel("keyed", COLUMNS, key="k")
    workflow.channel("bucketed", COLUMNS, key="k")
    return workflow


def _block(spark: SparkSession, size: int, number: int, of: int, path: Path) -> Path:
    """A file of rows whose keys lie between those of all other blocks."""
    keys = spark.range(0, size, 1, 1).selectExpr(f"id * {of} + {number} AS id")
    write(rows(keys, number), path)
    return path
