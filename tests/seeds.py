"""Seed of all random tests: new in each run, printed at its beginning, and given again by KILONOVA_SEED."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any

import pytest

SEED = int(os.environ.setdefault("KILONOVA_SEED", str(random.randrange(1 << 30))))
"""The seed; processes that a test run starts inherit it."""


def some(items: Iterable[Any], count: int) -> list[Any]:
    """Parameters of a test of which each run tries as many, by chance; `make slow` tries the others."""
    given = list(items)
    chosen = set(random.Random(f"{SEED}/{given}").sample(range(len(given)), count))
    marks = pytest.mark.slow
    return [
        pytest.param(item, marks=() if place in chosen else marks, id=str(item)) for place, item in enumerate(given)
    ]
