from __future__ import annotations

from datetime import UTC, datetime

from fastapi.testclient import TestClient

import kilonova as kn
from kilonova.catalog import deferred
from kilonova.model.run import RefreshMethod
from kilonova.service.project import Project
from tests.catalog.building import ingested
from tests.fakes import PLAN, PREVIEW, RETRACTION, Prompt
from tests.service.writing import Writing, wrote


def test_a_task_says_how_far_it_is_behind_and_why_it_is_due(client: TestClient, shop: Project) -> None:
    [task] = client.get("/api/v1/tasks").json()
    assert (task["name"], task["due"], task["waits_until"]) == ("per_user", None, None)
    ingested(shop.catalog, "clicks")
    with shop.catalog.writing() as tx:
        deferred.defer(tx, "shop", datetime(2100, 1, 1, tzinfo=UTC), {"per_user": 1}, b"")
    task = client.get("/api/v1/tasks/per_user").json()
    assert task["deferred_until"] == "2100-01-01T00:00:00Z"
    assert task["due"] == "its logic has not run yet"
    assert task["reads"] == {"clicks": {"point": 0, "newest": 1}}
    assert task["writes"] == ["per_user"]


def test_tasks_come_page_by_page(client: TestClient) -> None:
    assert client.get("/api/v1/tasks?after=per_user").json() == []
    assert "Link" not in client.get("/api/v1/tasks?limit=1").headers


def test_a_view_is_explained(client: TestClient) -> None:
    [kept] = client.get("/api/v1/views/per_user").json()
    assert (kept["channel"], kept["reads"]) == ("per_user", ["clicks"])
    assert "count(*)" in kept["query"].lower()


def test_a_task_says_what_it_would_do(client: TestClient, shop: Project) -> None:
    ingested(shop.catalog, "clicks")
    outlook = client.get("/api/v1/tasks/per_user/next-run").json()
    assert (outlook["due"], outlook["variant"], outlook["method"]) == ("its logic has not run yet", "full", "full")
    assert list(outlook["estimates"]) == ["full"]
    [read] = outlook["reads"]
    assert (read["port"], read["mode"], read["how"], read["rows"]) == ("clicks", "all", "snapshot", 1)
    assert [block["kind"] for block in read["blocks"]] == ["Δ0→1"]


def test_a_task_lists_its_runs_page_by_page(client: TestClient, shop: Project) -> None:
    estimates = {RefreshMethod.INCREMENTAL: 0.5, RefreshMethod.FULL: 2.0}
    for point in (1, 2, 3):
        made = {"per_user": Writing(rows=point)}
        wrote(
            shop.catalog,
            made,
            task="per_user",
            read=[("clicks", point)],
            method=RefreshMethod.INCREMENTAL,
            estimates=estimates,
        )
    first = client.get("/api/v1/tasks/per_user/runs?limit=2")
    second = client.get(first.links["next"]["url"])
    assert [[past["run"] for past in page.json()] for page in (first, second)] == [[3, 2], [1]]
    past = first.json()[0]
    assert (past["method"], past["estimates"]) == ("incremental", {"incremental": 0.5, "full": 2.0})
    assert (past["channel"], past["point"], past["rows"], past["state"]) == ("per_user", 3, 3, "succeeded")


def test_missing_things_are_reported_as_not_found(client: TestClient) -> None:
    for path in ("tasks/per_usr", "tasks/per_usr/next-run", "tasks/per_usr/runs", "views/per_usr"):
        answer = client.get(f"/api/v1/{path}")
        assert (answer.status_code, answer.json()["hint"]) == (404, "Did you mean per_user?")


def test_a_view_over_one_that_has_not_run_is_explained(client: TestClient, shop: Project) -> None:
    more = kn.Workflow("more")
    more.view("known", "SELECT user, count(*) AS n FROM clicks GROUP BY user")
    more.view("busy", "SELECT user FROM known WHERE n > 1")
    shop.apply(more)
    answer = client.get("/api/v1/views/busy")
    assert answer.status_code == 200
    assert answer.json()[0]["method"] == "the changes are passed through"


