"""Changed queries of TPC-H: a migration against recomputation with the new query (logic evolution, section 6).

Each edit is made and taken back in turn, so that a view is migrated there and back, beside another view that is
recomputed from its sources: the first time compiles, the others count.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import kilonova as kn
from bench.measure import spent
from bench.report import Draw, Goal, Report, Scale
from bench.sandbox import sandbox, write
from examples.tpch.edits import EDITS, edited
from examples.tpch.refresh import Refresh, generate
from examples.tpch.workflow import QUERIES, TABLES, tpch
from kilonova.errors import BrokenInvariant
from kilonova.model.run import RefreshMethod
from kilonova.service.project import Project
from kilonova.testing import count_differences

SELECTED: Mapping[str, tuple[str, ...]] = {
    "q01": ("filter loosened", "filter tightened", "aggregate added", "column dropped", "group filter added"),
    "q03": ("filter changed", "filter loosened", "filter tightened", "column renamed"),
    "q04": ("join condition changed",),
    "q06": ("filter loosened", "aggregate added"),
    "q08": ("column changed",),
    "q09": ("filter removed", "filter added"),
    "q10": ("join added", "column dropped"),
    "q11": ("threshold raised", "threshold lowered"),
    "q12": ("filter tightened", "column changed"),
    "q13": ("threshold above groups",),
    "q15": ("threshold changed", "column added"),
    "q16": ("filter loosened",),
    "q17": ("column changed",),
    "q18": ("threshold raised", "threshold lowered"),
    "q20": ("threshold raised",),
}
"""Edits of each kind, at a scale at which all of them would take an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """An edit of a query, and what changing to it has taken.

    Attributes:
        query: the query.
        kind: the kind of the edit; with "back" where it is taken back.
        migrated: seconds of each change of the view that Kilonova migrates.
        recomputed: seconds of each change of the view that is recomputed.
        method: how the former was changed.
    """

    query: str
    kind: str
    migrated: tuple[float, ...]
    recomputed: tuple[float, ...]
    method: str

    @property
    def ratio(self) -> float:
        """How many times as long recomputing takes: the median over the rounds."""
        return statistics.median(b / a for a, b in zip(self.migrated, self.recomputed, strict=True))


def measure(scale: Scale) -> Report:
    """Edits of the queries; all of them at the largest scale."""
    size, rounds = (0.01, 1) if scale is Scale.QUICK else (1.0, 3)
    place = Path(tempfile.gettempdir()) / "tpch"
    place.mkdir(exist_ok=True)
    data = generate(place, size)
    with sandbox() as (project, directory):
        refresh = Refresh(project.warehouse.spark, data)
        project.apply(tpch(()))
        for table in TABLES:
            write(refresh.first(table), directory / table)
            project.ingest(table, str(directory / table))
        edits = [each for chosen in _chosen(scale) for each in _timed(project, *chosen, rounds)]
    migrated = [each for each in edits if each.method == "migrated"]
    return Report(
        name="evolution_tpch",
        title=f"Changed queries of TPC-H at scale {size:g}",
        columns=("query", "edit", "migrated, s", "recomputed, s", "times as fast", "how"),
        rows=[
            (
                each.query,
                each.kind,
                statistics.median(each.migrated),
                statistics.median(each.recomputed),
                each.ratio,
                each.method,
            )
            for each in edits
        ],
        goals=[Goal("migration against recomputation, geometric mean, times as fast", _mean(migrated), 5, True)],
        timings={
            f"{each.query}, {each.kind}": {"migrated": list(each.migrated), "recomputed": list(each.recomputed)}
            for each in edits
        },
        note=f"{len(migrated)} of {len(edits)} changes are migrations; over all of them the geometric mean is"
        f" {_mean(edits):.2f}. Each change is one run without new input, made {rounds} times after a first one that"
        " does not count; *recomputed* is the same query as a view that is refreshed in full. Both are compared row by"
        " row after each change.",
        draw=_drawn(edits),
    )


def _chosen(scale: Scale) -> Iterable[tuple[str, str, str]]:
    """The edits: query, kind and the query after it."""
    quick = {"q06": ("filter loosened",), "q18": ("threshold raised",)}
    wanted = quick if scale is Scale.QUICK else SELECTED
    for name, edits in EDITS.items():
        for kind, before, after in edits:
            if scale is Scale.LARGE or kind in wanted.get(name, ()):
                yield name, kind, edited(name, before, after)


def _timed(project: Project, name: str, kind: str, changed: str, rounds: int) -> tuple[Edit, Edit]:
    """An edit, and the one that takes it back."""
    taken: dict[tuple[str, str], list[float]] = {}
    methods: dict[str, Counter[str]] = {kind: Counter(), f"{kind}, back": Counter()}
    view, full = f"{name}_{kind.replace(' ', '_')}", f"{name}_{kind.replace(' ', '_')}_full"
    for number in range(2 * (rounds + 1) + 1):
        project.apply(_workflow({view: "auto", full: "full"}, changed if number % 2 else QUERIES[name]))
        which = kind if number % 2 else f"{kind}, back"
        for each in (view, full)[:: 1 if number % 4 < 2 else -1]:
            seconds = spent(partial(project.run, [each])).seconds
            if number > 2:
                taken.setdefault((which, each), []).append(seconds)
            if number > 2 and each == view:
                methods[which][_method(project)] += 1
        if count_differences(project.read(view), project.read(full)):
            raise BrokenInvariant(f"{name} has other rows after a migration: {which}")
    print(f"{name} {kind}", file=sys.stderr, flush=True)
    found = [
        Edit(
            query=name,
            kind=which,
            migrated=tuple(taken[which, view]),
            recomputed=tuple(taken[which, full]),
            method=counts.most_common(1)[0][0],
        )
        for which, counts in methods.items()
    ]
    return found[0], found[1]


def _workflow(views: Mapping[str, str], query: str) -> kn.Workflow:
    workflow = tpch(())
    for name, refresh in views.items():
        workflow.view(name, query, refresh=refresh)
    return workflow


def _method(project: Project) -> str:
    """How the last run has changed a view with all that it stores."""
    methods = {item.reason.partition(":")[0] for item in project.runs(1)[0].made if item.block is not None}
    renewed = {method.value for method in RefreshMethod if method.renews} & methods
    if RefreshMethod.MIGRATION.value in methods:
        return "in part" if renewed else "migrated"
    return "recomputed" if renewed else "migrated"  # nothing but the columns


def _mean(edits: Iterable[Edit]) -> float:
    return statistics.geometric_mean(each.ratio for each in edits)


def _drawn(edits: Iterable[Edit]) -> Draw:
    def draw(axes: Iterable[Any]) -> None:
        (axis,) = axes
        found = sorted((each.ratio for each in edits), reverse=True)
        axis.bar(range(len(found)), found)
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(yscale="log", xlabel="edits", ylabel="times as fast as recomputing")

    return draw
