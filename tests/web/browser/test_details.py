"""What pages show only now and then: each of it once, in a project where nothing was carried out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import kilonova as kn
from kilonova.catalog import channel_registry, channel_store, firings, runs, servers
from kilonova.catalog.database import Catalog
from kilonova.model.run import RunInput, RunKind
from kilonova.model.schema import Column, Schema
from kilonova.model.version import Version
from kilonova.service.project import open_project
from kilonova.warehouse.storage import Storage
from tests.catalog.building import LEASE, an_output, claim_batches
from tests.service.writing import Writing, declare, wrote
from tests.web.browser.browser import Visitor
from tests.web.browser.sites import Site, answering

COLUMNS = "id bigint, customer string, amount bigint"
SOLD = Writing(rows=5, schema=Schema.of(("id", "bigint"), ("customer", "string"), ("amount", "bigint")))
PRESENT = timedelta(minutes=10)
PAST = timedelta(seconds=-1)


def workflow() -> kn.Workflow:
    shop = kn.Workflow("shop")
    shop.channel("sold", COLUMNS)
    shop.channel("news", "id bigint, title string", rename={"headline": "title"}, on_new_column="add")
    shop.view("daily", "SELECT customer, sum(amount) AS amount FROM sold GROUP BY customer", schedule="every 1 day")
    shop.view("most", "SELECT max(n) AS n FROM (SELECT customer, count(*) AS n FROM sold GROUP BY customer)")

    @shop.task(schema=COLUMNS)
    def large(sold: kn.New) -> kn.Delta:
        return sold.where("amount > 10")

    @large.variant
    def all_large(sold: kn.All) -> kn.Base:
        return sold.where("amount > 10")

    shop.view("counted", "SELECT count(*) AS n FROM large")
    shop.view("weighed", "SELECT sum(amount) AS amount FROM large")
    shop.workflowette("first", ["counted"], on=kn.arrival("large", rows=10), priority=7)
    shop.workflowette("by_hand", ["weighed"])
    return shop


def history(catalog: Catalog) -> dict[str, int]:
    """A little of everything; the runs by what became of them."""
    declare(catalog, "shaped", schema=None)
    for columns in (("a", "bigint"),), (("a", "string"), ("b", "bigint")), (("b", "bigint"),):
        wrote(catalog, {"shaped": Writing(schema=Schema.of(*columns))})
    declare(catalog, "extracted")
    for crawl, logic in ((1, 0), (2, 0), (3, 1)):
        places, pages = Version.source("places", 1), Version.source("pages", crawl)
        version = places.joined(pages).through("extracted", logic)
        wrote(catalog, {"extracted": Writing(base=crawl != 2, version=version)})
    wrote(catalog, {"sold": SOLD})
    with catalog.writing() as tx:
        news = channel_store.channel(tx, "news")
        channel_registry.add_columns(tx, 1, news, [Column("language", "string")])
    found = {"idle": wrote(catalog, {"large": Writing(empty=True)}, task="large", read=[("sold", 1)])}
    wrote(catalog, {"large": Writing(rows=4)}, task="large", read=[("sold", 1)])
    wrote(catalog, {"daily": Writing(rows=4)}, task="daily", read=[("sold", 1)])
    with catalog.writing() as tx:
        found["read"], points = runs.start(
            tx, kind=RunKind.TASKS, tasks=["counted"], writes=["counted"], owner="a", lease=LEASE
        )
        blocks = [block.number for block in channel_store.channel_state(tx, "large").blocks]
        read = RunInput(task="counted", port="large", channel="large", start=0, end=2, blocks=tuple(blocks))
        unchanged = an_output("counted", points["counted"], None)
        runs.commit(tx, found["read"], inputs=[read], outputs=[unchanged], advances=())
        servers.register(tx, "gone", "0.1", PAST)
        firings.fire_manually(tx, "by_hand", "ann")
        [batch], _ = claim_batches(tx, "gone", 1)
        found["lost"], _ = runs.start(
            tx,
            kind=RunKind.TASKS,
            tasks=["weighed"],
            writes=["weighed"],
            owner="b",
            lease=PAST,
            binding="by_hand",
        )
        firings.launch(tx, [(batch.claims[0], found["lost"])])
    with catalog.writing() as tx:
        runs.expire(tx)
        firings.release(tx, servers.expire(tx))
        servers.register(tx, "here", "0.1", PRESENT)
        [batch], _ = claim_batches(tx, "here", 1)
        firings.requeue(tx, batch.claims[0], counted=True)
    with catalog.writing() as tx:
        claim_batches(tx, "here", 1)
    return found


@pytest.fixture(scope="module")
def particular(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, int]]]:
    place: Path = tmp_path_factory.mktemp("particular") / "shop"
    place.mkdir()
    with open_project(place, spark={"analyse": False}) as project:
        project.create()
        project.apply(workflow())
        found = history(project.catalog)
        began = project.run_detail(found["read"]).run
        storage = Storage(str(place / ".kilonova" / "warehouse"))
        storage.keep_log(began.number, began.started.date(), "begin " + "and so on " * 30_000 + "the end")
    with answering(place) as site:
        yield site, found


@pytest.fixture
def page(particular: tuple[Site, dict[str, int]], visit: Visitor) -> Page:
    return visit(particular[0].address)


def test_a_schema_shows_its_history(page: Page) -> None:
    page.goto("/channels/shaped")
    page.get_by_text("History").click()
    lines = page.locator("#schemas dd")
    expect(lines).to_have_count(3)
    expect(lines.nth(0)).to_contain_text("− a")
    expect(lines.nth(1)).to_contain_text("+ b bigint")
    expect(lines.nth(1)).to_contain_text("a: bigint → string")
    expect(lines.nth(2)).to_contain_text("+ a bigint")


def test_a_schema_shows_added_columns_and_column_rules(page: Page) -> None:
    page.goto("/channels/news")
    schema = page.locator("#schema")
    expect(schema.locator("tr", has_text="language")).to_contain_text("added")
    expect(schema.locator("tr", has_text="title")).not_to_contain_text("added")
    expect(schema).to_contain_text("An ingest adds new columns of ingested rows; reads the column headline as title.")
    page.goto("/events?kind=columns-added")
    expect(page.locator("#list")).to_contain_text("news: new column language string")


def test_a_channel_shows_the_version_vectors_of_its_points(page: Page, particular: tuple[Site, dict[str, int]]) -> None:
    page.goto("/channels/extracted")
    versions = page.locator("#versions")
    versions.get_by_text("Version vectors").click()
    expect(versions.locator("th")).to_have_text(["Point", "When", "pages", "places", "extracted", "Blocks", "Frontier"])
    rows = versions.locator("tbody tr")
    expect(rows).to_have_count(3)
    for place, cells in enumerate((["3", "1", "1", "B3", "✓"], ["2", "1", "0", "Δ1→2", ""], ["1", "1", "0", "B1", ""])):
        for shown, expected in zip((2, 3, 4, 5, 6), cells, strict=True):
            expect(rows.nth(place).locator("td").nth(shown)).to_have_text(expected)


def test_a_run_shows_the_blocks_that_it_read_and_unchanged_outputs(
    page: Page, particular: tuple[Site, dict[str, int]]
) -> None:
    page.goto(f"/runs/{particular[1]['read']}")
    expect(page.locator("#inputs .block")).to_have_text(["Δ1→2"])
    expect(page.locator("#made")).to_contain_text("unchanged")
    page.goto("/runs")
    expect(page.locator("#list tr", has_text="counted")).to_contain_text("unchanged")


def test_of_a_long_log_the_end_is_shown(page: Page, particular: tuple[Site, dict[str, int]]) -> None:
    page.goto(f"/runs/{particular[1]['read']}")
    expect(page.locator("#logged")).to_contain_text("The last part:")
    log = page.locator("#log").text_content()
    assert log is not None
    assert log.rstrip().endswith("the end")
    assert "begin" not in log


def test_a_task_shows_its_variants_and_a_view_its_materialized_relations(page: Page) -> None:
    page.goto("/tasks/large")
    expect(page.locator(".card", has_text="Source").first).to_contain_text("Variant all_large")
    page.goto("/tasks/most")
    page.get_by_text("Maintenance").click()
    expect(page.locator("#kept")).to_contain_text("Materialized relation most__1")
    expect(page.locator("#kept")).to_contain_text("View, ")


def test_a_schedule_that_delays_a_view_is_shown(page: Page, particular: tuple[Site, dict[str, int]]) -> None:
    wrote(particular[0].project.catalog, {"sold": SOLD})
    page.goto("/tasks/daily")
    expect(page.locator("#outlook")).to_contain_text("Delayed by its schedule until in 23 h")


def test_a_trigger_shows_its_progress(page: Page) -> None:
    page.goto("/triggers/first")
    expect(page.locator(".head")).to_contain_text("priority 7")
    expect(page.locator("#triggers")).to_contain_text("4 of 10")
    expect(page.locator("#triggers progress")).to_have_attribute("value", "4")
    page.goto("/triggers/by_hand")
    expect(page.locator("#triggers")).to_contain_text("It has no triggers")
    expect(page.locator("#firings")).to_contain_text("1 attempt lost")
    page.goto("/triggers")
    expect(page.locator("#list tr", has_text="by_hand")).to_contain_text("started manually")


def test_servers_tell_what_they_have_taken_on_and_lost(page: Page, particular: tuple[Site, dict[str, int]]) -> None:
    page.goto("/servers")
    rows = page.locator("#list tbody tr")
    expect(rows.filter(has_text="here").first).to_contain_text("by_hand")
    expect(rows.filter(has_text="gone").first).to_contain_text("runs were taken over")
    expect(page.locator("#list")).to_contain_text(f"run {particular[1]['lost']}")
    expect(page.locator("#list")).to_contain_text("the process b stopped sending heartbeats")
