"""The HTTP API without a worker: what needs Spark is answered by a stand-in for the loop."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings

import kilonova as kn
from kilonova.errors import SettingsError
from kilonova.model.role import Role
from kilonova.server.access import refuse_open
from kilonova.server.api import api
from kilonova.server.loop import Refused
from kilonova.service.project import Project, open_project


class Spark:
    """Does errands at once: a page is two rows, and everything else is refused."""

    ready = True

    def errand(self, what: str, **arguments: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        if what == "page":
            table = pa.table({"user": ["ann", "bob"]})
            with pa.OSFile(arguments["file"], "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            answer.set_result([7, arguments["file"]])
        elif what == "ingest" and "nowhere" in arguments["source"]:
            answer.set_exception(Refused({"error": "unreadable", "problem": "there is no such file", "hint": None}))
        else:
            answer.set_result(3)
        return answer


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    shop = kn.Workflow("shop")
    shop.channel("clicks", "user string")
    shop.view("per_user", "SELECT user, count(*) AS n FROM clicks GROUP BY user")
    with open_project(tmp_path, serve={"upload": 1, "rate": "1000000 per minute"}) as fresh:
        fresh.create()
        fresh.apply(shop)
        yield fresh


@pytest.fixture
def app(project: Project) -> FastAPI:
    return api(Spark(), project)  # type: ignore[arg-type]


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app)


def test_what_the_command_line_shows_is_there(client: TestClient) -> None:
    assert {item["name"] for item in client.get("/api/v1/channels").json()} == {"clicks", "per_user"}
    assert client.get("/api/v1/channels/clicks").json()["columns"] == {"user": "string"}
    assert [item["name"] for item in client.get("/api/v1/tasks").json()] == ["per_user"]
    assert client.get("/api/v1/bindings/per_user").json()["triggers"] == ["clicks has new data"]
    assert client.get("/api/v1/views/per_user").json()[0]["channel"] == "per_user"
    assert client.get("/api/v1/runs").json() == []
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/ready").json() == {"status": "ready"}
    assert 'kilonova_runs{state="running"}' not in client.get("/metrics").text
    assert "kilonova_channel_rows" in client.get("/metrics").text


def test_rows_come_as_json_or_arrow(client: TestClient) -> None:
    answer = client.get("/api/v1/channels/clicks/rows")
    assert answer.headers["kilonova-point"] == "7"
    assert answer.json() == [{"user": "ann"}, {"user": "bob"}]
    stream = client.get("/api/v1/channels/clicks/rows?format=arrow").content
    assert pa.ipc.open_stream(stream).read_all().to_pydict() == {"user": ["ann", "bob"]}


def test_rows_go_in_by_upload_or_reference(client: TestClient) -> None:
    answer = client.post("/api/v1/channels/clicks/blocks", content=b'{"user": "ann"}')
    assert answer.json() == {"run": 3}
    large = client.post("/api/v1/channels/clicks/blocks", content=b" " * (2 << 20))
    assert large.status_code == 422
    assert "larger than 1 MB" in large.json()["problem"]
    missing = client.post("/api/v1/channels/clicks/references?source=/nowhere.csv")
    assert (missing.status_code, missing.json()["error"]) == (422, "unreadable")


def test_a_binding_can_be_steered(client: TestClient) -> None:
    for verb in ("fire", "pause", "resume"):
        assert client.post(f"/api/v1/bindings/per_user/{verb}").json() == {"binding": "per_user", "done": verb}
    kinds = [event["kind"] for event in client.get("/api/v1/events").json()]
    assert kinds == ["applied", "fired", "paused", "resumed"]
    [firing] = client.get("/api/v1/firings").json()
    assert firing["binding"] == "per_user"


def test_what_is_not_there_is_told(client: TestClient) -> None:
    for path in ("channels/click", "channels/click/rows", "bindings/per_usr", "views/per_usr", "firings?binding=x"):
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == 404, path
        assert answer.json()["error"] == "unknown"
    assert client.get("/api/v1/channels/clicks/rows?limit=0").status_code == 422


def routes(app: FastAPI) -> list[tuple[str, str, Role | None]]:
    """Method, path and role of every route; None for those that are open."""
    found = []
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            [needed] = operation.get("security", [{"token": [None]}])
            [role] = needed["token"]
            found.append((method.upper(), path.replace("{name}", "clicks"), role and Role(role)))
    return found


OPEN = {"/health", "/ready"}


def test_every_role_may_do_what_it_is_for_and_no_more(app: FastAPI, client: TestClient, project: Project) -> None:
    secrets = {role: project.create_token(role.value, role.value) for role in Role}
    checked = 0
    for method, path, needed in sorted(routes(app), key=lambda route: route[0] == "DELETE"):
        if path.endswith("/stream"):
            continue
        assert (needed is None) == (path in OPEN), path
        if needed is None:
            continue
        assert client.request(method, path).status_code == 401, path
        wrong = {"Authorization": "Bearer nonsense"}
        assert client.request(method, path, headers=wrong).status_code == 401, path
        for role, secret in secrets.items():
            status = client.request(method, path, headers={"Authorization": f"Bearer {secret}"}).status_code
            assert (status != 403) == role.may(needed), (path, role)
            assert status < 500, path
            checked += 1
    assert checked > 50
    project.revoke_token("read")
    stale = {"Authorization": f"Bearer {secrets[Role.READ]}"}
    assert client.get("/api/v1/channels", headers=stale).status_code == 401


def test_too_many_requests_are_refused(project: Project) -> None:
    with open_project(project.directory, serve={"rate": "2 per minute"}) as strict:
        client = TestClient(api(Spark(), strict))  # type: ignore[arg-type]
        statuses = [client.post("/api/v1/bindings/per_user/fire").status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert client.get("/api/v1/channels").status_code == 200


def test_a_server_does_not_listen_to_everybody_without_tokens(project: Project) -> None:
    refuse_open(project.catalog, "127.0.0.1")
    refuse_open(project.catalog, "localhost")
    with pytest.raises(SettingsError, match="no tokens"):
        refuse_open(project.catalog, "0.0.0.0")
    project.create_token("me", "admin")
    refuse_open(project.catalog, "0.0.0.0")


@pytest.fixture
def described(app: FastAPI) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_asgi("/api/openapi.json", app)


def test_no_request_makes_the_server_fail(described: schemathesis.BaseSchema) -> None:
    checked = 0
    for result in described.exclude(path="/api/v1/events/stream").get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        def check(case: schemathesis.Case) -> None:
            answer = case.call()
            assert answer.status_code < 500, (case.as_curl_command(), answer.text)

        check()
        checked += 1
    assert checked > 20
