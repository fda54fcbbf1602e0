"""Runs, however many there have been."""

from __future__ import annotations

import re
import time

from playwright.sync_api import Page, expect

from tests.web.browser.browser import Visitor, landed
from tests.web.browser.sites import Site


def numbers(page: Page) -> list[int]:
    return [int(text) for text in page.locator("#list tbody td:first-child a").all_text_contents()]


def test_all_runs_are_reached_page_by_page_and_back(long: Site, visit: Visitor) -> None:
    page = visit(long.address)
    page.goto("/runs?task=orders_eu_clean")
    mine = [each.run.number for each in long.project.runs(10_000, task="orders_eu_clean")]
    down = [numbers(page)]
    while page.get_by_role("link", name="older").count():
        page.get_by_role("link", name="older").click()
        landed(page, f"/runs?task=orders_eu_clean&before={down[-1][-1]}")
        down.append(numbers(page))
    assert len(down) > 3
    assert [number for found in down for number in found] == mine
    up = [numbers(page)]
    while page.get_by_role("link", name="newer").count():
        page.get_by_role("link", name="newer").click()
        landed(page, f"/runs?task=orders_eu_clean&after={up[-1][0]}")
        up.append(numbers(page))
    assert up[-1][0] == mine[0]
    assert {number for found in up for number in found} == set(mine)


def test_no_page_grows_with_history(long: Site, visit: Visitor) -> None:
    page = visit(long.address)
    page.goto("/runs")
    assert numbers(page) == list(range(3000, 2950, -1))
    expect(page.get_by_role("link", name="newer")).to_have_count(0)
    page.goto("/runs?before=51")
    assert numbers(page) == list(range(50, 0, -1))
    expect(page.get_by_role("link", name="older")).to_have_count(0)
    page.get_by_role("link", name="newer").click()
    landed(page, "/runs?after=50")
    assert numbers(page) == list(range(100, 50, -1))
    for path in ("/runs", "/events", "/channels/orders_eu", "/tasks/orders_eu_clean", "/triggers/orders_eu_clean"):
        page.goto(path)
        assert max(table.locator("tr").count() for table in page.locator("table").all()) <= 101


def test_runs_are_narrowed_and_stay_so_while_paging(long: Site, visit: Visitor) -> None:
    page = visit(long.address)
    page.goto("/runs")
    page.get_by_label("Kind").select_option("ingest")
    landed(page, re.compile("kind=ingest"))
    page.get_by_role("link", name="older").click()
    landed(page, re.compile(r"\?kind=ingest&before=\d+$"))
    for row in page.locator("#list tbody tr").all():
        expect(row.locator("td").nth(2)).to_have_text("ingest")
    page.get_by_role("link", name="all", exact=True).click()
    landed(page, "/runs")
    page.get_by_label("State").select_option("failed")
    landed(page, re.compile("state=failed"))
    assert numbers(page)
    for row in page.locator("#list tbody tr").all():
        expect(row.locator("td").nth(1)).to_have_text("failed")
        expect(row.locator(".error")).to_contain_text("the column amount is not there")


def test_a_run_links_to_its_neighbours(long: Site, visit: Visitor) -> None:
    page = visit(long.address)
    page.goto("/runs/1000")
    page.get_by_role("link", name="1001 →").click()
    landed(page, "/runs/1001")
    page.get_by_role("link", name="← 1000").click()
    landed(page, "/runs/1000")
    page.goto("/runs/3000")
    expect(page.get_by_role("link", name="→")).to_have_count(0)
    expect(page.locator("#head")).to_contain_text("Progress")


def test_points_of_a_channel_are_paged_too(long: Site, visit: Visitor) -> None:
    page = visit(long.address)
    page.goto("/channels/orders_eu_clean")
    newest = long.project.reader.channel("orders_eu_clean").state.latest
    seen = []
    page.locator("#points > summary").click()
    while True:
        found = [int(text) for text in page.locator("#points tbody td:first-child").all_text_contents()]
        seen += found
        older = page.get_by_label("Further pages").first.get_by_role("link", name="older")
        if not older.count():
            break
        older.click()
        landed(page, f"/channels/orders_eu_clean?before={found[-1]}")
    assert seen == list(range(newest, 0, -1))


def test_pages_of_a_long_history_are_there_at_once(long: Site, visit: Visitor) -> None:
    page = visit(long.address)
    taken = {}
    for path in ("/runs", "/runs?before=1500", "/events", "/channels/orders_eu", "/tasks/orders_eu_clean"):
        page.goto(path)
        begun = time.monotonic()
        page.request.get(path)
        taken[path] = time.monotonic() - begun
    assert max(taken.values()) < 2, taken
