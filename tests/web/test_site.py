"""The pages as a browser gets them: each is there, is HTML that adds up, and tells what went wrong as a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

import kilonova as kn
from bench.crowd import fill, workflows
from kilonova.api.routes.context import route_context
from kilonova.catalog import (
    channel_registry,
    channel_store,
    deferred,
    firings,
    registry,
    runs,
    scheduling,
    servers,
    workflow_files,
)
from kilonova.catalog.bound_observation import observe_bounds
from kilonova.errors import InputError
from kilonova.model.block import Delta
from kilonova.model.run import RunKind
from kilonova.model.schema import Schema
from kilonova.model.task import Mode
from kilonova.schedule.bound_planning.bound_decision import decide_bound_runs
from kilonova.schedule.scheduler import TriggerScheduler
from kilonova.service.project import Project, open_project
from kilonova.service.spark_operations import OperationFailed
from kilonova.web.application import create_app
from kilonova.web.rendering import POLICY
from tests.catalog.building import LEASE, a_block, a_channel, a_task, an_output, begin, ingested
from tests.databases import DIALECTS, empty_database
from tests.fakes import Prompt, Slow
from tests.seeds import some
from tests.shop import OFTEN, opened_shop
from tests.web.browser.sites import changed

HERE = "http://localhost:8620"
LISTS = ("/", "/channels", "/tasks", "/runs", "/triggers", "/changes", "/servers", "/events", "/sign-in")
VOID = {"meta", "link", "input", "br", "hr", "img", "col", "wbr"}


class Reader(HTMLParser):
    """Reads a page strictly."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.actions: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"an attribute of <{tag}> is given twice: {attrs}"
        given = {name: value or "" for name, value in attrs}
        assert "style" not in given, f"<{tag}> has a style of its own"
        assert not any(name.startswith("on") for name in given), f"<{tag}> has a script of its own: {attrs}"
        assert tag != "style", "the page has styles of its own"
        assert tag != "script" or given.get("src", "").startswith("/static/"), "the page has a script of its own"
        self.ids += [given["id"]] if "id" in given else []
        self.actions += [given["data-action"]] if "data-action" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.loads += [value for name in ("src", "data-load") if (value := given.get(name))]
        self.loads += [given["href"]] if tag == "link" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes something else"


def read(answer: Response, status: int = 200) -> Reader:
    """A page, which must be one."""
    assert answer.status_code == status, (answer.url, answer.text[-800:])
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["cache-control"] == "no-store"
    reader = Reader()
    reader.feed(answer.text)
    reader.close()
    assert reader.open == []
    twice = {each for each in reader.ids if reader.ids.count(each) > 1}
    assert not twice, f"{answer.url} has ids twice: {twice}"
    return reader


def client_of(project: Project, **options: object) -> TestClient:
    return TestClient(create_app(route_context(Prompt(), project)), base_url=HERE, follow_redirects=False, **options)  # type: ignore[arg-type]


def taken_in(shop: Project) -> None:
    """Clicks come."""
    columns = Schema.of(("user", "string"))
    with shop.catalog.writing() as tx:
        run, points = begin(tx, "clicks")
        point = points["clicks"]
        made = replace(a_block(channel_store.new_block(tx, "clicks", run), Delta(point - 1, point)), schema=columns)
        output = an_output("clicks", point, replace(made, columns=columns))
        runs.commit(tx, run, inputs=(), outputs=[output], advances=())


