"""A catalog's part in scheduling as plain Python: what a scheduler observes, and what its decisions change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from kilonova.model.trigger import ArrivalTrigger, Occurrence, RunOutcome, RunTrigger, conditions_of
from kilonova.schedule.queueing import ObservedBinding, QueuedFiring
from kilonova.schedule.scheduler import Decision, Observation, ObservedTrigger
from kilonova.schedule.trigger_evaluation import Arrivals, TriggerInputs


@dataclass
class World:
    """Bindings with their triggers, and all that has happened."""

    bindings: dict[str, ObservedBinding]
    triggers: dict[int, ObservedTrigger]
    points: dict[str, list[datetime]] = field(default_factory=dict)
    events: list[tuple[int, str, RunOutcome, datetime]] = field(default_factory=list)
    queued: list[QueuedFiring] = field(default_factory=list)
    running: dict[str, tuple[QueuedFiring, ...]] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    stored: list[QueuedFiring] = field(default_factory=list)
    """All firings that there have been."""

    def observation(self, now: datetime, free_workers: int, limit: int | None) -> Observation:
        triggers = tuple(each for each in self.triggers.values() if each.binding not in self.paused)
        return Observation(
            now=now,
            triggers=triggers,
            inputs=self._inputs(triggers),
            bindings=self.bindings,
            queued=tuple(each for each in self.queued if free_workers and each.binding not in self.running),
            running={name: self.bindings[name].workflow for name in self.running},
            free_workers=free_workers,
            workflow_limit=limit,
        )

    def _inputs(self, triggers: Iterable[ObservedTrigger]) -> TriggerInputs:
        arrived: dict[tuple[str, int], Arrivals] = {}
        reached: dict[tuple[str, RunOutcome, int], tuple[int, datetime]] = {}
        for trigger in triggers:
            for condition, state in zip(conditions_of(trigger.trigger), trigger.state, strict=True):
                match condition:
                    case ArrivalTrigger(channel=channel):
                        every = self.points.get(channel, [])
                        if new := every[state.seen :]:
                            came = Arrivals(first=new[0], point=len(every), time=new[-1], rows=len(new))
                            arrived[channel, state.seen] = came
                    case RunTrigger(binding=binding, reached=outcome):
                        for number, name, ended, time in self.events:
                            if number > state.seen and (name, ended) == (binding, outcome):
                                reached[binding, outcome, state.seen] = number, time
        return TriggerInputs(arrived=arrived, reached=reached)

    def store(self, decision: Decision) -> list[list[tuple[str, tuple[int, ...]]]]:
        """The started batches, each binding with the numbers of its firings."""
        for trigger in decision.triggers:
            self.triggers[trigger.number] = trigger
        added = {each: self.queue(each) for each in decision.queued}
        return [
            [self._start(run.binding, [added.get(each, each) for each in run.firings]) for run in batch.runs]
            for batch in decision.batches
        ]

    def queue(self, firing: QueuedFiring) -> QueuedFiring:
        numbered = replace(firing, number=len(self.stored) + 1)
        self.stored.append(numbered)
        self.queued.append(numbered)
        return numbered

    def _start(self, binding: str, firings: list[QueuedFiring]) -> tuple[str, tuple[int, ...]]:
        assert binding not in self.running
        assert firings
        for each in firings:
            assert each.binding == binding
            self.queued.remove(each)
        self.running[binding] = tuple(firings)
        return binding, tuple(each.number or 0 for each in firings)

    def fire_manually(self, binding: str, who: str, now: datetime) -> None:
        self.queue(QueuedFiring(binding=binding, trigger=None, occurrence=Occurrence(who, now)))

    def end(self, binding: str, outcome: RunOutcome, event: int, now: datetime) -> None:
        del self.running[binding]
        self.events.append((event, binding, outcome, now))

    def requeue(self, binding: str, attempts: int) -> None:
        """Have a run be abandoned; its firings that have had all attempts fail."""
        again = [replace(each, attempts=each.attempts + 1) for each in self.running.pop(binding)]
        self.queued += [each for each in again if each.attempts < attempts]
        self.queued.sort(key=lambda each: each.number or 0)

    def pause(self, binding: str, paused: bool, now: datetime) -> None:
        if paused:
            self.paused.add(binding)
            return
        self.paused.discard(binding)
        for number, each in self.triggers.items():
            if each.binding == binding:
                self.triggers[number] = replace(each, next_check=now)
