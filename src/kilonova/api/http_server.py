"""HTTP server of the API: runs in a thread of its own beside the loop, for as long as the server runs."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from kilonova.api.auth import check_tokens_exist
from kilonova.api.connections import bounded
from kilonova.api.routes.context import RouteContext
from kilonova.errors import SettingsError

_END = 10.0
"""Maximum seconds to wait for the API to end."""

_BACKLOG = 128
"""Maximum number of connections waiting to be accepted, and attempted at once when descriptors are exhausted."""


@contextmanager
def listen(app: FastAPI, context: RouteContext) -> Iterator[str]:
    """Serve requests to an application, whose routes work on a context, until the end of the block; yield the URL.

    Raises:
        SettingsError: the address cannot be listened on, or is reachable from other machines while there are no tokens.
    """
    settings = context.project.settings.serve
    check_tokens_exist(context.project.catalog, settings.host)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        timeout_graceful_shutdown=2,
        http=bounded(settings.max_connections, settings.header_timeout),
        ws="none",
        backlog=_BACKLOG,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
    )
    web = _Web(config)
    thread = threading.Thread(target=web.run, name="api", daemon=True)
    thread.start()
    while thread.is_alive() and not web.started:  # however long it takes on a busy machine
        time.sleep(0.01)
    if not web.started:
        raise SettingsError(
            f"the server cannot listen on {settings.host}:{settings.port}",
            hint="Set --host and --port, or serve.host and serve.port",
        )
    port = web.servers[0].sockets[0].getsockname()[1]
    gc.freeze()  # objects that exist by now stay: scanning all of them in every collection would delay pages
    try:
        yield f"http://{settings.host}:{port}"
    finally:
        gc.unfreeze()
        context.over.set()
        web.should_exit = True
        thread.join(_END)


class _Web(uvicorn.Server):
    """A uvicorn server that leaves signals to the loop, and does not exit the process when it cannot listen."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve requests until `should_exit` is set."""
        try:
            super().run(sockets)
        except SystemExit:
            self.should_exit = True
