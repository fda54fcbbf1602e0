"""Changed logic in a flowing workflow, migrated and recomputed (logic evolution, section 6).

Pages arrive in ten epochs; in the ninth the threshold of a filter changes. Workflow 1 filters pages by quality and
looks up their sites, workflow 2 counts pages by site and filters the counts. All curves are views of one project, which
run one after the other in each epoch.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

import kilonova as kn
from bench import tpch_evolution
from bench.measure import spent
from bench.report import Draw, Goal, Report, Scale
from bench.sandbox import sandbox
from kilonova.errors import BrokenInvariant
from kilonova.service.project import Project
from kilonova.testing import count_differences

EPOCHS, CHANGE = 10, 9

PAGES = "url string, site string, q double, links int, body string"
SITES = "site string, quality double"
JOINED = "SELECT p.url, p.site, p.q, s.quality FROM {pages} p JOIN sites s ON p.site = s.site WHERE p.q > {threshold}"
COUNTED = "SELECT site, count(*) AS c FROM {pages} GROUP BY site HAVING count(*) > {threshold}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One curve of the paper's figures.

    Attributes:
        figure: the number of the figure.
        name: what the curve is called.
        query: the view, with its pages and a threshold left open.
        before: the threshold in the first eight epochs.
        after: the threshold from the ninth on.
        migrated: whether the output is migrated.
        clustered: whether each block of pages is sorted by quality into files of their own.
    """

    figure: int
    name: str
    query: str
    before: float
    after: float
    migrated: bool = True
    clustered: bool = False

    @property
    def view(self) -> str:
        """The name of the view."""
        return f"figure_{self.figure}_{self.name.replace(', ', '_')}"

    def at(self, epoch: int) -> str:
        """The query in an epoch."""
        pages = "clustered" if self.clustered else "pages"
        return self.query.format(pages=pages, threshold=self.before if epoch < CHANGE else self.after)


def cases(per_site: int) -> tuple[Case, ...]:
    """Return the curves; a site has so many pages at the change on the average."""
    low, middle, high = (round(per_site * share) for share in (0.85, 1.0, 1.1))
    return (
        Case(figure=6, name="recomputed", query=JOINED, before=0.6, after=0.5, migrated=False),
        Case(figure=6, name="migrated", query=JOINED, before=0.6, after=0.5),
        Case(figure=6, name="migrated, clustered", query=JOINED, before=0.6, after=0.5, clustered=True),
        Case(figure=6, name="raised, migrated", query=JOINED, before=0.6, after=0.7),
        Case(figure=7, name="recomputed", query=COUNTED, before=middle, after=high, migrated=False),
        Case(figure=7, name="raised, migrated", query=COUNTED, before=middle, after=high),
        Case(figure=7, name="lowered, migrated", query=COUNTED, before=middle, after=low),
    )


def measure(scale: Scale) -> Iterator[Report]:
    """The curves at two sizes, the space that the blocks of workflow 1 take, and changed queries of TPC-H."""
    sizes = [(2_000, 50)] if scale is Scale.QUICK else [(300_000, 2_000), (3_000_000, 20_000)]
    for rows, sites in sizes:
        yield _curves(rows, sites, quick=scale is Scale.QUICK)
    yield _space(scale, *sizes[0])
    yield tpch_evolution.measure(scale)


