"""One place says whether trying again may help: clients are told so wherever an error comes from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from kilonova.errors import (
    BlockDamaged,
    Busy,
    CatalogAway,
    CatalogError,
    CatalogFull,
    KeyViolation,
    KilonovaError,
    LeaseLost,
    SparkUnavailable,
    StorageFailed,
    TaskFailed,
    Undelivered,
    UnreadableInput,
    may_pass,
)
from kilonova.server.answers import tell_errors
from kilonova.server.loop import Refused
from kilonova.server.messages import Failed, read, written

PASSING = (StorageFailed, SparkUnavailable, CatalogAway, CatalogFull, Busy, Undelivered)
FINAL = (BlockDamaged, CatalogError, KeyViolation, LeaseLost, TaskFailed, UnreadableInput)


def kinds(of: type[KilonovaError] = KilonovaError) -> Iterator[type[KilonovaError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("kind", [*PASSING, *FINAL])
def test_clients_are_told_whether_to_try_again(kind: type[KilonovaError]) -> None:
    app, error = FastAPI(), kind("it did not work")
    tell_errors(app)

    @app.get("/here")
    def here() -> None:
        raise error

    @app.get("/worker")
    def worker() -> None:
        failed = read(written(Failed(error.told, may_pass(error))))
        assert isinstance(failed, Failed)
        raise Refused(failed.error, failed.passing)

    client = TestClient(app, raise_server_exceptions=False)
    answers = [client.get(place) for place in ("/here", "/worker")]
    assert answers[0].status_code == answers[1].status_code
    assert ["Retry-After" in answer.headers for answer in answers] == [kind in PASSING] * 2


def test_nothing_else_may_pass() -> None:
    assert {kind for kind in kinds() if kind.transient} == set(PASSING)
    assert not may_pass(OSError("the disk is full"))
