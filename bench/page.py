"""How soon the web page is there: in a browser, with little and with much in the catalog."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from bench.crowd import fill, workflows
from bench.report import Goal, Report, Scale
from kilonova.scheduler.loop import Server
from kilonova.service.project import open_project
from kilonova.web.application import serve_http

_PAGES = {
    "workflow": "/",
    "one workflow": "/?workflow=sales",
    "around a task": "/?focus=orders_eu_clean",
    "channels": "/channels",
    "channel": "/channels/orders_eu_clean",
    "tasks": "/tasks",
    "task": "/tasks/orders_eu_clean",
    "runs": "/runs",
    "failed runs": "/runs?state=failed",
    "runs of a task": "/runs?task=orders_eu_clean",
    "a run": "/runs/100",
    "triggers": "/triggers",
    "a binding": "/triggers/orders_eu_accounts",
    "servers": "/servers",
    "events": "/events",
}

_TIMES = 7
"""How often each page is opened."""

_PAINT = """new Promise(done => new PerformanceObserver(list => {
  for (const entry of list.getEntries()) if (entry.name === "first-contentful-paint") done(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""
_COMPLETE = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


def measure(scale: Scale) -> list[Report]:
    """The first paint of each page, and the time until all of it is there; with little and with much."""
    few, many = (5, 12, 200), (50, 200, 5_000) if scale is Scale.QUICK else (500, 2_000, 100_000)
    with sync_playwright() as playwright:
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        little, much = _opened(browser, *few), _opened(browser, *many)
        browser.close()
    rows = [(name, *little[name], *much[name], much[name][0] / little[name][0]) for name in _PAGES]
    return [
        Report(
            name="page",
            title="The web page in a browser, from the request on",
            columns=(
                "page",
                "little: first paint, ms",
                "complete, ms",
                "much: first paint, ms",
                "complete, ms",
                "first paint: times as long",
            ),
            rows=rows,
            goals=[Goal(f"{name}, with much: ms to the first paint", much[name][0], 1000) for name in _PAGES],
            timings={},
            note=f"Little is {few[0]} source channels, {few[1]} tasks and {few[2]} runs; much is {many[0]}, {many[1]:,}"
            f" and {many[2]:,}. Medians of {_TIMES} in headless Chromium on the same machine, its cache warm.",
        )
    ]


def _opened(browser: Browser, sources: int, tasks: int, runs: int) -> dict[str, tuple[float, float]]:
    """By page, the milliseconds to its first paint and until all of it is there."""
    with _served(sources, tasks, runs) as address:
        context = browser.new_context(viewport={"width": 1920, "height": 1080})
        found = {}
        for name, path in _PAGES.items():
            times = [_times(context.new_page(), f"{address}{path}") for _ in range(_TIMES)]
            found[name] = (statistics.median(paint for paint, _ in times), statistics.median(all_ for _, all_ in times))
        context.close()
    return found


def _times(page: Page, url: str) -> tuple[float, float]:
    page.goto(url, wait_until="domcontentloaded")
    found = page.evaluate(_PAINT), page.evaluate(_COMPLETE)
    page.close()
    return found


@contextmanager
def _served(sources: int, tasks: int, runs: int) -> Iterator[str]:
    """The page of a project with a history, of a server that does nothing else."""
    with tempfile.TemporaryDirectory() as place, open_project(place, serve={"port": 0}) as project:
        project.create()
        for workflow in workflows(sources, tasks):
            project.apply(workflow)
        fill(project, runs)
        with serve_http(Server(Path(place), {}, lambda text, event: None), project) as address:
            yield address
