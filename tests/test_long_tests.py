"""Which of the tests that take long a run chooses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.long_tests import chosen, write_durations

QUICK = [f"tests/a.py::test_quick[{each}]" for each in range(3)]
LONG = [f"tests/a.py::test_long[{each}]" for each in range(10)] + ["tests/b.py::test_other"]
DURATIONS = {"tests/a.py::test_long": 3.0, "tests/b.py::test_other": 1.0}


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.3, 3), (1.0, 11)])
def test_a_share_of_those_that_take_long_is_chosen_and_all_others(share: float, expected: int) -> None:
    kept = chosen([*LONG, *QUICK], share, DURATIONS, seed=1)
    assert set(QUICK) <= kept
    assert len(kept & set(LONG)) == expected


def test_each_process_of_a_run_chooses_the_same_and_the_next_run_others() -> None:
    tests = [*LONG, *QUICK]
    assert chosen(tests, 0.3, DURATIONS, seed=1) == chosen(tests[::-1], 0.3, DURATIONS, seed=1)
    assert set().union(*(chosen(tests, 0.3, DURATIONS, seed) for seed in range(30))) == set(tests)


def test_functions_of_a_second_and_longer_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    write_durations([("a.py::test_long[1]", 0.5), ("a.py::test_long[x[2]]", 2.5), ("a.py::test_quick", 0.9)], path)
    assert json.loads(path.read_text()) == {"a.py::test_long": 1.5}
