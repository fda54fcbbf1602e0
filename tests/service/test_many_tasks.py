"""Workflows of many tasks are planned and registered in a number of steps that is linear in them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kilonova as kn
from kilonova.service.project import open_project

READERS = 5
"""How many tasks read each source."""


def workflow(tasks: int, least: int) -> kn.Workflow:
    made = kn.Workflow("many")
    for number in range(tasks):
        source = f"s{number // READERS}"
        if number % READERS == 0:
            made.channel(source, "id bigint")
        text = f"SELECT * FROM {{{source}}} WHERE id > {least}"
        made.sql(f"t{number}", text, reads={source: kn.New}, produces=kn.Delta, schema="id bigint")
    return made


def steps(act: Callable[[], object]) -> int:
    """How many instructions of Kilonova's own code are executed."""
    count = 0

    def instruction(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return instruction

    def call(frame: FrameType, _event: str, _argument: Any) -> Any:
        if "kilonova" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return instruction

    before = sys.gettrace()
    sys.settrace(call)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def taken(place: Path, tasks: int) -> dict[str, int]:
    new, changed = workflow(tasks, 1), workflow(tasks, 2)
    with open_project(place) as project:
        project.create()
        found = {"plan": steps(lambda: project.plan(new)), "apply": steps(lambda: project.apply(new))}
        found["same"] = steps(lambda: project.apply(new))
        found["changed"] = steps(lambda: project.apply(changed))
    return found


@pytest.fixture(scope="module")
def few_and_many(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], dict[str, int]]:
    few, many = (taken(tmp_path_factory.mktemp("project"), tasks) for tasks in (100, 300))
    return few, many


@pytest.mark.parametrize("what", ["plan", "apply", "same", "changed"])
def test_three_times_as_many_tasks_take_three_times_as_many_steps(
    few_and_many: tuple[dict[str, int], dict[str, int]], what: str
) -> None:
    few, many = few_and_many
    assert many[what] < 3.3 * few[what]
