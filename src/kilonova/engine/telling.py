"""What a run tells while it goes on, for progress bars, logs and web pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kilonova.model.headway import Headway


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run began."""

    run: int
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """A task, an ingest or a compaction began."""

    run: int
    step: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """A task, an ingest or a compaction ended; `rows` are those written, None if nothing changed."""

    run: int
    step: str
    rows: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed:
    """A task, an ingest or a compaction failed, and the run with it; `error` is told in full."""

    run: int
    step: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped:
    """A task was left out: nothing had come for it after all."""

    run: int
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCopied:
    """A task was not executed, because a run that is merged with this one has done the same; it ends as others do."""

    run: int
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """A step failed in a way that may pass, and is tried again."""

    run: int
    step: str
    attempt: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBack:
    """Following the change of a view failed, though not because of its rows; it is made anew in the same run."""

    run: int
    step: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Underway:
    """How far a run has come, about once a second for as long as that changes."""

    run: int
    headway: Headway


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The run of a process that died was found and cleaned up."""

    run: int
    tasks: tuple[str, ...]


Telling = (
    Started
    | StepStarted
    | StepEnded
    | StepFailed
    | StepSkipped
    | StepCopied
    | Retried
    | FellBack
    | Underway
    | Recovered
)
Listener = Callable[[Telling], None]


def unheard(_telling: Telling) -> None:
    """A listener that does not listen."""
