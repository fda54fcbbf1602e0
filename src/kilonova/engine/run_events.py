"""Notifications that a run emits, for progress bars, logs and web pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kilonova.model.malformed_lines import MalformedLines
from kilonova.model.progress import RunProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """Notification that a run began."""

    run: int
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepNotification:
    """Notification about a step of a run: a task, an ingest or a compaction."""

    run: int
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(_StepNotification):
    """Notification that a step began."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded(_StepNotification):
    """Notification that a step ended; `rows` is the number written, None if unchanged."""

    rows: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed(_StepNotification):
    """Notification that a step failed, and the run with it; `error` is the full text."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped(_StepNotification):
    """Notification that a task was skipped, because it turned out to have no new input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShared(_StepNotification):
    """Notification that a task's output is that of a run merged with this one; `StepEnded` follows as usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetried(_StepNotification):
    """Notification that a step failed with a transient error, and is retried."""

    attempt: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecomputed(_StepNotification):
    """Notification that a view is recomputed in the same run: its maintenance failed, but not because of its rows."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuarantined(_StepNotification):
    """Notification that a file of a watched directory is quarantined when the run commits; `error` says why."""

    path: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesMalformed(_StepNotification):
    """Notification that lines of ingested files did not fit, as their reader options allow."""

    lines: MalformedLines


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
    | FileQuarantined
    | LinesMalformed
    | ProgressUpdated
    | RunRecovered
)
Listener = Callable[[RunNotification], None]


def no_listener(_notification: RunNotification) -> None:
    """Ignore a notification; a listener for callers that need none."""
