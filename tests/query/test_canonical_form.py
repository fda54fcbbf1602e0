"""Queries that mean the same have the same form, and those that have the same form the same rows."""

from __future__ import annotations

import random
from dataclasses import dataclass

import duckdb
import pytest

from kilonova.errors import KilonovaError
from kilonova.model.encoding import Encoding
from kilonova.query.canonical_form import canonical_text
from kilonova.query.materialization import plan_materializations
from kilonova.query.parsing import parse_query
from kilonova.query.rendering import render
from kilonova.query.syntax import UnsupportedSql
from tests.query.generator import Generator
from tests.query.histories import KNOWN, TABLES, World, about, filled
from tests.query.rewrites import Rewriter
from tests.seeds import SEED


@dataclass(frozen=True)
class Planned:
    """A relation of a view, as far as it is compared with the registered one."""

    channel: str
    text: str
    encoding: Encoding
    whole: str | None


def planned(text: str) -> list[Planned]:
    """The relations that a view stores."""
    known, found = dict(KNOWN), []
    for item in plan_materializations("v", parse_query(text, KNOWN), KNOWN):
        known[item.channel] = item.facts
        found.append(Planned(item.channel, canonical_text(item.tree, known), item.encoding, item.whole))
    return found


SAME = {
    "formatting": ("SELECT a,b FROM r -- rows\nWHERE a=1", "select  r.a, /* b */ r.b from r where (a) = (1)"),
    "aliases of tables": ("SELECT x.a FROM r AS x JOIN t AS y ON x.a = y.a", "SELECT r.a FROM r JOIN t ON r.a = t.a"),
    "aliases of columns": (
        "SELECT p.n AS a FROM (SELECT a AS n, b FROM r) AS p WHERE p.b = 1",
        "SELECT q.m AS a FROM (SELECT a AS m, b AS o FROM r) AS q WHERE q.o = 1",
    ),
    "letter case": ("SELECT A, s FROM R WHERE B = 1 AND S = 'x'", "select a as A, s from r where b = 1 and s = 'x'"),
    "an explicit list": ("SELECT * FROM u", "SELECT k, x, b FROM u"),
    "conjuncts": ("SELECT a FROM r WHERE a = 1 AND b > 2", "SELECT a FROM r WHERE b > 2 AND a = 1"),
    "nested conjuncts": (
        "SELECT a FROM r WHERE (a = 1 AND b > 2) AND s IS NULL AND a = 1",
        "SELECT a FROM r WHERE a = 1 AND (s IS NULL AND b > 2)",
    ),
    "disjuncts": ("SELECT a FROM r WHERE a = 1 OR b > 2 OR a = 1", "SELECT a FROM r WHERE b > 2 OR a = 1"),
    "comparisons": (
        "SELECT a FROM r WHERE a > 1 AND b <= a AND b <> 3",
        "SELECT a FROM r WHERE 1 < a AND a >= b AND 3 != b",
    ),
    "BETWEEN": ("SELECT a FROM r WHERE a BETWEEN 1 AND 2", "SELECT a FROM r WHERE a <= 2 AND a >= 1"),
    "NOT BETWEEN": ("SELECT a FROM r WHERE a NOT BETWEEN 1 AND 2", "SELECT a FROM r WHERE a < 1 OR a > 2"),
    "NOT": ("SELECT a FROM r WHERE NOT (a = 1 OR NOT b < 2)", "SELECT a FROM r WHERE a <> 1 AND b < 2"),
    "IN": ("SELECT a FROM r WHERE a IN (3, 1, 2)", "SELECT a FROM r WHERE a IN (1, 2, 3, 2)"),
    "arithmetic": ("SELECT a + b * 2 AS z FROM r", "SELECT 2 * b + a AS z FROM r"),
    "parentheses": ("SELECT (a + b) * 2 AS z FROM r", "SELECT ((a + (b))) * (2) AS z FROM r"),
    "within CASE": ("SELECT CASE WHEN a = b THEN 1 END AS z FROM r", "SELECT CASE WHEN b = a THEN 1 END AS z FROM r"),
    "WHERE and ON": (
        "SELECT r.a, t.v FROM r JOIN t ON r.a = t.a AND t.s = 'x'",
        "SELECT r.a, t.v FROM r, t WHERE t.a = r.a AND t.s = 'x'",
    ),
    "order of joins": (
        "SELECT r.a, t.v, u.x FROM r JOIN t ON r.a = t.a JOIN u ON u.k = t.k",
        "SELECT r.a, t.v, u.x FROM u JOIN t ON u.k = t.k JOIN r ON r.a = t.a",
    ),
    "a table with itself": (
        "SELECT x.a, y.b FROM r AS x JOIN r AS y ON x.a = y.b WHERE y.s = 'x'",
        "SELECT y.a, x.b FROM r AS x JOIN r AS y ON x.b = y.a WHERE x.s = 'x'",
    ),
    "a table with itself, symmetrically": (
        "SELECT x.a, y.a AS other FROM r AS x JOIN r AS y ON x.b = y.b",
        "SELECT y.a, x.a AS other FROM r AS x JOIN r AS y ON x.b = y.b",
    ),
    "RIGHT and LEFT": (
        "SELECT r.a, t.v FROM r LEFT JOIN t ON r.a = t.a AND t.s = 'x'",
        "SELECT r.a, t.v FROM (SELECT * FROM t WHERE s = 'x') AS t RIGHT JOIN r ON t.a = r.a",
    ),
    "FULL": ("SELECT r.a, t.v FROM r FULL JOIN t ON r.a = t.a", "SELECT r.a, t.v FROM t FULL JOIN r ON t.a = r.a"),
    "CTE and subquery": (
        "WITH n AS (SELECT a, sum(b) AS z FROM r GROUP BY a) SELECT a, z FROM n WHERE z > 1",
        "SELECT a, y AS z FROM (SELECT a, sum(b) AS y FROM r GROUP BY a) WHERE y > 1",
    ),
    "HAVING and WHERE": (
        "SELECT a, sum(b) AS z FROM r GROUP BY a HAVING sum(b) > 1",
        "SELECT a, z FROM (SELECT a, sum(b) AS z FROM r GROUP BY a) WHERE z > 1",
    ),
    "order of groups": (
        "SELECT a, b, max(d) AS z FROM r GROUP BY a, b",
        "SELECT a, b, max(d) AS z FROM r GROUP BY 2, 1",
    ),
    "DISTINCT": ("SELECT DISTINCT a, b FROM r", "SELECT a, b FROM r GROUP BY b, a"),
    "count": ("SELECT s, count(1) AS n FROM t GROUP BY s", "SELECT s, count(*) AS n FROM t GROUP BY s"),
    "EXISTS": (
        "SELECT a FROM r WHERE EXISTS (SELECT 1 FROM t WHERE t.a = r.a) AND EXISTS (SELECT 1 FROM u WHERE u.b = r.b)",
        "SELECT a FROM r AS z WHERE EXISTS (SELECT x FROM u WHERE z.b = b) AND z.a IN (SELECT t.a FROM t)",
    ),
    "branches of a union": (
        "SELECT a FROM r UNION ALL SELECT k FROM t UNION ALL SELECT x FROM u",
        "SELECT x AS a FROM u UNION ALL (SELECT a FROM r UNION ALL SELECT k FROM t)",
    ),
    "order of aggregated subqueries": (
        "SELECT p.a, p.n, q.m FROM (SELECT a, count(*) AS n FROM r GROUP BY a) AS p"
        " JOIN (SELECT s, max(v) AS m FROM t GROUP BY s) AS q ON p.n = q.m",
        "SELECT y.a, y.c AS n, x.z AS m FROM (SELECT s, max(v) AS z FROM t GROUP BY s) AS x"
        " JOIN (SELECT a, count(*) AS c FROM r GROUP BY a) AS y ON x.z = y.c",
    ),
    "a window": (
        "SELECT a, rank() OVER (PARTITION BY b ORDER BY a) AS z FROM r",
        "SELECT q.n AS a, rank() OVER (PARTITION BY q.m ORDER BY q.n) AS z FROM (SELECT b AS m, a AS n FROM r) AS q",
    ),
    "the first rows": (
        "SELECT a FROM (SELECT a, b FROM r ORDER BY a, b LIMIT 3) WHERE b > 1",
        "SELECT y AS a FROM (SELECT a AS y, b AS z FROM r ORDER BY y, z LIMIT 3) WHERE 1 < z",
    ),
}