@pytest.fixture(scope="module", params=some(DIALECTS, 1))
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project that has been at work, on each kind of database."""
    with (
        empty_database(request.param) as url,
        open_project(
            tmp_path_factory.mktemp("crowd"),
            catalog=url,
            serve={"rate_limit": OFTEN, "failed_auth_limit": OFTEN},
            spark={"analyse": False},
        ) as project,
    ):
        project.create()
        for workflow in workflows(12, 40):
            project.apply(workflow)
        fill(project, 600)
        yield project


@pytest.fixture
def pages(shop: Project) -> TestClient:
    return client_of(shop, raise_server_exceptions=False)


def everything(client: TestClient) -> int:
    """Follow all links from the first page on, and load what they load."""
    asked, left = (
        {"/"},
        ["/", *LISTS, "/events?kind=failed", "/runs?state=failed", "/?workflow=nowhere", "/?focus=nowhere"],
    )
    while left:
        address = left.pop()
        reader = read(client.get(address))
        for found in reader.loads:
            if "/rows" in found or found.endswith("/plan") or "/rollback/" in found or "/retraction/" in found:
                read(client.get(found))
            else:
                assert client.get(found).status_code == 200, found
        for link in reader.links:
            path = address.split("?")[0] + link if link.startswith("?") else link
            if path.startswith("/") and not path.startswith("/api/") and path not in asked and len(asked) < 150:
                asked.add(path)
                left.append(path)
    return len(asked)


def test_every_page_of_an_empty_project_is_there(tmp_path: Path) -> None:
    with open_project(tmp_path, serve={"rate_limit": OFTEN}, spark={"analyse": False}) as project:
        project.create()
        assert everything(client_of(project)) > 6


def test_every_page_of_a_small_project_is_there(shop: Project) -> None:
    taken_in(shop)
    taken_in(shop)
    with shop.catalog.writing() as tx:
        number, _ = begin(tx, "per_user", tasks=("per_user",), kind=RunKind.TASKS)
        runs.commit(tx, number, inputs=(), outputs=(), advances=())
    with shop.catalog.writing() as tx:
        runs.fail(tx, begin(tx, "per_user", tasks=("per_user",), kind=RunKind.TASKS)[0], "<b>no luck</b> & more")
        begin(tx, "clicks")
    shop.fire("per_user")
    changed(shop)
    assert everything(client_of(shop)) > 20


def test_every_page_of_a_project_at_work_is_there(crowd: Project) -> None:
    assert everything(client_of(crowd)) >= 150


def test_names_and_errors_are_shown_as_they_are(shop: Project) -> None:
    with shop.catalog.writing() as tx:
        run, _ = begin(tx, "clicks")
        runs.fail(tx, run, "<script>alert(1)</script>")
    client = client_of(shop)
    for path in ("/runs", f"/runs/{run}", "/events", "/?workflow=<script>x</script>", "/channels?q='\"><i>"):
        answer = client.get(path)
        read(answer)
        assert "<script>alert" not in answer.text
        assert "<script>x" not in answer.text
        assert "><i>" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/channels/nope",
        "/tasks/nope",
        "/runs/99",
        "/triggers/nope",
        "/nowhere",
        "/channels/a/b",
        "/static/nope.js",
        "/api",
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(pages: TestClient, path: str) -> None:
    answer = pages.get(path)
    read(answer, 404)
    assert "not found" in answer.text.lower()


def test_unknown_routes_of_the_api_are_errors_in_json(pages: TestClient) -> None:
    answer = pages.get("/api/v1/nowhere")
    assert (answer.status_code, answer.json()["error"]) == (404, "not found")


STRANGE = (
    "-1",
    "0",
    "x",
    "",
    "99999999999",
    "9" * 30,
    "9" * 5000,
    "1.5",
    "٣",
    "²",
    "%00",
    "' OR 1=1",
    "../..",
    "\udcff",
)


@pytest.mark.parametrize("value", STRANGE, ids=[f"value{number}" for number in range(len(STRANGE))])
def test_strange_values_make_nothing_fail(pages: TestClient, shop: Project, value: str) -> None:
    taken_in(shop)
    asked = {
        "/": ("workflow", "focus", "depth"),
        "/channels": ("q", "workflow", "sort", "start"),
        "/channels/clicks": ("before",),
        "/channels/clicks/rows": ("at", "since", "offset"),
        "/tasks": ("q", "workflow", "state", "start"),
        "/tasks/per_user": ("before",),
        "/runs": ("before", "after", "state", "kind", "binding", "task", "channel"),
        "/triggers": ("q", "only", "start"),
        "/triggers/per_user": ("before",),
        "/events": ("before", "kind", "binding", "channel"),
        "/changes/shop": ("preview",),
        "/tasks/per_user/rollback": ("version", "preview"),
        "/tasks/per_user/retraction": ("version",),
        "/tasks/per_user/versions/diff": ("version", "since"),
        "/search": ("q",),
        "/sign-in": ("then",),
    }
    sent = value.encode("utf-8", "surrogateescape")
    for path, names in asked.items():
        for name in names:
            raw = "%00" if value == "%00" else "".join(f"%{byte:02x}" for byte in sent)
            answer = pages.get(f"{path}?{name}={raw}")
            assert answer.status_code < 500, (path, name, value, answer.text[-300:])
            if path != "/search":
                read(answer, answer.status_code)
    for path in ("/channels/", "/tasks/", "/runs/", "/triggers/", "/changes/"):
        raw = "".join(f"%{byte:02x}" for byte in sent if byte != ord("/"))
        answer = pages.get(f"{path}{raw}")
        assert answer.status_code < 500, (path, value)


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
def test_pages_are_only_got(pages: TestClient, method: str) -> None:
    for path in (*LISTS[:-1], "/channels/clicks", "/search", "/workflow/state"):
        assert pages.request(method, path).status_code == 405, path
    assert pages.request(method, "/sign-out").status_code == (303 if method == "POST" else 405)


def test_what_is_found_by_typing_leads_somewhere(shop: Project) -> None:
    with shop.catalog.writing() as tx:
        begin(tx, "clicks")
    client = client_of(shop)
    found = [*client.get("/search?q=CLI").json(), *client.get("/search?q=1").json(), *client.get("/search").json()]
    assert {each["kind"] for each in found} == {"channel", "task", "run"}
    for each in found:
        read(client.get(each["page"]))


def test_a_task_says_until_when_a_change_of_it_is_deferred(shop: Project) -> None:
    with shop.catalog.writing() as tx:
        deferred.defer(tx, "shop", datetime(2100, 1, 1, tzinfo=UTC), {"per_user": 1}, b"")
    assert ", the next one from <time" in client_of(shop).get("/tasks/per_user").text


def test_a_change_is_shown_before_it_is_applied(shop: Project) -> None:
    taken_in(shop)
    changed(shop)
    client = client_of(shop)
    page = client.get("/changes/shop")
    assert read(page).loads[-1] == "/changes/shop/plan"
    assert "shop.py" in page.text
    part = client.get("/changes/shop/plan")
    assert {
        "/api/v1/workflows/shop/preview?wait=false",
        "/api/v1/workflows/shop/apply?wait=false&expected=0123456789abcdef",
    } == set(read(part).actions)
    for words in (
        "logic version 0 → 1: its query changed",
        "removes rows; reads per_user",
        "+SELECT &lt;2&gt;",
        "At the next run, 1 output is migrated, which reads 1,200 rows, 3.4 kB. 1 task downstream may fail.",
        "cannot run: it reads the column n",
        "0.2 s",
        "inconsistency of at most 1 hour",
        "the task late requires the column m",
        "for clicks.page",
    ):
        assert words in part.text, words


def test_a_preview_is_a_page_that_can_be_opened_again(shop: Project) -> None:
    taken_in(shop)
    changed(shop)
    client = client_of(shop)
    name = client.post("/api/v1/workflows/shop/preview?wait=false").json()["operation"]
    for path in (f"/changes/shop?preview={name}", f"/tasks/per_user/rollback?version=0&preview={name}"):
        page = client.get(path)
        read(page)
        for words in (
            "&lt;ann&gt;",
            "1 row wrong",
            "adds m bigint",
            "differs in 1 row",
            "10 of 1,000 rows",
            "by user",
            "the column n is gone",
        ):
            assert words in page.text, words
    assert "there is no such operation" in client.get("/changes/shop?preview=nope").text.lower()


def test_a_preview_says_how_far_it_is(shop: Project) -> None:
    changed(shop)
    server = Slow()
    client = TestClient(create_app(route_context(server, shop)), base_url=HERE)
    name = client.post("/api/v1/workflows/shop/preview?wait=false").json()["operation"]
    path = f"/changes/shop?preview={name}"
    assert "1 run or operation before it" in client.get(path).text
    server.waiting[0].set_running_or_notify_cancel()
    server.does = "comparing per_user"
    page = client.get(path)
    assert "comparing per_user" in page.text
    assert 'id="preview" data-live data-going' in page.text
    assert f"/api/v1/operations/{name}/cancel" in read(page).actions
    server.waiting[0].set_exception(OperationFailed.by(InputError("it is gone", hint="Look elsewhere")))
    page = client.get(path)
    assert "it is gone. Look elsewhere" in page.text
    assert "data-going" not in page.text
    assert f"/api/v1/operations/{name}/cancel" not in read(page).actions


def test_a_task_shows_the_history_of_its_logic(shop: Project) -> None:
    taken_in(shop)
    changed(shop)
    client = client_of(shop)
    page = client.get("/tasks/per_user")
    assert "/tasks/per_user/rollback?version=0" in read(page).links
    for words in ("computes one from the output", "+1 −1 lines", "has not run"):
        assert words in page.text
    part = client.get("/tasks/per_user/versions/diff?version=0&since=1")
    read(part)
    assert "+SELECT user, count(*) AS n FROM clicks GROUP BY user" in part.text
    actions = read(client.get("/tasks/per_user/rollback/plan?version=0")).actions
    assert "/api/v1/tasks/per_user/rollback?version=0&wait=false&expected=0123456789abcdef" in actions
    read(client.get("/tasks/per_user/rollback?version=9"), 404)


def test_a_version_is_retracted_once_it_is_seen_what_it_has_touched(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_in(shop)
    changed(shop)
    client = client_of(shop)
    assert "/tasks/per_user/retraction?version=1" in read(client.get("/tasks/per_user")).links
    page = client.get("/tasks/per_user/retraction?version=1")
    assert "An earlier definition is registered again" in page.text
    assert "/tasks/per_user/retraction/plan?version=1&recompute=false" in read(page).loads
    part = client.get("/tasks/per_user/retraction/plan?version=1")
    for words in ("per_user", "1 to 2", "reflects it", "a new logic version migrates or recomputes its output"):
        assert words in part.text, words
    assert "/api/v1/tasks/per_user/versions/1/retract?recompute=false&wait=false" in read(part).actions
    recomputed = "/tasks/per_user/retraction?version=1&recompute=true"
    assert recomputed in read(part).links
    assert "/tasks/per_user/retraction/plan?version=1&recompute=true" in read(client.get(recomputed)).loads
    part = client.get("/tasks/per_user/retraction/plan?version=1&recompute=true")
    assert "/api/v1/tasks/per_user/versions/1/retract?recompute=true&wait=false" in read(part).actions
    read(client.get("/tasks/per_user/retraction?version=9"), 404)
    monkeypatch.setattr("tests.fakes.RETRACTION", {"touched": [], "steps": {}, "plan": None})
    assert recomputed in read(client.get("/tasks/per_user/retraction/plan?version=1")).links
    with shop.catalog.writing() as tx:
        registry.retract(tx, "per_user", 1)
    again = client.get("/tasks/per_user")
    assert '<span class="tag">retracted</span>' in again.text
    assert "/tasks/per_user/retraction?version=1" not in read(again).links


def test_the_state_says_of_everything_on_the_picture_how_it_stands(crowd: Project) -> None:
    client = client_of(crowd)
    state, page = client.get("/workflow/state").json(), client.get("/")
    ids = set(read(page).ids)
    assert {f"t-{name}" for name in state["tasks"]} | {f"c-{name}" for name in state["channels"]} <= ids
    assert state["going"]
    assert state["shape"] in page.text


def test_pages_are_no_longer_where_much_has_happened(shop: Project) -> None:
    with shop.catalog.writing() as tx:
        channel_registry.add_channels(
            tx, [a_channel("few"), a_channel("many"), a_channel("seldom"), a_channel("often_")], "shop"
        )
        for name in ("seldom", "often_"):
            registry.put_task(tx, a_task(name, {"clicks": Mode.NEW}, (name,)), "shop")
    for channel, task, count in (("few", "seldom", 150), ("many", "often_", 1500)):
        with shop.catalog.writing() as tx:
            for _ in range(count):
                for kind, tasks, writes in ((RunKind.INGEST, (), channel), (RunKind.TASKS, (task,), task)):
                    run, _ = runs.start(tx, kind=kind, tasks=tasks, writes=(writes,), owner="me", lease=LEASE)
                    runs.commit(tx, run, inputs=(), outputs=(), advances=())
    client = client_of(shop)
    for short, long in (("/channels/few", "/channels/many"), ("/tasks/seldom", "/tasks/often_")):
        assert len(client.get(long).text) < len(client.get(short).text) * 1.2
    assert len(client.get("/runs").text) < 200_000


# Signing in


def test_runs_that_are_not_started_again_are_named(pages: TestClient, shop: Project) -> None:
    shop.set_bound("per_user", 0, "clicks")
    ingested(shop.catalog, "clicks")
    with shop.catalog.reading() as tx:
        observed = observe_bounds(tx)
    assert observed is not None
    runs = decide_bound_runs(observed).runs
    with shop.catalog.writing() as tx:
        servers.register(tx, "a", "1", timedelta(hours=1))
    for attempt in range(firings.ATTEMPTS):
        with shop.catalog.writing() as tx:
            bound_runs = () if attempt else runs
            seen = scheduling.observe(tx, (), free_workers=1, bound_runs=bound_runs, bounded=frozenset())
            (batch,) = scheduling.store(tx, TriggerScheduler().decide(seen), "a")
            firings.requeue(tx, batch.claims[0], counted=True)
    found = pages.get("/api/v1/bounds/schedule").json()
    assert (found["starting"], found["not_repeated"]) == ([], ["per_user"])
    page = pages.get("/channels/per_user").text
    assert "A plan is due because of: per_user is never behind clicks›per_user." in page
    assert "Not started again, after a run with the same input that failed or changed nothing: per_user." in page


@pytest.fixture
def guarded(shop: Project) -> dict[str, str]:
    return {role: shop.operator.create_token(role, role) for role in ("read", "operate", "admin")}


def sign_in(client: TestClient, secret: str, then: str = "/") -> Response:
    return client.post("/sign-in", data={"token": secret, "then": then})


def test_who_has_not_signed_in_is_asked_to(guarded: dict[str, str], pages: TestClient, shop: Project) -> None:
    for path in ("/", "/runs?state=failed&kind=tasks", "/channels/clicks", "/search?q=a", "/workflow/state"):
        answer = pages.get(path)
        assert answer.status_code == 303
        place = answer.headers["location"]
        assert place.startswith("/sign-in?then=")
        asked = pages.get(place)
        read(asked)
        assert f'value="{path.replace("&", "&amp;")}"' in asked.text
    assert pages.get("/static/kilonova.css").status_code == 200
    pages.cookies.set(f"kilonova-{shop.catalog.identity()}", "nonsense")
    refused = pages.get("/")
    assert refused.status_code == 303
    assert "Max-Age=0" in refused.headers["set-cookie"]


def test_a_user_signs_in_and_out(guarded: dict[str, str], pages: TestClient) -> None:
    answer = sign_in(pages, guarded["operate"], "/runs?state=failed")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs?state=failed")
    kept = answer.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "SameSite=lax" in kept
    assert "Secure" not in kept
    page = pages.get("/")
    read(page)
    assert "Signed in with the token operate" in page.text
    assert pages.get("/api/v1/channels").status_code == 200
    assert pages.post("/sign-out").headers["location"] == "/sign-in"
    assert pages.get("/").status_code == 303


def test_over_https_the_cookie_is_sent_over_https_only(guarded: dict[str, str], shop: Project) -> None:
    app = create_app(route_context(Prompt(), shop))
    client = TestClient(app, base_url="https://kilonova.example.org", follow_redirects=False)
    assert "Secure" in sign_in(client, guarded["read"]).headers["set-cookie"]


@pytest.mark.parametrize(
    "then",
    [
        "//evil",
        "https://evil",
        "/\\evil",
        "\\\\evil",
        "javascript:alert(1)",
        "/\nevil",
        "/\r\nLocation: //evil",
        "/\t/evil",
        " //evil",
        "evil",
        "",
    ],
)
def test_signing_in_leads_nowhere_else(guarded: dict[str, str], pages: TestClient, then: str) -> None:
    assert sign_in(pages, guarded["read"], then).headers["location"] == "/"
    assert 'name="then" value="/"' in pages.get("/sign-in", params={"then": then}).text


def test_a_wrong_token_is_refused_with_the_page(guarded: dict[str, str], pages: TestClient) -> None:
    for wrong in ("nonsense", "", "  ", "ü", "x" * 1000):
        answer = sign_in(pages, wrong, "/runs")
        read(answer, 401)
        assert 'value="/runs"' in answer.text
        assert "set-cookie" not in answer.headers


def test_forms_that_are_none_are_refused_with_the_page(guarded: dict[str, str], pages: TestClient) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    read(pages.post("/sign-in", content=b"token=" + b"x" * 5000, headers=kind), 413)
    read(pages.post("/sign-in", content=b"token=\xff\xfe%ff&then=%ff", headers=kind), 401)
    read(pages.post("/sign-in", content=b"&&==&%&token", headers=kind), 401)
    read(pages.post("/sign-in", content=b'{"token": 1}'), 401)
    read(pages.post("/sign-in"), 401)
    read(pages.post("/sign-in", content=iter([b"token=", b"x"])), 413)
    for length in ("-1", "many"):
        read(pages.post("/sign-in", content=b"token=x", headers={**kind, "Content-Length": length}), 413)


def test_too_many_wrong_tokens_are_refused_and_lock_no_right_one_out(tmp_path: Path) -> None:
    with opened_shop(tmp_path) as made:
        secret = made.operator.create_token("ann", "read")
    with open_project(tmp_path, serve={"failed_auth_limit": "3 per minute"}, spark={"analyse": False}) as project:
        client = client_of(project)
        answers = [sign_in(client, "wrong") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
        read(answers[-1], 429)
        assert "Try again later" in answers[-1].text
        assert sign_in(client, secret).status_code == 303


def test_the_cookie_is_good_for_requests_of_these_pages_only(guarded: dict[str, str], pages: TestClient) -> None:
    sign_in(pages, guarded["operate"])
    pause = "/api/v1/bindings/per_user/pause"
    for origin in ("https://evil.example.org", "null", "http://localhost:1"):
        assert pages.post(pause, headers={"Origin": origin}).status_code == 403
        assert pages.get("/", headers={"Origin": origin}).status_code == 403
    assert pages.post(pause, headers={"Origin": HERE}).status_code == 200
    assert pages.post("/api/v1/tokens", json={"name": "x", "role": "admin"}).status_code == 403


def test_a_reader_is_offered_no_forms(guarded: dict[str, str], shop: Project) -> None:
    taken_in(shop)
    taken_in(shop)
    with shop.catalog.writing() as tx:
        failed, _ = begin(tx, "per_user", tasks=("per_user",), kind=RunKind.TASKS)
        runs.fail(tx, failed, "no luck")
        workflow_files.put_file(tx, "shop", "shop.py")
    paths = [
        "/",
        "/channels",
        "/channels/clicks",
        "/tasks/per_user",
        f"/runs/{failed}",
        "/triggers",
        "/triggers/per_user",
    ]
    offered = {}
    for role in ("read", "operate", "admin"):
        client = client_of(shop)
        sign_in(client, guarded[role])
        offered[role] = [action for path in paths for action in read(client.get(path)).actions]
        plan = client.get("/changes/shop/plan")
        assert plan.status_code == (200 if role == "admin" else 403)
        assert ("data-load" in client.get("/changes/shop").text) == (role == "admin")
    assert offered["read"] == []
    assert len(offered["admin"]) >= len(offered["operate"]) > 5
    assert all(action.startswith("/api/v1/") for action in offered["admin"])


def test_an_unavailable_catalog_is_an_error_page(shop: Project, pages: TestClient) -> None:
    read(pages.get("/"))
    shop.catalog.close()
    [file] = (shop.directory / ".kilonova").glob("*.db")
    for each in file.parent.glob(f"{file.name}*"):
        each.unlink()
    answer = pages.get("/")
    read(answer, 503)
    assert "Temporarily unavailable" in answer.text
    read(pages.get("/runs"), 503)
    read(pages.get("/sign-in"))


def test_a_defect_is_an_error_page(shop: Project, pages: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise RuntimeError("<oh>")

    monkeypatch.setattr(type(shop.reader), "servers", broken)
    answer = pages.get("/servers")
    read(answer, 500)
    assert "RuntimeError: &lt;oh&gt;" in answer.text


def test_templates_say_nothing_of_styles_and_scripts_of_their_own() -> None:
    templates = Path(kn.__file__).parent / "server" / "page" / "templates"
    for file in templates.glob("*.html"):
        text = file.read_text()
        assert not re.search(r"\sstyle=|\son\w+=\"|<script(?![^>]*\ssrc=)|javascript:", text), file.name
        assert "| safe" not in text, file.name
