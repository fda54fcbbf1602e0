"""The HTTP API beside the loop, in a thread of its own, for as long as the server runs."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from kilonova.errors import SettingsError
from kilonova.server.access import refuse_open
from kilonova.server.api import api
from kilonova.server.connections import bounded
from kilonova.server.loop import Server
from kilonova.service.project import Project

_START = 10.0
"""Seconds that the API has to start."""

_BACKLOG = 128
"""How many connections wait to be accepted, and are tried at once where the process has no descriptors left."""


@contextmanager
def listening(server: Server, project: Project) -> Iterator[str]:
    """Answer requests until the end of the block.

    Yields:
        The address.

    Raises:
        SettingsError: it cannot listen there, or would listen to other machines without tokens.
    """
    settings = project.settings.serve
    refuse_open(project.catalog, settings.host)
    over = threading.Event()
    config = uvicorn.Config(
        api(server, project, over),
        host=settings.host,
        port=settings.port,
        log_config=None,
        timeout_graceful_shutdown=2,
        http=bounded(settings.connections, settings.arrival),
        ws="none",
        backlog=_BACKLOG,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
    )
    web = _Web(config)
    thread = threading.Thread(target=web.run, name="api", daemon=True)
    thread.start()
    if not _until(lambda: web.started or not thread.is_alive()) or not web.started:
        raise SettingsError(
            f"the server cannot listen on {settings.host}:{settings.port}",
            hint="Give others: --host and --port, or serve.host and serve.port",
        )
    port = web.servers[0].sockets[0].getsockname()[1]
    gc.freeze()  # what is there by now stays: going through all of it again and again would hold pages up
    try:
        yield f"http://{settings.host}:{port}"
    finally:
        gc.unfreeze()
        over.set()
        web.should_exit = True
        thread.join(_START)


class _Web(uvicorn.Server):
    """Leaves signals to the loop, and does not end the process where it cannot listen."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer until told to exit."""
        try:
            super().run(sockets)
        except SystemExit:
            self.should_exit = True


def _until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + _START
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