DIFFERENT = {
    "the order of columns": ("SELECT a, b FROM r", "SELECT b, a FROM r"),
    "the name of a column": ("SELECT a FROM r", "SELECT a AS z FROM r"),
    "the letters of a name": ("SELECT a AS z FROM r", "SELECT a AS Z FROM r"),
    "a column": ("SELECT a, b AS z FROM r", "SELECT a, a AS z FROM r"),
    "a number": ("SELECT a FROM r WHERE a = 1", "SELECT a FROM r WHERE a = 2"),
    "the type of a number": ("SELECT a + 1 AS z FROM r", "SELECT a + 1L AS z FROM r"),
    "an operator": ("SELECT a FROM r WHERE a > 1", "SELECT a FROM r WHERE a >= 1"),
    "the side of an operator": ("SELECT a FROM r WHERE a > b", "SELECT a FROM r WHERE b > a"),
    "AND": ("SELECT a FROM r WHERE a = 1 AND b = 2", "SELECT a FROM r WHERE a = 1 OR b = 2"),
    "AND within OR": (
        "SELECT a FROM r WHERE a = 1 AND (b = 2 OR s = 'x')",
        "SELECT a FROM r WHERE (a = 1 AND b = 2) OR s = 'x'",
    ),
    "subtraction": ("SELECT a - b AS z FROM r", "SELECT b - a AS z FROM r"),
    "nesting": ("SELECT a - (b - 1) AS z FROM r", "SELECT a - b - 1 AS z FROM r"),
    "a join": ("SELECT r.a FROM r JOIN t ON r.a = t.a", "SELECT r.a FROM r LEFT JOIN t ON r.a = t.a"),
    "the table that is kept": (
        "SELECT r.a, t.k FROM r LEFT JOIN t ON r.a = t.a",
        "SELECT r.a, t.k FROM r RIGHT JOIN t ON r.a = t.a",
    ),
    "ON and WHERE of an outer join": (
        "SELECT r.a, t.v FROM r LEFT JOIN t ON r.a = t.a AND r.b = 1",
        "SELECT r.a, t.v FROM r LEFT JOIN t ON r.a = t.a WHERE r.b = 1",
    ),
    "what an outer join fills with nulls": (
        "SELECT r.a, q.o FROM r LEFT JOIN (SELECT a, 1 AS o FROM t) AS q ON r.a = q.a",
        "SELECT r.a, 1 AS o FROM r LEFT JOIN t AS q ON r.a = q.a",
    ),
    "one table of two that are alike": (
        "SELECT x.a FROM r AS x JOIN r AS y ON x.a = y.b",
        "SELECT y.a FROM r AS x JOIN r AS y ON x.a = y.b",
    ),
    "a channel": ("SELECT k, b AS z FROM u", "SELECT k, a AS z FROM t"),
    "EXISTS": (
        "SELECT a FROM r WHERE EXISTS (SELECT 1 FROM t WHERE t.a = r.a)",
        "SELECT a FROM r WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.a = r.a)",
    ),
    "duplicates": ("SELECT a FROM r UNION ALL SELECT k FROM t", "SELECT a FROM r UNION SELECT k FROM t"),
    "branches that share a table": (
        "SELECT a, b FROM r UNION ALL SELECT b, a FROM r",
        "SELECT a, b FROM r UNION ALL SELECT a, b FROM r",
    ),
    "groups": ("SELECT max(d) AS z FROM r GROUP BY a", "SELECT max(d) AS z FROM r GROUP BY b"),
    "an aggregate": ("SELECT a, sum(b) AS z FROM r GROUP BY a", "SELECT a, max(b) AS z FROM r GROUP BY a"),
    "before and after a window": (
        "SELECT a, rank() OVER (ORDER BY a) AS z FROM r WHERE b = 1",
        "SELECT a, z FROM (SELECT a, b, rank() OVER (ORDER BY a) AS z FROM r) WHERE b = 1",
    ),
    "before and after the first rows": (
        "SELECT a FROM (SELECT a, b FROM r ORDER BY a, b LIMIT 3) WHERE b > 1",
        "SELECT a FROM r WHERE b > 1 ORDER BY a, b LIMIT 3",
    ),
    "the order of the first rows": (
        "SELECT a FROM r ORDER BY a, b LIMIT 3",
        "SELECT a FROM r ORDER BY b, a LIMIT 3",
    ),
}


