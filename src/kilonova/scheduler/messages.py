"""Messages between a server and its workers: one JSON object per line, over dedicated pipes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from kilonova.catalog.firings import Batch


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """Request for an operation that needs Spark and is not a firing: its kind and its arguments."""

    what: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dismissal:
    """Request to end, to a worker that is not needed any more and has nothing to do."""


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """Notification that a worker has started Spark and waits for work."""


@dataclass(frozen=True, slots=True)
class WorkerAlive:
    """Heartbeat of a worker, sent whatever it is doing."""


@dataclass(frozen=True, slots=True)
class OperationProgressed:
    """Notification of what an operation does now, as text for users."""

    progress: str


@dataclass(frozen=True, slots=True)
class OperationDone:
    """Notification that a worker has completed an operation, with its result."""

    result: Any


@dataclass(frozen=True, slots=True)
class OperationFailure:
    """Notification that an operation of a worker has failed.

    Attributes:
        error: the error as `KilonovaError.to_dict()` returns it.
        passing: whether the error is transient, so that a retry may succeed.
    """

    error: dict[str, Any]
    passing: bool = False


@dataclass(frozen=True, slots=True)
class FiringOutcome:
    """Outcome of one claim of a batch.

    Attributes:
        error: the error as `KilonovaError.to_dict()` returns it; None if there was none.
        passing: whether the error is transient, so that a retry may succeed.
        begun: whether a run had begun, which has recorded the outcome itself.
    """

    error: dict[str, Any] | None = None
    passing: bool = False
    begun: bool = False


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """Notification that a worker has ended a batch, with the outcome of each claim."""

    outcomes: tuple[FiringOutcome, ...]


Work = Batch | OperationRequest
"""Work that can be assigned to a worker."""

Message = (
    Work | Dismissal | WorkerReady | WorkerAlive | OperationProgressed | OperationDone | OperationFailure | BatchEnded
)
_KINDS = {
    kind.__name__: TypeAdapter[Message](kind)
    for kind in (
        Batch,
        OperationRequest,
        Dismissal,
        WorkerReady,
        WorkerAlive,
        OperationProgressed,
        OperationDone,
        OperationFailure,
        BatchEnded,
    )
}


def encode(message: Message) -> str:
    """Encode a message as a line.

    >>> encode(OperationDone(3))
    '{"result": 3, "message": "OperationDone"}'
    """
    return json.dumps({**asdict(message), "message": type(message).__name__})


def decode(line: str) -> Message:
    """Decode a line; the inverse of `encode`.

    >>> decode(encode(BatchEnded((FiringOutcome(begun=True),))))
    BatchEnded(outcomes=(FiringOutcome(error=None, passing=False, begun=True),))
    """
    fields = json.loads(line)
    return _KINDS[fields.pop("message")].validate_python(fields)
