"""What a server and its workers say to each other: one JSON object per line, over pipes of their own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from kilonova.catalog.firings import Batch, Claimed


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
class Alive:
    """A worker is there, whatever it is doing."""


@dataclass(frozen=True, slots=True)
class Done:
    """A worker has done an errand, with this result."""

    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker could not do an errand.

    Attributes:
        error: the error as `KilonovaError.told` gives it.
        passing: whether trying again may help.
    """

    error: dict[str, Any]
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a part of a batch.

    Attributes:
        error: the error as `KilonovaError.told` gives it; None if there was none.
        passing: whether trying again may help.
        begun: whether a run had begun, which has told of it.
    """

    error: dict[str, Any] | None = None
    passing: bool = False
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has ended a batch: what became of each part."""

    outcomes: tuple[Outcome, ...]


Work = Batch | Errand
"""What a worker can be given."""

Message = Work | Ready | Alive | Done | Failed | Ended
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Batch, Errand, Ready, Alive, Done, Failed, Ended)}


def written(message: Message) -> str:
    """A message as a line.

    >>> written(Done(3))
    '{"result": 3, "message": "Done"}'
    """
    return json.dumps({**asdict(message), "message": type(message).__name__})


def read(line: str) -> Message:
    """The inverse of `written`.

    >>> read(written(Ended((Outcome(begun=True),))))
    Ended(outcomes=(Outcome(error=None, passing=False, begun=True),))
    """
    fields = json.loads(line)
    kind = _KINDS[fields.pop("message")]
    if kind is Batch:
        parts = fields["parts"]
        fields["parts"] = tuple(Claimed(**{**part, "firings": tuple(part["firings"])}) for part in parts)
    elif kind is Ended:
        fields["outcomes"] = tuple(Outcome(**outcome) for outcome in fields["outcomes"])
    message: Message = kind(**fields)
    return message