def _curves(rows: int, sites: int, *, quick: bool) -> Report:
    """Every curve, in several rounds; the first one of small epochs compiles, and does not count."""
    every, small = cases(rows * (CHANGE - 1) // sites), rows < 1_000_000
    rounds = [_epochs(every, rows, sites) for _ in range(1 if quick else 4 if small else 2)]
    counted = rounds[1:] if small and not quick else rounds
    curves = {
        case: [statistics.median(taken[case][epoch] for taken, _ in counted) for epoch in range(EPOCHS)]
        for case in every
    }
    _, written = counted[-1]
    normal = {case: _usual(taken) for case, taken in curves.items()}
    changed = {
        case: statistics.median(taken[case][CHANGE - 1] / _usual(taken[case]) for taken, _ in counted) for case in every
    }
    more = {case: counts[CHANGE - 1] / usual if (usual := _usual(counts)) else "–" for case, counts in written.items()}
    return Report(
        name="evolution" if small else "evolution_large",
        title=f"A changed threshold in the ninth of ten epochs of {rows:,} pages",
        columns=("figure", "curve", "a usual epoch, s", "the changed one, s", "times a usual one", "rows, times"),
        rows=[
            (case.figure, case.name, normal[case], taken[CHANGE - 1], changed[case], more[case])
            for case, taken in curves.items()
        ],
        goals=[
            Goal(f"figure {case.figure}, {case.name}: times a usual epoch", ratio, 1.3)
            for case, ratio in changed.items()
            if case.migrated and case.name != "migrated"
        ],
        timings={
            f"figure {case.figure}, {case.name}": {
                f"epoch, round {number}": taken[case] for number, (taken, _) in enumerate(counted, 1)
            }
            for case in every
        },
        note=f"Medians over {len(counted)} rounds, each in a new project."
        " An epoch is an incremental run after new pages have arrived; in the ninth it also migrates or recomputes"
        " what the pages of all epochs before have given. *Rows*: how many times as many rows the changed epoch writes,"
        " where a usual one writes some;"
        " a lowered threshold of figure 6 adds rows of all epochs, so that no way to write them takes 1.3 usual ones.",
        panels=2,
        draw=_drawn(curves),
    )


def _usual(epochs: Sequence[float]) -> float:
    """The median of the usual epochs before the change."""
    return statistics.median(epochs[2 : CHANGE - 1])


def _epochs(every: Sequence[Case], rows: int, sites: int) -> tuple[dict[Case, list[float]], dict[Case, list[int]]]:
    """The seconds of each epoch of each curve, and the rows that it writes."""
    taken: dict[Case, list[float]] = {case: [] for case in every}
    written: dict[Case, list[int]] = {case: [] for case in every}
    with sandbox() as (project, _):
        project.apply(_workflow({case.view: case.at(1) for case in every}))
        project.ingest("sites", make_sites(project, sites))
        for epoch in range(1, EPOCHS + 1):
            for channel in ("pages", "clustered"):
                project.ingest(channel, make_pages(project, epoch, rows, sites, clustered=channel == "clustered"))
            if epoch == CHANGE:
                workflow = _workflow({case.view: case.at(epoch) for case in every})
                project.apply(workflow, new_version=[case.view for case in every if not case.migrated])
            for case in every[:: 1 if epoch % 2 else -1]:
                taken[case].append(spent(partial(project.run, [case.view])).seconds)
            channels = project.status().channels
            for case in every:
                rows_now = sum(block.statistics.rows for block in channels[case.view].blocks)
                written[case].append(rows_now - sum(written[case]))
        _check(project, every)
    return taken, written


def _check(project: Project, every: Sequence[Case]) -> None:
    """Check that each view has the rows of its changed query."""
    spark = project.warehouse.spark
    for name in ("pages", "clustered", "sites"):
        project.read(name).createOrReplaceTempView(name)
    for case in every:
        if count_differences(project.read(case.view), spark.sql(case.at(EPOCHS))):
            raise BrokenInvariant(f"{case.view} has other rows than its query")


def _workflow(views: dict[str, str]) -> kn.Workflow:
    workflow = kn.Workflow("crawl")
    for channel in ("pages", "clustered"):
        workflow.channel(channel, PAGES)
    workflow.channel("sites", SITES, key="site")
    for name, query in views.items():
        workflow.view(name, query, refresh="incremental")
    return workflow


def make_pages(project: Project, epoch: int, rows: int, sites: int, *, clustered: bool = False) -> DataFrame:
    found = project.warehouse.spark.range((epoch - 1) * rows, epoch * rows).selectExpr(
        "concat('http://example.org/', id) AS url",
        f"concat('site-', pmod(xxhash64(id), {sites})) AS site",
        f"rand({epoch}) AS q",
        "CAST(pmod(xxhash64(id, 1), 100) AS int) AS links",
        "repeat(sha2(CAST(id AS string), 256), 2) AS body",
    )
    return found.repartitionByRange(10, "q").sortWithinPartitions("q") if clustered else found


def make_sites(project: Project, sites: int) -> DataFrame:
    return project.warehouse.spark.range(sites).selectExpr("concat('site-', id) AS site", "rand(0) AS quality")


def _space(scale: Scale, rows: int, sites: int) -> Report:
    """Figure 8: the space of a channel of sites that is compacted in each epoch, with three kinds of collection."""
    kinds = {"none": None, "physical": "physical", "logical": "logical"}
    taken = {name: list(_sizes(provenance, rows, sites)) for name, provenance in kinds.items()}
    return Report(
        name="evolution_space",
        title=f"Space of all blocks after each of {EPOCHS} epochs of {rows:,} pages, in MB",
        columns=("collection", *(f"epoch {number}" for number in range(1, EPOCHS + 1))),
        rows=[(name, *sizes) for name, sizes in taken.items()],
        goals=[
            Goal(
                "space after the last epoch, logical over no collection", taken["logical"][-1] / taken["none"][-1], 0.6
            )
        ],
    )


def _sizes(provenance: str | None, rows: int, sites: int) -> Iterable[float]:
    latest = "SELECT site, max(q) AS best, count(*) AS c, max(url) AS url FROM pages GROUP BY site, pmod(links, 50)"
    with sandbox(_workflow({"result": latest})) as (project, _):
        for epoch in range(1, EPOCHS + 1):
            project.ingest("pages", make_pages(project, epoch, rows, sites))
            project.run()
            for channel in ("pages", "result"):
                project.compact(channel)
            if provenance is not None:
                project.collect_garbage(provenance=provenance)
            states = project.status().channels.values()
            yield sum(block.statistics.bytes for state in states for block in state.blocks) / 1e6


def _drawn(curves: dict[Case, list[float]]) -> Draw:
    def draw(axes: Sequence[Any]) -> None:
        for axis, figure in zip(axes, (6, 7), strict=True):
            for case, taken in curves.items():
                if case.figure == figure:
                    axis.plot(range(1, EPOCHS + 1), taken, label=case.name)
            axis.set(xlabel="epoch", ylabel="seconds", ylim=(0, None), title=f"Workflow {figure - 5}")
            axis.legend()

    return draw
