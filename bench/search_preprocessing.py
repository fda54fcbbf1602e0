"""SearchPreprocessing on Spark: the lag and the cost of keeping its bounds, and what the simulator predicts for them.

Pages are labelled with the click scores of their sites (asynchronous scheduling, 1.1). A server keeps the bounds by
three methods in turn: labels of new pages with scores as they are, labels that are consistent at all times, and views
that are recomputed. Each method gets the same data at the same times.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import kilonova as kn
from bench.report import Goal, Report, Scale
from kilonova.catalog import channel_store, firings
from kilonova.model.bound import reflected
from kilonova.model.version import Version
from kilonova.service.project import Project, open_project
from kilonova.service.simulated_workflow import simulate_workflows

SITES, VISITORS = 2_000, 200_000

CRAWLED, CLICKED = 20.0, 10.0
"""Seconds between two arrivals of pages, and of clicks."""

WARMING = 10
"""Number of times that clicks, and then pages twice, arrive before those that count: Java compiles what tasks run, and
labels are made with new scores and with known ones."""

PAUSE = 1.5
"""Seconds between two of these arrivals, beside the time that a server needs for each."""

_WORKFLOW = """
import kilonova as kn

search = kn.Workflow("search")
search.channel("crawl", "url string, site string, text string")
search.channel("clicks", "site string, visitor string")
search.view("digests", "SELECT url, site, md5(text) AS digest FROM crawl", refresh={refresh!r})
search.view("visits", "SELECT DISTINCT site, visitor FROM clicks", refresh={refresh!r})
search.view("scores", "SELECT site, round(ln(1 + count(*)), 1) AS score FROM visits GROUP BY site", refresh={refresh!r})
search.view(
    "labelled", "SELECT d.url, d.digest, s.score FROM digests d JOIN scores s USING (site)", refresh={refresh!r}
)
search.bound_staleness("labelled", "crawl", 0)
search.bound_staleness("scores", "clicks", "1 minute")
search.bound_inconsistency("labelled", {inconsistency!r})
"""


SIMULATIONS = 20
"""Number of simulations of which the prediction is the average."""


@dataclass(frozen=True, slots=True)
class Method:
    """How the views are refreshed, and how inconsistent a label may be."""

    refresh: str
    inconsistency: str


METHODS = {
    "asynchronous, incremental": Method("auto", "10 minutes"),
    "synchronous, incremental": Method("auto", "0 seconds"),
    "synchronous, recomputed": Method("full", "0 seconds"),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows at the beginning and of each arrival, and the seconds for which data arrive."""

    pages: int
    clicks: int
    new_pages: int
    new_clicks: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Median lag of labels and duration of all tasks, in seconds; number of runs, and of arrivals never labelled."""

    lag: float
    cost: float
    runs: int
    unlabelled: int = 0


def measure(scale: Scale) -> Iterable[Report]:
    """Lag and cost by method."""
    quick = scale is Scale.QUICK
    sizes = Sizes(2_000, 20_000, 50, 500, 60.0) if quick else Sizes(100_000, 1_000_000, 200, 4_000, 160.0)
    found = {name: _measured(method, sizes) for name, method in METHODS.items()}
    yield _report(found, sizes)


def _measured(method: Method, sizes: Sizes) -> tuple[Measured, Measured]:
    """Return what was measured by a method, and what the simulator predicts."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "search.py").write_text(_WORKFLOW.format(refresh=method.refresh, inconsistency=method.inconsistency))
        _kilonova(place, "init")
        _kilonova(place, "apply", "search.py")
        with open_project(place) as project, _served(place):
            arrivals = _Arrivals(project, place, sizes)
            arrivals.begin()
            predicted = _predicted(project, place, sizes)
            began, first = datetime.now(UTC), arrivals.crawled + 1
            arrivals.go_on()
            ended = datetime.now(UTC)
            return _observed(project, began, ended, first), predicted


def _kilonova(place: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "kilonova", *words], cwd=place, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _served(place: Path) -> Iterator[None]:
    """Run a server of a project."""
    command = [sys.executable, "-m", "kilonova", "serve", "--port", "0"]
    server = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


class _Arrivals:
    """Pages and clicks that arrive in a project.

    Attributes:
        crawled: the number of arrivals of pages.
    """

    def __init__(self, project: Project, place: Path, sizes: Sizes) -> None:
        self._project, self._place, self._sizes = project, place, sizes
        self._draw = random.Random(1)
        self._pages = 0
        self.crawled = 0

    def begin(self) -> None:
        """Store the first data, and let arrivals follow each other, each of which is processed at once."""
        self._project.set_bound("scores", 0, "clicks")
        self._crawl(self._sizes.pages)
        self._click(self._sizes.clicks)
        for number in range(3 * WARMING):
            self._settle()
            if number % 3:
                self._crawl(self._sizes.new_pages)
            else:
                self._click(self._sizes.new_clicks)
            time.sleep(PAUSE)
        self._settle()
        self._project.reset_bound("scores", "clicks")

    def go_on(self) -> None:
        """Let data arrive at their times."""
        began = time.monotonic()
        for number in range(int(self._sizes.seconds / CLICKED)):
            _sleep_until(began + number * CLICKED)
            self._click(self._sizes.new_clicks)
            if number % round(CRAWLED / CLICKED) == 1:
                self._crawl(self._sizes.new_pages)
        _sleep_until(began + self._sizes.seconds)

    def _settle(self) -> None:
        """Wait until all pages are labelled and nothing runs."""
        while True:
            time.sleep(0.5)
            with self._project.catalog.reading() as tx:
                idle = not firings.any_unended(tx)
                state = channel_store.channel_state(tx, "labelled")
            if idle and _labelled(state.version(state.latest_kept)) == self.crawled:
                return

    def _crawl(self, rows: int) -> None:
        numbers = range(self._pages, self._pages + rows)
        self._pages += rows
        self.crawled += 1
        pages = {
            "url": [f"https://example.org/{number}" for number in numbers],
            "site": [f"site {self._draw.randrange(SITES)}" for _ in numbers],
            "text": [f"{number} " * 40 for number in numbers],
        }
        self._ingest("crawl", pages)

    def _click(self, rows: int) -> None:
        clicks = {
            "site": [f"site {int(self._draw.random() ** 2 * SITES)}" for _ in range(rows)],
            "visitor": [f"visitor {self._draw.randrange(VISITORS)}" for _ in range(rows)],
        }
        self._ingest("clicks", clicks)

    def _ingest(self, channel: str, rows: dict[str, list[str]]) -> None:
        path = self._place / "arrival.parquet"
        pq.write_table(pa.table(rows), path)
        self._project.ingest(channel, str(path))