@pytest.mark.parametrize("what", SAME)
def test_a_query_is_recognized_however_it_is_written(what: str) -> None:
    one, other = SAME[what]
    assert planned(one) == planned(other)


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_query_with_another_meaning_is_another(what: str) -> None:
    one, other = (canonical_text(parse_query(text, KNOWN), KNOWN) for text in DIFFERENT[what])
    assert one != other


def test_a_random_result_is_recognized_as_it_is_written() -> None:
    one, same, other = (
        planned(f"SELECT {columns} FROM (SELECT rand() AS x FROM r)") for columns in ("x, x AS y", "x,  x AS y", "x")
    )
    assert one == same != other


@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_rewriting_a_query_keeps_its_form_and_editing_it_only_if_its_rows_stay(seed: int) -> None:
    text = Generator(seed).query()
    try:
        tree = parse_query(text, KNOWN)
    except UnsupportedSql:
        return
    rewriter = Rewriter(seed)
    written = rewriter.rewritten(text)
    same = canonical_text(parse_query(written, KNOWN), KNOWN) == canonical_text(tree, KNOWN)
    assert same or rewriter.is_symmetric(text), written
    try:
        edited = parse_query(rewriter.edited(text), KNOWN)
    except (KilonovaError, UnsupportedSql):
        return
    if canonical_text(edited, KNOWN) == canonical_text(tree, KNOWN):
        draw, world = random.Random(seed), World()
        for _ in range(3):
            world.step({name: filled(draw, name) for name in TABLES})
            one = world.asked(render(tree, lambda scan: f"{scan.channel}_new"))[2]
            try:
                other = world.asked(render(edited, lambda scan: f"{scan.channel}_new"))[2]
            except duckdb.BinderException:  # an edit has changed the type of a column; DuckDB does not convert it
                return
            assert about(one) == about(other)
