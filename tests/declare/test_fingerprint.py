from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.declare.fingerprint import fingerprint
from kilonova.declare.normal_form import normal_sql
from tests.declare import edits
from tests.declare.edits import EDITS

Found = dict[str, list[str]]

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
hashable = st.recursive(plain, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=8)
values = st.recursive(
    hashable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hashable, inner, max_size=3) | st.sets(hashable),
    max_leaves=8,
)


def in_process(place: Path, seed: int) -> Found:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, edits.__file__, str(place / str(seed))]
    made = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert made.returncode == 0, made.stderr
    found: Found = json.loads(made.stdout)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Found]:
    place = tmp_path_factory.mktemp("edits")
    return in_process(place, 1), in_process(place, 2)


@pytest.mark.parametrize(("name", "changed"), [(name, changed) for name, _, _, changed in EDITS])
def test_an_edit_counts_in_every_process_alike(found: tuple[Found, Found], name: str, changed: bool) -> None:
    one, other = found
    assert one[name] == other[name]
    assert (one[name][0] != one[name][1]) == changed


@settings(max_examples=200, deadline=None)
@given(values)
def test_a_value_has_the_fingerprint_of_its_copy(value: object) -> None:
    assert fingerprint(value) == fingerprint(eval(repr(value), {"nan": float("nan"), "inf": float("inf")}))


def shape(value: object) -> tuple[object, ...]:
    """Return what two values have in common where they have the same parts of the same types, in any order if sets."""
    match value:
        case list() | tuple():
            return (type(value), *map(shape, value))
        case set() | frozenset():
            return (type(value), *sorted(map(repr, map(shape, value))))
        case dict():
            return (dict, *((shape(key), shape(item)) for key, item in value.items()))
        case _:
            return (type(value), repr(value))


@settings(max_examples=200, deadline=None)
@given(values, values)
def test_values_have_one_fingerprint_if_and_only_if_they_have_one_shape(one: object, other: object) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (shape(one) == shape(other))


class Opaque:
    def __reduce__(self) -> str:
        raise TypeError("no state")


opaque = Opaque()


def looks_code_up(name: str) -> object:
    return eval(name)


def uses_an_object() -> object:
    return opaque


def test_what_cannot_be_seen_through_is_named() -> None:
    assert fingerprint(
        looks_code_up,
    ).unseen == ("code that eval creates or looks up at run time, through looks_code_up",)
    (only,) = fingerprint(uses_an_object).unseen
    assert only.startswith("an object of ")
    assert only.endswith("Opaque, through uses_an_object.opaque")
    assert not fingerprint(len).unseen


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["a", "'a  b'", '"--"', "`x  y`", "r'\\'", "/*+ h */", "{t}"]), max_size=6), st.data())
def test_gaps_of_sql_do_not_count_and_texts_do(words: list[str], data: st.DataObject) -> None:
    gap = st.sampled_from([" ", "\n", "\t  ", " -- why ' not\n", " /* it's */ "])
    text = "".join(word + data.draw(gap) for word in words)
    assert normal_sql(text) == " ".join(words)
