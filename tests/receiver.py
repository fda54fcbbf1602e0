"""An HTTP endpoint in this process, which notes what it is sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """What has come, and how to answer.

    Attributes:
        answers: gives the status of an answer from how many requests have come before.
        came: path, headers and body of each request, as it was answered.
        entered: how many requests have come, answered or not.
    """

    answers: Callable[[int], int] = lambda count: 204
    came: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    entered: int = 0
    url: str = ""

    @property
    def taken(self) -> list[dict[str, Any]]:
        """The bodies of the requests that were answered well."""
        pairs = zip(self.came, self.statuses, strict=True)
        return [json.loads(body) for (_, _, body), status in pairs if status < 300]

    @property
    def numbers(self) -> list[int]:
        """The events that were taken."""
        return [body["data"]["event"] for body in self.taken]


@contextmanager
def receiving(answers: Callable[[int], int] = lambda count: 204) -> Iterator[Receiver]:
    receiver = Receiver(answers)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            with lock:
                count, receiver.entered = receiver.entered, receiver.entered + 1
            status = receiver.answers(count)
            with lock:
                receiver.came.append((self.path, {key.lower(): value for key, value in self.headers.items()}, body))
                receiver.statuses.append(status)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{receiver.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to it in time"
        time.sleep(0.01)
