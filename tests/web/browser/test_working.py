"""The page of a server with real workers: data and changes of logic go through, runs fail and are steered."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import kilonova as kn
from kilonova.declare.load import load
from kilonova.service.project import open_project
from kilonova.web.application import serve_http
from tests.serving import serving, until
from tests.web.browser.browser import PATIENCE, Visitor, landed
from tests.web.browser.sites import Site

LONG = 120_000
"""Milliseconds within which Spark has done anything that is asked for here."""

COLUMNS = "id bigint, customer string, amount bigint"


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One worker is shared by all tests: starting it takes longer than most of what they do."""
    place = tmp_path_factory.mktemp("working") / "shop"
    place.mkdir()
    settings = {"workers": 1, "shutdown_grace": 1.0, "maintenance_interval": 0.0, "port": 0, "max_upload_mb": 1}
    with open_project(place, serve=settings, spark={"analyse": False}) as project:
        project.create()
        with serving(place, **settings) as server, serve_http(server, project) as address:
            yield Site(project, address)


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    expect.set_options(timeout=LONG)
    yield
    expect.set_options(timeout=PATIENCE)


def opened(visit: Visitor, site: Site, path: str) -> Page:
    """A page that is up to date and marked: loading it again would take the mark away."""
    page = visit(site.address)
    page.set_default_timeout(LONG)
    page.goto(path)
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate("window.same = true")
    return page


def same(page: Page) -> bool:
    return bool(page.evaluate("window.same"))


def put(page: Page, *rows: str, name: str = "orders.csv") -> None:
    """Give a file to the form of a channel's page."""
    content = "\n".join(("id,customer,amount", *rows)) + "\n"
    page.get_by_label("A file").set_input_files({"name": name, "mimeType": "text/csv", "buffer": content.encode()})
    page.get_by_role("button", name="Ingest").click()


def point(page: Page, number: int) -> None:
    """Wait until a channel's page shows that the newest point is this."""
    expect(page.locator("#facts")).to_contain_text(re.compile(rf"Latest point\s*{number}\b"))


def test_ingested_rows_pass_through_the_workflow_while_it_is_watched(working: Site, visit: Visitor) -> None:
    sales = kn.Workflow("sales")
    sales.channel("sold", COLUMNS)

    @sales.task(schema=COLUMNS)
    def large(sold: kn.New) -> kn.Delta:
        time.sleep(3)
        return sold.where("amount > 10")

    sales.view("per_customer", "SELECT customer, sum(amount) AS amount FROM large GROUP BY customer")
    working.project.apply(sales)
    channel, task, drawn = (opened(visit, working, path) for path in ("/channels/sold", "/tasks/large", "/"))
    expect(task.locator("#last")).to_contain_text("It has not run yet")
    put(channel, "1,ada,20", "2,ben,5")
    expect(channel.locator(".notice").last).to_have_text(re.compile(r"Ingest: run \d+"))
    point(channel, 1)
    expect(channel.locator("#points")).to_contain_text("ingested from orders.csv")
    expect(drawn.locator("#t-large")).to_contain_class("is-running")
    expect(task.locator("#facts")).to_contain_text("running")
    expect(drawn.locator("#t-large")).to_contain_class("is-fresh")
    expect(drawn.locator("#t-per_customer")).to_contain_class("is-fresh")
    expect(drawn.locator("#c-per_customer")).to_contain_text("1 row")
    expect(task.locator("#facts")).to_contain_text("up to date")
    expect(task.locator("#past tbody tr")).to_have_count(1)
    put(channel, "3,ben,30")
    point(channel, 2)
    expect(channel.locator("#points")).to_contain_text("Δ1→2")
    expect(task.locator("#past tbody tr")).to_have_count(2)
    expect(drawn.locator("#c-per_customer")).to_contain_text("2 rows")
    assert all(map(same, (channel, task, drawn)))


def test_what_cannot_be_read_is_refused_with_a_reason(working: Site, visit: Visitor) -> None:
    refused = kn.Workflow("refused")
    refused.channel("returned", COLUMNS)
    working.project.apply(refused)
    page = opened(visit, working, "/channels/returned")
    put(page, "one,ada,20")
    expect(page.locator(".notice.bad > p").first).to_contain_text("line 2")
    expect(page.locator(".notice.bad .how")).to_contain_text(re.compile(r"\[channel returned, .*path orders\.csv\]"))
    expect(page.get_by_role("button", name="Ingest")).to_be_enabled()
    point(page, 0)


