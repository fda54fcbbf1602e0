"""A client of several servers that puts rows into channels by HTTP, each batch until one has said that it is there."""

from __future__ import annotations

import io
import random
import socket
import threading
import time
from collections.abc import Sequence

import httpx2 as httpx
import pyarrow as pa
import pyarrow.parquet as pq

Row = tuple[int, int, int]
PATIENCE = 300.0
"""Seconds until a batch that no server takes is a problem."""


class Client(threading.Thread):
    """Puts batches into channels until told to stop; a batch that was not acknowledged is sent again with its key.

    Attributes:
        sent: the batches that a server has said to be there: a channel and rows.
        again: how many requests were repeated.
        problem: what went wrong, if something did.
    """

    def __init__(self, ports: Sequence[int], channels: Sequence[str], seed: int) -> None:
        super().__init__(name="client", daemon=True)
        self._ports = ports
        self._channels = channels
        self._random = random.Random(seed)
        self.sent: list[tuple[str, list[Row]]] = []
        self.again = 0
        self.problem: str | None = None
        self.stopping = threading.Event()
        self._acknowledged = time.monotonic()

    def run(self) -> None:
        try:
            while not self.stopping.wait(self._random.random() * 3) and self.problem is None:
                self._send(len(self.sent) + 1)
        except Exception as error:  # a test that has no client any more tests nothing
            self.problem = repr(error)

    def await_progress(self, seconds: float) -> None:
        """Wait for a batch to be acknowledged, or for a problem, if the last one was acknowledged some seconds ago."""
        while time.monotonic() - self._acknowledged > seconds and self.problem is None and self.is_alive():
            time.sleep(0.5)

    def _send(self, batch: int) -> None:
        channel = self._random.choice(self._channels)
        ids = self._random.sample(range(100), 10) if channel == "keyed" else range(batch * 100, batch * 100 + 10)
        rows = [(each, self._random.randrange(4), batch) for each in ids]
        body = parquet(rows)
        patience = time.monotonic() + PATIENCE
        answer = ""
        while time.monotonic() < patience:
            port = self._random.choice(self._ports)
            if self._random.random() < 0.2:  # go before there is an answer
                leave(port, channel, batch, body, self._random.choice((0.5, 1.0)), self._random.random())
                self.again += 1
                continue
            try:
                response = httpx.post(
                    f"http://127.0.0.1:{port}/api/v1/channels/{channel}/blocks",
                    params={"format": "parquet"},
                    headers={"Idempotency-Key": f"batch-{batch}"},
                    content=body,
                    timeout=20,
                )
            except httpx.HTTPError as error:
                answer = repr(error)
            else:
                answer = f"{response.status_code} {response.text[:300]}"
                if response.is_success:
                    self.sent.append((channel, rows))
                    self._acknowledged = time.monotonic()
                    return
            self.again += 1
            time.sleep(0.5)
        self.problem = f"batch {batch} was not taken for {PATIENCE:.0f} seconds: {answer}"


def parquet(rows: Sequence[Row]) -> bytes:
    """Rows as a file."""
    ids, ks, vs = zip(*rows, strict=True)
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ids, "k": pa.array(ks, pa.int32()), "v": vs}), sink)
    return sink.getvalue()


def leave(port: int, channel: str, batch: int, body: bytes, part: float, wait: float) -> None:
    """Send a part of a request, and go away after some seconds."""
    head = (
        f"POST /api/v1/channels/{channel}/blocks?format=parquet HTTP/1.1\r\nHost: localhost:{port}\r\n"
        f"Idempotency-Key: batch-{batch}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(head.encode() + body[: int(len(body) * part)])
            time.sleep(wait)
    except OSError:
        pass


def crowd(port: int, count: int, seconds: float) -> None:
    """Open connections that send half a head, and hold them for a while."""
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), 1)
            held.append(connection)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: lo")
    except OSError:
        pass
    time.sleep(seconds)
    for connection in held:
        connection.close()
