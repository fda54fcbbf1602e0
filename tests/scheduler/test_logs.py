"""What a server says, as lines for people and as JSON."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.model.event import Event, EventKind
from kilonova.scheduler.logs import logging_to, say

FAILED = Event(
    number=7,
    time=datetime(2024, 1, 1, 12, tzinfo=UTC),
    kind=EventKind.FAILED,
    run=3,
    binding="report",
    channels=("best",),
    text="no luck\nat all",
)
FIELDS = ["time", "level", "logger", "server", "event", "kind", "run", "binding", "channels", "text"]


def talk(stream: io.StringIO, *, as_json: bool) -> None:
    with logging_to(stream, lambda: "one", as_json=as_json):
        say("report failed: no luck\nat all", FAILED)
        say("a worker is ready", None)
        logging.getLogger("uvicorn.error").warning("a library's %s", "warning")
        warnings.warn("it is old", stacklevel=1)
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()


def test_everything_is_an_object_of_the_same_shape() -> None:
    stream = io.StringIO()
    talk(stream, as_json=True)
    lines: list[dict[str, Any]] = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [list(line)[: len(FIELDS)] for line in lines] == [FIELDS] * 5
    assert lines[0] == {
        "time": "2024-01-01T12:00:00+00:00",
        "level": "error",
        "logger": "kilonova.scheduler",
        "server": "one",
        "event": 7,
        "kind": "failed",
        "run": 3,
        "binding": "report",
        "channels": ["best"],
        "text": "report failed: no luck\nat all",
    }
    assert [line["level"] for line in lines] == ["error", "info", "warning", "warning", "error"]
    assert lines[1]["event"] is None
    assert (lines[2]["logger"], lines[2]["text"]) == ("uvicorn.error", "a library's warning")
    assert "it is old" in lines[3]["text"]
    assert "ZeroDivisionError" in lines[4]["trace"]


def test_lines_for_people_are_one_per_event() -> None:
    stream = io.StringIO()
    talk(stream, as_json=False)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "2024-01-01T12:00:00Z report failed: no luck at all"
    assert lines[1].endswith("Z a worker is ready")


def test_what_is_said_again_and_again_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("kilonova.scheduler.logs.time", SimpleNamespace(monotonic=lambda: now))
    stream = io.StringIO()
    with logging_to(stream, lambda: "one", as_json=True):
        for second in range(130):
            now = float(second)
            logging.getLogger("asyncio").error("out of %s", "descriptors")
            say("a run failed", FAILED)
        for number in range(3000):
            logging.getLogger("asyncio").error("number %d", number)
    texts = [json.loads(line)["text"] for line in stream.getvalue().splitlines()]
    assert [text for text in texts if text.startswith("out of")] == [
        "out of descriptors",
        "out of descriptors (and 59 times more since 60 s ago)",
        "out of descriptors (and 59 times more since 60 s ago)",
    ]
    assert texts.count("a run failed") == 130
    assert sum(text.startswith("number") for text in texts) == 3000


def test_afterwards_nothing_is_heard_any_more() -> None:
    stream = io.StringIO()
    hook = threading.excepthook
    with logging_to(stream, lambda: "one", as_json=True):
        pass
    say("later", None)
    assert stream.getvalue() == ""
    assert threading.excepthook is hook


WORKFLOW = """
import kilonova as kn

shop = kn.Workflow("shop")
shop.channel("clicks", "user string")
shop.view("per_user", "SELECT user, count(*) AS n FROM clicks GROUP BY user")

@shop.task
def broken(clicks: kn.New) -> kn.Delta:
    print("what user code prints is no line of the log")
    raise ValueError("no luck\\nat all")
"""


def kilonova(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KILONOVA_SERVE__PORT": "0", "KILONOVA_SPARK__MASTER": "local[1]"}
    return subprocess.run(
        [sys.executable, "-m", "kilonova", *words], cwd=place, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_every_line_of_a_real_server_is_an_object(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(WORKFLOW)
    (tmp_path / "clicks.json").write_text('{"user": "ann"}\n')
    (tmp_path / "kilonova.toml").write_text(
        '[lineage]\ntransport = {type = "file", log_file_path = "lineage.json", append = true}\n'
    )
    for words in (("init",), ("apply", "shop.py"), ("ingest", "clicks", "clicks.json")):
        done = kilonova(tmp_path, *words)
        assert done.returncode == 0, done.stderr
    served = kilonova(tmp_path, "serve", "--until-idle", "--json", "--workers", "1", "--port", "0")
    assert served.returncode == 0, served.stderr
    lines: list[dict[str, Any]] = [json.loads(line) for line in served.stdout.splitlines()]
    assert all(list(line)[: len(FIELDS)] == FIELDS for line in lines)
    assert {"fired", "launched", "succeeded", "failed"} <= {line["kind"] for line in lines}
    assert {line["server"] for line in lines if line["event"]} == {lines[-1]["server"]} != {None}
    [failed] = [line for line in lines if line["kind"] == "failed"]
    assert (failed["level"], failed["binding"]) == ("error", "broken")
    assert "no luck" in failed["text"]
    told = [json.loads(line) for line in (tmp_path / "lineage.json").read_text().splitlines()]
    ends = {(event["job"]["name"], event["eventType"]) for event in told}
    assert {("per_user", "COMPLETE"), ("broken", "FAIL"), ("binding:per_user", "COMPLETE")} <= ends


def test_a_server_that_cannot_start_says_so_as_an_object_too(tmp_path: Path) -> None:
    served = kilonova(tmp_path, "serve", "--json", "--port", "0")
    assert served.returncode == 1
    [line] = served.stdout.splitlines()
    told = json.loads(line)
    assert (told["level"], list(told)) == ("error", FIELDS)
    assert "kilonova init" in told["text"]
