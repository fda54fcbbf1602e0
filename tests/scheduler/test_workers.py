"""Workers that end, stop responding or send an invalid message: their server always learns that they have ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kilonova.scheduler import workers
from kilonova.scheduler.messages import Message, WorkerReady
from kilonova.scheduler.workers import Worker

READY = """print('{"message": "WorkerReady"}', flush=True)"""
ALIVE = """print('{"message": "WorkerAlive"}', flush=True)"""

Hired = Callable[..., tuple[Worker, list[Message | None], threading.Event]]


@pytest.fixture
def hire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hired]:
    """Start a worker whose process runs other code."""
    started: list[Worker] = []

    def hired(code: str, silent: float = 60) -> tuple[Worker, list[Message | None], threading.Event]:
        script = tmp_path / "worker"
        script.write_text(f"#!{sys.executable}\nimport os, sys, time\nsys.stdin.readline()\n{code}\n")
        script.chmod(0o700)
        said: list[Message | None] = []
        ended = threading.Event()

        def heard(worker: Worker, message: Message | None) -> None:
            said.append(message)
            if message is None:
                ended.set()

        with monkeypatch.context() as patched:
            patched.setattr(workers.sys, "executable", str(script))
            started.append(Worker(tmp_path, {}, heard, silent))
        return started[-1], said, ended

    yield hired
    for worker in started:
        worker.kill("the test is over")


def test_a_process_that_ends_is_heard_though_its_child_holds_its_pipes(hire: Hired) -> None:
    worker, said, ended = hire(f"{READY}\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(300)\nos._exit(1)")
    assert ended.wait(60)
    assert said == [WorkerReady(), None]
    assert not worker.free


@pytest.mark.parametrize("code", [f"{READY}\ntime.sleep(300)", "time.sleep(300)"], ids=["ready", "starting"])
def test_one_that_falls_silent_is_ended(hire: Hired, code: str) -> None:
    worker, _, ended = hire(code, 0.5)
    assert ended.wait(60)
    assert "no heartbeat" in worker.killed


def test_one_that_is_stopped_is_ended(hire: Hired) -> None:
    worker, _, ended = hire(f"{READY}\nwhile True:\n    {ALIVE}\n    time.sleep(0.05)", 2)
    until = time.monotonic() + 60
    while not worker.ready and time.monotonic() < until:
        time.sleep(0.01)
    assert worker.free
    os.kill(int(worker.owner.split(":")[1]), signal.SIGSTOP)
    assert ended.wait(60)
    assert "no heartbeat" in worker.killed


@pytest.mark.parametrize(
    "code",
    ["print('nonsense', flush=True)", """print('{"message": "Nonsense"}', flush=True)""", "os.write(1, b'\\xff\\n')"],
    ids=["no JSON", "an invalid message", "no text"],
)
def test_one_that_says_what_is_no_message_is_ended(hire: Hired, code: str) -> None:
    worker, said, ended = hire(f"{READY}\n{code}\ntime.sleep(300)")
    assert ended.wait(60)
    assert said == [WorkerReady(), None]
    assert "an invalid message" in worker.killed


def test_one_that_closes_its_messages_is_ended(hire: Hired) -> None:
    worker, said, ended = hire(f"{READY}\nos.close(1)\ntime.sleep(300)")
    assert ended.wait(60)
    assert said == [WorkerReady(), None]
    assert "closed its output" in worker.killed
