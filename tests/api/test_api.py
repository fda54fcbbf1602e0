"""The HTTP API as a whole, by its own description: who may do what, and that nothing makes it fail."""

from __future__ import annotations

import gc
import re
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import BaseRoute, Mount, Route

from kilonova.api.routes.context import route_context
from kilonova.catalog import runs
from kilonova.model.progress import RunProgress, StepProgress, TaskCount
from kilonova.model.role import Role
from kilonova.model.run import RunFailure, RunKind
from kilonova.service.project import Project, open_project
from kilonova.warehouse.storage import Storage
from kilonova.web.application import create_app
from tests.databases import DIALECTS, empty_database
from tests.fakes import Prompt, Slow
from tests.seeds import SEED
from tests.shop import api, opened_shop

OPEN = {"/health", "/ready"}
"""The routes that anybody may ask."""

ENDLESS = "/api/v1/events/stream"


def routes(app: FastAPI) -> list[tuple[str, str, Role | None]]:
    """Method, path and role of every route, those last that take something away; no role for those that are open."""
    found = []
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            [needed] = operation.get("security", [{"token": [None]}])
            [role] = needed["token"]
            named = path.replace("{number}", "1").replace("{name}", "clicks")
            found.append((method.upper(), named, role and Role(role)))
    return sorted(found, key=lambda route: route[0] == "DELETE")


def bearing(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_every_role_may_do_what_it_is_for_and_no_more(app: FastAPI, client: TestClient, shop: Project) -> None:
    secrets = {role: shop.operator.create_token(role.value, role.value) for role in Role}
    checked = 0
    for method, path, needed in routes(app):
        assert (needed is None) == (path in OPEN), f"{method} {path} does not say which role it needs"
        if needed is None:
            continue
        for headers in ({}, bearing("nonsense"), {"Authorization": f"Basic {secrets[Role.ADMIN]}"}):
            refused = client.request(method, path, headers=headers)
            assert refused.status_code == 401, (method, path)
            assert refused.headers["WWW-Authenticate"] == "Bearer"
        for role, secret in secrets.items():
            if path == ENDLESS and role.may(needed):
                continue
            status = client.request(method, path, headers=bearing(secret)).status_code
            assert (status != 403) == role.may(needed), (method, path, role)
            assert status < 500, (method, path)
            checked += 1
    assert checked > 70
    shop.operator.revoke_token("read")
    assert client.get("/api/v1/channels", headers=bearing(secrets[Role.READ])).status_code == 401


def described(route: BaseRoute) -> Iterator[str]:
    """The paths of a route that its description does not show."""
    match route:
        case Mount(path=path):
            yield path
        case Route(path=path, include_in_schema=False):
            yield path
    for inner in getattr(getattr(route, "original_router", None), "routes", ()):
        yield from described(inner)


def test_what_the_description_does_not_show_is_the_description_alone(app: FastAPI) -> None:
    hidden = {path for route in app.routes for path in described(route)}
    assert hidden == {"/api/openapi.json", "/api/docs", "/api/docs/files"}


def test_every_route_documents_its_errors(app: FastAPI) -> None:
    for path, methods in app.openapi()["paths"].items():
        for operation in methods.values():
            for status in ("401", "403", "404", "409", "413", "422", "429", "503"):
                [content] = operation["responses"][status]["content"].values()
                assert content["schema"] == {"$ref": "#/components/schemas/ErrorResponse"}, (path, status)


def test_the_page_that_describes_it_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/api/docs")
    assert "https://" not in page.text
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) == 3
    for name in loaded:
        assert client.get(f"/api/{name}").status_code == 200, name
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


@contextmanager
def fuzzed(dialect: str, place: Path) -> Iterator[tuple[schemathesis.BaseSchema, str]]:
    """The described API over a kind of database, and the token of an admin."""
    with empty_database(dialect) as url, opened_shop(place, catalog=url) as project:
        described = schemathesis.openapi.from_asgi("/api/openapi.json", api(Prompt(), project))
        yield described, project.operator.create_token("fuzzer", "admin")


@pytest.mark.parametrize(("dialect", "examples"), list(zip(DIALECTS, (15, 5), strict=True)))
def test_no_request_makes_the_server_fail(dialect: str, examples: int, tmp_path: Path) -> None:
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    checked = 0
    with fuzzed(dialect, tmp_path) as (described, secret):
        for result in described.exclude(path=ENDLESS).get_all_operations():
            operation = result.ok()

            @seed(SEED)
            @given(case=operation.as_strategy())
            @settings(
                max_examples=examples,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                phases=[Phase.explicit, Phase.generate],
            )
            def check(case: schemathesis.Case) -> None:
                headers = bearing(secret)
                case.validate_response(case.call(headers=headers), checks=checks, headers=headers)

            check()
            checked += 1
    assert checked > 30


@pytest.mark.parametrize("path", ["/api/v1/nowhere", "/api/v1/channels/clicks/rows/1"])
def test_an_unknown_path_is_reported_as_any_other_error(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]) == (404, "not found")
    assert client.put("/api/v1/channels").json()["error"] == "method not allowed"


def test_errors_name_invalid_parameters(client: TestClient) -> None:
    answer = client.get("/api/v1/channels/clicks/rows?limit=0")
    assert (answer.status_code, answer.json()["path"]) == (422, "limit")
    assert client.post("/api/v1/channels/clicks/ingests").json()["problem"] == "source: Field required"