def test_rows_are_sampled_compared_and_compacted(working: Site, visit: Visitor) -> None:
    stock = kn.Workflow("stock")
    stock.channel("stored", COLUMNS, key="id")
    working.project.apply(stock)
    page = opened(visit, working, "/channels/stored")
    put(page, *(f"{number},ada,1" for number in range(30)))
    point(page, 1)
    put(page, "3,ben,2", "99,cleo,3")
    point(page, 2)
    page.get_by_role("button", name="Show").click()
    rows = page.locator("#rows tbody tr")
    expect(rows).to_have_count(20)
    expect(page.locator("#rows")).to_contain_text("rows 1 to 20")
    page.get_by_role("button", name="after →").click()
    expect(rows).to_have_count(11)
    expect(page.locator("#rows")).to_contain_text("rows 21 to 31")
    page.get_by_label("at point").fill("1")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#rows")).to_contain_text("At point 1")
    page.get_by_role("button", name="after →").click()
    expect(rows).to_have_count(10)
    page.get_by_label("at point").fill("")
    page.get_by_label("changes since point").fill("1")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#rows")).to_contain_text("Changes from point 1 to point 2")
    expect(page.locator("#rows th").last).to_have_text("_weight")
    expect(rows).to_have_count(3)
    expect(rows.filter(has_text="cleo")).to_contain_text("99")
    page.get_by_label("changes since point").fill("2")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#rows")).to_contain_text("Nothing changed between these points")
    expect(page.locator("#assembly")).to_contain_text("Δ1→2")
    page.get_by_role("button", name="Compact", exact=True).click()
    expect(page.locator(".notice").last).to_have_text(re.compile(r"Compact: run \d+"))
    expect(page.locator("#assembly")).not_to_contain_text("Δ")
    expect(page.locator("#points")).to_contain_text("compaction")


def test_rows_are_read_and_inserted_while_the_worker_is_busy(working: Site, visit: Visitor, tmp_path: Path) -> None:
    over = tmp_path / "over"
    busy = kn.Workflow("busy")
    busy.channel("few", COLUMNS, key="id")
    busy.channel("tagged", "id bigint, tags array<string>")
    busy.channel("started", COLUMNS)

    @busy.task(schema=COLUMNS)
    def lasting(started: kn.New) -> kn.Delta:
        while not over.exists():
            time.sleep(0.1)
        return started

    working.project.apply(busy)
    few, tagged, started, task = (
        opened(visit, working, path)
        for path in ("/channels/few", "/channels/tagged", "/channels/started", "/tasks/lasting")
    )
    put(few, "2,ben,5", "1,ada,20")
    point(few, 1)
    rows = {"name": "tagged.json", "mimeType": "application/json", "buffer": b'[{"id": 1, "tags": ["new"]}]'}
    tagged.get_by_label("A file").set_input_files(rows)
    tagged.get_by_role("button", name="Ingest").click()
    point(tagged, 1)
    put(started, "1,ada,20")
    expect(task.locator("#facts")).to_contain_text("running")
    few.get_by_role("button", name="Show").click()
    expect(few.locator("#rows tbody tr").first).to_contain_text("ada")
    expect(few.locator("#rows tbody tr")).to_have_count(2)
    tagged.get_by_role("button", name="Show").click()
    expect(tagged.locator("#rows tbody tr")).to_contain_text("new")
    put(few, "3,cleo,7")
    point(few, 2)
    few.get_by_role("button", name="Compact", exact=True).click()
    expect(few.locator(".notice").last).to_contain_text("Compact: waits for a worker: 1 run is before it")
    expect(task.locator("#facts")).to_contain_text("running")
    over.touch()
    expect(few.locator(".notice").last).to_have_text(re.compile(r"Compact: run \d+"))


def test_files_of_a_directory_come_in_by_themselves(working: Site, visit: Visitor, tmp_path: Path) -> None:
    arriving = kn.Workflow("arriving")
    inbox = kn.watched_directory(str(tmp_path), "*.csv", poll_interval="1 second", settle_time="0 seconds")
    arriving.channel("arrived", COLUMNS, watch=inbox)
    working.project.apply(arriving)
    page, drawn = opened(visit, working, "/channels/arrived"), opened(visit, working, "/?workflow=arriving")
    (tmp_path / "one.csv").write_text("id,customer,amount\n1,ada,20\n")
    point(page, 1)
    expect(page.locator("#inbox tr", has_text="one.csv")).to_contain_text("ingested")
    expect(drawn.locator("#c-arrived")).to_contain_text("1 row")
    (tmp_path / "two.csv").write_text("id,customer,amount\ntwo,ben,30\n")
    bad = page.locator("#inbox tr", has_text="two.csv")
    expect(bad).to_contain_text("two.csv")
    expect(bad.locator("small")).not_to_be_empty()
    assert same(page)
    assert same(drawn)


