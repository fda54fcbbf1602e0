"""Joins want no equality twice, and none is taken to follow from others where it does not."""

from __future__ import annotations

import pytest

import kilonova as kn
from kilonova.model.schema import Schema
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.parsing import parse_query
from kilonova.query.properties import RelationFacts
from kilonova.query.redundant_equalities import drop_redundant_equalities
from kilonova.query.rendering import render
from kilonova.query.view_tasks import change_of, delta_of, known_of
from tests.query.histories import lived
from tests.seeds import SEED

KINDS = {"x": "bigint", "y": "bigint", "s": "string"}
KNOWN = {name: RelationFacts(types=KINDS) for name in "abcd"}


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("a join b on a.x = b.x join c on a.x = c.x and b.x = c.x", ["a=b", "a=c"]),
        ("a join b on a.x = b.x and a.x = b.x", ["a=b"]),
        ("a join b on a.x = b.x join c on b.x = c.x join d on a.x = d.x and c.x = d.x", ["a=b", "b=c", "a=d"]),
        (
            "(select a.x, b.x z from a join b on a.x = b.x) a"
            " join (select c.x, d.x z from c join d on c.x = d.x) c on a.x = c.x and a.z = c.z",
            ["a=b", "c=d", "a=c"],
        ),
        ("a join b on a.s = b.s join c on b.s = c.x and a.s = c.x", ["a=b", "b=c", "a=c"]),
        ("a left join b on a.x = b.x join c on a.x = c.x and b.x = c.x", ["a=b", "a=c", "b=c"]),
    ],
)
def test_equalities_that_follow_from_others_are_left_out(text: str, conditions: list[str]) -> None:
    tree = parse_query(f"select a.x from {text}", KNOWN)
    sql = render(drop_redundant_equalities(tree, KNOWN), lambda scan: scan.channel)
    assert sql.count(" = ") == len(conditions), sql


@pytest.mark.parametrize(
    "text",
    [
        "select t.k, u.b from t join u on t.k = u.k join (select x, k from u) w on t.k = w.k and u.k = w.k",
        "select a.k, c.v from t a join t b on a.k = b.k join t c on b.k = c.k and a.k = c.k",
        "select a.k, c.v from (select k from t) a join (select k k2, a k from t) b on a.k = b.k2 join t c on b.k = c.k",
    ],
)
def test_views_with_equalities_that_follow_equal_their_recomputation(text: str) -> None:
    for seed in range(SEED, SEED + 3):
        lived(text, seed)


def test_strings_that_equal_one_number_are_not_taken_as_equal() -> None:
    """`'1' = 1` and `1 = '01'`, but `'1' <> '01'`."""
    workflow = kn.Workflow("w")
    workflow.channel("a", "s string")
    workflow.channel("b", "n bigint")
    workflow.channel("c", "t string")
    workflow.view("v", "SELECT s, n, t FROM a JOIN b ON s = n JOIN c ON n = t")
    declared = workflow.declared().workflow
    channels = {channel.name: channel for channel in declared.channels}
    logic = change_of(declared.tasks[-1])
    assert logic is not None
    columns = Schema.of(("s", "string"), ("n", "bigint"), ("t", "string"))
    for moved in "abc":
        found = MaintenanceContext(moved=frozenset({moved}), sizes={})
        delta = delta_of(logic.tree, channels["v"], columns, known_of(channels), found)
        assert delta is not None
        assert delta.sql.count(" JOIN ") == delta.sql.count(" = ") == 2, delta.sql
        assert "`s_2` = `t_2`" not in delta.sql
