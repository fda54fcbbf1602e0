"""Tests that take long, of which a run may take a share by chance: `make test` would take most of an hour otherwise."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from statistics import mean

from tests.seeds import SEED

LONG = 1.0
"""From how many seconds on a test takes long."""
DURATIONS = Path(__file__).parent / "durations.json"
"""Seconds that tests which take long took when they were last recorded, by the name of their function."""


def function_of(test: str) -> str:
    """The function of a test, without its parameters: these can be random."""
    return test.split("[")[0]


def chosen(tests: Collection[str], share: float, durations: Mapping[str, float], seed: int = SEED) -> set[str]:
    """All tests that are not known to take long, and a share of the others.

    Args:
        tests: Names of tests, as pytest shows them.
        share: From 0, for none of those that take long, to 1, for all.
        durations: See `DURATIONS`.
        seed: Determines what is chosen.
    """
    long = sorted(test for test in tests if function_of(test) in durations)
    return set(tests) - set(long) | set(random.Random(seed).sample(long, round(share * len(long))))


def write_durations(seconds: Iterable[tuple[str, float]], to: Path = DURATIONS) -> None:
    """Record which tests take long, from the seconds that each took."""
    of_function = defaultdict(list)
    for test, took in seconds:
        of_function[function_of(test)].append(took)
    means = {function: round(mean(took), 1) for function, took in sorted(of_function.items())}
    to.write_text(json.dumps({each: took for each, took in means.items() if took >= LONG}, indent=0) + "\n")


def read_durations() -> dict[str, float]:
    """What `write_durations` has written."""
    return dict(json.loads(DURATIONS.read_text()))
