"""The pictures of the documentation, which `make pictures` takes; as tests they are taken and thrown away."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from kilonova.declare.load import load
from kilonova.model.encoding import Upsert
from kilonova.model.run import RefreshMethod, RunState
from kilonova.model.schema import Schema
from kilonova.service.project import Project
from tests.fakes import Prompt
from tests.service.writing import Writing, wrote
from tests.web.browser.browser import Visitor
from tests.web.browser.sites import Site, answering, crowded

DOCS = Path(__file__).parents[3] / "docs" / "page"


class Rows(Prompt):
    """Has rows such as the channels of the project could have, at their newest points."""

    project: Project

    def operation(self, what: str, **arguments: Any) -> Future[Any]:
        answer = super().operation(what, **arguments)
        if what != "page":
            return answer
        numbers = range(20_417, 20_417 + arguments["limit"])
        columns = {
            "id": list(numbers),
            "account": [100 + number * 7919 % 900 for number in numbers],
            "amount": [number * 104_729 % 25_000 for number in numbers],
        }
        with pa.OSFile(arguments["file"], "wb") as sink:
            table = pa.table(columns)
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        done: Future[Any] = Future()
        done.set_result([self.project.reader.channel(arguments["channel"]).state.latest_distinct, arguments["file"]])
        return done


CRAWL = """
import kilonova as kn

crawl = kn.Workflow("crawl")
crawl.channel("pages", "url string, site string, quality double", key="url")
crawl.view("good", '''SELECT url, site, quality
FROM pages
WHERE quality > {}''')
crawl.view("sites", "SELECT site, count(*) AS pages FROM good GROUP BY site")
"""


class Planner(Prompt):
    """Plans what the file of a workflow defines, and previews what that could make of its rows."""

    project: Project

    def operation(self, what: str, **arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_running_or_notify_cancel()
        if what == "preview":
            done.set_result(CRAWL_PREVIEW)
        else:
            done.set_result([plan.to_dict() for plan in self.project.plan_all(load(Path(arguments["file"])))])
        return done


def preview_of(
    channel: str, before: int, after: int, key: str, rows: list[tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
    """The difference in a channel of which all rows change, or some are removed."""
    changed = before if rows[1][0] == "+" else 0
    return {
        "channel": channel,
        "before": before,
        "after": after,
        "added": changed,
        "removed": changed or before - after,
        "columns": [],
        "examples": [{"sign": sign, "row": row} for sign, row in rows],
        "key": [key],
        "changed": changed,
        "differing": {"pages": changed} if changed else {},
    }


CRAWL_PREVIEW = {
    "plans": [],
    "channels": [
        preview_of(
            "good",
            24_120,
            17_342,
            "url",
            [
                ("-", {"url": f"https://s{number}.org/{number * 7919}", "site": f"s{number}.org", "quality": quality})
                for number, quality in ((18, 0.52), (35, 0.61), (22, 0.55), (20, 0.64))
            ],
        ),
        preview_of(
            "sites",
            40,
            40,
            "site",
            [
                (sign, {"site": f"s{number}.org", "pages": pages})
                for number, before, after in ((17, 710, 483), (27, 620, 424), (28, 571, 390))
                for sign, pages in (("-", before), ("+", after))
            ],
        ),
    ],
    "wrong": [],
    "verified": ["good"],
    "sample": [{"channel": "pages", "by": ["url"], "rows": 49_871, "of": 5_000_000}],
    "failed": [],
}


@dataclass(frozen=True)
class Pictures:
    """Where pictures are put."""

    place: Path

    def take(self, page: Page, name: str) -> None:
        """Take a picture of what a window shows, once all of it is there."""
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        page.evaluate("document.fonts.ready.then(() => true)")
        file = self.place / f"{name}.png"
        page.screenshot(path=file)
        size = page.viewport_size
        assert size is not None
        assert struct.unpack(">II", file.read_bytes()[16:24]) == (size["width"], size["height"])


@pytest.fixture
def pictures(tmp_path: Path) -> Pictures:
    place = DOCS if os.environ.get("KILONOVA_PICTURES") else tmp_path
    place.mkdir(parents=True, exist_ok=True)
    return Pictures(place)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A project that is good to look at."""
    place = crowded(tmp_path_factory.mktemp("shown"), sources=5, tasks=13, runs=600)
    server = Rows()
    with answering(place, server) as site:
        server.project = site.project
        yield site


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("workflow", "/"),
        ("channel", "/channels/orders_eu"),
        ("task", "/tasks/orders_eu_per_account"),
        ("runs", "/runs"),
        ("run", "/runs/{running}"),
        ("triggers", "/triggers"),
        ("servers", "/servers"),
        ("events", "/events"),
    ],
)
def test_a_page_has_its_picture(name: str, path: str, shown: Site, visit: Visitor, pictures: Pictures) -> None:
    page = visit(shown.address)
    running = shown.project.runs(1, state=RunState.RUNNING)[0].run.number
    page.goto(path.format(running=running))
    expect(page.locator("#live")).to_have_text("live")
    pictures.take(page, name)


def test_a_change_and_its_preview_have_their_pictures(tmp_path: Path, visit: Visitor, pictures: Pictures) -> None:
    place, server = tmp_path / "crawl", Planner()
    place.mkdir()
    with answering(place, server) as site:
        server.project = site.project
        site.project.create()
        (place / "crawl.py").write_text(CRAWL.format(0.5))
        site.project.apply_all(load(place / "crawl.py"))
        columns = Schema.of(("url", "string"), ("site", "string"), ("quality", "double"))
        rows = Writing(rows=5_000_000, base=True, encoding=Upsert(("url",)), schema=columns)
        wrote(site.project.catalog, {"pages": rows})
        good = {"good": replace(rows, rows=2_412_007)}
        wrote(site.project.catalog, good, task="good", read=[("pages", 1)], method=RefreshMethod.FULL)
        (place / "crawl.py").write_text(CRAWL.format(0.65))
        page = visit(site.address)
        page.goto("/changes/crawl")
        expect(page.locator("#plan")).to_contain_text("Migrated")
        pictures.take(page, "changes")
        page.get_by_role("button", name="Preview").click()
        page.locator("#preview").scroll_into_view_if_needed()
        expect(page.locator("#preview")).to_contain_text("as recomputed")
        page.evaluate("document.querySelector('#preview').scrollIntoView({block: 'end'})")
        pictures.take(page, "preview")


def test_a_phone_has_its_picture(shown: Site, visit: Visitor, pictures: Pictures) -> None:
    page = visit(shown.address, width=390, height=844)
    page.goto("/runs")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    pictures.take(page, "phone")


def test_signing_in_has_its_picture(lively: Site, visit: Visitor, pictures: Pictures) -> None:
    lively.project.operator.create_token("ada", "admin")
    page = visit(lively.address)
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    pictures.take(page, "sign_in")


def test_a_large_workflow_has_its_picture_and_is_there_soon(tmp_path: Path, visit: Visitor, pictures: Pictures) -> None:
    with answering(crowded(tmp_path, sources=100, tasks=400, runs=20_000)) as site:
        page = visit(site.address, dark=True)
        page.goto("/")
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator(".stage > .graph .node.task")).to_have_count(400)
        pictures.take(page, "workflow_large")
        page.close()
