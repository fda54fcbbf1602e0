"""Pages that are open while something happens: they show it without being loaded again."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import kilonova as kn
from kilonova.catalog import files, firings, runs
from kilonova.model.compaction_policy import CostBased, Manual, MaxDeltas
from kilonova.model.progress import RunProgress
from kilonova.model.run import RunKind
from kilonova.model.watched_file import FileOutcome, FileState, Fingerprint
from kilonova.schedule.file_selection import FileDecision
from tests.catalog.building import an_output, begin, claim_batches, commit
from tests.fakes import Prompt
from tests.web.browser.browser import Visitor
from tests.web.browser.sites import Site, answering, arrived


def opened(visit: Visitor, site: Site, path: str) -> Page:
    """A page that is up to date and marked: loading it again would take the mark away."""
    page = visit(site.address)
    page.goto(path)
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate("window.same = true")
    return page


def same(page: Page) -> bool:
    return bool(page.evaluate("window.same"))


def test_what_is_paused_and_resumed_is_seen_on_all_pages(lively: Site, visit: Visitor) -> None:
    drawn, listed, single, told, tasks = (
        opened(visit, lively, path)
        for path in ("/", "/triggers", "/triggers/quotes_eu_clean", "/events", "/tasks?state=paused")
    )
    row = listed.locator("tr", has=listed.get_by_role("link", name="quotes_eu_clean", exact=True))
    lively.project.pause("quotes_eu_clean")
    expect(drawn.locator("#t-quotes_eu_clean")).to_contain_class("is-paused")
    expect(drawn.locator(".chip[data-state=paused] b")).to_have_text("1")
    expect(drawn.locator(".chip[data-state=paused]")).to_be_enabled()
    expect(row).to_contain_text("paused")
    expect(row.get_by_role("button", name="Resume")).to_be_visible()
    expect(single.locator("#head")).to_contain_text("paused")
    expect(told.locator("#list tbody tr").first).to_contain_text("paused")
    expect(tasks.locator("#list tbody tr")).to_have_count(1)
    lively.project.resume("quotes_eu_clean")
    expect(drawn.locator("#t-quotes_eu_clean")).not_to_contain_class("is-paused")
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    expect(told.locator("#list tbody tr").first).to_contain_text("resumed")
    expect(tasks.locator("#list")).to_contain_text("There is no such task")
    assert all(map(same, (drawn, listed, single, told, tasks)))


def test_how_a_channel_is_compacted_is_chosen(lively: Site, visit: Visitor) -> None:
    page, other = (opened(visit, lively, "/channels/orders_eu") for _ in range(2))
    assert lively.project.reader.policy("orders_eu") == CostBased()
    for rule, deltas, policy, words in (
        ("max-deltas", "3", MaxDeltas(deltas=3), "after 3 deltas"),
        ("manual", "3", Manual(), "only on request"),
        ("cost-based", "3", CostBased(), "by cost"),
    ):
        page.get_by_label("Compact automatically").select_option(rule)
        page.get_by_label("deltas", exact=True).fill(deltas)
        page.get_by_role("button", name="Set").click()
        expect(page.locator(".notice").last).to_have_text("The policy is set")
        assert lively.project.reader.policy("orders_eu") == policy
        expect(page.locator("#assembly")).to_contain_text(words)
        page.reload()
        expect(page.locator("#live")).to_have_text("live")
        expect(page.get_by_label("Compact automatically")).to_have_value(rule)
    page.get_by_label("Compact automatically").select_option("max-deltas")
    page.get_by_label("deltas", exact=True).fill("0")
    page.get_by_role("button", name="Set").click()
    assert page.get_by_label("deltas", exact=True).evaluate("field => !field.checkValidity()")
    assert lively.project.reader.policy("orders_eu") == CostBased()
    assert same(other)


def test_what_is_due_is_run_by_a_button(project_as_filled: Path, tmp_path: Path, visit: Visitor) -> None:
    server = Prompt()
    with answering(Path(shutil.copytree(project_as_filled, tmp_path / "shop")), server) as site:
        page = opened(visit, site, "/runs")
        page.get_by_role("button", name="Run due tasks").click()
        expect(page.locator(".notice").last).to_contain_text("Run due tasks: run 3")
        assert server.asked == [("run", {"tasks": None})]
        page.close()


def test_what_is_fired_is_followed_to_its_end(lively: Site, visit: Visitor) -> None:
    page = opened(visit, lively, "/triggers/quotes_eu_clean")
    page.get_by_role("button", name="Fire now").click()
    expect(page.locator(".notice").last).to_contain_text("quotes_eu_clean: queued")
    with lively.project.catalog.writing() as tx:
        batches, _ = claim_batches(tx, "one", 99)
        [claimed] = [each for batch in batches for each in batch.claims if each.binding == "quotes_eu_clean"]
        firings.skip(tx, claimed, "none of its tasks has new input")
    expect(page.locator(".notice")).to_have_count(1)
    expect(page.locator(".notice")).to_contain_text("quotes_eu_clean: skipped")
    expect(page.locator(".notice .how")).to_have_text("none of its tasks has new input")
    row = page.locator("#firings tbody tr").first
    expect(row).to_contain_text("skipped")
    expect(row).to_contain_text("none of its tasks has new input")
    assert same(page)


def test_what_failed_is_retried_and_followed(lively: Site, visit: Visitor) -> None:
    with lively.project.catalog.writing() as tx:
        run, _ = begin(tx, tasks=("quotes_eu_clean",), kind=RunKind.TASKS)
        runs.fail(tx, run, "no luck")
    page = opened(visit, lively, f"/runs/{run}")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".notice").last).to_contain_text("quotes_eu_clean: queued")
    with lively.project.catalog.writing() as tx:
        batches, _ = claim_batches(tx, "one", 99)
        [claimed] = [each for batch in batches for each in batch.claims if each.binding == "quotes_eu_clean"]
        again, _ = begin(tx, tasks=("quotes_eu_clean",), kind=RunKind.TASKS)
        firings.launch(tx, [(claimed, again)])
    expect(page.locator(".notice").last).to_contain_text(f"quotes_eu_clean: run {again} running")
    with lively.project.catalog.writing() as tx:
        runs.fail(tx, again, "no luck again")
    expect(page.locator(".notice.bad")).to_contain_text(f"quotes_eu_clean: run {again} failed")
    expect(page.locator(".notice.bad .how")).to_have_text("no luck again")
    expect(page.get_by_role("link", name="see it")).to_have_attribute("href", f"/runs/{again}")


def test_quarantined_files_are_retried(lively: Site, visit: Visitor, tmp_path: Path) -> None:
    taken = kn.Workflow("taken")
    taken.channel("mail", "id bigint", watch=kn.watched_directory(str(tmp_path), "*.csv"))
    lively.project.apply(taken)
    with lively.project.catalog.writing() as tx:
        mark = Fingerprint(3, lively.project.catalog.clock(), "x")
        files.record(tx, "mail", {path: (mark, FileDecision.READY) for path in ("good.csv", "bad.csv")})
        run, points = begin(tx, "mail")
        files.claim_files(tx, run, "mail", ["bad.csv"])
        nothing = an_output("mail", points["mail"], None)
        runs.commit(tx, run, inputs=(), outputs=[nothing], advances=())
        files.resolve_files(
            tx, run, "mail", [FileOutcome(path="bad.csv", state=FileState.QUARANTINED, error="line 3: no number")]
        )
    page = opened(visit, lively, "/channels/mail")
    bad = page.locator("#inbox tr", has_text="bad.csv")
    expect(bad).to_contain_text("line 3: no number")
    expect(page.locator("#inbox tr", has_text="good.csv")).to_contain_text("ready")
    page.get_by_role("button", name="Retry").click()
    expect(bad).to_contain_text("ready")
    expect(bad).not_to_contain_text("line 3")
    assert same(page)


def test_where_to_put_the_first_data_is_said_until_some_is_there(idle: Site, visit: Visitor) -> None:
    page = visit(idle.address)
    page.goto("/")
    expect(page.locator("#start")).to_contain_text("There is no data yet")
    page.locator("#start").get_by_role("link").click()
    expect(page.get_by_role("button", name="Ingest")).to_be_visible()


def test_the_buttons_of_a_binding_pause_resume_and_fire_it(lively: Site, visit: Visitor) -> None:
    page = opened(visit, lively, "/triggers/quotes_eu_clean")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".notice")).to_have_text("quotes_eu_clean is paused")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert lively.project.reader.binding("quotes_eu_clean").paused
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert not lively.project.reader.binding("quotes_eu_clean").paused
    page.get_by_role("button", name="Fire now").click()
    expect(page.locator("#head")).to_contain_text("1 firing due")
    expect(page.locator("#firings tbody tr").first).to_contain_text("a person")
    assert same(page)


def test_a_run_that_commits_is_seen_on_all_pages(lively: Site, visit: Visitor) -> None:
    paths = ("/", "/channels", "/channels/orders_eu", "/tasks/orders_eu_clean", "/runs")
    drawn, listed, channel, task, past = (opened(visit, lively, path) for path in paths)
    newest = lively.project.reader.channel("orders_eu").state.latest
    run = arrived(lively.project, "orders_eu")
    expect(channel.locator("#facts")).to_contain_text(re.compile(rf"Latest point\s*{newest + 1}"))
    expect(channel.locator("#points")).to_contain_text(f"Δ{newest}→{newest + 1}")
    expect(drawn.locator("#t-orders_eu_clean")).to_contain_class("is-due")
    expect(drawn.locator("[data-from=orders_eu][data-to=orders_eu_clean]")).to_contain_text("+1")
    row = listed.locator("tr", has=listed.get_by_role("link", name="orders_eu", exact=True)).first
    expect(row).to_contain_text(str(newest + 1))
    expect(task.locator("#facts")).to_contain_text("to read")
    expect(task.locator("#outlook")).to_contain_text("Due: ")
    expect(past.locator("#list tbody tr").first).to_contain_text(str(run))
    assert all(map(same, (drawn, listed, channel, task, past)))


def test_a_run_that_fails_is_seen_while_it_is_watched(lively: Site, visit: Visitor) -> None:
    catalog = lively.project.catalog
    with catalog.writing() as tx:
        run, _ = begin(tx, "quotes_eu_clean", tasks=("quotes_eu_clean",), kind=RunKind.TASKS)
    page, drawn = opened(visit, lively, f"/runs/{run}"), opened(visit, lively, "/")
    expect(page.locator("#head")).to_contain_text("It has just started")
    expect(drawn.locator("#t-quotes_eu_clean")).to_contain_class("is-running")
    with catalog.writing() as tx:
        runs.note_progress(tx, run, RunProgress(steps=4, ended=1, going=()))
    expect(page.locator("#head")).to_contain_text("1 of 4 steps done")
    with catalog.writing() as tx:
        runs.fail(tx, run, "the sky has fallen. Hold it up")
    expect(page.get_by_role("alert")).to_have_text("the sky has fallen. Hold it up")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(page.locator("#made")).to_contain_text("its files are deleted")
    expect(drawn.locator("#t-quotes_eu_clean")).to_contain_class("is-failed")
    expect(drawn.locator("#t-quotes_eu_clean")).to_contain_text(f"run {run} failed")
    assert same(page)
    assert same(drawn)


def test_what_is_applied_is_drawn(lively: Site, visit: Visitor) -> None:
    drawn = visit(lively.address)
    drawn.goto("/")
    expect(drawn.locator("#live")).to_have_text("live")
    more = kn.Workflow("more")
    more.view("cheap", "SELECT id FROM orders_eu WHERE amount < 5")
    lively.project.apply(more)
    expect(drawn.locator("#t-cheap")).to_be_visible()


def test_opened_typed_and_chosen_things_stay(lively: Site, visit: Visitor) -> None:
    channel = opened(visit, lively, "/channels/orders_eu")
    channel.locator("#points > summary").click()
    channel.get_by_label("at point").fill("2")
    arrived(lively.project, "orders_eu")
    expect(channel.locator("#points")).to_contain_text("run 201")
    expect(channel.locator("#points")).to_have_attribute("open", "")
    expect(channel.get_by_label("at point")).to_have_value("2")
    listed = opened(visit, lively, "/triggers")
    row = listed.locator("tr", has=listed.get_by_role("link", name="quotes_eu_clean", exact=True))
    button = row.get_by_role("button", name="Fire")
    button.focus()
    lively.project.pause("returns_eu_clean")
    expect(listed.locator("#list")).to_contain_text("paused")
    expect(button).to_be_focused()
    drawn = opened(visit, lively, "/")
    drawn.get_by_role("searchbox", name="Filter by name").fill("orders")
    lively.project.resume("returns_eu_clean")
    expect(drawn.locator("#t-returns_eu_clean")).not_to_contain_class("is-paused")
    expect(drawn.locator("#t-returns_eu_clean")).to_contain_class("dim")


def test_many_events_at_once_are_one_look(lively: Site, visit: Visitor) -> None:
    page = opened(visit, lively, "/events")
    looks: list[str] = []
    page.on("request", lambda request: looks.append(request.url))
    for _ in range(20):
        lively.project.pause("quotes_eu_clean")
        lively.project.resume("quotes_eu_clean")
    lively.project.pause("quotes_eu_clean")
    expect(page.locator("#list tbody tr").first).to_contain_text("paused")
    newest = str(lively.project.reader.newest_event())
    expect(page.locator("#list tbody tr").first).to_have_attribute("data-number", newest)
    assert len(looks) < 10


def test_a_task_that_runs_is_watched_by_its_marks(lively: Site, visit: Visitor) -> None:
    catalog = lively.project.catalog
    drawn = opened(visit, lively, "/")
    drawn.get_by_role("button", name="up to date").click()
    with catalog.writing() as tx:
        run, points = begin(tx, "quotes_eu_clean", tasks=("quotes_eu_clean",), kind=RunKind.TASKS)
    node = drawn.locator("#t-quotes_eu_clean")
    expect(node).to_contain_class("dim")
    expect(drawn.locator("#c-quotes_eu_clean")).to_contain_class("is-writing")
    commit(catalog, run, points)
    expect(node).not_to_contain_class("dim")
    expect(drawn.locator("#c-quotes_eu_clean")).to_contain_class("is-fresh")


@pytest.mark.parametrize("path", ["/", "/triggers", "/channels/orders_eu"])
def test_the_page_waits_for_a_server_that_stopped(
    path: str, project_as_filled: Path, tmp_path: Path, visit: Visitor
) -> None:
    shop = Path(shutil.copytree(project_as_filled, tmp_path / "shop"))
    visit.expected += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET"]
    with answering(shop) as site:
        page = opened(visit, site, path)
    live = page.locator("#live")
    expect(live).to_have_text("no answer, trying again")
    with answering(shop, port=int(site.address.rpartition(":")[2])) as site:
        site.project.pause("quotes_eu_clean")
        arrived(site.project, "orders_eu")
        expect(live).to_have_text("live")
        match path:
            case "/":
                expect(page.locator("#t-quotes_eu_clean")).to_contain_class("is-paused")
            case "/triggers":
                expect(page.locator("#list")).to_contain_text("paused")
            case _:
                expect(page.locator("#facts")).to_contain_text(re.compile(r"Latest point\s*5"))
        assert same(page)
        site.project.resume("quotes_eu_clean")
        site.project.pause("orders_eu_clean")
        if path == "/":
            expect(page.locator("#t-orders_eu_clean")).to_contain_class("is-paused")
            assert same(page)
        page.close()


def test_what_is_asked_of_a_server_that_is_away_is_said(
    project_as_filled: Path, tmp_path: Path, visit: Visitor
) -> None:
    shop = Path(shutil.copytree(project_as_filled, tmp_path / "shop"))
    visit.expected += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET"]
    with answering(shop) as site:
        page = opened(visit, site, "/triggers/quotes_eu_clean")
    page.get_by_role("button", name="Fire now").click()
    expect(page.locator(".notice.bad")).to_contain_text("The server does not respond")
    expect(page.get_by_role("button", name="Fire now")).to_be_enabled()
