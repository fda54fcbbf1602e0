"""Weights are added up, and rows repeated by them, only where that is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kilonova.query.expression import Op, column, compose
from kilonova.query.properties import RelationFacts
from kilonova.query.redundant_weights import drop_redundant_weights
from kilonova.query.tree import WEIGHT, Aggregate, At, Filter, Item, Join, Kind, Node, Projection, Scan, kept
from kilonova.query.weighted_reads import read_with_weights, splits_rows
from kilonova.query.zset import consolidate, has_unit_weights, repeat_rows, union_changes, weight_where, with_weight

KNOWN = {
    "t": RelationFacts(types={"k": "int", "v": "int"}, key=("k",)),
    "r": RelationFacts(types={"a": "int", "b": "int"}),
    "one": RelationFacts(types={"x": "int"}, single=True, one_row=True),
    "hoped": RelationFacts(types={"x": "int"}, single=True),
}


def rows(name: str, at: At = At.NEW) -> Scan:
    return Scan(name, tuple((each, each) for each in KNOWN[name].types), at)


def beside(name: str) -> Node:
    """The rows of `t`, each beside a row of another channel, with weights by a condition."""
    joined = Join(rows("t"), rows(name), Kind.INNER, compose("{} > {}", column("v"), column("x"), op=Op.COMPARISON))
    return Projection(joined, (*kept(("k", "v")), weight_where(compose("{} > 1", column("v"), op=Op.COMPARISON))))


@pytest.mark.parametrize("node", [with_weight(rows("t"), -1), beside("one")], ids=["a key", "a key beside one row"])
def test_weights_of_rows_with_a_key_are_not_added_up(node: Node) -> None:
    made = drop_redundant_weights(consolidate(node), KNOWN)
    assert isinstance(made, Filter)
    assert made.input == node


@pytest.mark.parametrize(
    "node",
    [
        with_weight(rows("r"), 1),
        rows("t", At.CHANGE),
        replace(rows("t"), weighed=True),
        beside("hoped"),
        union_changes([with_weight(rows("t"), 1), with_weight(rows("t"), -1)], ("k", "v")),
    ],
    ids=["no key", "a change", "weighted rows", "a row that is only expected", "two relations"],
)
def test_weights_are_added_up_where_rows_may_be_equal(node: Node) -> None:
    assert drop_redundant_weights(consolidate(node), KNOWN) == consolidate(node)


def test_rows_that_are_added_or_removed_once_are_not_repeated() -> None:
    for node in (with_weight(rows("r"), -1), beside("hoped"), Filter(with_weight(rows("r"), 1), column("a"))):
        assert has_unit_weights(node)
        assert drop_redundant_weights(repeat_rows(node), KNOWN) == node


def test_rows_are_repeated_where_a_channel_is_read_with_weights() -> None:
    read = read_with_weights(with_weight(rows("r"), 1), frozenset({"r"}))
    for node in (read, rows("r", At.CHANGE), consolidate(with_weight(rows("r"), 1))):
        assert not has_unit_weights(node)
        assert drop_redundant_weights(repeat_rows(node), KNOWN) == repeat_rows(node)


def test_weighted_rows_below_groups_do_not_reach_the_top_of_a_change() -> None:
    read = read_with_weights(with_weight(rows("r"), 1), frozenset({"r"}))
    total = Aggregate(read, kept(("a",)), (Item(WEIGHT, compose("SUM({})", column(WEIGHT), op=Op.SUM)),))
    assert splits_rows(read)
    assert not splits_rows(total)
    assert not splits_rows(consolidate(read))
    assert splits_rows(union_changes([total, Projection(read, kept(("a", WEIGHT)))], ("a",)))
