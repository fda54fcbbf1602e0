"""What has failed is seen where it is looked for, with what to do; and no longer once it has succeeded."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from kilonova.catalog import files, runs
from kilonova.model.run import RefreshMethod, RunKind
from kilonova.model.watched_file import FileOutcome, FileState, Fingerprint
from kilonova.schedule.file_selection import FileDecision
from kilonova.warehouse.storage import Storage
from tests.catalog.building import an_output, begin
from tests.databases import NOON
from tests.service.writing import Writing, wrote
from tests.web.browser.browser import Visitor
from tests.web.browser.sites import Site


def failed(site: Site) -> int:
    """A failed run of the view, with a log; its number."""
    catalog = site.project.catalog
    with catalog.writing() as tx:
        number, _ = begin(tx, "per_user", tasks=("per_user",), kind=RunKind.TASKS)
    with catalog.writing() as tx:
        runs.fail(tx, number, "a number was divided by zero")
    run = site.project.run_detail(number).run
    storage = Storage(str(site.project.directory / ".kilonova" / "warehouse"))
    storage.keep_log(number, run.started.date(), "\n".join([f"line {line} of the log" for line in range(99)]))
    return number


def succeeded(site: Site) -> int:
    wrote(site.project.catalog, {"clicks": Writing(rows=2)})
    return wrote(
        site.project.catalog,
        {"per_user": Writing(rows=2, base=True)},
        task="per_user",
        read=[("clicks", 1)],
        method=RefreshMethod.INITIAL,
    )


def quarantined(site: Site, *paths: str) -> None:
    catalog = site.project.catalog
    with catalog.writing() as tx:
        files.record(tx, "clicks", {path: (Fingerprint(3, NOON), FileDecision.READY) for path in paths})
        run, points = begin(tx, "clicks")
        files.claim_files(tx, run, "clicks", paths)
    with catalog.writing() as tx:
        runs.commit(tx, run, inputs=(), outputs=[an_output("clicks", points["clicks"], None)], advances=())
        outcomes = [FileOutcome(path, FileState.QUARANTINED, "line 2: zz is no number") for path in paths]
        files.resolve_files(tx, run, "clicks", outcomes)


def test_a_task_shows_that_it_failed_and_its_last_lines_until_it_succeeds(page: Page, site: Site) -> None:
    succeeded(site)
    number = failed(site)
    page.goto("/tasks/per_user")
    box = page.locator("#failure")
    expect(box).to_contain_text(f"Run {number} failed")
    expect(box.locator(".problem")).to_have_text("a number was divided by zero")
    lines = (box.locator("pre").text_content() or "").splitlines()
    assert (lines[0], lines[-1]) == ("line 84 of the log", "line 98 of the log")
    expect(page.locator("#facts")).to_contain_text("failed after")
    expect(page.locator("#last")).to_contain_text(f"run {number}: a number was divided by zero")
    expect(page.locator("#past tbody tr").first).to_contain_text("a number was divided by zero")
    expect(page.locator("#past tbody tr")).to_have_count(2)
    expect(page.locator("#costs .area .way.cross")).to_have_count(1)
    expect(page.locator("#costs .keys")).to_contain_text("failed")
    box.get_by_role("button", name="Retry").click()
    expect(page.locator("#notices")).to_contain_text("per_user: queued")
    assert [each.state.value for each in site.project.reader.firings(5, "per_user")] == ["queued"]
    succeeded(site)
    expect(box).to_be_empty()
    expect(page.locator("#past tbody tr")).to_have_count(3)


def test_of_a_run_whose_task_has_succeeded_since_no_retry_is_offered(page: Page, site: Site) -> None:
    number = failed(site)
    page.goto(f"/runs/{number}")
    head = page.locator("#head")
    expect(head.get_by_role("button", name="Retry")).to_be_visible()
    later = succeeded(site)
    expect(head).to_contain_text(f"succeeded since, in run {later}")
    expect(head.get_by_role("button", name="Retry")).to_have_count(0)
    expect(head.get_by_role("link", name=f"run {later}")).to_have_attribute("href", f"/runs/{later}")


def test_quarantined_files_are_seen_everywhere_until_they_are_retried(page: Page, site: Site, visit: Visitor) -> None:
    graph = visit(site.address)
    graph.goto("/")
    chip, node = graph.locator(".chip.is-quarantined"), graph.locator("#c-clicks")
    expect(chip).to_be_hidden()
    quarantined(site, "inbox/a b.csv", "inbox/c&d.csv")
    expect(chip).to_have_text("2 files quarantined")
    expect(node.locator(".aside")).to_be_visible()
    expect(node.locator("title").first).to_have_text("clicks: point 0, rows: 0, 0 B, 2 files quarantined")
    chip.click()
    expect(graph.locator(".node[id]:not(.dim)")).to_have_count(1)
    chip.click()

    page.goto("/channels")
    expect(page.locator("#list tr", has_text="clicks").first).to_contain_text("2 files quarantined")
    page.goto("/channels/clicks")
    expect(page.locator("#facts div", has_text="Quarantined")).to_contain_text("2 files")
    inbox = page.locator("#inbox")
    for text in ("inbox", "*", "every 30 seconds", "line 2: zz is no number", "Next scan"):
        expect(inbox).to_contain_text(text)
    row = inbox.locator("tr", has_text="inbox/c&d.csv")
    row.get_by_role("button", name="Retry").click()
    expect(row).to_contain_text("ready")
    expect(row.get_by_role("button")).to_have_count(0)
    expect(inbox.locator("tr", has_text="a b.csv")).to_contain_text("quarantined")
    expect(chip).to_have_text("1 file quarantined")
    inbox.locator("tr", has_text="a b.csv").get_by_role("button", name="Retry").click()
    expect(inbox).not_to_contain_text("quarantined")
    expect(page.locator("#facts")).not_to_contain_text("Quarantined")
    expect(chip).to_be_hidden()
    expect(node.locator(".aside")).to_be_hidden()
