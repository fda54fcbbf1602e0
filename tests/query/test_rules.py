"""Each rule does what its fixture shows, and the rows stay the same.

A fixture `rules/NAME.sql` has pairs of queries, SQL in and SQL out, each pair after a line that says what it shows.
`python -m tests.query.test_rules` writes what the rules make of the first of each pair.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kilonova.query.column_pruning import narrow_to, prune_columns
from kilonova.query.eager_aggregation import aggregate_early, met_early
from kilonova.query.join_ordering import order_joins, without_hints
from kilonova.query.parsing import parse_query
from kilonova.query.predicate_pushdown import push_predicates
from kilonova.query.projection_merging import merge_projections
from kilonova.query.redundant_equalities import drop_redundant_equalities
from kilonova.query.rendering import render
from kilonova.query.tree import Aggregate, Join, Node, Side, inputs, with_inputs
from kilonova.query.weighted_reads import read_with_weights
from tests.query.histories import KNOWN, TABLES, World, filled, value

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


RULES: dict[str, Callable[[Node], Node]] = {
    "predicate_pushdown": push_predicates,
    "column_pruning": prune_columns,
    "filter_narrowing": narrow_to,
    "projection_merging": merge_projections,
    "join_ordering": lambda node: order_joins(merge_projections(node), frozenset({"r"}), SIZES, KNOWN),
    "eager_aggregation": lambda node: early(merge_projections(prune_columns(node))),
    "redundant_equalities": lambda node: drop_redundant_equalities(node, KNOWN),
    "weighted_reads": lambda node: without_hints(
        read_with_weights(hinted(merge_projections(node)), frozenset({"r", "u"}))
    ),
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
    return render(tree, lambda scan: f"{scan.channel}_{scan.at.value}{'__weighed' if scan.weighed else ''}")


CASES = [pytest.param(name, given, made, id=f"{name}: {title}") for name in RULES for title, given, made in pairs(name)]


@pytest.mark.parametrize(("name", "given", "made"), CASES)
def test_a_rule_makes_of_a_query_what_its_fixture_shows(name: str, given: str, made: str) -> None:
    assert rewritten(name, given) == made


@pytest.mark.parametrize(("name", "given", "made"), CASES)
def test_a_rule_keeps_the_rows(name: str, given: str, made: str) -> None:
    world, draw = World(), random.Random(0)
    plain = render(parse_query(given, KNOWN), lambda scan: f"{scan.channel}_{scan.at.value}")
    some = 0
    for _ in range(20):
        rows = {table: filled(draw, table) for table in TABLES}
        twice = tuple(value(draw, kind) for kind in TABLES["r"].values())
        world.step(rows | {"r": rows["r"] + Counter({twice: 2})})
        expected, got = Counter(world.asked(plain)[2]), Counter(world.asked(made)[2])
        assert got == expected
        some += bool(expected)
    assert some


def test_every_rule_has_a_fixture() -> None:
    assert {path.stem for path in FOLDER.glob("*.sql")} == set(RULES)
    assert all(pairs(name) for name in RULES)


if __name__ == "__main__":
    for name in RULES:
        written = [f"-- {title}\n{given};\n{rewritten(name, given)};\n" for title, given, _ in pairs(name)]
        (FOLDER / f"{name}.sql").write_text("\n".join(written))
