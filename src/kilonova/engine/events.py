"""What a run tells while it goes on, for progress bars, logs and web pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


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
class Retried:
    """A step failed in a way that may pass, and is tried again."""

    run: int
    step: str
    attempt: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The run of a process that died was found and cleaned up."""

    run: int
    tasks: tuple[str, ...]


Event = Started | StepStarted | StepEnded | Retried | Recovered
Listener = Callable[[Event], None]


def unheard(_event: Event) -> None:
    """A listener that does not listen."""
