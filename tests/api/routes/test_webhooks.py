from __future__ import annotations

import pytest
from fastapi.testclient import TestClient


def test_webhooks_are_made_by_who_may_and_shown_without_secrets(client: TestClient) -> None:
    hook = {"name": "pager", "url": "https://example.com/t0ken", "on": ["failed", "stuck"], "secret_env": "PAGER"}
    assert client.post("/api/v1/webhooks", json=hook).json() == {"webhook": "pager"}
    answer = client.get("/api/v1/webhooks")
    [shown] = answer.json()
    assert (shown["name"], shown["origin"], shown["on"]) == ("pager", "https://example.com", ["failed", "stuck"])
    assert shown["signed"] is True
    assert "t0ken" not in answer.text
    assert "PAGER" not in answer.text
    again = client.post("/api/v1/webhooks", json=hook)
    assert (again.status_code, again.json()["error"]) == (422, "declaration")
    inside = client.post("/api/v1/webhooks", json={**hook, "name": "x", "url": "file:///etc/passwd"})
    assert inside.status_code == 422
    assert client.post("/api/v1/webhooks", json={**hook, "name": "x", "on": ["fialed"]}).status_code == 404
    assert client.delete("/api/v1/webhooks/pagr").status_code == 404
    assert client.delete("/api/v1/webhooks/pager").json() == {"webhook": "pager"}
    assert client.get("/api/v1/webhooks").json() == []


@pytest.mark.parametrize(
    "wrong",
    [
        '"name": "\\ud800"',
        '"url": "http://"',
        '"url": "http://[::1"',
        '"url": "http://\\ud800"',
        '"on": ["\\ud800"]',
        '"binding": "\\ud800"',
        '"\\ud800": 1, "name": 3',
    ],
)
def test_a_webhook_that_cannot_be_is_refused(client: TestClient, wrong: str) -> None:
    body = '{"name": "w", "url": "https://example.com", "on": ["failed"], ' + wrong + "}"
    answer = client.post("/api/v1/webhooks", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (404, 422)
    assert client.get("/api/v1/webhooks").json() == []
