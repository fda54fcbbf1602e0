"""All queries of TPC-H have a derivation, and what is kept of them is understood again from its SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.tpch.workflow import QUERIES, TABLES, maintenance
from kilonova.declare.ddl import parse_schema
from kilonova.model.channel import Channel
from kilonova.model.encoding import Upsert
from kilonova.query.maintaining import Situation, maintained, way
from kilonova.query.parsing import parsed
from kilonova.query.rendering import rendered
from kilonova.query.storing import restored, stored
from kilonova.query.tasks import known_of
from kilonova.query.tree import names

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
    for item in stored(name, parsed(QUERIES[name], known), known):
        assert "anew" not in way(item)
        known[item.channel] = item.facts
        for moved in item.reads:
            assert maintained(item, known, Situation(moved=frozenset({moved}), sizes={}, large=True)) is not None
        text = rendered(item.tree, lambda scan: scan.channel)
        again = restored(item.channel, text, item.encoding, known, item.facts)
        assert names(again.tree) == names(item.tree)
        assert rendered(again.tree, lambda scan: scan.channel).count("JOIN") == text.count("JOIN")
        known[item.channel] = item.facts


def test_sums_are_kept_where_they_can_be() -> None:
    kept = {name: [way(item) for item in stored(name, parsed(text, KNOWN), KNOWN)] for name, text in QUERIES.items()}
    by_sums = {name for name, ways in kept.items() if "the change is added to sums" in ways}
    assert by_sums == set(QUERIES) - {"q02"}


def test_what_a_query_says_twice_is_kept_once() -> None:
    kept = stored("q15", parsed(QUERIES["q15"], KNOWN), KNOWN)
    assert [item.reads for item in kept] == [("lineitem",), ("q15__1",), ("supplier", "q15__1", "q15__2")]
    text = "SELECT * FROM (SELECT max(s_suppkey) m FROM supplier), (SELECT max({}) n FROM supplier {})"
    others = {("s_suppkey", ""): 2, ("s_nationkey", ""): 3, ("s_suppkey", "WHERE s_phone = 'a'"): 3}
    for other, count in others.items():
        assert len(stored("v", parsed(text.format(*other), KNOWN), KNOWN)) == count


def test_the_page_says_how_each_query_is_kept_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "tpch.md"
    assert [line for line in page.read_text().splitlines() if line.startswith("| q") and "query" not in line] == (
        maintenance()
    )
