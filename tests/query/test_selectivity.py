"""Estimated selectivity of conditions."""

from __future__ import annotations

import pytest

from examples.tpch.edits import EDITS
from kilonova.query.migration.migration import Migration
from kilonova.query.selectivity import selectivity
from kilonova.query.view_migration import cost_shares
from tests.query.test_containment import condition
from tests.query.tpch_edits import edited


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
    ],
)
def test_a_condition_keeps_the_usual_share_of_rows(text: str, share: float) -> None:
    assert selectivity(condition(text)) == pytest.approx(share)


@pytest.mark.parametrize(
    ("query", "edit", "share"),
    [("q06", "filter loosened", 1.0), ("q01", "filter loosened", 5 / 6), ("q01", "group filter added", None)],
)
def test_a_migration_costs_what_its_conditions_keep_in_proportion_to_the_query(
    query: str, edit: str, share: float | None
) -> None:
    """Shares of q06, whose filter keeps few rows anyway, and of q01, whose filter keeps most of them."""
    ((before, after),) = [texts for kind, *texts in EDITS[query] if kind == edit]
    (migration,) = edited(query, before, after).migrations.values()
    assert isinstance(migration, Migration)
    found = cost_shares(migration, query)
    assert found == ({} if share is None else {"lineitem": pytest.approx(share, rel=0.01)})
