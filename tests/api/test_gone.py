"""Clients that go before the work for them has begun."""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from kilonova.service.project import Project
from tests.fakes import Prompt, Slow
from tests.shop import api

SENT: Message = {"type": "http.request", "body": b"{}", "more_body": False}
HALF: Message = {"type": "http.request", "body": b"{", "more_body": True}
GONE: Message = {"type": "http.disconnect"}


def asked(app: Any, path: str, *messages: Message) -> list[Message]:
    """What the application answers to a client that posts these messages, of which the last one is all there is."""
    left, answered = list(messages), []

    async def receive() -> Message:
        return left.pop(0) if len(left) > 1 else left[0]

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "scheme": "http", "headers": [(b"host", b"localhost:8620")], "http_version": "1.1", "asgi": {"version": "3.0"},
        "client": ("127.0.0.1", 5000), "server": ("localhost", 8620),
    }  # fmt: skip
    with ThreadPoolExecutor(1) as pool:  # a browser's loop may run in this thread
        pool.submit(asyncio.run, app(scope, receive, send)).result()
    return answered


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where uploads are put."""
    place = tmp_path / "uploads"
    place.mkdir()
    monkeypatch.setattr("kilonova.api.uploads.temporary_directory", lambda: tempfile.TemporaryDirectory(dir=place))
    return place


@pytest.mark.parametrize("path", ["channels/clicks/blocks", "channels/clicks/compaction", "runs", "workflows"])
def test_operations_of_disconnected_clients_are_not_begun(shop: Project, uploads: Path, path: str) -> None:
    slow = Slow()
    asked(api(slow, shop), f"/api/v1/{path}", SENT, GONE)
    assert all(future.cancelled() for future in slow.waiting)
    assert list(uploads.iterdir()) == []


@pytest.mark.parametrize("messages", [(HALF, GONE), (SENT, GONE)])
def test_a_client_that_disconnects_while_sending_leaves_nothing(
    shop: Project, uploads: Path, messages: tuple[Message, ...], caplog: pytest.LogCaptureFixture
) -> None:
    prompt = Prompt()
    asked(api(prompt, shop), "/api/v1/channels/clicks/blocks", *messages)
    assert prompt.asked == []
    assert list(uploads.iterdir()) == []
    assert caplog.records == []
