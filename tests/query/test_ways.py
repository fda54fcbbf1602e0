"""How aggregates are kept up to date is what the documentation says."""

from __future__ import annotations

import pytest

from kilonova.query.maintenance import refresh_method_of_tree
from kilonova.query.materialization import plan_materializations
from kilonova.query.parsing import parse_query
from tests.query.histories import KNOWN

ADDED, AGAIN = "the changes are added to the sums", "the affected groups are recomputed"


@pytest.mark.parametrize(
    ("aggregates", "expected"),
    [
        ("count(*) n, sum(b) x, avg(d) y", ADDED),
        ("count(DISTINCT s) n", ADDED),
        ("count(DISTINCT s) n, count(DISTINCT s) + 1 m", ADDED),
        ("count(DISTINCT s) n, sum(b) x", AGAIN),
        ("count(DISTINCT s) n, count(DISTINCT b) m", AGAIN),
        ("max(b) x", AGAIN),
    ],
)
def test_aggregates_are_added_to_or_computed_again(aggregates: str, expected: str) -> None:
    item = plan_materializations("v", parse_query(f"SELECT a, {aggregates} FROM r GROUP BY a", KNOWN), KNOWN)[-1]
    assert refresh_method_of_tree(item) == expected
