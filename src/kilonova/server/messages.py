"""What a server and its workers say to each other: one JSON object per line, over the worker's standard streams."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from kilonova.catalog.firings import Claimed


@dataclass(frozen=True, slots=True)
class Errand:
    """Something that needs Spark and is not a firing: what somebody asks the server for.

    Attributes:
        what: which.
        arguments: its arguments.
    """

    what: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has started Spark and waits for work."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A worker has begun a run."""

    run: int


@dataclass(frozen=True, slots=True)
class Done:
    """A worker has ended what it was given, with this result."""

    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker could not do what it was given.

    Attributes:
        error: the error as `KilonovaError.told` gives it.
        passing: whether trying again may help.
        begun: whether a run had begun, which has told of it.
    """

    error: dict[str, Any]
    passing: bool
    begun: bool


Work = Claimed | Errand
"""What a worker can be given."""

Message = Work | Ready | Launched | Done | Failed
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Claimed, Errand, Ready, Launched, Done, Failed)}


def written(message: Message) -> str:
    """A message as a line.

    >>> written(Launched(3))
    '{"run": 3, "message": "Launched"}'
    """
    return json.dumps({**asdict(message), "message": type(message).__name__})


def read(line: str) -> Message:
    """The inverse of `written`.

    >>> read(written(Launched(3)))
    Launched(run=3)
    """
    fields = json.loads(line)
    kind = _KINDS[fields.pop("message")]
    if kind is Claimed:
        fields["firings"] = tuple(fields["firings"])
    message: Message = kind(**fields)
    return message
