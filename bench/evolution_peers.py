"""Changed logic in Kilonova, in dbt and in SQLMesh: what each recomputes, and how long that takes.

The same pages arrive in ten epochs, and in the ninth a query changes. dbt and SQLMesh keep an incremental model per
epoch, on DuckDB, in an environment of their own; so times are compared with a usual epoch of the same tool only.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import kilonova as kn
from bench.evolution import CHANGE, EPOCHS, make_pages, make_sites
from bench.measure import spent
from bench.report import Report, Scale
from bench.sandbox import sandbox, write
from kilonova.service.project import Project
from kilonova.testing import count_differences

TOOLS = ("dbt-core==1.11.16", "dbt-duckdb==1.10.1", "sqlmesh==0.236.4")
DRIVERS = Path(__file__).parent / "peer_drivers"
PAGES = "url string, site string, q double, links int, body string, epoch int, day date"
SITES = "site string, quality double"
JOINED = "SELECT {columns} FROM {pages} AS p JOIN {sites} AS s ON p.site = s.site WHERE p.q > {threshold}"
COUNTED = "SELECT site, count(*) AS c FROM {pages} GROUP BY site HAVING count(*) > {threshold}"
EVERY = "p.url, p.site, p.q, s.quality, p.epoch, p.day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a query in the ninth epoch.

    Attributes:
        name: what changes.
        query: the query, with what changes left open, and the relations that it reads.
        before: what stands there in the first eight epochs.
        after: the same from the ninth on.
    """

    name: str
    query: str
    before: Mapping[str, object]
    after: Mapping[str, object]

    @property
    def grows(self) -> bool:
        """Whether the rows of an epoch follow from its pages alone."""
        return self.query is JOINED

    @property
    def columns(self) -> str:
        """The columns in the end."""
        return str(self.after["columns"]).replace("p.", "").replace("s.", "")

    def at(self, epoch: int, pages: str, sites: str) -> str:
        """The query in an epoch over some relations."""
        given = self.before if epoch < CHANGE else self.after
        return self.query.format(pages=pages, sites=sites, **given)