def _sleep_until(moment: float) -> None:
    """Sleep until a time of `time.monotonic`."""
    time.sleep(max(0.0, moment - time.monotonic()))


def _labelled(version: Version) -> int:
    """Return the newest arrival of pages that labels of a version reflect; 0 if there is none."""
    entry = reflected(version, ("crawl", "digests", "labelled"))
    return entry[-1].last if entry else 0


def _observed(project: Project, began: datetime, ended: datetime, first: int) -> Measured:
    """Return what happened in a time.

    Args:
        project: the project.
        began: when it began.
        ended: when it ended.
        first: the first arrival of pages in that time.
    """
    labels = project.reader.channel_history("labelled", limit=1000).points
    made = sorted((each.time, _labelled(each.version)) for each in labels if each.time is not None)
    lags, unlabelled = [], 0
    for each in project.reader.channel_history("crawl", limit=1000).points:
        if each.time is not None and each.number >= first:
            seen = next((time for time, arrival in made if arrival >= each.number), None)
            unlabelled += seen is None
            lags.append(((seen or ended) - each.time).total_seconds())
    runs = [each for each in project.runs(1000) if began <= each.run.started <= ended and each.run.binding is not None]
    cost = sum(made.seconds or 0.0 for each in runs for made in each.made)
    return Measured(statistics.median(lags), cost, len(runs), unlabelled)


def _predicted(project: Project, place: Path, sizes: Sizes) -> Measured:
    """Return what the simulator predicts from the runs so far, on the average: its factors are random."""
    found = [
        simulate_workflows(
            [_loaded(place)],
            timedelta(seconds=sizes.seconds),
            arrivals=[
                f"crawl {sizes.new_pages} rows every {CRAWLED:g} seconds",
                f"clicks {sizes.new_clicks} rows every {CLICKED:g} seconds",
            ],
            seed=seed,
            workers=project.settings.serve.workers,
            history=project.reader,
        ).result
        for seed in range(SIMULATIONS)
    ]
    lags = [
        (lag.until - lag.since).total_seconds()
        for result in found
        for lag in result.lags
        if lag.bound.channel == "labelled"
    ]
    cost = 3600 * statistics.mean(result.cost for result in found)
    return Measured(statistics.median(lags), cost, round(statistics.mean(len(result.runs) for result in found)))


def _loaded(place: Path) -> kn.Workflow:
    names: dict[str, kn.Workflow] = {}
    exec((place / "search.py").read_text(), names)
    return names["search"]


def _report(found: dict[str, tuple[Measured, Measured]], sizes: Sizes) -> Report:
    (fast, expected), (consistent, _), _ = found.values()
    off = [abs(predicted.lag / real.lag - 1) for real, predicted in found.values()]
    return Report(
        name="search_preprocessing",
        title=f"SearchPreprocessing on a server: {sizes.new_pages} pages every {CRAWLED:g} s,"
        f" {sizes.new_clicks:,} clicks every {CLICKED:g} s, for {sizes.seconds:g} s",
        columns=("method", "lag, s", "predicted", "cost, s", "predicted", "runs", "unlabelled"),
        rows=[
            (name, real.lag, predicted.lag, real.cost, predicted.cost, real.runs, real.unlabelled)
            for name, (real, predicted) in found.items()
        ],
        goals=[
            Goal(
                "lag of synchronous labels, in times that of asynchronous ones",
                consistent.lag / fast.lag,
                2,
                at_least=True,
            ),
            Goal(
                "cost of synchronous labels, in times that of asynchronous ones",
                consistent.cost / fast.cost,
                1,
                at_least=True,
            ),
            Goal("prediction of the lag, largest relative error", max(off), 0.25),
            Goal("prediction of the asynchronous cost, relative error", abs(expected.cost / fast.cost - 1), 0.25),
        ],
        note=f"{sizes.pages:,} pages and {sizes.clicks:,} clicks at the beginning. The lag is the median time from the"
        " arrival of pages to the first labels that reflect them; what is unlabelled counts up to the end. The cost is"
        " the duration of all tasks together, without compactions. Predicted as by `kilonova simulate`, from arrivals"
        " and earlier runs.",
    )