def failing(name: str, wanted: Path) -> kn.Workflow:
    """A workflow whose task fails unless there is a file."""
    workflow = kn.Workflow(name)
    workflow.channel(f"{name}_in", COLUMNS)
    there = str(wanted)

    def out(rows: kn.New) -> kn.Delta:
        print("it looks at the sky")
        time.sleep(3)
        if not Path(there).exists():
            raise ValueError("the sky has fallen")
        return rows

    out.__name__ = f"{name}_out"
    workflow.task(out, reads={"rows": f"{name}_in"}, schema=COLUMNS)
    return workflow


def watched(visit: Visitor, site: Site, name: str) -> Page:
    """The page of the run that begins because data has come to what a failing workflow reads."""
    task = opened(visit, site, f"/tasks/{name}_out")
    channel = opened(visit, site, f"/channels/{name}_in")
    put(channel, "1,ada,20")
    task.locator("#facts").get_by_role("link", name="running").click()
    landed(task, re.compile(r"/runs/\d+$"))
    task.evaluate("window.same = true")
    return task


def test_a_run_that_fails_says_why_while_it_is_watched(working: Site, visit: Visitor, tmp_path: Path) -> None:
    working.project.apply(failing("fail", tmp_path / "never"))
    page = watched(visit, working, "fail")
    expect(page.locator("#head .state").first).to_have_text("running")
    expect(page.get_by_role("alert")).to_contain_text("the sky has fallen")
    expect(page.locator("#head .state").first).to_have_text("failed")
    expect(page.locator("#logged")).to_contain_text("it looks at the sky")
    expect(page.locator("#logged")).to_contain_text("ValueError")
    assert same(page)
    page.goto("/tasks/fail_out")
    expect(page.locator("#facts")).to_contain_text(re.compile(r"run \d+ failed"))


def test_what_failed_is_retried(working: Site, visit: Visitor, tmp_path: Path) -> None:
    working.project.apply(failing("again", tmp_path / "fixed"))
    page = watched(visit, working, "again")
    expect(page.get_by_role("alert")).to_contain_text("the sky has fallen")
    (tmp_path / "fixed").touch()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".notice").last).to_contain_text(re.compile(r"again_out: run \d+ succeeded"))
    page.goto("/runs?task=again_out")
    expect(page.locator("#list tbody tr").first).to_contain_text("succeeded")
    expect(page.locator("#list tbody tr")).to_have_count(2)


def test_a_running_run_is_cancelled(working: Site, visit: Visitor, tmp_path: Path) -> None:
    over = tmp_path / "over"
    endless = kn.Workflow("endless")
    endless.channel("begun", COLUMNS)

    @endless.task(schema=COLUMNS)
    def ended(begun: kn.New) -> kn.Delta:
        while not over.exists():
            time.sleep(0.1)
        return begun

    working.project.apply(endless)
    task, channel = (opened(visit, working, path) for path in ("/tasks/ended", "/channels/begun"))
    put(channel, "1,ada,20")
    task.locator("#facts").get_by_role("link", name="running").click()
    landed(task, re.compile(r"/runs/\d+$"))
    task.evaluate("window.same = true")
    task.get_by_role("button", name="Cancel").click()
    expect(task.get_by_role("dialog")).to_contain_text("Nothing will be published")
    task.get_by_role("button", name="No").click()
    expect(task.get_by_role("dialog")).to_be_hidden()
    expect(task.locator("#head .state").first).to_have_text("running")
    task.get_by_role("button", name="Cancel").click()
    task.get_by_role("button", name="Yes").click()
    expect(task.locator("#head .state").first).to_have_text("cancelled")
    over.touch()
    assert same(task)


def test_a_task_is_held_back_let_go_fired_and_run(working: Site, visit: Visitor) -> None:
    steered = kn.Workflow("steered")
    steered.channel("asked", COLUMNS)
    steered.view(
        "answered", "SELECT customer, count(*) AS n FROM asked GROUP BY customer", refresh="incremental"
    )  # else a run without new input may refresh it in full
    working.project.apply(steered)
    binding, task, channel = (
        opened(visit, working, path) for path in ("/triggers/answered", "/tasks/answered", "/channels/asked")
    )
    task.get_by_role("button", name="Run now").click()
    expect(task.locator(".notice").last).to_have_text(re.compile("Run now: (run|there was nothing)"))
    binding.get_by_role("button", name="Pause").click()
    expect(binding.locator("#head")).to_contain_text("paused")
    put(channel, "1,ada,20")
    point(channel, 1)
    expect(task.locator("#facts")).to_contain_text("paused, 1 behind")
    task.get_by_role("button", name="Run now").click()
    expect(task.locator(".notice").last).to_have_text(re.compile(r"Run now: run \d+"))
    expect(task.locator("#cursors")).to_contain_text("up to date")
    binding.get_by_role("button", name="Resume").click()
    expect(binding.get_by_role("button", name="Pause")).to_be_visible()
    done = task.locator("#past tbody tr").count()
    put(channel, "2,ben,20")
    expect(task.locator("#past tbody tr")).to_have_count(done + 1)
    newest = binding.locator("#firings tbody tr").first
    expect(newest).to_contain_text("succeeded")
    until(lambda: len(working.project.rows("answered")[1]) == 2)  # else it may have been the firing before
    binding.get_by_role("button", name="Fire now").click()
    expect(newest).to_contain_text("a person")
    expect(newest).to_contain_text("succeeded")
    expect(newest).to_contain_text("its run changed nothing")
    expect(binding.locator(".notice").last).to_contain_text(re.compile(r"answered: run \d+ succeeded"))
    expect(binding.locator(".notice .how").last).to_have_text("its run changed nothing")
    assert all(map(same, (binding, task, channel)))