def changes(per_site: int) -> tuple[Change, ...]:
    """Return the changes; a site has so many pages at the change on the average."""
    joined, groups = {"columns": EVERY, "threshold": 0.6}, {"columns": "site, c", "threshold": per_site}
    fewer = EVERY.replace(", s.quality", "")
    return (
        Change(name="threshold lowered", query=JOINED, before=joined, after={**joined, "threshold": 0.5}),
        Change(name="threshold raised", query=JOINED, before=joined, after={**joined, "threshold": 0.7}),
        Change(name="column dropped", query=JOINED, before=joined, after={**joined, "columns": fewer}),
        Change(
            name="threshold of counts raised",
            query=COUNTED,
            before=groups,
            after={**groups, "threshold": round(1.1 * per_site)},
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a tool has done.

    Attributes:
        seconds: the seconds of each epoch.
        read: the epochs of pages that it has read in the changed one.
        wrong: the rows that are wrong at the end.
    """

    seconds: Sequence[float]
    read: str
    wrong: int

    @property
    def usual(self) -> float:
        """The median of the usual epochs before the change."""
        return statistics.median(self.seconds[2 : CHANGE - 1])

    @property
    def changed(self) -> float:
        """The seconds of the changed epoch."""
        return self.seconds[CHANGE - 1]


def measure(scale: Scale) -> Iterator[Report]:
    """Each change by each tool."""
    rows, sites = (2_000, 50) if scale is Scale.QUICK else (1_000_000, 7_000)
    found: dict[tuple[str, str], Found] = {}
    every = changes(rows * (CHANGE - 1) // sites)
    with sandbox(_workflow(every, 1)) as (project, directory):
        _arrivals(project, directory, rows, sites)
        found |= {(name, "kilonova"): each for name, each in _kilonova(project, directory, every).items()}
        python = _environment()
        for change in every:
            for tool, mode in (
                ("dbt", "run"),
                ("dbt", "full refresh"),
                ("sqlmesh", "plan"),
                ("sqlmesh", "forward-only"),
            ):
                found[change.name, f"{tool}, {mode}"] = _driven(python, directory, change, tool, mode)
    yield Report(
        name="evolution_peers",
        title=f"A changed query in the ninth of ten epochs of {rows:,} pages: Kilonova, dbt and SQLMesh",
        columns=(
            "change",
            "tool",
            "reads",
            "a usual epoch, s",
            "the changed one, s",
            "times a usual one",
            "wrong rows",
        ),
        rows=[
            (change, tool, each.read, each.usual, each.changed, each.changed / each.usual, each.wrong)
            for (change, tool), each in sorted(found.items(), key=lambda item: item[0][0])
        ],
        timings={f"{change}, {tool}": {"epoch": list(each.seconds)} for (change, tool), each in found.items()},
        note=f"{', '.join(TOOLS)}. dbt and SQLMesh run on DuckDB, Kilonova on Spark: only the ratios compare. For dbt,"
        " the time is that of the model, without the start of the tool; SQLMesh's that of its plan and run. A model of"
        " counts is a table in both, made anew in each epoch. *Wrong rows* are those in which the table differs from"
        " the changed query at the end.",
    )


def _workflow(every: Sequence[Change], epoch: int) -> kn.Workflow:
    workflow = kn.Workflow("crawl")
    workflow.channel("pages", PAGES)
    workflow.channel("sites", SITES, key="site")
    for change in every:
        workflow.view(_view(change), change.at(epoch, "pages", "sites"))
    return workflow


def _view(change: Change) -> str:
    return change.name.replace(" ", "_")


def _arrivals(project: Project, directory: Path, rows: int, sites: int) -> None:
    """Write the pages of each epoch, and the sites."""
    write(make_sites(project, sites), directory / "sites")
    for epoch in range(1, EPOCHS + 1):
        pages = make_pages(project, epoch, rows, sites)
        pages = pages.selectExpr("*", f"{epoch} AS epoch", f"date_add(DATE '2026-01-01', {epoch - 1}) AS day")
        write(pages.coalesce(2), directory / "arrivals" / f"{epoch}")


def _kilonova(project: Project, directory: Path, every: Sequence[Change]) -> dict[str, Found]:
    taken: dict[str, list[float]] = {_view(change): [] for change in every}
    project.ingest("sites", str(directory / "sites"))
    for epoch in range(1, EPOCHS + 1):
        project.ingest("pages", str(directory / "arrivals" / f"{epoch}"))
        if epoch == CHANGE:
            plan = project.apply(_workflow(every, epoch))
            read = {item.task.name: item.detail.rpartition("; reads ")[2] for item in plan.tasks}
        for view, seconds in taken.items():
            seconds.append(spent(partial(project.run, [view])).seconds)
    for name in ("pages", "sites"):
        project.read(name).createOrReplaceTempView(name)
    sql = project.warehouse.spark.sql
    return {
        change.name: Found(
            seconds=taken[_view(change)],
            read=f"new pages, {read[_view(change)]}",
            wrong=count_differences(project.read(_view(change)), sql(change.at(EPOCHS, "pages", "sites"))),
        )
        for change in every
    }


def _environment() -> Path:
    """Install the tools, if they are not there; return the Python that has them."""
    place = Path(tempfile.gettempdir()) / "kilonova-bench-tools"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *TOOLS], check=True)
    return python


def _driven(python: Path, directory: Path, change: Change, tool: str, mode: str) -> Found:
    """Have a tool do all epochs, in a directory and a process of its own."""
    place = directory / f"{tool} {mode} {_view(change)}".replace(" ", "-")
    place.mkdir()
    os.symlink(directory / "arrivals", place / "arrivals")
    pages, sites = (f"read_parquet('{path}/*.parquet')" for path in (place / "pages", directory / "sites"))
    case = {
        "epochs": EPOCHS,
        "change": CHANGE,
        "mode": mode,
        "grows": change.grows,
        "columns": change.columns,
        "before": change.at(1, pages, sites),
        "after": change.at(CHANGE, pages, sites),
    }
    (place / "case.json").write_text(json.dumps(case))
    done = subprocess.run([python, DRIVERS / f"with_{tool}.py", place], capture_output=True, text=True, cwd=place)
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{change.name}, {tool}, {mode}: {found}", file=sys.stderr, flush=True)
    epochs = found["read"]
    return Found(
        seconds=found["seconds"], read="new pages" if epochs == 1 else f"pages of {epochs} epochs", wrong=found["wrong"]
    )
