from __future__ import annotations

from dataclasses import replace

import pytest

from kilonova.errors import DeclarationError
from kilonova.model.channel import Channel
from kilonova.model.encoding import Append
from kilonova.model.task import Mode, Task
from kilonova.model.workflow import WorkflowDefinition
from kilonova.model.workflow_path import paths_to, resolve_path
from tests.catalog.building import a_task


def workflow(tasks: list[Task], *several: str) -> WorkflowDefinition:
    names = dict.fromkeys(name for task in tasks for name in (*task.reads, *task.writes))
    channels = (Channel(name=name, schema=None, encoding=Append(), several_writers=name in several) for name in names)
    return WorkflowDefinition(name="w", channels=tuple(channels), tasks=tuple(tasks))


def reading(name: str, *reads: str, writes: tuple[str, ...] = ()) -> Task:
    return a_task(name, dict.fromkeys(reads, Mode.NEW), writes or (name,))


FEEDBACK = workflow(
    [
        reading("split", "log", writes=("news", "rest")),
        reading("news_ranked", "news"),
        reading("rest_ranked", "rest"),
        reading("both", "news_ranked", "rest_ranked", "sites", "both"),
    ]
)
"""Section 4.1, with a table of sites, and a task that reads its own output."""


def test_paths_lead_from_sources_through_tasks() -> None:
    assert paths_to("both", FEEDBACK) == (
        ("log", "split", "news_ranked", "both"),
        ("log", "split", "rest_ranked", "both"),
        ("sites", "both"),
    )
    assert paths_to("log", FEEDBACK) == (("log",),)
    shared = workflow([reading("filled", "orders", writes=("all",)), reading("report", "all")], "all")
    assert paths_to("report", shared) == (("all", "report"), ("orders", "filled", "report"))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("sites",), ("sites", "both")),
        (("log", "news"), ("log", "split", "news_ranked", "both")),
        (("log", "rest_ranked"), ("log", "split", "rest_ranked", "both")),
        (("log", "split", "rest_ranked", "both"), ("log", "split", "rest_ranked", "both")),
    ],
)
def test_a_path_is_named_by_what_tells_it_from_others(given: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert resolve_path("both", given, FEEDBACK) == found


@pytest.mark.parametrize(
    ("channel", "given", "said"),
    [
        ("both", ("log",), "several paths lead from log.*log›split›news_ranked›both, log›split›rest_ranked›both"),
        ("both", ("log", "split"), "several paths lead from log›split"),
        ("both", ("news",), "no path from news.*The paths are log›split›news_ranked›both"),
        ("both", ("log", "rest", "split"), "no path from log›rest›split"),
        ("log", ("log",), "rows are ingested into the channel"),
    ],
)
def test_a_path_that_is_not_one_is_refused(channel: str, given: tuple[str, ...], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        resolve_path(channel, given, FEEDBACK)


def test_an_exact_path_is_meant_although_others_contain_it() -> None:
    both = workflow([reading("daily", "orders"), reading("report", "orders", "daily")])
    assert resolve_path("report", ("orders", "report"), both) == ("orders", "report")


def test_the_tasks_of_a_view_are_one_name_of_a_path() -> None:
    parts = [replace(reading("v__1", "a"), view="v"), replace(reading("v", "v__1", "a"), view="v"), reading("w", "v")]
    assert paths_to("w", workflow(parts)) == (("a", "v", "w"),)