CRAWL = """
import kilonova as kn

crawl = kn.Workflow("crawl")
crawl.channel("pages", "url string, site string, quality int", key="url")
crawl.view("good", "SELECT url, site, quality FROM pages WHERE quality > {}")
crawl.view("sites", "SELECT site, count(*) AS n FROM good GROUP BY site")
"""


def quality(site: Site) -> list[int]:
    _, rows = site.project.rows("good")
    return sorted(row[2] for row in rows)


def agree(page: Page, button: str, words: str) -> None:
    """Press a button, and answer the question."""
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(words)
    page.get_by_role("button", name="Yes").click()


def test_a_change_is_planned_previewed_applied_rolled_back_and_retracted(working: Site, visit: Visitor) -> None:
    file = working.project.directory / "crawl.py"
    file.write_text(CRAWL.format(5))
    working.project.apply_all(load(file))
    page = opened(visit, working, "/changes")
    rows = "url,site,quality\n" + "".join(f"{number},s{number % 2},{number}\n" for number in range(10))
    assert page.request.post("/api/v1/channels/pages/blocks?format=csv", data=rows).ok
    until(lambda: working.project.reader.channel("sites").state.latest_readable > 0)
    file.write_text(CRAWL.format(7))
    page.locator("#list").get_by_role("link", name="crawl").click()
    landed(page, re.compile(r"/changes/crawl$"))
    plan, preview = page.locator("#plan"), page.locator("#preview")
    expect(plan).to_contain_text("Migrated")
    expect(plan.locator(".of-added")).to_have_text(re.compile("quality > 7"))
    expect(plan.locator("tr", has_text="sites")).to_contain_text("processes the changed rows")
    page.evaluate("window.same = true")

    page.get_by_label("verify migrations").check()
    page.get_by_role("button", name="Preview").click()
    good = preview.locator("tr", has=page.get_by_role("link", name="good"))
    expect(good).to_contain_text("as recomputed")
    expect(good.locator("td.right")).to_have_text(["4", "2", "0", "2", "0"])
    expect(preview.locator("tr.removed", has_text="s1").first).to_contain_text("7")
    assert re.search(r"\?preview=\w+$", page.url)
    assert quality(working) == [6, 7, 8, 9]
    assert page.evaluate("window.same")

    agree(page, "Apply", "1 output is migrated")
    expect(page.locator(".notice").last).to_contain_text("Apply: done")
    expect(plan).to_contain_text("Nothing changes")
    until(lambda: quality(working) == [8, 9])

    page.goto("/tasks/good")
    newest = page.locator("#history tbody tr").first
    expect(newest).to_contain_text("migrated: removes the rows")
    expect(newest).to_contain_text(re.compile(r"run \d+"))
    page.get_by_role("link", name="Roll back…").click()
    landed(page, re.compile(r"/tasks/good/rollback\?version=0$"))
    expect(plan.locator(".of-added")).to_have_text(re.compile("quality > 5"))
    agree(page, "Roll back", "1 output is migrated")
    landed(page, re.compile(r"/tasks/good$"))
    until(lambda: quality(working) == [6, 7, 8, 9])
    expect(page.locator("#history tbody tr")).to_have_count(3)

    page.locator("#history tbody tr").first.get_by_role("link", name="Retract…").click()
    landed(page, re.compile(r"/tasks/good/retraction\?version=2$"))
    expect(plan).to_contain_text("Points that reflect the version")
    expect(plan.get_by_role("row", name="sites").last).to_contain_text("it processes the changes of its inputs")
    agree(page, "Retract", "cannot be read any more")
    landed(page, re.compile(r"/tasks/good$"))
    until(lambda: quality(working) == [8, 9])
    expect(page.locator("#history tbody tr", has_text="retracted")).to_contain_text("2")
    page.goto("/channels/good")
    expect(page.locator("#versions")).to_contain_text("retracted")
