from __future__ import annotations

from fastapi.testclient import TestClient

from kilonova.service.project import Project


def test_tokens_are_made_listed_and_revoked(client: TestClient, shop: Project) -> None:
    client.headers["Authorization"] = f"Bearer {shop.create_token('root', 'admin')}"
    made = client.post("/api/v1/tokens?name=grafana")
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    theirs = {"Authorization": f"Bearer {made.json()['token']}"}
    assert client.get("/api/v1/channels", headers=theirs).status_code == 200
    assert client.post("/api/v1/runs", headers=theirs).status_code == 403
    listed = client.get("/api/v1/tokens").json()
    assert [(token["name"], token["role"]) for token in listed] == [("grafana", "read"), ("root", "admin")]
    assert "token" not in listed[0]
    assert client.post("/api/v1/tokens?name=grafana").status_code == 422
    assert client.post("/api/v1/tokens?name=other&role=king").json()["path"] == "role"
    assert [token["name"] for token in client.delete("/api/v1/tokens/grafana").json()] == ["root"]
    assert client.get("/api/v1/channels", headers=theirs).status_code == 401
    assert client.delete("/api/v1/tokens/grafana").status_code == 404
