"""The queries of TPC-H as views: their change against their full refresh, through rounds of new and deleted orders.

Queries that read neither orders nor line items are left out: there is nothing to do for them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import kilonova as kn
from bench.measure import Spent, Timings, spent
from bench.report import Draw, Goal, Report, Scale
from bench.sandbox import sandbox, write
from examples.tpch.refresh import Refresh, generate
from examples.tpch.workflow import QUERIES, TABLES, tpch
from kilonova.service.project import Project

TOUCHED = tuple(name for name, text in QUERIES.items() if "orders" in text or "lineitem" in text)
"""The queries for which there is something to do."""

_GOALS = {0.01: 1.0, 0.1: 1.2, 0.3: 2.0, 1.0: 3.5, 3.0: 5.0}
"""How many times as fast the change should be, by scale."""

WARMING = 8
"""How many rounds go before those that count: Java and Spark compile, and the choice between the ways learns."""

FIRST = 3
"""In how many rounds the choice is one of the first ones, which is made from few measurements."""

NEAR = 1.1
"""Up to how many times the faster way's time the other counts as right as well: what is left is noise."""


def measure(scale: Scale) -> Iterable[Report]:
    """Every query kept up to date, at some scales; each report comes when it is there."""
    quick = scale is Scale.QUICK
    sizes = {Scale.QUICK: (0.01,), Scale.FULL: (1.0,), Scale.LARGE: (0.1, 0.3, 1.0, 3.0)}[scale]
    return (_report(size, rounds=1 if quick else 9 if size < 1 else 2) for size in sizes)


def _report(size: float, rounds: int) -> Report:
    place = Path(tempfile.gettempdir()) / "tpch"
    place.mkdir(exist_ok=True)
    data = generate(place, size)
    with sandbox(each_method(TOUCHED)) as (project, directory):
        timings, chosen, first = _timed(project, Refresh(project.warehouse.spark, data), directory, rounds)
        kept = {name: _kept(project, name) for name in TOUCHED}
    faster = {name: 1 / each.ratio("change", "full") for name, each in timings.items()}
    auto = {name: 1 / each.ratio("auto", "full") for name, each in timings.items()}
    best = {name: max(1.0, ratio) for name, ratio in faster.items()}
    slower = {
        name: each.median("auto") / min(each.median("change"), each.median("full")) for name, each in timings.items()
    }
    right = statistics.mean(
        (method == "change") == (each.seconds["change"][place] <= each.seconds["full"][place])
        for name, each in timings.items()
        for place, method in enumerate(chosen[name])
    )
    right_first = statistics.mean(
        is_right(method, each.median("change"), each.median("full"))
        for name, each in timings.items()
        for method in first[name]
    )
    return Report(
        name=f"tpch_{size:g}",
        title=f"TPC-H at scale {size:g} as views: 1% of the orders new and half a percent gone in each round",
        columns=("query", "full, s", "change, s", "times as fast", "auto, s", "auto chose", "kept, MB"),
        rows=[
            (
                name,
                each.median("full"),
                each.median("change"),
                faster[name],
                each.median("auto"),
                ", ".join(f"{method} {chosen[name].count(method)}" for method in dict.fromkeys(chosen[name])),
                kept[name] / 1e6,
            )
            for name, each in timings.items()
        ],
        goals=[
            Goal(
                "the change against a full refresh, geometric mean, times as fast",
                _mean(faster),
                _GOALS[size],
                at_least=True,
            ),
            *([Goal("the best query, times as fast", max(faster.values()), 10, at_least=True)] if size >= 1 else []),
            Goal("auto against the faster way, the worst query, times as slow", max(slower.values()), 1.15),
            Goal("part of the runs in which auto chose the faster way", right, 0.95, at_least=True),
            Goal(
                f"part of the first {FIRST} changes in which the choice proved faster, or within 10% of it",
                right_first,
                0.8,
                at_least=True,
            ),
        ],
        timings={name: each.rounded() for name, each in timings.items()},
        note=f"Auto is {_mean(auto):.2f} times as fast as a full refresh on the (geometric) average; always choosing"
        f" right would be {_mean(best):.2f}. All three are views of one project, run one after the other in a"
        " warm session."
        " q02, q11 and q16 read neither orders nor line items: nothing is done for them.",
        draw=_drawn(faster),
    )


def is_right(method: str, change: float, full: float, near: float = NEAR) -> bool:
    """Whether a method is the faster one of two that take so many seconds, or takes at most `near` times as long."""
    return (change if method == "change" else full) <= near * min(change, full)


def each_method(names: tuple[str, ...]) -> kn.Workflow:
    """Some queries, each as three views: `q01` chooses, `q01_change` is refreshed incrementally, `q01_full` in full."""
    workflow = tpch(names)
    for name in names:
        workflow.view(f"{name}_change", QUERIES[name], refresh="incremental")
        workflow.view(f"{name}_full", QUERIES[name], refresh="full")
    return workflow


def _timed(
    project: Project, refresh: Refresh, directory: Path, rounds: int
) -> tuple[dict[str, Timings], dict[str, list[str]], dict[str, list[str]]]:
    """What each way took in the rounds that count, which way `auto` went in them, and which in the first changes."""
    for table in TABLES:
        write(refresh.first(table), directory / table)
        project.ingest(table, str(directory / table))
    views = {"auto": "{}", "change": "{}_change", "full": "{}_full"}
    taken: dict[str, dict[str, list[Spent]]] = {name: {method: [] for method in views} for name in TOUCHED}
    chosen: dict[str, list[str]] = {name: [] for name in TOUCHED}
    first: dict[str, list[str]] = {name: [] for name in TOUCHED}
    for number in range(1 + WARMING + rounds):
        if number:
            for table, rows in refresh.orders(number).items():
                project.ingest(table, rows)
        for name in TOUCHED:
            for method, view in list(views.items())[:: 1 if number % 2 else -1]:
                took = spent(partial(project.run, [view.format(name)]))
                if number > WARMING:
                    taken[name][method].append(took)
                if method == "auto" and number > WARMING:
                    chosen[name].append(went(project))
                elif method == "auto" and 0 < number <= FIRST:
                    first[name].append(went(project))
        print(f"round {number} of {WARMING + rounds}", file=sys.stderr, flush=True)
    return {name: Timings.of(methods) for name, methods in taken.items()}, chosen, first


def went(project: Project) -> str:
    """How most of the time of the last run was spent."""
    made = project.runs(1)[0].made
    longest = max(made, key=lambda item: item.seconds)
    return "full" if longest.reason.startswith(("full", "from sources")) else "change"


def _kept(project: Project, view: str) -> int:
    """How many bytes a view keeps besides itself."""
    channels = project.status().channels
    return sum(state.size for name, state in channels.items() if name.startswith(f"{view}_change__"))


def _mean(ratios: dict[str, float]) -> float:
    return statistics.geometric_mean(ratios.values())


def _drawn(faster: dict[str, float]) -> Draw:
    def draw(axes: Iterable[Any]) -> None:
        (axis,) = axes
        axis.bar(list(faster), list(faster.values()))
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(yscale="log", ylabel="times as fast as a full refresh")
        axis.tick_params(axis="x", rotation=90)

    return draw
