"""A browser, and servers of the web page for it to visit."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from kilonova.service.project import Project
from tests.fakes import Prompt
from tests.web.browser.browser import CHROMIUM, PATIENCE, Visitor, chromium
from tests.web.browser.sites import Site, answering, crowded


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests of a process, because starting it takes longer than most of them."""
    expect.set_options(timeout=PATIENCE)
    program = chromium()
    if program is None:
        problem = f"there is none of {', '.join(CHROMIUM)} on PATH: make browser, or apt-get install chromium"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(problem)
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visitor]:
    visitor = Visitor(browser)
    yield visitor
    visitor.close()
    assert not visitor.unexpected()


@pytest.fixture
def site(shop: Project) -> Iterator[Site]:
    """A project of a channel and a view, for tests that write its catalog."""
    with answering(shop.directory) as found:
        yield found


@pytest.fixture
def page(site: Site, visit: Visitor) -> Page:
    return visit(site.address)


@pytest.fixture(scope="session")
def project_as_filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crowded(tmp_path_factory.mktemp("filled"), sources=5, tasks=12, runs=200)


@pytest.fixture(scope="session")
def filled(project_as_filled: Path) -> Iterator[Site]:
    """A project with some history, for tests that only look."""
    with answering(project_as_filled) as site:
        yield site


@pytest.fixture
def lively(project_as_filled: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """The same, for tests that change it; the fixture's parameter is what the server does operations with."""
    memory = Path("/dev/shm")  # where waiting for the disk costs nothing
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        shop = Path(shutil.copytree(project_as_filled, Path(place) / "shop"))
        with answering(shop, getattr(request, "param", Prompt)()) as site:
            yield site


@pytest.fixture(scope="session")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A project with a long history, for tests that only look."""
    with answering(crowded(tmp_path_factory.mktemp("long"), sources=5, tasks=12, runs=3000)) as site:
        yield site


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A project with many channels and tasks, for tests that only look."""
    with answering(crowded(tmp_path_factory.mktemp("wide"), sources=40, tasks=120, runs=1000)) as site:
        yield site


@pytest.fixture(scope="session")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A project in which nothing has happened yet but that something was registered."""
    with answering(crowded(tmp_path_factory.mktemp("idle"), sources=5, tasks=12, runs=0)) as site:
        yield site


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A project with nothing in it."""
    with answering(crowded(tmp_path_factory.mktemp("empty"), sources=0, tasks=0, runs=0)) as site:
        yield site
