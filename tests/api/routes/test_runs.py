from __future__ import annotations

import getpass
from datetime import timedelta

from fastapi.testclient import TestClient

from kilonova.catalog import pins, runs
from kilonova.model.encoding import Upsert
from kilonova.model.run import RunKind
from kilonova.service.project import Project
from tests.catalog.building import LEASE, begin, ingested
from tests.fakes import Prompt
from tests.service.writing import Writing, wrote


def test_runs_come_newest_first_and_page_by_page(client: TestClient, shop: Project) -> None:
    assert client.get("/api/v1/runs").json() == []
    for _ in range(3):
        ingested(shop.catalog, "clicks")
    first = client.get("/api/v1/runs?limit=2")
    second = client.get(first.links["next"]["url"])
    assert [[item["run"]["number"] for item in page.json()] for page in (first, second)] == [[3, 2], [1]]
    assert not second.links
    assert [made["channel"] for made in first.json()[0]["made"]] == ["clicks"]
    told = client.get("/api/v1/runs/2").json()
    assert told == told | first.json()[1] | {"inputs": [], "firings": [], "earlier": 1, "later": 3}
    missing = client.get("/api/v1/runs/4")
    assert (missing.status_code, missing.json()["hint"]) == (404, "The runs are 1 to 3")


def test_runs_are_filtered(client: TestClient, shop: Project) -> None:
    for _ in range(3):
        ingested(shop.catalog, "clicks")
    with shop.catalog.writing() as tx:
        begin(tx, "per_user", tasks=("per_user",), kind=RunKind.TASKS)

    def numbers(query: str) -> list[int]:
        return [item["run"]["number"] for item in client.get(f"/api/v1/runs?{query}").json()]

    assert numbers("state=running") == numbers("kind=tasks") == numbers("task=per_user") == [4]
    assert numbers("channel=clicks&state=succeeded") == [3, 2, 1]
    assert numbers("binding=per_user") == []
    first = client.get("/api/v1/runs?channel=clicks&limit=2")
    assert first.links["next"]["url"] == "/api/v1/runs?channel=clicks&limit=2&before=2"
    for unknown in ("binding=x", "task=x", "channel=x"):
        assert client.get(f"/api/v1/runs?{unknown}").status_code == 404
    assert client.get("/api/v1/runs?state=lost").status_code == 422


def test_a_run_is_reported_with_its_reservations_and_pins(client: TestClient, shop: Project) -> None:
    ingested(shop.catalog, "clicks")
    with shop.catalog.writing() as tx:
        run, _ = begin(tx, "per_user", tasks=("per_user",), kind=RunKind.TASKS)
        pins.pin(tx, pins.holder_of(run), [1], LEASE)
    told = client.get(f"/api/v1/runs/{run}").json()
    assert told["holdings"] == {"reserved": {"per_user": 1}, "tasks": ["per_user"], "blocks": [1]}
    assert (told["earlier"], told["later"]) == (1, None)
    [made] = client.get("/api/v1/runs/1").json()["made"]
    assert made["kind"] == {"start": 0, "end": 1}


def test_tasks_are_run_on_request(client: TestClient, prompt: Prompt) -> None:
    assert client.post("/api/v1/runs?task=per_user").json() == {"run": 3}
    client.post("/api/v1/runs")
    assert prompt.asked == [("run", {"tasks": ["per_user"]}), ("run", {"tasks": None})]


def begun(shop: Project) -> int:
    with shop.catalog.writing() as tx:
        lease = timedelta(seconds=60)
        return runs.start(tx, kind=RunKind.TASKS, tasks=["per_user"], writes=["per_user"], owner="me", lease=lease)[0]


def test_a_run_is_cancelled_and_retried_by_the_owner_of_a_token(client: TestClient, shop: Project) -> None:
    number = begun(shop)
    bearing = {"Authorization": f"Bearer {shop.operator.create_token('ann', 'operate')}"}
    early = client.post(f"/api/v1/runs/{number}/retry", headers=bearing)
    assert (early.status_code, early.json()["error"], early.json()["run"]) == (422, "state", number)
    cancelled = client.post(f"/api/v1/runs/{number}/cancel", headers=bearing)
    assert cancelled.json() == client.get(f"/api/v1/runs/{number}", headers=bearing).json()
    run = cancelled.json()["run"]
    assert (run["state"], run["error"]) == ("cancelled", "cancelled by ann")
    again = client.post(f"/api/v1/runs/{number}/cancel", headers=bearing)
    assert (again.status_code, again.json()["error"]) == (422, "state")
    assert "cancelled by ann" in again.json()["problem"]
    answer = client.post(f"/api/v1/runs/{number}/retry", headers=bearing)
    assert (answer.status_code, answer.headers["Location"]) == (202, "/api/v1/firings/1")
    assert [(each["number"], each["binding"], each["state"]) for each in answer.json()] == [(1, "per_user", "queued")]
    told = [(event["kind"], event["text"]) for event in client.get("/api/v1/events", headers=bearing).json()]
    assert told[-2:] == [("cancelled", "cancelled by ann"), ("fired", f"run {number} again, ann")]
    assert 'kilonova_runs{state="cancelled"} 1.0' in client.get("/metrics", headers=bearing).text


def test_without_tokens_it_is_the_user_of_the_server_who_cancels(client: TestClient, shop: Project) -> None:
    answer = client.post(f"/api/v1/runs/{begun(shop)}/cancel")
    assert answer.json()["run"]["error"] == f"cancelled by {getpass.getuser()}"
    for what in ("cancellation", "retry"):
        assert client.post(f"/api/v1/runs/7/{what}").status_code == 404


def test_monitoring_sees_what_there_is(client: TestClient, shop: Project) -> None:
    ingested(shop.catalog, "clicks")
    wrote(shop.catalog, {"per_user": Writing(rows=4, base=True)}, task="per_user", read=[("clicks", 1)])
    wrote(shop.catalog, {"per_user": Writing(rows=3, base=True)}, task="per_user", read=[("clicks", 1)])
    text = client.get("/metrics").text
    assert 'kilonova_runs{state="succeeded"} 3.0' in text
    assert 'kilonova_channel_point{channel="clicks"} 1.0' in text
    assert 'kilonova_channel_point{channel="per_user"} 2.0' in text
    for rows in ("rows", "rows_max"):
        assert f'kilonova_channel_{rows}{{channel="per_user"}} 3.0' in text
    assert 'kilonova_channel_bytes{channel="per_user"} 30.0' in text
    assert 'kilonova_channel_stored_bytes{channel="per_user"} 70.0' in text
    wrote(shop.catalog, {"per_user": Writing(rows=2, encoding=Upsert(("user",)))}, task="per_user")
    text = client.get("/metrics").text
    assert 'kilonova_channel_rows{channel="per_user"}' not in text
    assert 'kilonova_channel_rows_max{channel="per_user"} 5.0' in text
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/ready").json() == {"status": "ready"}
