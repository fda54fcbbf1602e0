"""What a server and its workers say to each other: one JSON object per line, over the worker's standard streams."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from kilonova.catalog.firings import Claimed


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has started Spark and waits for work."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A worker has begun a run."""

    run: int


@dataclass(frozen=True, slots=True)
class Done:
    """A worker has ended what it was given: a run, or None if there was nothing to do."""

    run: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker could not do what it was given.

    Attributes:
        code: the error's.
        error: the error, for people.
        passing: whether trying again may help.
        begun: whether a run had begun, which has told of it.
    """

    code: str
    error: str
    passing: bool
    begun: bool


Message = Ready | Launched | Done | Failed | Claimed
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Ready, Launched, Done, Failed, Claimed)}


def written(message: Message) -> str:
    """A message as a line.

    >>> written(Done(3))
    '{"run": 3, "message": "Done"}'
    """
    return json.dumps({**asdict(message), "message": type(message).__name__})


def read(line: str) -> Message:
    """The inverse of `written`.

    >>> read(written(Done(3)))
    Done(run=3)
    """
    fields = json.loads(line)
    kind = _KINDS[fields.pop("message")]
    message: Message = kind(**{name: tuple(each) if isinstance(each, list) else each for name, each in fields.items()})
    return message
