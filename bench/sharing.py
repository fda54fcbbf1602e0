"""Scan sharing (Nova, Figures 6 and 7): copies of the news de-duplication, one after the other, at once, and merged."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import kilonova as kn
from bench.measure import spent
from bench.report import Draw, Goal, Report, Scale
from bench.sandbox import sandbox, write
from examples.news import workflow as news
from kilonova.catalog import scheduling
from kilonova.catalog.firings import Claim
from kilonova.schedule.scheduler import TriggerScheduler
from kilonova.service.project import Project

WAYS = ("one after the other", "at once", "merged")
COPIES = (1, 2, 4, 8)
ARTICLES = "id bigint, site string, published timestamp, body string"


def measure(scale: Scale) -> list[Report]:
    """Time, and seconds of all cores, by how many copies there are."""
    size, copies = (2_000, COPIES[:2]) if scale is Scale.QUICK else (10_000, COPIES)
    taken: dict[tuple[str, int], tuple[float, float]] = {}
    with sandbox(_workflow(copies)) as (project, directory):
        write(_articles(project, size), directory / "articles")
        project.ingest("articles", str(directory / "articles"))
        for method in WAYS:  # the first time is for Java to compile
            _LAUNCH[method](project, _claimed(project, [_name(f"warm_{method}", 1, 0)]))
        for count in copies:
            for method in WAYS:
                parts = _claimed(project, [_name(method, count, number) for number in range(count)])
                taken[method, count] = spent(partial(_LAUNCH[method], project, parts))
    most = copies[-1]
    grown = taken["merged", most][1] / taken["merged", 1][1]
    return [
        Report(
            name="sharing",
            title=f"Copies of the news de-duplication, over {size:,} articles",
            columns=("copies", *(f"{method}, s" for method in WAYS), *(f"{method}, core seconds" for method in WAYS)),
            rows=[
                (count, *(taken[method, count][0] for method in WAYS), *(taken[method, count][1] for method in WAYS))
                for count in copies
            ],
            goals=[
                Goal(f"core seconds of {most} merged copies, in parts of {most} times those of one", grown / most, 0.7)
            ],
            timings={
                f"{method}, {count}": {"seconds": [round(time, 3)], "core seconds": [round(cpu, 3)]}
                for (method, count), (time, cpu) in taken.items()
            },
            note="Merged copies do once what they have in common, and share its blocks; each has a run of its own.",
            panels=2,
            draw=_drawn(taken, copies),
        )
    ]


def _workflow(copies: tuple[int, ...]) -> kn.Workflow:
    copied = kn.Workflowette("news")
    copied.channel("articles", ARTICLES)
    copied.channel("unique_articles", "id bigint, site string, published timestamp, main string")
    copied.channel("hashes", "hash bigint, id bigint", key="hash")
    copied.task(schema="site string, line string", key=("site", "line"))(news.site_templates.function)
    columns = "id bigint, site string, published timestamp, main string"
    copied.task(schema=f"{columns}, template string")(news.tagged.function)
    copied.task(schema=f"{columns}, hash bigint")(news.shingled.function)
    copied.task(writes=("unique_articles", "hashes"))(news.dedupe.function)
    workflow = kn.Workflow("copies")
    workflow.channel("articles", ARTICLES)
    for method in WAYS:
        workflow.bind(_name(f"warm_{method}", 1, 0), copied, {"articles": "articles"})
        for count in copies:
            for number in range(count):
                workflow.bind(_name(method, count, number), copied, {"articles": "articles"})
    return workflow


def _name(method: str, count: int, number: int) -> str:
    return f"{method.replace(' ', '_')}_{count}_{number}"


def _articles(project: Project, size: int) -> Any:
    """Articles of some two hundred words, with their sites' lines around them; one in four was there before."""
    words = "transform(sequence(1, 200), n -> concat('w', pmod(xxhash64(id % {0}, n), 5000)))"
    text = f"array_join({words.format(3 * size // 4)}, ' ')"
    body = f"concat('menu of site', id % 100, '\\n', {text}, '\\nfoot of site', id % 100)"
    return project.warehouse.spark.range(size).selectExpr(
        "id",
        "concat('site', id % 100) AS site",
        "timestamp_seconds(1700000000 + id) AS published",
        f"{body} AS body",
    )


def _claimed(project: Project, names: list[str]) -> list[Claim]:
    for name in names:
        project.fire(name)
    with project.catalog.writing() as tx:
        decision = TriggerScheduler().decide(scheduling.observe(tx, (), free_workers=len(names)))
        batches = scheduling.store(tx, decision, "bench")
    return [part for batch in batches for part in batch.claims]


def _one_by_one(project: Project, parts: list[Claim]) -> None:
    for part in parts:
        project.runner.run_claim(part)


def _at_once(project: Project, parts: list[Claim]) -> None:
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(project.runner.run_claim, parts))


def _merged(project: Project, parts: list[Claim]) -> None:
    with project.runner.shared_batch(parts) as shared_steps, ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(partial(project.runner.run_claim, shared_steps=shared_steps), parts))


_LAUNCH: dict[str, Callable[[Project, list[Claim]], None]] = {
    "one after the other": _one_by_one,
    "at once": _at_once,
    "merged": _merged,
}


def _drawn(taken: dict[tuple[str, int], tuple[float, float]], copies: tuple[int, ...]) -> Draw:
    def draw(axes: Any) -> None:
        for axis, which, what in zip(axes, (0, 1), ("seconds", "seconds of all cores"), strict=True):
            for method in WAYS:
                axis.plot(copies, [taken[method, count][which] for count in copies], marker="o", label=method)
            axis.set(xlabel="copies", ylabel=what, ylim=(0, None))
            axis.legend(fontsize="small")

    return draw
