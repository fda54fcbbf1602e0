"""A tree is the same after it was stored as JSON, to the operands of its expressions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.tpch.workflow import QUERIES
from kilonova.query.expression import Scalar
from kilonova.query.materialization import plan_materializations
from kilonova.query.parsing import parse_query
from kilonova.query.properties import Known, RelationFacts
from kilonova.query.rendering import render
from kilonova.query.syntax import UnsupportedSql
from kilonova.query.tree import Node, Projection
from kilonova.query.tree_json import tree_from_json, tree_to_json
from tests.query.generator import Generator
from tests.query.histories import KNOWN
from tests.query.test_tpch import KNOWN as TPCH

WRITTEN = [text.strip() for text in (Path(__file__).parent / "queries.sql").read_text().split(";") if text.strip()]


def stored(text: str, known: Known) -> list[Node]:
    """The trees of a view, each checked to come back as it was."""
    trees, facts = [], dict(known)
    for item in plan_materializations("v", parse_query(text, known), known):
        encoded = tree_to_json(item.tree)
        decoded = tree_from_json(encoded)
        assert decoded == item.tree
        assert render(decoded, lambda scan: scan.channel) == render(item.tree, lambda scan: scan.channel)
        assert tree_to_json(decoded) == encoded  # equality of expressions is that of their texts
        facts[item.channel] = item.facts
        trees.append(decoded)
    return trees


@pytest.mark.parametrize("text", [*QUERIES.values()], ids=[*QUERIES])
def test_queries_of_tpch_come_back(text: str) -> None:
    assert stored(text, TPCH)


def test_written_and_generated_queries_come_back() -> None:
    texts = [*WRITTEN, *(Generator(seed).query() for seed in range(100))]
    unsupported = 0
    for text in texts:
        try:
            assert stored(text, KNOWN)
        except UnsupportedSql:
            unsupported += 1
    assert unsupported < len(texts) / 10


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("s.f", {"s"}),
        ("s.g.h + m[a]", {"s", "m", "a"}),
        ("transform(m, x -> x + a)", {"m", "a"}),
        ("case a when 1 then s.f else 2 end", {"a", "s"}),
        ("'`operand 0` {}' || a", {"a"}),
        ("year(d) + extract(day from d + interval 1 day)", {"d"}),
        ("`{} ``0` + 1", {"{} `0"}),
    ],
)
def test_expressions_know_their_columns(sql: str, columns: set[str]) -> None:
    kinds = {"a": "int", "d": "date", "m": "array<int>", "s": "struct<f:int,g:struct<h:int>>", "{} `0": "int"}
    (tree,) = stored(f"SELECT {sql} AS x FROM t", {"t": RelationFacts(types=kinds)})
    assert isinstance(tree, Projection)
    assert [item.value.columns for item in tree.items] == [columns]


def test_stored_trees_can_be_read_by_others() -> None:
    (tree,) = stored("SELECT k FROM t WHERE v > 1", KNOWN)
    whole = json.loads(tree_to_json(tree))
    assert whole["Projection"]["items"] == [{"Item": {"name": "k", "value": {"column": "k"}}}]
    assert whole["Projection"]["input"]["Filter"]["condition"] == {
        "comparison": ["", {"column": "v"}, " > ", {"number": ["1"]}, ""]
    }


def test_expressions_are_equal_if_their_texts_are() -> None:
    (tree,) = stored("SELECT v + 1 AS x FROM t", KNOWN)
    assert isinstance(tree, Projection)
    (item,) = tree.items
    assert isinstance(item.value, Scalar)
    assert item.value.with_columns({"v": item.value}).sql == "(`v` + 1) + 1"
