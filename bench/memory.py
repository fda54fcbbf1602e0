"""Views that need much memory, with a driver that has little: their first computation and their changes complete."""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import kilonova as kn
from bench.measure import PeakMemory, spent
from bench.report import Report, Scale
from bench.sandbox import sandbox, write
from examples.tpch.refresh import Refresh, generate
from examples.tpch.workflow import QUERIES, TABLES, tpch
from kilonova.service.project import Project

ROUNDS = 3
JOINS = 60

Arrivals = Callable[[Project, Path, int], None]
"""Ingests the rows of a round, the first of which is round 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A view, and the memory of the driver that computes it.

    Attributes:
        name: what it is.
        view: its name in the workflow.
        memory: the driver's heap, as Spark takes it.
        workflow: its workflow.
        arrivals: ingests its input.
    """

    name: str
    view: str
    memory: str
    workflow: kn.Workflow
    arrivals: Arrivals


def measure(scale: Scale) -> Iterable[Report]:
    """q18 of TPC-H, and a view of sixty joins, each in a process of its own, as a heap does not change its size."""
    rows = []
    for number in range(len(_CASES)):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:
            rows.append(own.submit(_completed, number, scale is Scale.QUICK).result())
    yield Report(
        name="memory",
        title="Views with a driver of little memory",
        columns=("view", "heap", "first, s", "a change, s", "peak memory of Java, GiB"),
        rows=rows,
        note=f"A change is the median of {ROUNDS}; the benchmark fails if one does not complete. Java takes memory"
        " besides its heap: compiled code, classes, buffers.",
    )


def _completed(number: int, quick: bool) -> tuple[str, str, float, float, float]:
    """The name and heap of a case, its seconds of the first computation and of a change, and Java's memory in GiB."""
    case = _CASES[number](quick)
    setting = {"conf": {"spark.driver.memory": case.memory}}
    with PeakMemory() as peak, sandbox(case.workflow, spark=setting) as (project, directory):
        seconds = []
        for arrival in range(1 + ROUNDS):
            case.arrivals(project, directory, arrival)
            seconds.append(spent(partial(project.run, [case.view])).seconds)
    return case.name, case.memory, seconds[0], statistics.median(seconds[1:]), peak.java / 2**30


def _largest_orders(quick: bool) -> Case:
    """q18, refreshed incrementally through rounds of new and deleted orders."""
    size = 0.01 if quick else 3.0
    workflow = tpch(())
    workflow.view("q18", QUERIES["q18"], refresh="incremental")
    place = Path(tempfile.gettempdir()) / "tpch"
    place.mkdir(exist_ok=True)
    data = generate(place, size)

    def arrivals(project: Project, directory: Path, number: int) -> None:
        refresh = Refresh(project.warehouse.spark, data)
        if number:
            for table, rows in refresh.orders(number).items():
                project.ingest(table, rows)
            return
        for table in TABLES:
            write(refresh.first(table), directory / table)
            project.ingest(table, str(directory / table))

    return Case(name=f"TPC-H q18, scale {size:g}", view="q18", memory="2g", workflow=workflow, arrivals=arrivals)


def _joins(quick: bool) -> Case:
    """A relation joined with sixty others, of which one changes with it."""
    facts = 1_000 if quick else 100_000
    keys = [f"k{number}" for number in range(JOINS)]
    workflow = kn.Workflow("star")
    workflow.channel("facts", f"id bigint, {', '.join(f'{key} bigint' for key in keys)}", key="id")
    for number in range(JOINS):
        workflow.channel(f"d{number}", f"k bigint, v{number} string", key="k")
    values = ", ".join(f"d{number}.v{number}" for number in range(JOINS))
    joins = " ".join(f"JOIN d{number} ON f.k{number} = d{number}.k" for number in range(JOINS))
    workflow.view("wide", f"SELECT f.id, {values} FROM facts f {joins}")

    def arrivals(project: Project, _directory: Path, number: int) -> None:
        def new(first: int, last: int) -> None:
            drawn = (f"pmod(xxhash64(id, {place}), 1000) AS {key}" for place, key in enumerate(keys))
            project.ingest("facts", project.warehouse.spark.range(first, last).selectExpr("id", *drawn))

        def named(of: int, first: int, last: int) -> None:
            rows = project.warehouse.spark.range(first, last)
            project.ingest(f"d{of}", rows.selectExpr("id AS k", f"concat('{number}-', id) AS v{of}"))

        if number:
            new(facts + number * facts // 100, facts + (number + 1) * facts // 100)
            named(7, 10 * number, 10 * number + 10)
            return
        new(0, facts)
        for of in range(JOINS):
            named(of, 0, 1000)

    return Case(name=f"{JOINS} joins", view="wide", memory="1g", workflow=workflow, arrivals=arrivals)


_CASES = (_largest_orders, _joins)
