"""Notifications that a run emits, for progress bars, logs and web pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kilonova.model.progress import RunProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """Notification that a run began."""

    run: int
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """Notification that a task, an ingest or a compaction began."""

    run: int
    step: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """Notification that a task, an ingest or a compaction ended; `rows` is the number written, None if unchanged."""

    run: int
    step: str
    rows: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed:
    """Notification that a task, an ingest or a compaction failed, and the run with it; `error` is the full text."""

    run: int
    step: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped:
    """Notification that a task was skipped, because it turned out to have no new input."""

    run: int
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShared:
    """Notification that a task's output is that of a run merged with this one; `StepEnded` follows as usual."""

    run: int
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetried:
    """Notification that a step failed with a transient error, and is retried."""

    run: int
    step: str
    attempt: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecomputed:
    """Notification that a view is recomputed in the same run: its maintenance failed, but not because of its rows."""

    run: int
    step: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressUpdated:
    """Notification of a run's progress, about once a second while it changes."""

    run: int
    progress: RunProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecovered:
    """Notification that the run of a crashed process was found and cleaned up."""

    run: int
    tasks: tuple[str, ...]


RunNotification = (
    RunStarted
    | StepStarted
    | StepEnded
    | StepFailed
    | StepSkipped
    | StepShared
    | StepRetried
    | StepRecomputed
    | ProgressUpdated
    | RunRecovered
)
Listener = Callable[[RunNotification], None]


def no_listener(_notification: RunNotification) -> None:
    """Ignore a notification; a listener for callers that need none."""
