"""The workflow as a picture: what can be done with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kilonova.web.graph import drawing
from tests.receiver import until
from tests.web.browser.browser import Visitor, landed
from tests.web.browser.sites import Site, answering, crowded

LIT = ".stage > .graph .node:not(.dim)"
OVERLAP = """() => {
  const found = [...document.querySelectorAll(".stage > .graph .node .body")];
  const boxes = found.map(each => each.getBoundingClientRect());
  return boxes.some((a, at) => boxes.slice(at + 1).some(b =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1));
}"""
SCALE = "document.querySelector('.stage > .graph').viewBox.baseVal.width"

FILLED = """() => {
  const { width, height } = document.getElementById("stage").getBoundingClientRect();
  const shown = document.querySelector(".stage > .graph").viewBox.baseVal;
  return Math.abs(shown.width / shown.height - width / height) < 0.001;
}"""


@pytest.fixture
def page(filled: Site, visit: Visitor) -> Page:
    opened = visit(filled.address)
    opened.goto("/")
    expect(opened.locator("#live")).to_have_text("live")
    return opened


@pytest.fixture
def stage(page: Page) -> Iterator[Page]:
    """The page with the focus on the picture."""
    page.locator("#stage").focus()
    return page


def lit(page: Page) -> set[str]:
    return set(page.eval_on_selector_all(LIT, "found => found.map(each => each.id)"))


def test_all_channels_and_tasks_are_drawn_and_none_lies_on_another(page: Page, filled: Site) -> None:
    every = filled.project.reader.overview()
    assert lit(page) == {f"t-{name}" for name in every.tasks} | {f"c-{name}" for name in every.channels}
    assert page.locator(".stage > .graph .link").count() == sum(len(task.reads) for task in every.tasks.values())
    assert not page.evaluate(OVERLAP)


def test_all_of_it_is_seen_at_first(page: Page) -> None:
    for node in page.locator(LIT).all():
        expect(node).to_be_in_viewport(ratio=0.99)


def test_the_explanation_is_shown_until_it_is_dismissed(page: Page) -> None:
    expect(page.locator("#intro")).to_contain_text("A cylinder is a channel")
    page.get_by_role("button", name="I see").click()
    expect(page.locator("#intro")).to_be_hidden()
    page.wait_for_function(FILLED)
    page.reload()
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#intro")).to_be_hidden()


def test_a_part_of_a_name_picks_out(page: Page) -> None:
    page.get_by_role("searchbox", name="Filter by name").fill("ORDERS_eu_c")
    expect(page.locator(LIT)).to_have_count(2)
    assert lit(page) == {"t-orders_eu_clean", "c-orders_eu_clean"}
    page.keyboard.press("Escape")
    expect(page.locator(".graph .dim")).to_have_count(0)


def test_chips_pick_out_and_count(page: Page, filled: Site) -> None:
    running = page.get_by_role("button", name="running")
    mine = {f"t-{task.name}" for task in filled.project.reader.overview().tasks.values() if task.running}
    expect(running.locator("b")).to_have_text(str(len(mine)))
    running.click()
    expect(running).to_have_attribute("aria-pressed", "true")
    assert lit(page) == mine
    page.get_by_role("searchbox", name="Filter by name").fill("nothing")
    assert lit(page) == set()
    page.get_by_role("searchbox", name="Filter by name").fill("")
    running.click()
    expect(page.locator(".graph .dim")).to_have_count(0)
    for chip in page.locator(".chip").all():
        assert chip.is_disabled() == (chip.locator("b").text_content() == "0")


def test_it_is_zoomed_by_buttons_keys_and_the_wheel(stage: Page) -> None:
    width = stage.evaluate(SCALE)
    stage.locator("[data-zoom=in]").click()
    assert stage.evaluate(SCALE) < width
    stage.locator("[data-zoom=out]").click()
    assert stage.evaluate(SCALE) == pytest.approx(width)
    stage.locator("#stage").focus()
    stage.keyboard.press("+")
    assert stage.evaluate(SCALE) == pytest.approx(width / 1.3)
    stage.keyboard.press("-")
    stage.keyboard.press("-")
    assert stage.evaluate(SCALE) == pytest.approx(width * 1.3)
    stage.keyboard.press("0")
    assert stage.evaluate(SCALE) == pytest.approx(width)
    stage.locator("#stage").hover()
    stage.mouse.wheel(0, -200)
    stage.wait_for_function(f"{SCALE} < {width}")
    stage.locator("[data-zoom=all]").click()
    assert stage.evaluate(SCALE) == pytest.approx(width)


def test_two_fingers_zoom_and_one_moves(page: Page, filled: Site) -> None:
    width, node = page.evaluate(SCALE), page.locator("#t-orders_eu_clean .body")
    screen = page.context.new_cdp_session(page)

    def touch(kind: str, *fingers: tuple[int, int]) -> None:
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(fingers)]
        screen.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", (600, 400), (700, 400))
    for far in range(10, 100, 10):
        touch("touchMove", (600 - far, 400), (700 + far, 400))
    touch("touchEnd")
    page.wait_for_function(f"{SCALE} < {width / 2}")
    before = node.bounding_box()
    assert before is not None
    touch("touchStart", (600, 700))
    for down in range(5, 50, 5):
        touch("touchMove", (600, 700 - down))
    touch("touchEnd")
    after = node.bounding_box()
    assert after is not None
    assert (after["x"], after["y"]) == pytest.approx((before["x"], before["y"] - 45), abs=2)
    assert after["width"] == pytest.approx(before["width"], abs=0.1)
    expect(page).to_have_url(f"{filled.address}/")


def test_it_is_moved_by_keys_and_by_dragging(stage: Page, filled: Site) -> None:
    node = stage.locator("#t-orders_eu_clean .body")
    before = node.bounding_box()
    stage.keyboard.press("ArrowRight")
    moved = node.bounding_box()
    assert before is not None
    assert moved is not None
    assert moved["x"] == pytest.approx(before["x"] - 80, abs=1)
    stage.keyboard.press("0")
    stage.mouse.move(before["x"] + 20, before["y"] + 10)
    stage.mouse.down()
    stage.mouse.move(before["x"] + 80, before["y"] + 60, steps=4)
    stage.mouse.up()
    dragged = node.bounding_box()
    assert dragged is not None
    assert dragged["x"] > before["x"] + 40
    expect(stage).to_have_url(f"{filled.address}/")


@pytest.mark.parametrize(
    ("node", "path"),
    [("#t-orders_eu_clean", "/tasks/orders_eu_clean"), ("#c-orders_eu", "/channels/orders_eu")],
)
def test_a_click_leads_to_what_is_clicked(node: str, path: str, page: Page) -> None:
    page.locator(node).click()
    landed(page, path)


def test_the_name_of_a_frame_leads_to_its_binding(page: Page) -> None:
    page.locator(".frame.binding a", has_text="carts_eu_accounts").click()
    landed(page, "/triggers/carts_eu_accounts")


def test_tab_moves_through_the_nodes_and_enter_follows(stage: Page) -> None:
    for _ in range(30):
        stage.keyboard.press("Tab")
        if stage.evaluate("document.activeElement.matches('.node')"):
            break
    focused = stage.locator(".node:focus")
    expect(focused).to_be_in_viewport()
    path = focused.get_attribute("href")
    assert path
    stage.keyboard.press("Enter")
    landed(stage, path)


def test_what_has_the_focus_is_brought_into_view(stage: Page) -> None:
    for _ in range(12):
        stage.keyboard.press("+")
    expect(stage.locator("#c-returns_eu")).not_to_be_in_viewport()
    for _ in range(60):
        stage.keyboard.press("Tab")
        if stage.evaluate("document.activeElement.id") == "c-returns_eu":
            break
    expect(stage.locator("#c-returns_eu")).to_be_focused()
    expect(stage.locator("#c-returns_eu")).to_be_in_viewport()


def test_what_lies_around_something_is_shown_alone(visit: Visitor, filled: Site) -> None:
    page = visit(filled.address)
    page.goto("/channels/orders_eu")
    page.get_by_role("link", name="In the workflow").click()
    landed(page, "/?focus=orders_eu")
    expect(page.locator("#c-orders_eu")).to_contain_class("focus")
    near = lit(page)
    assert {"t-orders_eu_clean", "t-orders_eu_per_account"} < near
    assert "c-refunds_eu" not in near
    page.get_by_label("tasks away").fill("1")
    page.keyboard.press("Enter")
    landed(page, "/?focus=orders_eu&depth=1")
    assert lit(page) == {"c-orders_eu", "t-orders_eu_clean", "c-orders_eu_clean"}
    page.get_by_role("link", name="all", exact=True).click()
    landed(page, "/")
    expect(page.locator("#c-refunds_eu")).to_be_visible()


def test_it_is_narrowed_by_workflow(visit: Visitor, wide: Site) -> None:
    page = visit(wide.address)
    page.goto("/")
    every = wide.project.reader.overview()
    page.get_by_role("combobox", name="Workflow").select_option("sales")
    landed(page, "/?workflow=sales")
    mine = {name for name, task in every.tasks.items() if task.workflow == "sales"}
    assert {name for name in lit(page) if name.startswith("t-")} == {f"t-{name}" for name in mine}


def test_a_large_one_shows_names_when_it_is_near_enough(visit: Visitor, wide: Site) -> None:
    page = visit(wide.address)
    page.goto("/")
    graph = page.locator(".stage > .graph")
    page.locator("#stage").focus()
    for _ in range(12):
        page.keyboard.press("-")
    expect(graph).to_contain_class("far")
    page.get_by_role("searchbox", name="Filter by name").fill("orders_eu_clean")
    page.keyboard.press("Enter")
    expect(graph).not_to_contain_class("far")
    expect(page.locator("#t-orders_eu_clean")).to_be_in_viewport()


def test_it_is_rendered_in_advance(tmp_path: Path) -> None:
    drawing._arranged.cache_clear()
    with answering(crowded(tmp_path, sources=2, tasks=4, runs=0)):
        until(lambda: drawing._arranged.cache_info().currsize == 1)
