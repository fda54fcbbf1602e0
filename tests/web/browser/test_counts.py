"""Numbers of rows, and the points that can be read: what is shown is so, or is said not to be known."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from kilonova.catalog import channel_store
from kilonova.model.encoding import Changes, Upsert
from tests.service.writing import Writing, compacted, wrote
from tests.web.browser.browser import Visitor
from tests.web.browser.sites import Site


def test_rows_are_those_of_the_relation_or_a_bound(page: Page, site: Site, visit: Visitor) -> None:
    catalog, graph, single = site.project.catalog, visit(site.address), visit(site.address)
    for each, path in ((graph, "/"), (page, "/channels"), (single, "/channels/clicks")):
        each.goto(path)
    holds, row = graph.locator("#c-clicks .holds"), page.locator("#list tr", has_text="clicks").first

    def expect_rows(short: str, long: str) -> None:
        expect(holds).to_have_text(short)
        expect(row.locator("td").nth(4)).to_have_text(long)
        expect(single.locator("#facts div", has_text="Rows").locator("dd")).to_have_text(long)

    expect_rows("no rows", "0")
    wrote(catalog, {"clicks": Writing(rows=4, base=True)})
    wrote(catalog, {"clicks": Writing(rows=3, encoding=Changes(), removals=2)})
    expect_rows("3 rows", "3")
    wrote(catalog, {"clicks": Writing(rows=5, encoding=Upsert(("user",)))})
    expect_rows("≤ 8 rows", "at most 8")
    expect(single.locator("#assembly")).to_contain_text("12 rows")
    compacted(catalog, "clicks", 6)
    expect_rows("6 rows", "6")


def test_of_equal_points_the_first_is_shown_as_cursor_and_as_latest(page: Page, site: Site) -> None:
    page.goto("/channels/clicks")
    expect(page.locator("#readers tbody tr")).to_contain_text("nothing yet")
    page.goto("/channels")
    expect(page.locator("#list tr", has_text="clicks").first).to_contain_text("nothing yet")
    for empty in (False, True):
        wrote(site.project.catalog, {"clicks": Writing(empty=empty)})
    wrote(site.project.catalog, {"per_user": Writing()}, task="per_user", read=[("clicks", 2)])
    for path, card in (("/channels/clicks", "#readers"), ("/tasks/per_user", "#cursors")):
        page.goto(path)
        row = page.locator(f"{card} tbody tr td")
        expect(row.nth(1)).to_have_text("1")
        expect(row.nth(2)).to_have_text("1")
        expect(row.nth(3)).to_contain_text("up to date")


def test_the_points_that_can_be_read_are_offered(page: Page, site: Site) -> None:
    catalog = site.project.catalog
    for _ in range(4):
        wrote(catalog, {"clicks": Writing()})
    compacted(catalog, "clicks", 4)
    with catalog.writing() as tx:
        blocks = channel_store.channel_state(tx, "clicks").blocks
        channel_store.remove_blocks(
            tx, "clicks", [block.number for block in blocks if block.number != blocks[-1].number]
        )
    page.goto("/channels/clicks")
    expect(page.locator("#span")).to_have_text("Points that can be read: 0 and 4.")
    field = page.get_by_label("at point")
    expect(field).to_have_attribute("placeholder", "latest")
    field.fill("4")
    wrote(catalog, {"clicks": Writing()})
    expect(page.locator("#span")).to_have_text("Points that can be read: 0 and 4 to 5.")
    points = page.locator(f"#{field.get_attribute('list')} option")
    assert [each.get_attribute("value") for each in points.all()] == ["5", "4", "0"]
    expect(field).to_have_value("4")
