"""A run that keeps bounds: what runs, by which variants, and how far each channel is read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from kilonova.model.bound import Bound, describe_bound
from kilonova.schedule.run_scope import RunScope


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRun:
    """Run to start because of bounds.

    Attributes:
        binding: the binding that runs.
        until: the points up to which it reads channels that it does not write.
        logics: the tasks that run, whether they are due or not, each with its logic version.
        variants: the variants by which they run, where a task has several; views choose by themselves.
        bounds: the bounds that it serves.
        cost: its estimated duration, in seconds.
    """

    binding: str
    until: Mapping[str, int] = field(hash=False)
    logics: Mapping[str, int] = field(default_factory=dict, hash=False)
    variants: Mapping[str, str] = field(default_factory=dict, hash=False)
    bounds: tuple[Bound, ...] = ()
    cost: float = 0.0

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that run, whether they are due or not."""
        return tuple(self.logics)

    @property
    def scope(self) -> RunScope:
        """The scope of the run: its tasks, their variants, and how far they read."""
        return RunScope(until=self.until, tasks=self.tasks, variants=self.variants)

    @property
    def reason(self) -> str:
        """The reason of the run, as text."""
        return "; ".join(map(describe_bound, self.bounds))

    @property
    def occurrence(self) -> str:
        """A name that is the same for runs that would do the same: such a run does not start again after it has ended.

        So a run that fails, or changes nothing, is not repeated until there are new data or another logic version.
        """
        what = (self.until, self.logics, self.variants)
        text = repr([self.binding, *(sorted(each.items()) for each in what)])
        return f"{self.reason} ({hashlib.sha256(text.encode()).hexdigest()[:10]})"
