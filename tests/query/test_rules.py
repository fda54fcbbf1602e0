"""Each rule does what its fixture shows, and the rows stay the same, or are the change of the rows.

A fixture `rules/NAME.sql` has pairs of queries, SQL in and SQL out, each pair after a line that says what it shows.
Rules of keys take the outermost semi-join of a query for the keys. `python -m tests.query.test_rules` writes what the
rules make of the first of each pair.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kilonova.query.before_after import diff_by_key
from kilonova.query.column_pruning import narrow_to, prune_columns
from kilonova.query.delta_rules import delta_of_tree
from kilonova.query.eager_aggregation import aggregate_early, met_early
from kilonova.query.group_restriction import restrict_groups
from kilonova.query.join_ordering import order_joins, without_hints
from kilonova.query.key_lookups import look_up_keys
from kilonova.query.key_restriction import KeySet, restrict_to_keys
from kilonova.query.parsing import parse_query
from kilonova.query.predicate_pushdown import push_predicates
from kilonova.query.projection_merging import merge_projections
from kilonova.query.properties import equi_pairs
from kilonova.query.redundant_equalities import drop_redundant_equalities
from kilonova.query.rendering import render
from kilonova.query.tree import WEIGHT, Aggregate, Join, Kind, Node, Side, inputs, names, with_inputs
from kilonova.query.weighted_reads import read_with_weights
from tests.query.histories import KNOWN, TABLES, World, filled, mutated, table, value

FOLDER = Path(__file__).parent / "rules"
SIZES = {"r": 1000, "t": 10, "u": 100, "g": 1}


def early(node: Node) -> Node:
    """Aggregate early wherever the rule applies."""
    node = with_inputs(node, tuple(map(early, inputs(node))))
    if isinstance(node, Aggregate):
        return aggregate_early(node, KNOWN)
    return met_early(node, KNOWN) if isinstance(node, Join) else node


def hinted(node: Node) -> Node:
    """Say of every join that few rows of its right side are expected, as of the keys that a change touches."""
    node = with_inputs(node, tuple(map(hinted, inputs(node))))
    return replace(node, few=Side.RIGHT) if isinstance(node, Join) else node


def restricted(node: Node) -> tuple[Node, KeySet]:
    """Restrict the left side of the outermost semi-join to the keys on its right side."""
    if isinstance(node, Join) and node.kind is Kind.SEMI:
        pairs = equi_pairs(node.condition, frozenset(names(node.left)), frozenset(names(node.right)))
        keys = KeySet(node.right, nulls=False)
        return restrict_to_keys(node.left, tuple((one, other.name or "") for one, other in pairs), keys), keys
    (below,) = inputs(node)
    made, keys = restricted(below)
    return with_inputs(node, (made,)), keys


def differing(node: Node) -> Node | None:
    """Return the difference that a change makes to the rows with some keys, computed in one pass."""
    made, keys = restricted(node)
    return diff_by_key(made, MOVED, keys)


def change(node: Node | None) -> Node:
    assert node is not None
    return node


MOVED = frozenset({"r", "t"})
"""The channels that change, where a rule is about a change."""

OF_CHANGES = ("before_after", "delta_rules", "key_lookups")
"""Rules that give the change of a query's rows, not the rows."""

RULES: dict[str, Callable[[Node], Node]] = {
    "predicate_pushdown": push_predicates,
    "column_pruning": prune_columns,
    "filter_narrowing": narrow_to,
    "projection_merging": merge_projections,
    "join_ordering": lambda node: order_joins(merge_projections(node), frozenset({"r"}), SIZES, KNOWN),
    "eager_aggregation": lambda node: early(merge_projections(prune_columns(node))),
    "group_restriction": lambda node: restrict_groups(merge_projections(prune_columns(node)), KNOWN),
    "redundant_equalities": lambda node: drop_redundant_equalities(node, KNOWN),
    "weighted_reads": lambda node: without_hints(
        read_with_weights(hinted(merge_projections(node)), frozenset({"r", "u"}))
    ),
    "key_lookups": lambda node: without_hints(
        look_up_keys(change(delta_of_tree(merge_projections(node), MOVED, KNOWN)), KNOWN)
    ),
    "key_restriction": lambda node: without_hints(restricted(merge_projections(node))[0]),
    "before_after": lambda node: without_hints(change(differing(merge_projections(node)))),
    "delta_rules": lambda node: without_hints(change(delta_of_tree(merge_projections(node), MOVED, KNOWN))),
}


def pairs(name: str) -> list[tuple[str, str, str]]:
    """What each pair of a fixture shows, SQL in and SQL out."""
    found = []
    for part in (FOLDER / f"{name}.sql").read_text().split("-- ")[1:]:
        title, _, queries = part.partition("\n")
        given, made, *_ = (text.strip() for text in queries.split(";\n"))
        found.append((title, given, made))
    return found


def rewritten(name: str, text: str) -> str:
    """SQL out."""
    tree = RULES[name](parse_query(text, KNOWN))
    return render(tree, table)


CASES = [pytest.param(name, given, made, id=f"{name}: {title}") for name in RULES for title, given, made in pairs(name)]


@pytest.mark.parametrize(("name", "given", "made"), CASES)
def test_a_rule_makes_of_a_query_what_its_fixture_shows(name: str, given: str, made: str) -> None:
    assert rewritten(name, given) == made


@pytest.mark.parametrize(("name", "given", "made"), CASES)
def test_a_rule_keeps_the_rows_or_gives_their_change(name: str, given: str, made: str) -> None:
    world, draw = World(), random.Random(0)
    tree = parse_query(given, KNOWN)
    after = render(tree, lambda scan: f"{scan.channel}_new")
    before = render(tree, lambda scan: f"{scan.channel}_{'old' if scan.channel in MOVED else 'new'}")
    some = 0
    for _ in range(20):
        rows = {table: filled(draw, table) for table in TABLES}
        twice = tuple(value(draw, kind) for kind in TABLES["r"].values())
        world.step(rows | {"r": rows["r"] + Counter({twice: 2})})
        if name in OF_CHANGES:
            world.step({table: mutated(draw, table, world.rows[table]) for table in MOVED})
        columns, _, found = world.asked(made)
        expected, got = Counter(world.asked(after)[2]), Counter(found)
        if name in OF_CHANGES:
            expected.subtract(world.asked(before)[2])
            assert columns[-1] == WEIGHT
            got = Counter()
            for *row, weight in found:
                got[tuple(row)] += weight
        assert {row: n for row, n in got.items() if n} == {row: n for row, n in expected.items() if n}
        some += any(expected.values())
    assert some


def test_every_rule_has_a_fixture() -> None:
    assert {path.stem for path in FOLDER.glob("*.sql")} == set(RULES)
    assert all(pairs(name) for name in RULES)


if __name__ == "__main__":
    for name in RULES:
        written = [f"-- {title}\n{given};\n{rewritten(name, given)};\n" for title, given, _ in pairs(name)]
        (FOLDER / f"{name}.sql").write_text("\n".join(written))
