from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

import kilonova as kn
from kilonova.catalog import deferred, workflow_files
from kilonova.service.project import Project
from tests.fakes import PLAN, PREVIEW, Prompt, Slow
from tests.shop import api


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


@pytest.fixture
def filed(shop: Project) -> Project:
    """The project, whose workflow was applied from a file in its directory."""
    with shop.catalog.writing() as tx:
        workflow_files.put_file(tx, "shop", "flows/shop.py")
    return shop


def test_workflows_are_listed_with_their_files(client: TestClient, filed: Project) -> None:
    with filed.catalog.writing() as tx:
        deferred.defer(tx, "shop", datetime(2100, 1, 1, tzinfo=UTC), {"per_user": 1}, b"")
    [known] = client.get("/api/v1/workflows").json()
    assert (known["name"], known["file"], known["tasks"]) == ("shop", "flows/shop.py", 1)
    assert known["deferred_until"] == "2100-01-01T00:00:00Z"
    assert known["registered"] is not None


def test_the_file_of_a_workflow_is_planned_and_applied_as_it_was_looked_at(
    client: TestClient, filed: Project, prompt: Prompt
) -> None:
    [plan] = client.post("/api/v1/workflows/shop/apply?dry_run=true").json()
    assert plan == PLAN
    answer = client.post(f"/api/v1/workflows/shop/apply?wait=false&defer=02:00&expected={plan['digest']}")
    assert client.get(answer.headers["Location"]).json()["result"] == [PLAN]
    [(_, first), (what, then)] = prompt.asked
    place = {"file": str(filed.directory.resolve() / "flows/shop.py"), "format": "path", "workflow": "shop"}
    assert first.items() >= (place | {"dry_run": True, "expected": None}).items()
    assert then.items() >= (place | {"dry_run": False, "defer": "02:00", "expected": [PLAN["digest"]]}).items()
    assert what == "apply"


def test_a_workflow_is_previewed_by_a_worker(client: TestClient, filed: Project, prompt: Prompt) -> None:
    options = "verify=true&rows=3&sample=1%25&sample_by=user"
    assert client.post(f"/api/v1/workflows/shop/preview?{options}").json() == PREVIEW
    [(what, arguments)] = prompt.asked
    assert what == "preview"
    wanted = {"verify": True, "examples": 3, "sample": "1%", "sample_by": ["user"], "rollback": None}
    assert arguments.items() >= wanted.items()
    assert arguments["source"]["workflow"] == "shop"


def test_a_sent_workflow_is_previewed(admin: TestClient, prompt: Prompt) -> None:
    assert admin.post("/api/v1/workflows/preview?format=zip&path=a.py", content=b"PK").json() == PREVIEW
    [(_, arguments)] = prompt.asked
    assert (arguments["source"]["format"], arguments["source"]["paths"]) == ("zip", ["a.py"])


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("workflows/shop/preview?sample=much", 422, "not the size of a sample"),
        ("workflows/shop/preview?sample=200%25", 422, "not valid"),
        ("workflows/shop/preview?rows=1000", 422, "rows"),
        ("workflows/shp/apply", 404, "there is no workflow shp"),
        ("workflows/other/apply", 404, "the file of the workflow other is not known"),
        ("workflows/other/preview", 404, "the file of the workflow other is not known"),
    ],
)
def test_what_cannot_be_planned_is_refused_at_once(
    client: TestClient, filed: Project, prompt: Prompt, path: str, status: int, words: str
) -> None:
    other = kn.Workflow("other")
    other.channel("more", "n int")
    filed.apply(other)
    answer = client.post(f"/api/v1/{path}")
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert prompt.asked == []


def test_an_operation_says_what_it_does_now(shop: Project) -> None:
    with shop.catalog.writing() as tx:
        workflow_files.put_file(tx, "shop", "shop.py")
    server = Slow()
    client = TestClient(api(server, shop), base_url="http://localhost:8620")
    place = client.post("/api/v1/workflows/shop/preview?wait=false").headers["Location"]
    assert client.get(place).json()["state"] == "waiting"
    server.waiting[0].set_running_or_notify_cancel()
    server.does = "comparing per_user"
    found = client.get(place).json()
    assert (found["state"], found["progress"]) == ("running", "comparing per_user")


def test_only_admins_plan_apply_and_preview(client: TestClient, filed: Project) -> None:
    secrets = {role: filed.operator.create_token(role, role) for role in ("read", "operate", "admin")}
    for path in ("workflows/shop/apply", "workflows/shop/preview", "tasks/per_user/rollback?version=0"):
        found = {
            role: client.post(f"/api/v1/{path}", headers={"Authorization": f"Bearer {secret}"}).status_code
            for role, secret in secrets.items()
        }
        assert found == {"read": 403, "operate": 403, "admin": 200}
