"""Timing ways of doing the same thing against each other, on a machine that does other work as well.

The ways take turns (A B A B …), each round gives one ratio per way, and the median of the ratios is what is
reported: whatever slows the machine for a while slows all ways of a round.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType

import psutil


@dataclass(frozen=True, slots=True)
class Timings:
    """What each way took, one number per round.

    Attributes:
        seconds: time that passed.
        cpu: seconds of all cores, by this process and those that it started: a steadier measure than time.
    """

    seconds: Mapping[str, tuple[float, ...]]
    cpu: Mapping[str, tuple[float, ...]]

    def median(self, method: str) -> float:
        """The median of a way's rounds, in seconds."""
        return statistics.median(self.seconds[method])

    def ratio(self, method: str, against: str) -> float:
        """How many times as long one way took as another: the median over the rounds."""
        return statistics.median(a / b for a, b in zip(self.seconds[method], self.seconds[against], strict=True))

    def cpu_ratio(self, method: str, against: str) -> float:
        """How many times as much work one way was as another: the median over the rounds."""
        return statistics.median(a / b for a, b in zip(self.cpu[method], self.cpu[against], strict=True))

    def difference(self, method: str, against: str) -> float:
        """How many seconds longer one way took than another: the median over the rounds."""
        return statistics.median(a - b for a, b in zip(self.seconds[method], self.seconds[against], strict=True))

    def rounded(self) -> dict[str, list[float]]:
        """For the record."""
        both = {**self.seconds, **{f"{method}, cpu": each for method, each in self.cpu.items()}}
        return {method: [round(one, 3) for one in each] for method, each in both.items()}


def spent(action: Callable[[], object]) -> tuple[float, float]:
    """How many seconds something takes, and how many of all cores."""
    began, worked = time.perf_counter(), _cpu()
    action()
    return time.perf_counter() - began, max(_cpu() - worked, 0.01)


def _cpu() -> float:
    me = psutil.Process(os.getpid())
    total = sum(me.cpu_times()[:4])  # of this process, and of those that it started and that have ended
    for child in me.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


def interleaved(
    methods: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm: bool = False,
    before: Callable[[], object] = lambda: None,
) -> Timings:
    """Time ways in turn.

    Args:
        methods: what to do, by name.
        rounds: how often.
        warm: whether a first round is thrown away.
        before: untimed work before each round.
    """
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for number in range(rounds + warm):
        before()
        # Every other round goes backwards, so that no way always profits from what its neighbour left in caches.
        for name in methods if number % 2 == 0 else reversed(list(methods)):
            both = spent(methods[name])
            if number >= warm:
                taken[name].append(both)
    timings = Timings(
        {name: tuple(time for time, _ in each) for name, each in taken.items()},
        {name: tuple(cpu for _, cpu in each) for name, each in taken.items()},
    )
    print(", ".join(f"{name} {timings.median(name):.2f} s" for name in methods), file=sys.stderr, flush=True)
    return timings


class PeakMemory:
    """The largest resident memory of this process, and of the Java processes below it, while in the block."""

    def __init__(self, interval: float = 0.1) -> None:
        self.python = 0
        self.java = 0
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process(os.getpid())
        while not self._ended.wait(self._interval):
            java = 0
            for child in me.children(recursive=True):
                try:
                    java += child.memory_info().rss if "java" in child.name() else 0
                except psutil.Error:
                    continue
            self.java = max(self.java, java)
            self.python = max(self.python, me.memory_info().rss)
