"""Estimated selectivity of conditions."""

from __future__ import annotations

import pytest

from examples.tpch.edits import EDITS, edited
from examples.tpch.workflow import QUERIES
from kilonova.query.migration.migration import Migration
from kilonova.query.selectivity import selectivity
from kilonova.query.view_migration import cost_shares
from tests.query.query_pairs import QueryPair
from tests.query.test_containment import condition
from tests.query.test_tpch import KNOWN


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("TRUE", 1),
        ("a = 1", 0.1),
        ("a <> 1", 0.9),
        ("a < 1", 1 / 3),
        ("a BETWEEN 1 AND 2", 1 / 4),
        ("a IN (1, 2)", 0.2),
        ("a IN (1, 2, 3, 4, 5, 6)", 0.5),
        ("a IS NULL", 0.1),
        ("a IS NOT NULL", 0.9),
        ("NOT a < 1", 2 / 3),
        ("(a < 1) IS NOT TRUE", 2 / 3),
        ("(a < 1) IS FALSE", 2 / 3),
        ("a < 1 AND b = 1 AND (c < 1)", 1 / 90),
        ("a < 1 OR b < 1", 5 / 9),
        ("a LIKE 'x%'", 0.1),
        ("NOT COALESCE(a <> 1, FALSE)", 0.1),
    ],
)
def test_a_condition_keeps_the_usual_share_of_rows(text: str, share: float) -> None:
    assert selectivity(condition(text)) == pytest.approx(share)


@pytest.mark.parametrize(
    ("query", "edit", "share"),
    [
        ("q06", "filter loosened", 1.0),
        ("q01", "filter loosened", 0.758),
        ("q01", "aggregate added", 4 / 7),
        ("q01", "group filter added", None),
        ("q01", "group filter removed", 0.8),
        ("q10", "column dropped", None),
    ],
)
def test_a_migration_costs_what_it_reads_in_proportion_to_the_query(query: str, edit: str, share: float | None) -> None:
    """Shares of q06, whose filter keeps few rows anyway, and of q01, whose filter keeps most of them."""
    kind = edit.replace("removed", "added")
    ((before, after),) = [texts for name, *texts in EDITS[query] if name == kind]
    queries = QUERIES[query], edited(query, before, after)
    (migration,) = QueryPair(query, *(queries if kind == edit else reversed(queries)), KNOWN).migrations.values()
    assert isinstance(migration, Migration)
    found = cost_shares(migration, query)
    assert found == ({} if share is None else {"lineitem": pytest.approx(share, rel=0.01)})
