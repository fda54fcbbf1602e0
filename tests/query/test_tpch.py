"""All queries of TPC-H have a derivation."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.tpch.workflow import QUERIES, TABLES, maintenance
from kilonova.declare.ddl import parse_schema
from kilonova.model.channel import Channel
from kilonova.model.encoding import Upsert
from kilonova.query.maintenance import maintenance_delta, refresh_method_of_tree
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.materialization import plan_materializations
from kilonova.query.parsing import parse_query
from kilonova.query.view_tasks import known_of

KNOWN = known_of(
    {
        name: Channel(
            name=name, schema=parse_schema(schema), encoding=Upsert((key,) if isinstance(key, str) else tuple(key))
        )
        for name, (schema, key) in TABLES.items()
    }
)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_kept_up_to_date_by_its_change(name: str) -> None:
    known = dict(KNOWN)
    for item in plan_materializations(name, parse_query(QUERIES[name], known), known):
        assert "anew" not in refresh_method_of_tree(item)
        known[item.channel] = item.facts
        for moved in item.reads:
            assert (
                maintenance_delta(item, known, MaintenanceContext(moved=frozenset({moved}), sizes={}, large=True))
                is not None
            )


def test_sums_are_kept_where_they_can_be() -> None:
    kept = {
        name: [refresh_method_of_tree(item) for item in plan_materializations(name, parse_query(text, KNOWN), KNOWN)]
        for name, text in QUERIES.items()
    }
    by_sums = {name for name, ways in kept.items() if "the changes are added to the sums" in ways}
    assert by_sums == set(QUERIES) - {"q02"}


def test_what_a_query_says_twice_is_kept_once() -> None:
    kept = plan_materializations("q15", parse_query(QUERIES["q15"], KNOWN), KNOWN)
    assert [item.reads for item in kept] == [("lineitem",), ("q15__1",), ("supplier", "q15__1", "q15__2")]
    text = "SELECT * FROM (SELECT max(s_suppkey) m FROM supplier), (SELECT max({}) n FROM supplier {})"
    others = {("s_suppkey", ""): 2, ("s_nationkey", ""): 3, ("s_suppkey", "WHERE s_phone = 'a'"): 3}
    for other, count in others.items():
        assert len(plan_materializations("v", parse_query(text.format(*other), KNOWN), KNOWN)) == count


def test_the_page_says_how_each_query_is_kept_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "tpch.md"
    assert [line for line in page.read_text().splitlines() if line.startswith("| q") and "query" not in line] == (
        maintenance()
    )