def test_a_defect_is_reported_and_logged(shop: Project, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Prompt):
        def operation(self, what: str, **arguments: Any) -> Any:
            raise ZeroDivisionError("oh")

    client = TestClient(api(Broken(), shop), base_url="http://localhost", raise_server_exceptions=False)
    answer = client.post("/api/v1/runs")
    assert (answer.status_code, answer.json()["error"]) == (500, "defect")
    assert "ZeroDivisionError" in caplog.text


def test_a_catalog_of_another_release_is_reported(client: TestClient, shop: Project) -> None:
    with shop.catalog.writing() as tx:
        tx.connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    for path in ("/ready", "/api/v1/channels", "/metrics"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["error"]) == (503, "catalog")
        assert "newer release" in answer.json()["problem"]
        assert "Retry-After" not in answer.headers
    assert client.get("/health").status_code == 200


def test_a_catalog_that_is_away_may_be_asked_again(tmp_path: Path) -> None:
    with open_project(tmp_path, catalog="postgresql://localhost:1/nothing?connect_timeout=2") as project:
        client = TestClient(api(Slow(), project), base_url="http://localhost")
        for path in ("/ready", "/api/v1/channels"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]) == (503, "catalog")
            assert int(answer.headers["Retry-After"]) > 0


def test_a_missing_catalog_is_reported_and_not_created(client: TestClient, shop: Project) -> None:
    file = shop.directory / shop.settings.catalog
    shop.catalog.close()
    for part in file.parent.glob(f"{file.name}*"):
        part.unlink()
    answer = client.get("/api/v1/channels")
    assert (answer.status_code, answer.json()["hint"]) == (503, "Create one with: kilonova init")
    assert not file.exists()


def test_a_server_without_a_worker_is_not_ready(shop: Project) -> None:
    answer = TestClient(api(Slow(), shop), base_url="http://localhost").get("/ready")
    assert (answer.status_code, answer.json()["error"]) == (503, "spark")
    assert "Retry-After" in answer.headers


def test_the_files_of_a_directory_are_listed(client: TestClient, shop: Project) -> None:
    (shop.directory / "inbox").mkdir()
    (shop.directory / "inbox" / "a.csv").write_text("user\nann\n")
    shop.directories.scan("clicks")
    found = client.get("/api/v1/channels/clicks/files").json()
    assert found["watched"]["directory"]["location"] == "inbox"
    assert [(file["path"], file["state"]) for file in found["files"]] == [("inbox/a.csv", "ready")]
    assert client.get("/api/v1/channels/clicks/files?state=ingested").json()["files"] == []
    assert client.post("/api/v1/channels/clicks/files/retry").json() == {"files": 0}
    assert client.post("/api/v1/channels/clicks/files/retry?path=inbox/a.csv").status_code == 404
    assert client.get("/api/v1/channels/per_user/files").json() == {"watched": None, "files": []}


def test_a_run_is_reported_with_its_log(client: TestClient, shop: Project) -> None:
    with shop.catalog.writing() as tx:
        number, _ = runs.start(
            tx, kind=RunKind.INGEST, tasks=[], writes=["clicks"], owner="me", lease=timedelta(seconds=60)
        )
        runs.note_progress(tx, number, RunProgress(steps=3, ended=1, going=(StepProgress("clicks", TaskCount(2, 8)),)))
        began = tx.now
    assert client.get(f"/api/v1/runs/{number}/log").text == ""
    found = client.get(f"/api/v1/runs/{number}").json()
    assert found["run"]["progress"] == {
        "steps": 3,
        "ended": 1,
        "going": [{"step": "clicks", "amount": {"done": 2, "total": 8}}],
    }
    assert (found["made"], found["firings"]) == ([], [])
    Storage(str(shop.directory / ".kilonova" / "warehouse")).keep_log(number, began.date(), "it began\n")
    answer = client.get(f"/api/v1/runs/{number}/log")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == "it began\n"
    with shop.catalog.writing() as tx:
        runs.abandon(tx, "me", "its process ended", RunFailure.FINAL)
    assert client.get(f"/api/v1/runs/{number}").json()["run"]["progress"] is None
    assert client.get(f"/api/v1/runs/{number}/log").text.endswith("Z run: abandoned: its process ended\n")


def test_when_a_channel_is_compacted_can_be_said(client: TestClient, shop: Project) -> None:
    assert client.get("/api/v1/compaction-policies").json() == []
    place = "/api/v1/channels/clicks/compaction-policy"
    assert client.put(f"{place}?rule=max-deltas&deltas=5").json() == {"channel": "clicks", "policy": "after 5 deltas"}
    assert client.put(f"{place}?rule=manual").json()["policy"] == "only on request"
    assert client.put(f"{place}?rule=max-deltas&deltas=0").status_code == 422
    assert client.put("/api/v1/channels/click/compaction-policy?rule=cost-based").status_code == 404


def test_an_api_that_is_over_is_let_go(shop: Project) -> None:
    app = create_app(route_context(Prompt(), shop))
    with TestClient(app, base_url="http://localhost:8620") as client:
        assert client.get("/api/docs").status_code == client.get("/").status_code == 200
    kept = weakref.ref(app)
    del app, client
    until = time.monotonic() + 30  # threads that have answered let go of it a little later
    while kept() is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.05)
    assert kept() is None
