"""Every page, with little in it and with much, in windows of all sizes: what each has to have."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from sqlalchemy import update

import kilonova as kn
from kilonova.catalog import runs, tables
from kilonova.model.run import RunKind
from tests.catalog.building import LEASE
from tests.fakes import Prompt
from tests.seeds import some
from tests.web.browser.browser import Visitor, landed
from tests.web.browser.sites import Site, changed

LISTS = ("/", "/channels", "/tasks", "/runs", "/triggers", "/changes", "/servers", "/events")
SINGLE = (
    "/channels/orders_eu",
    "/channels/orders_eu_clean",
    "/tasks/orders_eu_clean",
    "/tasks/carts_eu_with_2",
    "/triggers/carts_eu_accounts",
)
PAST = ("/runs/1", "/runs/194", "/runs/200", "/runs?state=failed", "/events?kind=failed", "/?focus=orders_eu_clean")
NARROWED = ("/channels?q=nothing", "/tasks?q=nothing", "/triggers?q=nothing", "/runs?task=nothing", "/?focus=nothing")
NOWHERE = ("/channels/nothing", "/tasks/nothing", "/triggers/nothing", "/runs/123456")

FAULTS = """() => {
  const found = [], shown = element => element.checkVisibility({ visibilityProperty: true });
  const names = [...document.querySelectorAll("[id]")].map(each => each.id);
  for (const name of new Set(names.filter((each, at) => names.indexOf(each) !== at))) found.push(`id twice: ${name}`);
  for (const each of document.querySelectorAll("use"))
    if (!document.querySelector(each.getAttribute("href"))) found.push(`no such mark: ${each.outerHTML}`);
  for (const each of document.querySelectorAll("[data-live]"))
    if (!each.id) found.push(`cannot be renewed: ${each.outerHTML.slice(0, 80)}`);
  if (!shown(document.querySelector("main"))) found.push("nothing is shown");
  return found;
}"""

COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"], "resultTypes": ["violations"]}

GROUND = "getComputedStyle(document.body).backgroundColor"
WIDE = "() => [document.documentElement.scrollWidth, innerWidth]"


@dataclass(frozen=True)
class Project:
    """Pages of a project that are looked at."""

    site: str
    pages: tuple[str, ...]

    def __str__(self) -> str:
        return self.site


@pytest.mark.parametrize(
    "pages",
    some(
        [
            Project("empty", LISTS),
            Project("idle", (*LISTS, *SINGLE)),
            Project("filled", (*LISTS, *SINGLE, *PAST, *NARROWED, *NOWHERE)),
            Project("long", ("/", *SINGLE, *PAST)),
            Project("wide", (*LISTS, *PAST)),
        ],
        2,
    ),
)
def test_pages_can_be_read_by_all_and_in_all_windows(
    pages: Project, visit: Visitor, request: pytest.FixtureRequest
) -> None:
    site: Site = request.getfixturevalue(pages.site)
    visit.expected.append("status of 404")
    page = visit(site.address)
    faults = []
    for path in pages.pages:
        page.goto(path)
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
        if path not in NOWHERE:
            expect(page.locator("[aria-busy=true]")).to_have_count(0)
        faults += [f"{path}: {fault}" for fault in faults_of(page)]
    assert not faults


def faults_of(page: Page) -> list[str]:
    """What keeps a page from being read by all and in all windows."""
    faults: list[str] = page.evaluate(FAULTS)
    ground = page.evaluate(GROUND)
    barriers = Axe().run(page).response["violations"]
    page.emulate_media(color_scheme="dark")
    barriers += Axe().run(page, options=COLOURS).response["violations"]
    faults += [f"{each['help']}: {each['nodes'][0]['html']}" for each in barriers]
    if page.evaluate(GROUND) == ground:
        faults.append("it is the same in light and dark")
    page.emulate_media(color_scheme="light")
    for width, height in ((1920, 1080), (1280, 800), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        taken, there = page.evaluate(WIDE)
        if taken > there:
            faults.append(f"{taken} pixels wide in a window of {there}")
    return faults


def test_changes_of_logic_can_be_read_by_all_and_in_all_windows(site: Site, visit: Visitor) -> None:
    changed(site.project)
    page = visit(site.address)
    faults = []
    for path in ("/changes/shop", "/tasks/per_user/rollback?version=0"):
        page.goto(path)
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#preview table")).to_have_count(2)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        faults += [f"{path}: {fault}" for fault in faults_of(page)]
    page.goto("/tasks/per_user")
    page.locator("#history summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#history .diff")).to_be_hidden()
    page.keyboard.press("Enter")
    faults += [f"{page.url}: {fault}" for fault in faults_of(page)]
    assert not faults


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/", "kilonova apply"),
        ("/channels", "kilonova apply"),
        ("/tasks", "kilonova apply"),
        ("/runs", "A run starts when data is ingested"),
        ("/triggers", "A registered task runs when data arrives"),
        ("/servers", "kilonova serve"),
    ],
)
def test_an_empty_project_says_what_to_do_first(path: str, said: str, empty: Site, visit: Visitor) -> None:
    page = visit(empty.address)
    page.goto(path)
    expect(page.locator("main")).to_contain_text(said)


def test_a_channel_without_data_says_how_to_put_some_in(idle: Site, visit: Visitor) -> None:
    page = visit(idle.address)
    page.goto("/channels/orders_eu")
    expect(page.locator("#chain")).to_contain_text("kilonova ingest orders_eu FILE")
    expect(page.get_by_role("button", name="Ingest")).to_be_visible()
    page.goto("/channels/orders_eu_clean")
    expect(page.get_by_role("button", name="Ingest")).to_have_count(0)
    page.goto("/tasks/orders_eu_clean")
    expect(page.locator("#last")).to_contain_text("It runs once there is input")


@pytest.mark.parametrize("path", ["/channels/nothing", "/tasks/nothing", "/triggers/nothing", "/runs/99", "/nothing"])
def test_what_is_not_there_is_said_with_a_way_back(path: str, idle: Site, visit: Visitor) -> None:
    visit.expected.append("status of 404")
    page = visit(idle.address)
    answer = page.goto(path)
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", level=1)).to_contain_text("not found", ignore_case=True)
    page.get_by_role("link", name="Go to the workflow").click()
    landed(page, "/")


@pytest.mark.parametrize("path", ["/runs?before=x", "/channels?start=-1", "/runs/x", "/?depth=99", "/tasks/a/b/c"])
def test_nonsense_in_an_address_is_no_defect(path: str, idle: Site, visit: Visitor) -> None:
    visit.expected.append("status of 4")
    page = visit(idle.address)
    answer = page.goto(path)
    assert answer is not None
    assert answer.status in (404, 422)
    expect(page.get_by_role("heading", level=1)).to_be_visible()


NASTY = """<script>window.taken = 1</script><img src=x onerror="window.taken = 1">'"&amp;</pre>"""


