"""One place says whether trying again may help: clients are told so wherever an error comes from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from kilonova.api.error_responses import install_error_handlers
from kilonova.errors import (
    BlockDamaged,
    CatalogError,
    CatalogFull,
    CatalogUnavailable,
    Conflict,
    DeliveryError,
    InputError,
    KeyViolation,
    KilonovaError,
    LeaseLost,
    SparkUnavailable,
    StorageFailed,
    TaskFailed,
    is_transient,
)
from kilonova.scheduler.messages import OperationFailure, decode, encode
from kilonova.service.spark_operations import OperationFailed

PASSING = (StorageFailed, SparkUnavailable, CatalogUnavailable, CatalogFull, Conflict, DeliveryError)
FINAL = (BlockDamaged, CatalogError, KeyViolation, LeaseLost, TaskFailed, InputError)


def kinds(of: type[KilonovaError] = KilonovaError) -> Iterator[type[KilonovaError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("kind", [*PASSING, *FINAL])
def test_errors_say_whether_to_retry(kind: type[KilonovaError]) -> None:
    app, error = FastAPI(), kind("it did not work")
    install_error_handlers(app)

    @app.get("/here")
    def here() -> None:
        raise error

    @app.get("/worker")
    def worker() -> None:
        failed = decode(encode(OperationFailure(error.to_dict(), is_transient(error))))
        assert isinstance(failed, OperationFailure)
        raise OperationFailed(failed.error, failed.passing)

    client = TestClient(app, raise_server_exceptions=False)
    answers = [client.get(place) for place in ("/here", "/worker")]
    assert answers[0].status_code == answers[1].status_code
    assert ["Retry-After" in answer.headers for answer in answers] == [kind in PASSING] * 2


def test_nothing_else_may_pass() -> None:
    assert {kind for kind in kinds() if kind.transient} == set(PASSING)
    assert not is_transient(OSError("the disk is full"))
