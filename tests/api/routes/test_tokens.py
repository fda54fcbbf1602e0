from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from kilonova.errors import DeclarationError
from kilonova.service.project import Project


def test_tokens_are_made_listed_and_revoked(client: TestClient, shop: Project) -> None:
    client.headers["Authorization"] = f"Bearer {shop.operator.create_token('root', 'admin')}"
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


@pytest.mark.parametrize("name", ["a%2Fb", "a%00b", "%ED%A0%80", "x" * 60_000, "", "%20", "a%0A"])
def test_a_token_has_a_name_that_can_be_shown(client: TestClient, shop: Project, name: str) -> None:
    client.headers["Authorization"] = f"Bearer {shop.operator.create_token('root', 'admin')}"
    assert client.post(f"/api/v1/tokens?name={name}").status_code == 422
    assert [token["name"] for token in client.get("/api/v1/tokens").json()] == ["root"]


@pytest.mark.parametrize("name", ["a/b", "a\0b", "\ud800", "x" * 201, ""])
def test_such_names_are_refused_on_the_command_line_too(shop: Project, name: str) -> None:
    with pytest.raises(DeclarationError, match="cannot be named"):
        shop.operator.create_token(name, "read")
