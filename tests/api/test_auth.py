from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from kilonova.api.auth import check_tokens_exist, only_this_machine
from kilonova.errors import SettingsError
from kilonova.service.project import Project, open_project
from tests.fakes import Prompt
from tests.shop import api


def asking(project: Project, named: str = "localhost:8620", **settings: Any) -> TestClient:
    """A client of a server over a project with other settings."""
    other = open_project(project.directory, serve=settings)
    return TestClient(api(Prompt(), other), base_url=f"http://{named}")


def bearing(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_a_token_counts_in_the_header_alone(client: TestClient, shop: Project) -> None:
    secret = shop.operator.create_token("me", "admin")
    assert client.get("/api/v1/channels", headers=bearing(secret)).status_code == 200
    assert client.get("/api/v1/channels", headers={"authorization": f"bearer {secret}"}).status_code == 200
    for name in ("token", "access_token", "authorization", "bearer"):
        assert client.get(f"/api/v1/channels?{name}={secret}").status_code == 401
        assert client.get("/api/v1/channels", headers={"Cookie": f"{name}={secret}"}).status_code == 401
    assert client.get("/api/v1/channels", headers={"X-Token": secret}).status_code == 401


@pytest.mark.parametrize("secret", ["", " ", "x" * 10_000, "tøken", '";--', "a b"])
def test_no_nonsense_is_a_token(client: TestClient, shop: Project, secret: str) -> None:
    shop.operator.create_token("me", "admin")
    answer = client.get("/api/v1/channels", headers={"Authorization": f"Bearer {secret}".encode("latin-1")})
    assert answer.status_code == 401


def test_too_many_requests_that_change_something_are_refused(shop: Project) -> None:
    client = asking(shop, rate_limit="2 per minute")
    answers = [client.post("/api/v1/bindings/per_user/fire") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 60
    assert client.get("/api/v1/channels").status_code == 200


def test_one_token_does_not_use_up_what_another_may(shop: Project) -> None:
    first, second = (shop.operator.create_token(name, "operate") for name in ("first", "second"))
    client = asking(shop, rate_limit="1 per minute")
    statuses = [
        client.post("/api/v1/bindings/per_user/fire", headers=bearing(secret)).status_code
        for secret in (first, first, second)
    ]
    assert statuses == [202, 429, 202]


def test_wrong_tokens_are_limited_and_lock_no_right_one_out(shop: Project) -> None:
    secret = shop.operator.create_token("me", "read")
    client = asking(shop, failed_auth_limit="3 per hour")
    answers = [client.get("/api/v1/channels", headers=bearing("guess")) for _ in range(12)]
    assert [answer.status_code for answer in answers] == [401] * 3 + [429] * 9
    assert int(answers[-1].headers["Retry-After"]) > 60
    assert client.get("/api/v1/channels", headers=bearing(secret)).status_code == 200
    assert client.post("/sign-in", data={"token": secret}, follow_redirects=False).status_code != 429


def test_requests_that_change_nothing_are_limited_by_themselves(shop: Project) -> None:
    secret = shop.operator.create_token("me", "operate")
    client = asking(shop, read_rate_limit="2 per minute")
    answers = [client.get("/api/v1/channels", headers=bearing(secret)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 60
    assert client.post("/api/v1/bindings/per_user/fire", headers=bearing(secret)).status_code == 202


def test_to_have_no_token_is_no_guess(shop: Project) -> None:
    secret = shop.operator.create_token("me", "read")
    client = asking(shop, failed_auth_limit="1 per hour")
    assert [client.get("/api/v1/channels").status_code for _ in range(3)] == [401] * 3
    assert client.get("/api/v1/channels", headers=bearing(secret)).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8620", "[::1]:8620", "127.3.2.1"])
def test_this_machine_may_do_without_tokens(shop: Project, host: str) -> None:
    assert asking(shop, host).get("/api/v1/channels").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8620", "localhost.evil.example", "10.0.0.1", "[x"])
def test_a_name_that_leads_here_from_elsewhere_is_refused_without_tokens(shop: Project, host: str) -> None:
    client = asking(shop)
    answer = client.get("/api/v1/channels", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]) == (403, "denied")
    secret = shop.operator.create_token("me", "read")
    assert client.get("/api/v1/channels", headers={"Host": host, **bearing(secret)}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "null", ""])
def test_pages_of_others_are_refused_without_tokens(shop: Project, origin: str) -> None:
    client = asking(shop)
    fire = "/api/v1/bindings/per_user/fire"
    assert client.post(fire, headers={"Origin": origin}).status_code == 403
    assert client.post(fire, headers={"Origin": "http://localhost:8620"}).status_code == 202
    assert len(shop.reader.firings(10)) == 1


def test_code_and_tokens_are_not_accepted_without_a_token(client: TestClient, shop: Project, prompt: Prompt) -> None:
    for method, path in (("POST", "workflows"), ("POST", "tokens?name=me&role=admin"), ("GET", "tokens")):
        answer = client.request(method, f"/api/v1/{path}")
        assert answer.status_code == 401
        assert "kilonova token create" in answer.json()["hint"]
    assert shop.reader.tokens() == []
    assert prompt.asked == []


def test_a_server_does_not_listen_to_everybody_without_tokens(shop: Project) -> None:
    check_tokens_exist(shop.catalog, "127.0.0.1")
    check_tokens_exist(shop.catalog, "localhost")
    with pytest.raises(SettingsError, match="without tokens"):
        check_tokens_exist(shop.catalog, "0.0.0.0")
    shop.operator.create_token("me", "admin")
    check_tokens_exist(shop.catalog, "0.0.0.0")
    assert not only_this_machine("")
    with pytest.raises(SettingsError, match="cannot listen on"):
        only_this_machine("no.such.host.invalid")


def test_a_server_that_listens_to_everybody_is_not_open_once_its_last_token_is_revoked(shop: Project) -> None:
    secret = shop.operator.create_token("me", "admin")
    client = asking(shop, host="0.0.0.0")
    assert client.get("/api/v1/channels", headers=bearing(secret)).status_code == 200
    assert client.delete("/api/v1/tokens/me", headers=bearing(secret)).json() == []
    assert client.get("/api/v1/channels").status_code == 401
    assert client.get("/api/v1/channels", headers=bearing(secret)).status_code == 401
