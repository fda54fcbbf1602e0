"""Refresh method that views choose, by the share of changed rows, against the one that proves faster.

Each query of TPC-H is there three times: refreshed incrementally, refreshed in full, and choosing. Rounds change some
share of the orders with their line items, in a mixed order; tables are compacted in between, so that rounds begin
alike.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from bench.measure import spent
from bench.report import Draw, Goal, Report, Scale
from bench.sandbox import sandbox, write
from bench.tpch import FIRST, NEAR, each_method, is_right, went
from examples.tpch.refresh import Refresh, generate
from examples.tpch.workflow import TABLES
from kilonova.service.project import Project

CHOSEN = ("q01", "q03", "q04", "q06", "q12", "q13", "q14", "q18")
"""Sums over one table, joins, semi- and outer joins, groups below groups, the first rows of many."""

SHARES = (0.0001, 0.001, 0.01, 0.1, 0.3, 0.5)
"""Which parts of the orders change."""


def measure(scale: Scale) -> list[Report]:
    """The choice for some queries and sizes of change."""
    quick = scale is Scale.QUICK
    size, learning, measured = (0.01, 1, 1) if quick else (0.1, 2, 2)
    place = Path(tempfile.gettempdir()) / "tpch"
    place.mkdir(exist_ok=True)
    data = generate(place, size)
    with sandbox(each_method(CHOSEN)) as (project, directory):
        refresh = Refresh(project.warehouse.spark, data)
        for table in TABLES:
            write(refresh.first(table), directory / table)
            project.ingest(table, str(directory / table))
        cells, first = _cells(project, learning, measured)
    right = [_right(cell) for each in cells.values() for cell in each]
    right_first = [is_right(choice, *_medians(cells[name, share])) for name, share, choice in first]
    exactly = [_right(cell, 1.0) for each in cells.values() for cell in each]
    return [
        Report(
            name="choices",
            title=f"TPC-H at scale {size:g}: the way that views choose, by which part of the orders changes",
            columns=("query", *(f"{share:.2%}" for share in SHARES)),
            rows=[(name, *(_shown(cells[name, share]) for share in SHARES)) for name in CHOSEN],
            goals=[
                Goal(
                    "part of the cells in which the choice was the faster way, or within 10% of it",
                    statistics.mean(right),
                    0.95,
                    at_least=True,
                ),
                Goal(
                    f"part of the first {FIRST} changes in which the choice proved faster, or within 10% of it",
                    statistics.mean(right_first),
                    0.8,
                    at_least=True,
                ),
            ],
            timings={
                f"{name} {share:.2%}": {
                    "change": [round(change, 3) for change, _, _ in each],
                    "full": [round(full, 3) for _, full, _ in each],
                }
                for (name, share), each in cells.items()
            },
            note="A cell says how many times as fast as a full refresh of the view its change was, and what it chose,"
            f" in each of {measured} rounds, after {learning * len(SHARES)} rounds of learning. The choice was the"
            f" faster way in {statistics.mean(exactly):.0%} of the rounds, those within the noise left out of account.",
            draw=_drawn(cells),
        )
    ]


Cell = tuple[float, float, str]
"""Seconds of the change, seconds of a full refresh, and the choice."""


def _right(cell: Cell, near: float = NEAR) -> bool:
    change, full, choice = cell
    return is_right(choice, change, full, near)


def _medians(cells: list[Cell]) -> tuple[float, float]:
    return statistics.median(change for change, _, _ in cells), statistics.median(full for _, full, _ in cells)


def _shown(cells: list[Cell]) -> str:
    ratio = statistics.median(full / change for change, full, _ in cells)
    return f"{ratio:.2f}: {', '.join(dict.fromkeys(choice for _, _, choice in cells))}"


def _cells(
    project: Project, learning: int, measured: int
) -> tuple[dict[tuple[str, float], list[Cell]], list[tuple[str, float, str]]]:
    """What each query's ways took for each share after some learning, and what was chosen for the first changes."""
    draw = random.Random(7)
    cells: dict[tuple[str, float], list[Cell]] = {(name, share): [] for name in CHOSEN for share in SHARES}
    for name in CHOSEN:
        project.run([name, f"{name}_change", f"{name}_full"])
    first: list[tuple[str, float, str]] = []
    for turn in range(learning + measured):
        for share in draw.sample(SHARES, len(SHARES)):
            for table, rows in _changed(project, share, draw.randrange(1_000_000)).items():
                project.ingest(table, rows)
            for name in CHOSEN:
                methods = [f"{name}_change", f"{name}_full"]
                draw.shuffle(methods)
                project.run([name])
                choice = went(project)
                if len(first) < FIRST * len(CHOSEN):
                    first.append((name, share, choice))
                taken = {method: spent(partial(project.run, [method]))[0] for method in methods}
                if turn >= learning:
                    cells[name, share].append((taken[f"{name}_change"], taken[f"{name}_full"], choice))
            for table in ("orders", "lineitem"):
                project.compact(table)
        print(f"turn {turn + 1} of {learning + measured}", file=sys.stderr, flush=True)
    return cells, first


def _changed(project: Project, share: float, seed: int) -> dict[str, DataFrame]:
    """Some orders with another price and their line items with another quantity, by a hash of the order's key."""
    some = f"pmod(xxhash64({{}}, {seed}), 1000000) < {round(share * 1_000_000)}"
    orders, items = project.read("orders"), project.read("lineitem")
    return {
        "orders": orders.where(some.format("o_orderkey")).selectExpr(
            *(
                c if c != "o_totalprice" else "CAST(o_totalprice + 1 AS DECIMAL(15, 2)) AS o_totalprice"
                for c in orders.columns
            )
        ),
        "lineitem": items.where(some.format("l_orderkey")).selectExpr(
            *(
                c
                if c != "l_quantity"
                else "CAST(pmod(CAST(l_quantity AS INT), 50) + 1 AS DECIMAL(15, 2)) AS l_quantity"
                for c in items.columns
            )
        ),
    }


def _drawn(cells: dict[tuple[str, float], list[Cell]]) -> Draw:
    def draw(axes: Any) -> None:
        (axis,) = axes
        for name in CHOSEN:
            ratios = [statistics.median(full / change for change, full, _ in cells[name, share]) for share in SHARES]
            axis.plot([100 * share for share in SHARES], ratios, marker="o", markersize=3, label=name)
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(xscale="log", yscale="log", xlabel="orders changed, %", ylabel="times as fast as a full refresh")
        axis.legend(fontsize="small", ncols=2)

    return draw
