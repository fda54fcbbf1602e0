from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from kilonova.api import operations
from kilonova.api.operations import Operations
from kilonova.errors import Cancelled, Conflict, NotFound
from kilonova.service.project import Project
from kilonova.service.spark_operations import OperationFailed
from tests.fakes import Prompt, Slow
from tests.shop import api


def test_what_is_not_waited_for_can_be_asked_for(shop: Project) -> None:
    slow = Slow()
    client = TestClient(api(slow, shop), base_url="http://localhost")
    answer = client.post("/api/v1/runs?wait=false")
    assert answer.status_code == 202
    place = answer.headers["Location"]
    assert client.get(place).json() == answer.json()
    assert (answer.json()["state"], answer.json()["before"]) == ("waiting", 1)
    [outcome] = slow.waiting
    outcome.set_running_or_notify_cancel()
    assert (client.get(place).json()["state"], client.get(place).json()["before"]) == ("running", None)
    outcome.set_result(7)
    assert (client.get(place).json()["state"], client.get(place).json()["result"]) == ("done", 7)


def test_why_something_failed_can_be_asked_for(shop: Project) -> None:
    slow = Slow()
    client = TestClient(api(slow, shop), base_url="http://localhost")
    place = client.post("/api/v1/channels/clicks/compaction?wait=false").headers["Location"]
    slow.waiting[0].set_exception(OperationFailed.by(Conflict("a run has it", channel="c")))
    told = client.get(place).json()
    assert told["state"] == "failed"
    assert told["error"] | {"error": "busy", "problem": "a run has it", "channel": "c"} == told["error"]


@pytest.mark.parametrize(
    ("kind", "begun"), [("runs?wait=false", False), ("tasks/per_user/rollback/preview?version=0&wait=false", True)]
)
def test_what_has_not_begun_and_previews_can_be_cancelled(shop: Project, kind: str, begun: bool) -> None:
    slow = Slow()
    client = TestClient(api(slow, shop), base_url="http://localhost")
    answer = client.post(f"/api/v1/{kind}")
    assert answer.status_code == 202, answer.text
    place = answer.headers["Location"]
    if begun:
        slow.waiting[0].set_running_or_notify_cancel()
    assert client.post(f"{place}/cancel").json()["state"] == ("running" if begun else "failed")
    if begun:
        assert slow.unwanted == [slow.waiting[0]]
        slow.waiting[0].set_exception(OperationFailed.by(Cancelled("the operation was cancelled")))
    told = client.get(place).json()
    assert (told["state"], told["error"]["error"]) == ("failed", "cancelled")
    again = client.post(f"{place}/cancel")
    assert (again.status_code, again.json()["error"]) == (422, "state")
    assert "has ended" in again.json()["problem"]


def test_what_has_begun_is_not_cancelled_unless_it_is_a_preview(shop: Project) -> None:
    slow = Slow()
    client = TestClient(api(slow, shop), base_url="http://localhost")
    place = client.post("/api/v1/runs?wait=false").headers["Location"]
    slow.waiting[0].set_running_or_notify_cancel()
    refused = client.post(f"{place}/cancel")
    assert (refused.status_code, refused.json()["error"]) == (422, "state")
    assert slow.unwanted == []
    assert client.post("/api/v1/operations/nowhere/cancel").status_code == 404


def test_only_so_many_wait_and_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_UNENDED", 2)
    monkeypatch.setattr(operations, "_ENDED", 1)
    slow = Slow()
    asked = Operations(slow)
    discarded: list[str] = []
    first = asked.ask("run", lambda: discarded.append("first"))
    second = asked.ask("run")
    with pytest.raises(Conflict, match="2 operations are already waiting"):
        asked.ask("run", lambda: discarded.append("third"))
    assert discarded == ["third"]
    for outcome in slow.waiting:
        outcome.set_result(1)
    assert discarded == ["third", "first"]
    asked.ask("run")
    assert asked.asked(second.name).outcome.result() == 1
    with pytest.raises(NotFound):
        asked.asked(first.name)


def test_what_was_sent_is_kept_until_it_is_done(shop: Project) -> None:
    slow, prompt = Slow(), Prompt()
    sources = []

    def watched(what: str, **arguments: str) -> object:
        sources.append(arguments["source"])
        return Slow.operation(slow, what)

    prompt.operation = watched  # type: ignore[method-assign, assignment]
    client = TestClient(api(prompt, shop), base_url="http://localhost")
    client.post("/api/v1/channels/clicks/blocks?wait=false", content=b"{}")
    assert Path(sources[0]).read_bytes() == b"{}"
    slow.waiting[0].set_result(3)
    assert not Path(sources[0]).exists()
