"""A query's tree gives what its text says."""

from __future__ import annotations

from collections import Counter

import pytest
import sqlglot

from kilonova.errors import QueryError
from kilonova.query.parsing import parse_query
from kilonova.query.rendering import render
from kilonova.query.syntax import UnsupportedSql
from tests.query.histories import KNOWN, World


@pytest.fixture(scope="module")
def world() -> World:
    made = World()
    r = [(1, 2, "x", 3), (1, 2, "x", 3), (1, 3, "y", None), (2, None, "y", 5), (None, 1, None, 7), (3, 0, "z", -1)]
    t = [(0, 1, 2, "x"), (1, 2, 4, "y"), (2, None, 6, None), (3, 3, None, "z"), (4, 4, 1, "x")]
    u = [(0, 1, 2), (1, 1, None), (2, 3, 3), (5, None, 1)]
    made.step({"r": Counter(r), "t": Counter(t), "u": Counter(u), "g": Counter([(1, "x", 2)])})
    return made


def assert_equal(world: World, text: str) -> None:
    """Compare a query's tree with its text, over the same rows."""
    tree = render(parse_query(text, KNOWN), lambda scan: f"{scan.channel}_new")
    written = sqlglot.parse_one(text, dialect="spark")
    for table in written.find_all(sqlglot.exp.Table):
        if table.name in KNOWN:
            table.set("alias", sqlglot.exp.TableAlias(this=sqlglot.exp.to_identifier(table.alias_or_name)))
            table.set("this", sqlglot.exp.to_identifier(f"{table.name}_new"))
    got = world.asked(tree)[2]
    expected = world.asked(written.sql("spark"))[2]
    assert Counter(got) == Counter(expected)
    assert expected


@pytest.mark.parametrize(
    "text",
    [
        "select a, sum(b) as z, rank() over (order by sum(b)) as n from r group by a order by n, a limit 2",
        "select a, sum(b) as z from r group by a order by rank() over (order by sum(b)), a limit 2",
        "select a, sum(b) as z from r group by a order by (select max(k) from t) - z, a limit 2",
        "select a, sum(b) as z from r group by a qualify rank() over (order by sum(b)) = 1",
        "select k, v + 1 as n from t order by n * -2, k limit 3",
    ],
)
def test_an_order_may_name_what_is_selected_and_windows_over_groups(world: World, text: str) -> None:
    assert_equal(world, text)


@pytest.mark.parametrize(
    "text",
    [
        "select a, grouping(a) as g, sum(b) as z from r group by rollup(a)",
        "select a, s, grouping_id(a, s) as g, grouping(s) as h, sum(b) as z from r group by cube(a, s)",
        "select a, s, sum(b) as z from r group by a, rollup(s) having grouping(s) = 0",
        "select a, rank() over (partition by grouping(a) order by sum(b), a) as n from r group by rollup(a)",
        "select a, sum(b) as z from r group by grouping sets ((a), (a, s), ()) order by grouping(s), z, a limit 4",
    ],
)
def test_grouping_distinguishes_sets_of_keys(world: World, text: str) -> None:
    assert_equal(world, text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("group by a, s with rollup", "group by rollup(a, s)"),
        ("group by a, s with cube", "group by cube(a, s)"),
        ("group by a, s grouping sets ((a), (s))", "group by grouping sets ((a), (s))"),
    ],
)
def test_sets_of_keys_may_stand_behind_the_keys(text: str, same: str) -> None:
    select = "select a, s, grouping_id() as g, sum(b) as z from r"
    assert parse_query(f"{select} {text}", KNOWN) == parse_query(f"{select} {same}", KNOWN)


def test_a_key_that_is_in_no_set_is_null(world: World) -> None:
    tree = render(parse_query("select a, s from r group by a, s grouping sets ((a))", KNOWN), lambda scan: "r_new")
    assert Counter(world.asked(tree)[2]) == Counter((a, None) for a in (1, 2, 3, None))


@pytest.mark.parametrize("group", ["group by a", "group by rollup(s)"])
def test_grouping_of_what_is_in_no_set_of_several_is_refused(group: str) -> None:
    with pytest.raises(QueryError, match="does not name a grouping key"):
        parse_query(f"select grouping(a) as g from r {group}", KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "select k, (select max(d) from r where r.a = t.a) > 1 as m from t",
        "select k from t where case when (select max(d) from r where r.a = t.a) > 1 then 0 else 1 end = 1",
        "select a, sum(b) as z, (select max(k) from t having max(k) > 100) as m from r group by a",
    ],
)
def test_a_subquery_without_rows_is_null_and_leaves_out_no_row(world: World, text: str) -> None:
    assert_equal(world, text)


@pytest.mark.parametrize(
    "text",
    [
        "with c as (select max(a) as m from r) select k, (select m from c) as z from t where k > (select m from c) - 1",
        "select k, (select a from r order by a desc, b limit 1) as z from t",
        "select k, (select m + 1 from (select max(a) as m from r) as q where m > t.k) as z from t",
        "select a, (select v from t where t.k = r.a) as z from r",
        "select a from r where d > (select v from t where t.k = r.a and t.v is not null) or a = 1",
        "select a, (select x from u where k = 2) as z, (select 3) as three from r",
        "select a, sum(b) as z, (select max(v) from t where t.k = r.a) as m from r group by a",
        "select a, (select v from t where t.k = r.a) as z from r group by rollup(a)",
    ],
)
def test_a_scalar_subquery_may_have_one_row_for_any_reason(world: World, text: str) -> None:
    assert_equal(world, text)


@pytest.mark.parametrize(
    "text",
    [
        "select k, (select b from r where r.a = t.a) as z from t",
        "select k, (select v from t where t.k > u.k) as z from u",
        "select k, (select v from t where t.s = 'x') as z from u",
        "select a, (select v + r.b from t where t.k = r.a) as z from r",
        "select k, (select a from r limit 2) as z from t",
    ],
)
def test_a_scalar_subquery_that_may_have_several_rows_is_beyond(text: str) -> None:
    with pytest.raises(UnsupportedSql, match="scalar subquery"):
        parse_query(text, KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "select a, b from r where a = 2 or b in (select b from r where a > 2)",
        "select a, b from r where a = 2 or b in (select r.b from r join t as r_2 on r.a = r_2.k where r_2.a > 1)",
        "select a, b from r where a = 2 or b in (select b from (select b, a from r) r where r.a in (select a from r))",
    ],
)
def test_a_subquery_below_or_may_read_the_table_around_it(world: World, text: str) -> None:
    assert_equal(world, text)


def test_parentheses_around_what_is_selected_say_nothing() -> None:
    plain = "select distinct a, b + 1 as c from r order by a, c limit 3"
    assert parse_query("select distinct (a), ((b + 1)) as c from r order by (a), c limit 3", KNOWN) == parse_query(
        plain, KNOWN
    )


@pytest.mark.parametrize(
    "text",
    [
        "select k, (select a, b from r limit 1) x from t",
        "select k from t where v > (select max(a), max(b) from r)",
        "select k from t where v not in (select a, b from r) or k > 1",
        "select k from t where k > 1 or v in (select * from r)",
        "select sum(v), (select a, b from r limit 1) x from t",
    ],
)
def test_a_subquery_that_gives_values_has_one_column(text: str) -> None:
    with pytest.raises(QueryError, match="columns where one is expected"):
        parse_query(text, KNOWN)
