"""Every error says what is wrong, and what to do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kilonova import errors
from kilonova.errors import Conflict, KilonovaError, NotFound, SchemaMismatch

SOURCE = Path(__file__).parents[2] / "src" / "kilonova"
KINDS = {
    name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, KilonovaError)
}
NOT_SHOWN = {"testing/reference.py"}
"""Modules whose errors no user sees."""


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Return the places that create errors, with the name of the class."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args:
                yield f"{name}:{node.lineno}", node, node.func.id


def test_every_error_has_a_hint() -> None:
    found = list(calls())
    assert len(found) > 300
    assert [
        place
        for place, call, kind in found
        if KINDS[kind].remedy is None
        and not any(word.arg in ("hint", None) for word in call.keywords)
        and place.partition(":")[0] not in NOT_SHOWN
    ] == []


def test_problems_and_hints_are_sentences_without_a_full_stop() -> None:
    ends = {}
    for place, call, _ in calls():
        texts = [call.args[0], *(word.value for word in call.keywords if word.arg == "hint")]
        for text in texts:
            last = text.values[-1] if isinstance(text, ast.JoinedStr) else text
            if isinstance(last, ast.Constant) and isinstance(last.value, str) and last.value.rstrip().endswith("."):
                ends[place] = last.value
    assert ends == {}


def test_a_message_is_the_sentence_then_what_to_do_then_where() -> None:
    error = SchemaMismatch("the column is missing", channel="r", column="a", hint="Supply it with type int")
    assert str(error.with_context(run=1)) == (
        "the column is missing. Supply it with type int. [channel r, column a, run 1]"
    )
    assert str(NotFound("there is no such task", task="x", hint="Did you mean y?")) == (
        "there is no such task. Did you mean y? [task x]"
    )
    assert str(NotFound("there is no such task")) == "there is no such task"
    assert str(NotFound("refused: is it running?", hint="Start it")) == "refused: is it running? Start it."
    assert str(Conflict("the catalog is locked")) == "the catalog is locked. Try again later."