class Nasty(Prompt):
    """Has rows that would be dangerous if they were not shown as text."""

    def operation(self, what: str, **arguments: object) -> object:  # type: ignore[override]
        answer = super().operation(what, **arguments)
        if what == "page":
            table = pa.table({NASTY: [NASTY]})
            with pa.OSFile(arguments["file"], "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return answer


def shown_as_text(page: Page, place: str) -> None:
    """What is nasty is read where it is, as it is, and does nothing."""
    expect(page.locator(place).first).to_contain_text(NASTY)
    assert page.evaluate("window.taken") is None
    assert page.locator("script:not([src]), img").count() == 0


@pytest.mark.parametrize("lively", [Nasty], indirect=True)
def test_nothing_that_data_says_is_taken_for_a_page(lively: Site, visit: Visitor) -> None:
    project = lively.project
    nasty = kn.Workflow("nasty")
    nasty.channel("goods", "id bigint", description=NASTY)
    nasty.view("priced", f"SELECT id, {chr(39)}<script>window.taken = 1</script>{chr(39)} AS note FROM goods")
    project.apply(nasty)
    with project.catalog.writing() as tx:
        failed, _ = runs.start(tx, kind=RunKind.TASKS, tasks=("priced",), writes=("priced",), owner=NASTY, lease=LEASE)
        runs.fail(tx, failed, NASTY)
        made = tables.run_output
        tx.connection.execute(update(made).where(made.c.task == "orders_eu_clean").values(reason=NASTY))
    page = visit(lively.address)
    page.goto("/channels/goods")
    shown_as_text(page, ".lead")
    page.goto(f"/runs/{failed}")
    shown_as_text(page, ".problem")
    shown_as_text(page, ".facts")
    page.goto("/runs?state=failed")
    expect(page.locator("td .error").first).to_contain_text("<script>window.taken")
    page.goto("/events?kind=failed")
    shown_as_text(page, "#list td.text")
    page.goto("/tasks/orders_eu_clean")
    shown_as_text(page, "#last")
    shown_as_text(page, "#past td.text")
    page.goto("/tasks/priced")
    expect(page.locator("pre.code").first).to_contain_text("<script>window.taken")
    page.goto("/channels/orders_eu")
    page.get_by_role("button", name="Show").click()
    shown_as_text(page, "#rows th")
    shown_as_text(page, "#rows td")
    page.goto("/channels?q=" + "%22%3E%3Cscript%3Ewindow.taken=1%3C/script%3E")
    expect(page.get_by_role("searchbox", name="Name")).to_have_value('"><script>window.taken=1</script>')
    assert page.evaluate("window.taken") is None


def test_what_an_action_is_refused_with_is_shown_as_text(lively: Site, visit: Visitor) -> None:
    page = visit(lively.address)
    visit.expected.append("status of 422")
    page.goto("/runs")
    page.route("**/api/v1/runs?**", lambda route: route.fulfill(status=422, json={"problem": NASTY, "hint": NASTY}))
    page.get_by_role("button", name="Run due tasks").click()
    shown_as_text(page, ".notice.bad > p")
    shown_as_text(page, ".notice.bad .how")


def test_a_refusal_is_a_sentence_then_what_to_do_then_where(lively: Site, visit: Visitor) -> None:
    page = visit(lively.address)
    visit.expected.append("status of 422")
    page.goto("/runs")
    told = {"problem": "another run has this task", "hint": "Wait until it has ended", "task": "known", "run": 3}
    page.route("**/api/v1/runs?**", lambda route: route.fulfill(status=422, json=told))
    page.get_by_role("button", name="Run due tasks").click()
    expect(page.locator(".notice.bad > p").first).to_have_text("another run has this task")
    expect(page.locator(".notice.bad .how")).to_have_text("Wait until it has ended [task known, run 3]")


def test_colours_are_chosen_and_remembered(filled: Site, visit: Visitor) -> None:
    page = visit(filled.address)
    page.goto("/runs")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Colours").click()
    assert page.evaluate(ground) == light
    page.get_by_role("button", name="Colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.goto("/events")
    assert page.evaluate(ground) == dark
    page.get_by_role("button", name="Colours").click()
    assert page.evaluate(ground) == light
