from __future__ import annotations

from fastapi.testclient import TestClient

from kilonova.service.project import Project


def test_a_binding_is_shown_with_what_starts_it(client: TestClient) -> None:
    shown = client.get("/api/v1/bindings/per_user").json()
    assert (shown["triggers"], shown["tasks"], shown["paused"]) == (["clicks has new data"], ["per_user"], False)
    assert client.get("/api/v1/bindings").json() == [shown]
    assert client.get("/api/v1/bindings?after=per_user").json() == []


def test_a_binding_can_be_steered(client: TestClient) -> None:
    for verb in ("fire", "pause", "resume"):
        assert client.post(f"/api/v1/bindings/per_user/{verb}").json() == {"binding": "per_user", "done": verb}
    kinds = [event["kind"] for event in client.get("/api/v1/events").json()]
    assert kinds == ["applied", "fired", "paused", "resumed"]
    [firing] = client.get("/api/v1/firings").json()
    assert firing["binding"] == "per_user"


def test_who_steers_a_binding_is_told_by_the_name_of_the_token(client: TestClient, shop: Project) -> None:
    bearing = {"Authorization": f"Bearer {shop.create_token('ann', 'operate')}"}
    for verb in ("fire", "pause", "resume"):
        client.post(f"/api/v1/bindings/per_user/{verb}", headers=bearing)
    events = client.get("/api/v1/events", headers=bearing).json()
    assert [event["text"] for event in events[1:]] == ["by hand, ann", "by ann", "by ann"]


def test_firings_and_events_come_page_by_page(client: TestClient) -> None:
    for _ in range(3):
        client.post("/api/v1/bindings/per_user/fire")
    first = client.get("/api/v1/firings?binding=per_user&limit=2")
    second = client.get(first.links["next"]["url"])
    assert [[item["number"] for item in page.json()] for page in (first, second)] == [[3, 2], [1]]
    assert not second.links
    first = client.get("/api/v1/events?limit=3")
    second = client.get(first.links["next"]["url"])
    assert [[item["number"] for item in page.json()] for page in (first, second)] == [[1, 2, 3], [4]]
    assert not second.links


def test_what_is_not_there_is_told(client: TestClient) -> None:
    for method, path in (("GET", "bindings/per_usr"), ("GET", "firings?binding=x"), ("POST", "bindings/x/fire")):
        answer = client.request(method, f"/api/v1/{path}")
        assert (answer.status_code, answer.json()["error"]) == (404, "unknown"), path
    assert client.get("/api/v1/servers").json() == []
