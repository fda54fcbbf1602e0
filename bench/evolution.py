"""Changed logic in a flowing workflow, migrated and recomputed (logic evolution, section 6).

Pages arrive in ten epochs; in the ninth the threshold of a filter changes. Workflow 1 filters pages by quality and
looks up their sites, workflow 2 counts pages by site and filters the counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

import kilonova as kn
from bench.measure import spent
from bench.report import Draw, Goal, Report, Scale
from bench.sandbox import sandbox
from kilonova.service.project import Project

EPOCHS, CHANGE = 10, 9

PAGES = "url string, site string, q double, links int, body string"
SITES = "site string, quality double"
JOINED = "SELECT p.url, p.site, p.q, s.quality FROM pages p JOIN sites s ON p.site = s.site WHERE p.q > {}"
COUNTED = "SELECT site, count(*) AS c FROM pages GROUP BY site HAVING count(*) > {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One curve of the paper's figures.

    Attributes:
        figure: the number of the figure.
        name: what the curve is called.
        query: the view, with a threshold left open.
        before: the threshold in the first eight epochs, as a share of the largest count for workflow 2.
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


def cases(per_site: int) -> tuple[Case, ...]:
    """Return the curves; a site has so many pages at the end on the average."""
    low, middle, high = (round(per_site * share) for share in (0.85, 1.0, 1.1))
    return (
        Case(figure=6, name="recomputed", query=JOINED, before=0.6, after=0.5, migrated=False),
        Case(figure=6, name="migrated", query=JOINED, before=0.6, after=0.5),
        Case(figure=6, name="migrated, clustered", query=JOINED, before=0.6, after=0.5, clustered=True),
        Case(figure=7, name="recomputed", query=COUNTED, before=middle, after=high, migrated=False),
        Case(figure=7, name="raised, migrated", query=COUNTED, before=middle, after=high),
        Case(figure=7, name="lowered, migrated", query=COUNTED, before=middle, after=low),
    )


def measure(scale: Scale) -> list[Report]:
    """Every curve, twice, of which the second counts; and the space that the blocks of workflow 1 take."""
    rows, sites = (2_000, 50) if scale is Scale.QUICK else (300_000, 2_000)
    curves: dict[Case, list[float]] = {}
    for _ in range(1 if scale is Scale.QUICK else 2):
        for case in cases(rows * (CHANGE - 1) // sites):
            curves[case] = list(_epochs(case, rows, sites))
    normal = {case: statistics.median(taken[2 : CHANGE - 1]) for case, taken in curves.items()}
    changed = {case: taken[CHANGE - 1] / normal[case] for case, taken in curves.items()}
    return [
        Report(
            name="evolution",
            title=f"A changed threshold in the ninth of ten epochs of {rows:,} pages",
            columns=("figure", "curve", "a usual epoch, s", "the changed one, s", "times a usual one"),
            rows=[
                (case.figure, case.name, normal[case], taken[CHANGE - 1], changed[case])
                for case, taken in curves.items()
            ],
            goals=[
                Goal(f"figure {case.figure}, {case.name}: times a usual epoch", ratio, 1.3)
                for case, ratio in changed.items()
                if case.migrated and (case.clustered or case.figure == 7)
            ],
            timings={f"figure {case.figure}, {case.name}": {"epoch": taken} for case, taken in curves.items()},
            note="An epoch is a run after new pages have arrived; in the ninth it also migrates or recomputes what"
            " the pages of all epochs before have given.",
            panels=2,
            draw=_drawn(curves),
        ),
        _space(scale, rows, sites),
    ]


def _epochs(case: Case, rows: int, sites: int) -> Iterable[float]:
    with sandbox(_workflow(case.query.format(case.before))) as (project, _):
        project.ingest("sites", _sites(project, sites))
        for epoch in range(1, EPOCHS + 1):
            project.ingest("pages", _pages(project, epoch, rows, sites, clustered=case.clustered))
            if epoch == CHANGE:
                workflow = _workflow(case.query.format(case.after))
                project.apply(workflow, new_version=() if case.migrated else ["result"])
            yield spent(partial(project.run, None)).seconds
            assert _expected(project, case, epoch) == project.read("result").count()


def _workflow(query: str, **how: Any) -> kn.Workflow:
    workflow = kn.Workflow("crawl")
    workflow.channel("pages", PAGES)
    workflow.channel("sites", SITES, key="site")
    workflow.view("result", query, **how)
    return workflow


def _pages(project: Project, epoch: int, rows: int, sites: int, *, clustered: bool = False) -> DataFrame:
    found = project.warehouse.spark.range((epoch - 1) * rows, epoch * rows).selectExpr(
        "concat('http://example.org/', id) AS url",
        f"concat('site-', pmod(xxhash64(id), {sites})) AS site",
        f"rand({epoch}) AS q",
        "CAST(pmod(xxhash64(id, 1), 100) AS int) AS links",
        "repeat(sha2(CAST(id AS string), 256), 2) AS body",
    )
    return found.repartitionByRange(10, "q").sortWithinPartitions("q") if clustered else found


def _sites(project: Project, sites: int) -> DataFrame:
    return project.warehouse.spark.range(sites).selectExpr("concat('site-', id) AS site", "rand(0) AS quality")


def _expected(project: Project, case: Case, epoch: int) -> int:
    threshold = case.before if epoch < CHANGE else case.after
    frames = {"pages": project.read("pages"), "sites": project.read("sites")}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return project.warehouse.spark.sql(case.query.format(threshold)).count()


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
    with sandbox(_workflow(latest)) as (project, _):
        for epoch in range(1, EPOCHS + 1):
            project.ingest("pages", _pages(project, epoch, rows, sites))
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