def changed(shop: Project) -> None:
    """Apply another definition of the view, after the first one has run."""
    ingested(shop.catalog, "clicks")
    wrote(
        shop.catalog,
        {"per_user": Writing(rows=1)},
        task="per_user",
        read=[("clicks", 1)],
        method=RefreshMethod.FULL,
    )
    more = kn.Workflow("shop")
    more.channel("clicks", "user string", watch=kn.watched_directory("inbox", settle_time="0 seconds"))
    more.view("per_user", "SELECT user, count(*) AS n, 1 AS one FROM clicks GROUP BY user")
    shop.apply(more)


def test_a_task_lists_its_logic_versions_and_how_two_differ(client: TestClient, shop: Project) -> None:
    changed(shop)
    new, old = client.get("/api/v1/tasks/per_user/versions").json()
    assert [new["logic"], old["logic"]] == [1, 0]
    assert (new["first_run"], new["ended"], old["ended"]) == (None, None, new["registered"])
    assert (old["first_run"]["method"], old["migration"]) == ("full", "")
    assert new["migration"] == "computes one from the output"
    difference = client.get("/api/v1/tasks/per_user/versions/1/diff").json()
    assert "+SELECT user, count(*) AS n, 1 AS one FROM clicks GROUP BY user" in difference["diff"].splitlines()
    back = client.get("/api/v1/tasks/per_user/versions/0/diff?since=1").json()
    assert "-SELECT user, count(*) AS n, 1 AS one FROM clicks GROUP BY user" in back["diff"].splitlines()
    assert (back["since"], back["logic"]) == (1, 0)
    answer = client.get("/api/v1/tasks/per_user/versions/7/diff?since=0")
    assert (answer.status_code, answer.json()["hint"]) == (404, "The versions are 0, 1")


def test_a_rollback_is_done_by_a_worker(client: TestClient, prompt: Prompt) -> None:
    assert client.post("/api/v1/tasks/per_user/rollback?version=0&dry_run=true").json() == [PLAN]
    assert client.post("/api/v1/tasks/per_user/rollback?version=0&defer=02:00&expected=ab").json() == [PLAN]
    assert client.post("/api/v1/tasks/per_user/rollback/preview?version=0&verify=true").json() == PREVIEW
    (first, second, third) = prompt.asked
    given = {"task": "per_user", "version": 0}
    assert first == ("rollback", given | {"dry_run": True, "defer": None, "expected": None})
    assert second == ("rollback", given | {"dry_run": False, "defer": "02:00", "expected": "ab"})
    assert (third[0], third[1]["rollback"], third[1]["verify"]) == ("preview", given, True)


def test_a_retraction_is_done_by_a_worker(client: TestClient, prompt: Prompt) -> None:
    path = "/api/v1/tasks/per_user/versions/0/retract"
    assert client.post(f"{path}?dry_run=true").json() == RETRACTION
    assert client.post(f"{path}?to=1&recompute=true").json() == RETRACTION
    given = {"task": "per_user", "version": 0}
    assert prompt.asked == [
        ("retract", given | {"to": None, "recompute": False, "dry_run": True}),
        ("retract", given | {"to": 1, "recompute": True, "dry_run": False}),
    ]
    assert client.post("/api/v1/tasks/per_usr/versions/0/retract").status_code == 404
    assert client.post("/api/v1/tasks/per_user/versions/one/retract").status_code == 422


def test_a_rollback_names_its_version_so_that_it_can_be_repeated(client: TestClient, prompt: Prompt) -> None:
    assert client.post("/api/v1/tasks/per_user/rollback").status_code == 422
    assert client.post("/api/v1/tasks/per_usr/rollback?version=0").status_code == 404
    assert prompt.asked == []
