from __future__ import annotations

from fastapi.testclient import TestClient

from kilonova.service.project import Project
from tests.catalog.building import ingested
from tests.server.standing_in import Prompt


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


def test_tasks_are_run_when_somebody_asks(client: TestClient, prompt: Prompt) -> None:
    assert client.post("/api/v1/runs?task=per_user").json() == {"run": 3}
    client.post("/api/v1/runs")
    assert prompt.asked == [("run", {"tasks": ["per_user"]}), ("run", {"tasks": None})]


def test_monitoring_sees_what_there_is(client: TestClient, shop: Project) -> None:
    ingested(shop.catalog, "clicks")
    text = client.get("/metrics").text
    assert 'kilonova_runs{state="succeeded"} 1.0' in text
    assert 'kilonova_channel_point{channel="clicks"} 1.0' in text
    assert 'kilonova_channel_point{channel="per_user"}' not in text
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/ready").json() == {"status": "ready"}
