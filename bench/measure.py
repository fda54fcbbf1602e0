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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import psutil


@dataclass(frozen=True, slots=True)
class Timings:
    """What each way took, one number per round.

    Attributes:
        seconds: time that passed.
        cpu: seconds of all cores, by this process and those that it started: a steadier measure than time.
        compiling: those of them that Java's compilers took; a process that runs for days no longer needs them.
    """

    seconds: Mapping[str, tuple[float, ...]]
    cpu: Mapping[str, tuple[float, ...]]
    compiling: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, taken: Mapping[str, Sequence[Spent]]) -> Timings:
        """The timings of what each way took in each round."""
        seconds, cpu, compiling = (
            {name: tuple(each[place] for each in rounds) for name, rounds in taken.items()} for place in range(3)
        )
        return cls(seconds, cpu, compiling)

    def median(self, method: str) -> float:
        """The median of a way's rounds, in seconds."""
        return statistics.median(self.seconds[method])

    def ratio(self, method: str, against: str) -> float:
        """How many times as long one way took as another: the median over the rounds."""
        return statistics.median(a / b for a, b in zip(self.seconds[method], self.seconds[against], strict=True))

    def cpu_ratio(self, method: str, against: str) -> float:
        """How many times as much work one way was as another: the median over the rounds."""
        return statistics.median(a / b for a, b in zip(self.cpu[method], self.cpu[against], strict=True))

    def compiled_ratio(self, method: str, against: str) -> float:
        """The same ratio without the work of Java's compilers."""
        pairs = zip(self._compiled(method), self._compiled(against), strict=True)
        return statistics.median(a / b for a, b in pairs)

    def compiling_share(self, method: str) -> float:
        """Which part of a way's work is that of Java's compilers, in all rounds together."""
        return sum(self.compiling[method]) / sum(self.cpu[method])

    def _compiled(self, method: str) -> Iterator[float]:
        pairs = zip(self.cpu[method], self.compiling[method], strict=True)
        return (max(cpu - compiling, 0.01) for cpu, compiling in pairs)

    def difference(self, method: str, against: str) -> float:
        """How many seconds longer one way took than another: the median over the rounds."""
        return statistics.median(a - b for a, b in zip(self.seconds[method], self.seconds[against], strict=True))

    def rounded(self) -> dict[str, list[float]]:
        """For the record."""
        cpu = {f"{method}, cpu": each for method, each in self.cpu.items()}
        compiling = {f"{method}, compiling": each for method, each in self.compiling.items()}
        every = {**self.seconds, **cpu, **compiling}
        return {method: [round(one, 3) for one in each] for method, each in every.items()}


class Spent(NamedTuple):
    """What something took; see `Timings`."""

    seconds: float
    cpu: float
    compiling: float


def spent(action: Callable[[], object]) -> Spent:
    """What something takes."""
    began, worked, compiled = time.perf_counter(), _cpu(), _compiling()
    action()
    return Spent(time.perf_counter() - began, max(_cpu() - worked, 0.01), max(_compiling() - compiled, 0.0))


def _cpu() -> float:
    me = psutil.Process(os.getpid())
    total = sum(me.cpu_times()[:4])  # of this process, and of those that it started and that have ended
    for child in me.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


def _compiling() -> float:
    """The work of the compilers of the Java processes below this one, by the names of their threads; 0 if unknown."""
    total = 0.0
    for child in psutil.Process(os.getpid()).children(recursive=True):
        threads = []
        with suppress(psutil.Error):
            threads = child.threads() if "java" in child.name() else []
        for thread in threads:
            with suppress(OSError):  # the thread has ended
                name = Path(f"/proc/{child.pid}/task/{thread.id}/comm").read_text()
                total += thread.user_time + thread.system_time if name.startswith(("C1 Comp", "C2 Comp")) else 0.0
    return total


def interleaved(
    methods: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm: int = 0,
    before: Callable[[], object] = lambda: None,
) -> Timings:
    """Time ways in turn.

    Args:
        methods: what to do, by name.
        rounds: how often.
        warm: how many rounds before them are thrown away.
        before: untimed work before each round.
    """
    taken: dict[str, list[Spent]] = {name: [] for name in methods}
    for number in range(rounds + warm):
        before()
        # Every other round goes backwards, so that no way always profits from what its neighbour left in caches.
        for name in methods if number % 2 == 0 else reversed(list(methods)):
            took = spent(methods[name])
            if number >= warm:
                taken[name].append(took)
    timings = Timings.of(taken)
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
