"""The API behind a real socket: what connections may do to it."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

from kilonova.service.project import Project, open_project
from kilonova.web.application import serve_http
from tests.fakes import Prompt

HEAD = b"GET /api/v1/channels HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def heard(shop: Project, **settings: object) -> Iterator[tuple[str, int]]:
    """The address of a server over a project."""
    with (
        open_project(shop.directory, serve={"port": 0, "host": "127.0.0.1", **settings}) as project,
        serve_http(Prompt(), project) as url,
    ):
        yield "127.0.0.1", urlsplit(url).port or 0


def status(address: tuple[str, int], **headers: str) -> int:
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("GET", "/api/v1/channels", headers={"Host": "localhost", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def closed(connection: socket.socket) -> bool:
    """Whether the server closes a connection."""
    connection.settimeout(60)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def test_idle_connections_do_not_delay_others(shop: Project) -> None:
    with heard(shop, max_connections=10, header_timeout=3600) as address, ExitStack() as stack:
        opened = []
        for _ in range(60):
            connection = stack.enter_context(socket.create_connection(address))
            connection.sendall(HEAD)
            opened.append(connection)
        assert status(address) == 200
        assert all(closed(connection) for connection in opened[:50])


def test_a_request_that_does_not_come_to_its_end_is_given_up(shop: Project) -> None:
    body = b"POST /api/v1/channels/clicks/blocks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    with heard(shop, header_timeout=0.2) as address:
        for begun in (b"", HEAD, body):
            with socket.create_connection(address) as connection:
                connection.sendall(begun)
                assert closed(connection)
        assert status(address) == 200


@pytest.mark.slow
def test_a_response_that_is_not_received_is_given_up(shop: Project) -> None:
    with heard(shop, header_timeout=0.2) as address, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that few answers fill all buffers
        connection.settimeout(60)
        connection.connect(address)
        request = HEAD.replace(b"channels", b"openapi.json") + b"\r\n"
        with pytest.raises(ConnectionError):
            connection.sendall(request * 500_000)  # of which the server takes no more then
        assert status(address) == 200


def test_only_listed_proxies_name_the_client(shop: Project) -> None:
    shop.operator.create_token("me", "read")
    for proxies, expected in (((), [401, 429, 429]), (("127.0.0.1",), [401, 401, 401])):
        with heard(shop, failed_auth_limit="1 per hour", proxies=proxies) as address:
            found = [
                status(address, Authorization="Bearer guess", **{"X-Forwarded-For": f"203.0.113.{number}"})
                for number in range(3)
            ]
        assert found == expected
