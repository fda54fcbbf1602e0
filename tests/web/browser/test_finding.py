"""Finding things by the keyboard."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.web.browser.browser import Visitor, landed
from tests.web.browser.sites import Site


def finder(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Find")


def offered(page: Page) -> Locator:
    return page.locator("#found").get_by_role("option")


def test_a_name_is_found_and_gone_to_by_the_keyboard(filled: Site, visit: Visitor) -> None:
    page = visit(filled.address)
    page.goto("/events")
    page.keyboard.press("/")
    expect(finder(page)).to_be_focused()
    page.keyboard.type("orders_eu_c")
    expect(offered(page)).to_have_text(["orders_eu_cleantask", "orders_eu_cleanchannel"])
    expect(finder(page)).to_have_attribute("aria-expanded", "true")
    chosen = page.locator("#found [aria-selected=true]")
    expect(chosen).to_contain_text("task")
    page.keyboard.press("ArrowDown")
    expect(chosen).to_contain_text("channel")
    page.keyboard.press("ArrowDown")
    expect(chosen).to_contain_text("task")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    landed(page, "/channels/orders_eu_clean")


def test_runs_and_bindings_are_found_too(filled: Site, visit: Visitor) -> None:
    page = visit(filled.address)
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("carts_eu_accounts")
    expect(offered(page)).to_have_text(["carts_eu_accountsbinding"])
    finder(page).fill("17")
    page.get_by_role("option", name="Run 17").click()
    landed(page, "/runs/17")


def test_escape_clears_what_was_typed(filled: Site, visit: Visitor) -> None:
    page = visit(filled.address)
    page.goto("/runs")
    page.keyboard.press("/")
    page.keyboard.type("orders")
    expect(page.get_by_role("listbox")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    expect(finder(page)).to_have_value("")
    expect(finder(page)).not_to_be_focused()


def test_nothing_found_is_said(filled: Site, visit: Visitor) -> None:
    page = visit(filled.address)
    page.goto("/runs")
    page.keyboard.press("/")
    page.keyboard.type("zebra")
    expect(page.locator("#found")).to_have_text("No matches")
    page.keyboard.press("Enter")
    landed(page, "/runs")


def test_a_slash_is_a_letter_in_text_fields(filled: Site, visit: Visitor) -> None:
    page = visit(filled.address)
    page.goto("/channels")
    name = page.get_by_role("searchbox", name="Name")
    name.focus()
    page.keyboard.type("a/b")
    expect(name).to_have_value("a/b")


def test_the_first_stop_of_the_tabulator_leads_to_the_content(filled: Site, visit: Visitor) -> None:
    page = visit(filled.address)
    page.goto("/tasks")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    landed(page, "/tasks#main")
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox", name="Name")).to_be_focused()


def test_lists_are_narrowed_and_paged(wide: Site, visit: Visitor) -> None:
    page = visit(wide.address)
    page.goto("/tasks")
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("link", name="after").click()
    expect(rows).to_have_count(20)
    expect(page.get_by_text("101 to 120 of 120")).to_be_visible()
    page.get_by_role("link", name="before").click()
    expect(rows).to_have_count(100)
    page.get_by_role("searchbox", name="Name").fill("orders_eu")
    page.keyboard.press("Enter")
    landed(page, "/tasks?q=orders_eu&workflow=&state=")
    for each in rows.all():
        expect(each).to_contain_text("orders_eu")
    page.goto("/tasks")
    page.get_by_role("combobox", name="Status").select_option("running")
    landed(page, "/tasks?q=&workflow=&state=running")
    for each in rows.all():
        expect(each.locator("td").nth(1)).to_contain_text("running")
