from __future__ import annotations

from fastapi.testclient import TestClient

from kilonova.catalog import firings, servers
from kilonova.service.project import Project
from tests.catalog.building import LEASE, claim_batches, ingested


def test_a_binding_is_shown_with_what_starts_it(client: TestClient) -> None:
    shown = client.get("/api/v1/bindings/per_user").json()
    assert (shown["triggers"], shown["tasks"], shown["paused"]) == (["clicks has new data"], ["per_user"], False)
    assert client.get("/api/v1/bindings").json() == [shown]
    assert client.get("/api/v1/bindings?after=per_user").json() == []


def test_a_binding_can_be_steered(client: TestClient) -> None:
    for verb in ("pause", "resume"):
        assert client.post(f"/api/v1/bindings/per_user/{verb}").json() == {"binding": "per_user", "done": verb}
    assert client.post("/api/v1/bindings/per_user/fire").status_code == 202
    kinds = [event["kind"] for event in client.get("/api/v1/events").json()]
    assert kinds == ["applied", "paused", "resumed", "fired"]
    [firing] = client.get("/api/v1/firings").json()
    assert firing["binding"] == "per_user"


def test_what_is_fired_is_followed_to_its_end(client: TestClient, shop: Project) -> None:
    answer = client.post("/api/v1/bindings/per_user/fire")
    assert answer.headers["Location"] == "/api/v1/firings/1"
    queued = answer.json()
    assert (queued["number"], queued["binding"], queued["state"], queued["reason"]) == (1, "per_user", "queued", None)
    assert client.get("/api/v1/firings/1").json() == queued
    with shop.catalog.writing() as tx:
        [[batch], _] = claim_batches(tx, "one", 1)
        firings.skip(tx, *batch.claims, "none of its tasks has new input")
    ended = client.get("/api/v1/firings/1").json()
    assert (ended["state"], ended["run"], ended["reason"]) == ("skipped", None, "none of its tasks has new input")
    assert client.get("/api/v1/events?kind=skipped").json()[0]["text"] == "none of its tasks has new input"
    missing = client.get("/api/v1/firings/2")
    assert (missing.status_code, missing.json()["problem"]) == (404, "there is no firing 2")


def test_events_name_the_token_that_controlled_a_binding(client: TestClient, shop: Project) -> None:
    bearing = {"Authorization": f"Bearer {shop.operator.create_token('ann', 'operate')}"}
    for verb in ("fire", "pause", "resume"):
        client.post(f"/api/v1/bindings/per_user/{verb}", headers=bearing)
    events = client.get("/api/v1/events", headers=bearing).json()
    assert [event["text"] for event in events[1:]] == ["manually, by ann", "by ann", "by ann"]


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


def test_triggers_say_what_they_wait_for(client: TestClient, shop: Project) -> None:
    [told] = client.get("/api/v1/triggers").json()
    assert client.get("/api/v1/triggers?binding=per_user").json() == [told]
    assert (told["binding"], told["paused"], told["next"], told["last"], told["due"]) == (
        "per_user",
        False,
        None,
        None,
        0,
    )
    [trigger] = told["triggers"]
    assert (trigger["trigger"], trigger["waits"], trigger["ready"]) == (
        "clicks has new data", "nothing new on clicks", False,
    )  # fmt: skip
    ingested(shop.catalog, "clicks")
    client.post("/api/v1/bindings/per_user/fire")
    [told] = client.get("/api/v1/triggers").json()
    assert told["triggers"][0]["parts"] == [
        {
            "trigger": "clicks has new data",
            "ready": True,
            "waits": "point 1 of clicks was reached",
            "rows": None,
            "since": None,
            "next_check": None,
        }
    ]
    assert (told["due"], told["last"]["state"]) == (1, "queued")
    assert client.get("/api/v1/triggers?after=per_user").json() == []
    assert client.get("/api/v1/triggers?binding=x").status_code == 404


def test_servers_say_what_they_have_taken_on(client: TestClient, shop: Project) -> None:
    client.post("/api/v1/bindings/per_user/fire")
    with shop.catalog.writing() as tx:
        servers.register(tx, "one", "1", LEASE)
        claim_batches(tx, "one", 1)
    [told] = client.get("/api/v1/servers").json()
    assert (told["name"], told["state"], told["runs"], told["subscriptions"]) == ("one", "alive", [], [])
    assert [firing["state"] for firing in told["firings"]] == ["claimed"]
    assert client.get("/api/v1/firings?state=claimed").json() == told["firings"]
    assert client.get("/api/v1/firings?state=queued").json() == []


def test_events_are_filtered_newest_first(client: TestClient, shop: Project) -> None:
    for _ in range(3):
        client.post("/api/v1/bindings/per_user/fire")
    ingested(shop.catalog, "clicks")

    def numbers(query: str) -> list[int]:
        return [event["number"] for event in client.get(f"/api/v1/events?{query}").json()]

    assert numbers("") == [1, 2, 3, 4, 5, 6]
    assert numbers("before=4") == [3, 2, 1]
    assert numbers("kind=fired&kind=applied&since=1") == [4, 3, 2]
    assert numbers("binding=per_user&before=4") == [3, 2]
    assert numbers("channel=clicks") == [6]
    first = client.get("/api/v1/events?kind=fired&limit=2")
    assert first.links["next"]["url"] == "/api/v1/events?kind=fired&limit=2&before=3"


def test_missing_things_are_reported_as_not_found(client: TestClient) -> None:
    for method, path in (("GET", "bindings/per_usr"), ("GET", "firings?binding=x"), ("POST", "bindings/x/fire")):
        answer = client.request(method, f"/api/v1/{path}")
        assert (answer.status_code, answer.json()["error"]) == (404, "unknown"), path
    assert client.get("/api/v1/servers").json() == []
