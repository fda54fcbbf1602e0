"""Column functions and conditions: which tasks may have them, and when parts of a function count as changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.errors import DeclarationError, QueryError
from kilonova.model.composed_function import ComposedFunction


def size(text: Any) -> Any:
    return F.length(text)


def every(*texts: Any) -> Any:
    return texts[0]


def facts(function: Any = size, column: str = "size", **how: Any) -> kn.Workflow:
    wf = kn.Workflow("web")
    wf.channel("pages", "url string, text string", key="url")
    given = {"schema": "url string, size int", "key": "url", "columns": {column: function}} | how

    @wf.task(**given)
    def facts(pages: kn.New) -> kn.Delta:
        return pages.select("url", "text", "_deleted")

    return wf


def parts(workflow: kn.Workflow) -> ComposedFunction:
    (task,) = workflow.declared().workflow.tasks
    (variant,) = task.variants
    assert isinstance(variant.logic, ComposedFunction)
    return variant.logic


def test_parts_are_compared_by_meaning() -> None:
    def longer(offset: int) -> Callable[..., Any]:
        def size(text: Any) -> Any:
            return F.length(text) + offset

        return size

    one, same, other = (parts(facts(longer(offset))) for offset in (1, 1, 2))
    assert one.body == same.body == other.body
    assert one.columns == same.columns != other.columns
    assert "F.length(text) + offset" in one.source
    assert "def facts" in one.source


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"column": "sise"}, "computes a column that the channel does not have"),
        ({"column": "url"}, "computes a column of the key"),
        ({"key": None}, "needs the key of the rows"),
        ({"schema": None}, "needs the columns of the channel"),
        ({"function": every}, "parameters that are not columns"),
        ({"function": "length(text)"}, "not a function whose parameters are known"),
        ({"encoding": kn.increment("size")}, "needs an encoding whose deltas are rows by key"),
        ({"schema": None, "key": None, "writes": ("a", "b")}, "for tasks that write one channel"),
        ({"where": "size >"}, "the condition cannot be parsed"),
        ({"where": "size > avg(size)"}, "a condition on a row cannot contain"),
        ({"where": "size > rand()"}, "is not deterministic"),
        ({"where": "size > 1", "encoding": "columns"}, "an encoding whose deltas are whole rows"),
    ],
)
def test_wrong_declarations_are_refused(how: dict[str, Any], problem: str) -> None:
    with pytest.raises((DeclarationError, QueryError), match=problem):
        facts(**how)


def test_a_task_with_column_functions_has_one_input() -> None:
    wf = kn.Workflow("web")
    with pytest.raises(DeclarationError, match="has one parameter, which is not its own output"):

        @wf.task(schema="url string, size int", key="url", columns={"size": size})
        def facts(pages: kn.New, sites: kn.All) -> kn.Delta:
            return pages.join(sites, "url")
