"""Queued bindings, made up."""

from __future__ import annotations

from datetime import datetime

from kilonova.model.trigger import Occurrence
from kilonova.schedule.queueing import ObservedBinding, QueuedBinding, QueuedFiring


def queued(binding: ObservedBinding, since: datetime, attempts: int = 0) -> QueuedBinding:
    """A binding with one firing."""
    occurrence = Occurrence(since.isoformat(), since)
    return QueuedBinding(
        binding, (QueuedFiring(binding=binding.name, trigger=None, occurrence=occurrence, attempts=attempts, number=1),)
    )
