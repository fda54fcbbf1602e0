from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from kilonova.service.project import Project
from tests.fakes import PLAN, Prompt


@pytest.fixture
def admin(client: TestClient, shop: Project) -> TestClient:
    client.headers["Authorization"] = f"Bearer {shop.operator.create_token('root', 'admin')}"
    return client


def test_a_workflow_is_sent_to_a_worker(admin: TestClient, prompt: Prompt) -> None:
    assert admin.post(
        "/api/v1/workflows?format=zip&path=a.py&path=b&dry_run=true&defer=02:00&same_logic=one&new_version=two",
        content=b"PK",
    ).json() == [PLAN]
    [(what, arguments)] = prompt.asked
    assert what == "apply"
    assert arguments | {"format": "zip", "paths": ["a.py", "b"], "dry_run": True, "defer": "02:00"} == arguments
    assert (arguments["same_logic"], arguments["new_version"]) == (["one"], ["two"])


def test_a_workflow_can_be_sent_without_waiting(admin: TestClient) -> None:
    answer = admin.post("/api/v1/workflows?wait=false", content=b"import kilonova")
    assert answer.status_code == 202
    assert admin.get(answer.headers["Location"]).json()["result"] == [PLAN]


def test_what_is_too_large_for_a_workflow_is_refused(admin: TestClient, prompt: Prompt) -> None:
    answer = admin.post("/api/v1/workflows", content=b" " * (21 << 20))
    assert (answer.status_code, answer.json()["error"]) == (413, "large")
    assert prompt.asked == []
