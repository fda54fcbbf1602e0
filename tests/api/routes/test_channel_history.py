from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from kilonova.service.project import Project
from tests.catalog.building import ingested


def test_points_come_newest_first_with_their_blocks(client: TestClient, shop: Project) -> None:
    for base in (False, False, True):
        ingested(shop.catalog, "clicks", base=base)
    first = client.get("/api/v1/channels/clicks/points?limit=2")
    second = client.get(first.links["next"]["url"])
    assert [[point["number"] for point in page.json()] for page in (first, second)] == [[3, 2], [1]]
    assert not second.links
    [newest, _] = first.json()
    assert (newest["state"], newest["kind"], newest["version"]) == ("filled", "ingest", "clicks 3")
    assert newest["blocks"] == [
        {
            "block": 3, "kind": "B3", "state": "live", "encoding": "append", "rows": 1, "bytes": 10, "files": 1,
            "removals": 0, "run": 3, "made": "ingest",
        }
    ]  # fmt: skip


def test_points_have_version_vectors(client: TestClient, shop: Project) -> None:
    for base in (False, True):
        ingested(shop.catalog, "clicks", base=base)
    found = client.get("/api/v1/channels/clicks/versions").json()
    assert found["ancestors"] == [{"name": "clicks", "is_source": True}]
    assert [
        {name: point[name] for name in ("point", "components", "blocks", "frontier")} for point in found["points"]
    ] == [
        {"point": 2, "components": ["2"], "blocks": ["B2"], "frontier": True},
        {"point": 1, "components": ["1"], "blocks": ["Δ0→1"], "frontier": False},
    ]
    (older,) = client.get("/api/v1/channels/clicks/versions?before=2&limit=5").json()["points"]
    assert older["point"] == 1


def test_a_channel_reports_its_sizes_schemas_readers_and_blocks(client: TestClient, shop: Project) -> None:
    for base in (True, False):
        ingested(shop.catalog, "clicks", base=base)
    sizes = client.get("/api/v1/channels/clicks/sizes").json()
    assert [(size["point"], size["rows"], size["bytes"], size["renewed"]) for size in sizes] == [
        (1, 1, 10, True), (2, 2, 20, False),
    ]  # fmt: skip
    assert len(client.get("/api/v1/channels/clicks/sizes?limit=1").json()) == 1
    [schema] = client.get("/api/v1/channels/clicks/schemas").json()
    assert schema["added"] == [
        {"name": "id", "type": "bigint", "since": 0, "added_as": None},
        {"name": "note", "type": "string", "since": 0, "added_as": None},
    ]
    assert client.get("/api/v1/channels/clicks/readers").json() == [
        {"task": "per_user", "logic": 0, "channel": "clicks", "cursor": 0, "newest": 2}
    ]
    assembly = client.get("/api/v1/channels/clicks/snapshot-plan").json()
    assert (assembly["at"], assembly["base"]["kind"], assembly["ratio"]) == (2, "B1", 2.0)
    assert [delta["kind"] for delta in assembly["deltas"]] == ["Δ1→2"]
    assert client.get("/api/v1/channels/clicks/snapshot-plan?at=1").json()["deltas"] == []
    assert client.get("/api/v1/channels/clicks/snapshot-plan?at=3").status_code == 404


@pytest.mark.parametrize("what", ["points", "versions", "sizes", "schemas", "readers", "snapshot-plan"])
def test_a_missing_channel_is_reported_as_not_found(client: TestClient, what: str) -> None:
    answer = client.get(f"/api/v1/channels/click/{what}")
    assert (answer.status_code, answer.json()["hint"]) == (404, "Did you mean clicks?")
