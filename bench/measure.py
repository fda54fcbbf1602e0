"""Timing ways of doing the same thing against each other, on a machine that does other work as well.

The ways take turns (A B A B …), each round gives one ratio per way, and the median of the ratios is what is
reported: whatever slows the machine for a while slows all ways of a round.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType

import psutil


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds per way, one number per round."""

    seconds: Mapping[str, tuple[float, ...]]

    def median(self, way: str) -> float:
        """The median of a way's rounds, in seconds."""
        return statistics.median(self.seconds[way])

    def ratio(self, way: str, against: str) -> float:
        """How many times as long one way took as another: the median over the rounds."""
        return statistics.median(a / b for a, b in zip(self.seconds[way], self.seconds[against], strict=True))

    def difference(self, way: str, against: str) -> float:
        """How many seconds longer one way took than another: the median over the rounds."""
        return statistics.median(a - b for a, b in zip(self.seconds[way], self.seconds[against], strict=True))

    def rounded(self) -> dict[str, list[float]]:
        """For the record."""
        return {way: [round(one, 3) for one in each] for way, each in self.seconds.items()}


def seconds(action: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def interleaved(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm: bool = False,
    before: Callable[[], object] = lambda: None,
) -> Timings:
    """Time ways in turn.

    Args:
        ways: what to do, by name.
        rounds: how often.
        warm: whether a first round is thrown away.
        before: untimed work before each round.
    """
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + warm):
        before()
        # Every other round goes backwards, so that no way always profits from what its neighbour left in caches.
        for name in ways if number % 2 == 0 else reversed(list(ways)):
            took = seconds(ways[name])
            if number >= warm:
                taken[name].append(took)
    return Timings({name: tuple(each) for name, each in taken.items()})


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
