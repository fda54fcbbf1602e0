"""Containment is sound: no row contradicts it; differences are exact; and what is plainly contained is found."""

from __future__ import annotations

import functools
import itertools
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from sqlglot import exp

from kilonova.query.containment import difference, implies, is_constant, is_unsatisfiable
from kilonova.query.expression import Scalar
from kilonova.query.expression_syntax import parse
from tests.seeds import SEED

TYPES = {
    "i": "int",
    "j": "int",
    "n": "bigint",
    "q": "double",
    "f": "float",
    "x": "decimal(10,2)",
    "s": "string",
    "d": "date",
    "t": "timestamp",
    "b": "boolean",
    "unknown": None,
}

CONTAINED = [
    ("q > 0.6", "q > 0.5"),
    ("q > 0.6 and s = 'a'", "q > 0.5 and s = 'a'"),
    ("q > 0.6", "q >= 0.6"),
    ("q = 0.6", "q between 0.6 and 0.7"),
    ("q > 1e300", "not q < 0"),
    ("isnan(q)", "q > 1e300"),
    ("q = -0.0", "q in (0.0, 1.0)"),
    ("f > 2", "f > 1.5"),
    ("n > 7D", "n > 5D"),
    ("x > 7D", "x > 6.5D"),
    ("i in (1, 2)", "i in (1, 2, 3)"),
    ("i not in (1, 2, 3)", "i not in (1, 2) and i is not null"),
    ("i not in (1, null)", "i = 5"),
    ("i between 2 and 3", "i between 1 and 4"),
    ("not i between 1 and 4", "not i between 2 and 3"),
    ("s = 'b'", "s > 'a'"),
    ("s = 'it\\'s'", "s like 'it%'"),
    ("s like 'abc%'", "s like 'ab%'"),
    ("s < 'B'", "s < 'a'"),
    ("s < 'z'", "s < 'é'"),
    ("d = '2024-02-01'", "d in ('2024-02-01', '2024-03-01')"),
    ("d > cast('2024-02-01' as date)", "d is not null"),
    ("d <= date '2024-03-01' - interval '90' day", "d <= date '2024-03-01' - interval '60' day"),
    ("d < date '2024-01-31' + interval '1' month", "d < date '2024-03-01'"),
    ("d > date '2024-02-29'", "d >= date '2024-01-31' + interval '1' month"),
    ("t >= timestamp '2024-02-01'", "t > timestamp '2024-01-01'"),
    ("t >= timestamp '2024-01-02'", "t > timestamp '2024-01-01'"),
    ("b", "b is not null"),
    ("unknown > 20", "unknown > 10"),
    ("unknown > 0.6", "unknown >= 0.6"),
    ("i + j > 20", "i + j > 10"),
    ("i > j", "i >= j"),
    ("i > j", "i is not null and j is not null"),
    ("i > 5", "i = i"),
    ("s rlike 'a' and i = 1", "s rlike 'a'"),
    ("i = 1 or i = 2", "i in (1, 2, 3)"),
    ("(i = 1 or i = 2) and j = 1", "(i = 1 and j = 1) or i = 2"),
    ("i > 1", "true"),
    ("false", "i > 1"),
    ("1 = 2", "i > 1"),
]
"""Premises and conclusions that are contained, and not in the other direction."""

EQUIVALENT = [
    ("x > 0.555", "x >= 0.56"),
    ("i > 5", "i >= 6"),
    ("i >= 6", "i > 5.5"),
    ("i > 5 and i < 7", "i = 6"),
    ("i in (1, null)", "i = 1"),
    ("i = null", "false"),
    ("i <=> 5", "i = 5"),
    ("i <=> null", "i is null"),
    ("s like 'abc'", "s = 'abc'"),
    ("s like '%'", "s is not null"),
    ("d >= date '2024-02-01'", "d > '2024-01-31'"),
    ("b = true", "b"),
    ("not b", "b <=> false"),
    ("b is not true", "not coalesce(b, false)"),
    ("length(s) > 20", "length(s) >= 20.5"),
    ("i > j", "j < i and i <> j"),
    ("i = i", "i is not null"),
    ("not (i > 1 or j > 1)", "i <= 1 and j <= 1"),
    ("not (i > 1 and j > 1)", "i <= 1 or j <= 1"),
    ("(i > 1) = true", "i > 1"),
    ("(i > 1) is null", "i is null"),
    ("i > 5", "5 < i"),
    ("i <> 5", "not i = 5"),
    ("i is distinct from 5", "not i <=> 5"),
    ("isnull(i)", "i is null"),
    ("case when i > 1 then true end", "i > 1"),
    ("case when i > 1 then j > 1 when i is null then null else b end", "(i > 1 and j > 1) or (i <= 1 and b)"),
    ("isnotnull(i)", "not isnull(i)"),
    ("i > 1 and i is not null", "not i <= 1"),
    ("coalesce(i > 1, true)", "i > 1 or i is null"),
    ("i > 1 and (j > 1 or s = 'a')", "(s = 'a' and i > 1) or (j > 1 and i > 1)"),
    ("s > 'a' and s > 'b'", "s > 'b'"),
]

UNSURE = [
    ("rand() > 0.6", "rand() > 0.5"),
    ("s > 10", "s > 5"),
    ("s = 1", "s in (1, 2)"),
    ("i <=> 'a'", "i is not null"),
    ("i < 99999999999999999999", "i is not null"),
    ("coalesce(unknown, true) is not null", "coalesce(unknown, true) = true or coalesce(unknown, true) = false"),
    ("unknown > 'b'", "unknown > 'a'"),
    ("unknown > 10", "unknown > 9.5"),
    ("unknown = 0", "unknown in (0, 1)"),
    ("n > 9007199254740993", "n > 9007199254740992D"),
    ("x = 0.1", "x = 0.1D"),
    ("f > 16777217", "f > 16777216"),
    ("t > timestamp '2024-03-31 02:30:00'", "t > timestamp '2024-03-31 02:00:00'"),
    ("t >= timestamp '2011-12-31'", "t > timestamp '2011-12-30'"),
    ("s like 'a_c%'", "s like 'a%'"),
    ("i is not null", "i = j"),
    ("q in (0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)", "q < 100"),
    ("case when i > 1 then s end", "i > 1"),
]
"""Pairs about which nothing is certain, whatever the mode and the time zone of Spark."""

DIFFERENCES = [
    ("q > 0.5 and s = 'a'", "q > 0.6 and s = 'a'", "`q` > 0.5 AND `q` <= 0.6 AND `s` = 'a'"),
    ("q > 0.6", "q > 0.5", None),
    ("q > 0.5", "q > 0.6 and j > 5", "`q` > 0.5 AND (`q` <= 0.6 OR `j` <= 5 OR `j` IS NULL)"),
    (None, "q > 0.5", "`q` <= 0.5 OR `q` IS NULL"),
    ("q > 0.5", None, None),
    (None, "false", "TRUE"),
    (None, "true", None),
    ("q > 0.3", "q <= 0.5", "`q` > 0.5"),
    ("q > 0.5 and q > 0.3", "i = 1", "`q` > 0.5 AND (`i` <> 1 OR `i` IS NULL)"),
    ("q > 0.5", "q between 0.6 and 0.8", "`q` > 0.5 AND (`q` < 0.6 OR `q` > 0.8)"),
    ("q between 0 and 1", "q < 0.5", "`q` >= 0.5 AND `q` <= 1"),
    ("q > 0.5 or s = 'b'", "q > 0.6 or s = 'b'", "`q` > 0.5 AND `q` <= 0.6 AND (`s` <> 'b' OR `s` IS NULL)"),
    ("q is not null", "q > 0.5", "`q` <= 0.5"),
    ("i in (1, 2, 3)", "i in (1, 2)", "`i` = 3"),
    ("i > 5", "i in (7, 8)", "`i` > 5 AND NOT `i` IN (7, 8)"),
    ("i > 5", "i = 7", "`i` > 5 AND `i` <> 7"),
    ("i > 5", "not i > 7", "`i` > 7"),
    ("s in ('a', 'b') and q > 0.5", "s = 'a' and q > 0.5", "`s` = 'b' AND `q` > 0.5"),
    ("s like 'a%'", "s like 'ab%'", "`s` LIKE 'a%' AND (`s` < 'ab' OR `s` >= 'ac')"),
    ("s rlike 'a'", "s rlike 'b'", "`s` RLIKE 'a' AND NOT COALESCE(`s` RLIKE 'b', FALSE)"),
    ("b", "b and i > 3", "`b` AND (`i` <= 3 OR `i` IS NULL)"),
    (None, "b", "NOT `b` OR `b` IS NULL"),
    (None, "i > j", "`i` <= `j` OR `i` IS NULL OR `j` IS NULL"),
    ("i >= j", "i > j", "`i` = `j`"),
    (None, "unknown > 5", "NOT COALESCE(`unknown` > 5, FALSE)"),
    ("length(s) > 50", "length(s) > 100", "LENGTH(`s`) > 50 AND LENGTH(`s`) <= 100"),
    (
        "t > timestamp '2024-01-01'",
        "t > timestamp '2024-02-01'",
        "`t` > CAST('2024-01-01' AS TIMESTAMP) AND `t` <= CAST('2024-02-01' AS TIMESTAMP)",
    ),
    ("i > 0 and 1 / i > 0.5", "1 / i > 0.7", "`i` > 0 AND 1 / `i` > 0.5 AND 1 / `i` <= 0.7"),
    ("rand() > 0.5", "i > 1", "RAND() > 0.5 AND NOT COALESCE(`i` > 1, FALSE)"),
]


def condition(text: str) -> Scalar:
    """A condition whose columns are written without quotes."""
    tree = sqlglot.parse_one(text, dialect="spark")
    for found in tree.find_all(exp.Column):
        found.this.set("quoted", True)
    return parse(tree.sql("spark"))


@pytest.mark.parametrize(("premise", "conclusion"), CONTAINED)
def test_a_contained_condition_is_found_and_not_the_other_way_round(premise: str, conclusion: str) -> None:
    assert implies(condition(premise), condition(conclusion), TYPES)
    assert not implies(condition(conclusion), condition(premise), TYPES)


@pytest.mark.parametrize(("one", "other"), EQUIVALENT)
def test_equivalent_conditions_contain_each_other(one: str, other: str) -> None:
    assert implies(condition(one), condition(other), TYPES)
    assert implies(condition(other), condition(one), TYPES)


@pytest.mark.parametrize(("premise", "conclusion"), UNSURE)
def test_unsure_means_no(premise: str, conclusion: str) -> None:
    assert not implies(condition(premise), condition(conclusion), TYPES)


@pytest.mark.parametrize(("wanted", "had", "made"), DIFFERENCES)
def test_a_difference_is_as_simple_as_can_be(wanted: str | None, had: str | None, made: str | None) -> None:
    found = difference(wanted and condition(wanted), had and condition(had), TYPES)
    assert (found and found.sql) == made
    assert found is None or parse(found.sql).sql == found.sql


@pytest.mark.parametrize("text", ["q > 0.5", "i in (1, 2) or s is null", "not (n > 3 and s = 'a')", "i = j", "s < 'b'"])
def test_conditions_that_have_one_result_everywhere(text: str) -> None:
    assert is_constant(condition(text), TYPES)


@pytest.mark.parametrize("text", ["1 / i > 2", "cast(s as int) > 1", "q > rand()", "unknown > 1", "i + n > 3", "s = 3"])
def test_conditions_that_may_fail_or_depend_on_the_session(text: str) -> None:
    assert not is_constant(condition(text), TYPES)


def test_long_conditions_are_decided_or_left_undecided() -> None:
    parts = [f"(i = {number} and n = {number + 1} and q > 0.{number})" for number in range(10, 40)]
    many, more = condition(" or ".join(parts[:-1])), condition(" or ".join(parts))
    assert implies(many, more, TYPES)
    assert difference(more, many, TYPES) is not None
    clauses = [
        f"(i {'<>'[a % 2]} {a} or n {'<>'[b % 2]} {b} or x {'<>'[c % 2]} {c})"
        for a, b, c in itertools.permutations(range(4), 3)
    ]
    assert not implies(condition(" and ".join(clauses)), condition(" and ".join(clauses[::-1]) + " and q > 1"), TYPES)
    listed = ", ".join(map(str, range(0, 400, 2)))
    assert implies(condition(f"i in ({listed})"), condition(f"i not in ({listed.replace('0,', '1,')})"), TYPES) is False
    assert difference(condition(f"i in (1, {listed})"), condition(f"i in ({listed})"), TYPES) == condition("i = 1")


VALUES: dict[str, tuple[Any, ...]] = {
    "i": (None, -1, 0, 1, 2, 3, 4, 5),
    "j": (None, 0, 1, 2, 3),
    "q": (None, float("nan"), float("-inf"), -1.0, -0.0, 0.0, 0.5, 0.55, 0.6, 1.0, 1.5, float("inf")),
    "x": (None, *map(Decimal, ("-1", "0", "0.5", "0.55", "0.6", "1", "1.5"))),
    "s": (None, "", "a", "ab", "abc", "ac", "b", "B", "é", "ü"),
    "d": (
        None,
        date(2023, 1, 1),
        *(date(2024, month, day) for month, day in ((1, 1), (1, 2), (1, 31), (2, 1), (3, 1))),
    ),
    "b": (None, False, True),
}
"""Values of columns: all that the literals below tell apart."""

LITERALS = {
    "i": ("0", "1", "2", "3", "0.5", "2.5", "4L", "1D", "2.5D"),
    "j": ("1", "2", "1.5"),
    "q": ("0", "1", "0.5", "0.6", "-0.0", "0.5D", "1e0", "double('NaN')", "double('inf')"),
    "x": ("0", "1", "0.5", "0.55", "0.60", "0.555", "0.5D", "0.6D"),
    "s": ("''", "'a'", "'ab'", "'b'", "'B'", "'é'"),
    "d": ("date '2024-01-01'", "'2024-02-01'", "date '2024-01-31'", "date '2024-01-01' + interval '1' day"),
    "b": ("true", "false"),
}
_DATABASE = duckdb.connect(config={"threads": 1})


@functools.cache
def grid(columns: tuple[str, ...]) -> str:
    """A table in DuckDB with all combinations of the values of some columns."""
    name = "_".join(columns)
    typed = ", ".join(f"{column} {'varchar' if TYPES[column] == 'string' else TYPES[column]}" for column in columns)
    _DATABASE.execute(f"CREATE TABLE {name} ({typed})")
    rows = list(itertools.product(*(VALUES[column] for column in columns)))
    _DATABASE.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    return name


@st.composite
def atoms(draw: st.DrawFn, columns: tuple[str, ...]) -> str:
    """A condition on one column, or a comparison of two."""
    name = draw(st.sampled_from(columns))
    literal = st.sampled_from(LITERALS[name])
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    forms = [
        st.just(f"{name} {operator} {draw(literal)}"),
        st.just(f"{draw(literal)} {operator} {name}"),
        st.lists(literal | st.just("null"), min_size=1, max_size=3).map(lambda some: f"{name} in ({', '.join(some)})"),
        st.tuples(literal, literal).map(lambda pair: f"{name} between {pair[0]} and {pair[1]}"),
        st.just(f"{name} is null"),
        literal.map(lambda value: f"{name} <=> {value}"),
        literal.map(lambda value: f"{name} is distinct from {value}"),
    ]
    if name == "b":
        truths = ["b", "b is true", "b is not false", "b = true", "b <> true", "b is null", "b <=> false"]
        forms = [st.sampled_from(truths)]
    if name == "s":
        patterns = ["'a%'", "'ab%'", "'%'", "'a'", "'%b%'", "'a_'"]
        forms.append(st.sampled_from(patterns).map(lambda pattern: f"s like {pattern}"))
    if name == "q":
        forms.append(st.just("isnan(q)"))
    if {"i", "j"} <= set(columns):
        forms += [st.just(f"i {operator} j"), st.just("i <=> j"), st.just(f"i + j {operator} 3")]
    return draw(st.one_of(forms))


@st.composite
def conditions(draw: st.DrawFn, known: st.SearchStrategy[str], depth: int) -> str:
    """A condition of conditions on one column."""
    if depth == 0:
        return draw(known)
    below = conditions(known, draw(st.integers(0, depth - 1)))
    form = draw(st.sampled_from(["and", "or", "not", "is true", "is null", "coalesce", "case"]))
    match form:
        case "and" | "or":
            return f"({draw(below)} {form} {draw(below)})"
        case "not":
            return f"(not {draw(below)})"
        case "is true" | "is null":
            return f"(({draw(below)}) {form})"
        case "coalesce":
            return f"coalesce({draw(below)}, {draw(st.sampled_from(['true', 'false']))})"
        case _:
            return f"case when {draw(below)} then true else {draw(below)} end"


@st.composite
def pairs(draw: st.DrawFn) -> tuple[tuple[str, ...], str, str]:
    """Columns, and two conditions on them that have parts in common."""
    columns = tuple(sorted(draw(st.sets(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))))
    pool = draw(st.lists(atoms(columns), min_size=1, max_size=4))
    known = st.sampled_from(pool) | atoms(columns)
    one, other = (draw(conditions(known, draw(st.integers(0, 3)))) for _ in range(2))
    return columns, one, draw(st.sampled_from([other, f"({one}) and {other}", f"({one}) or {other}"]))


def in_duck(text: str) -> str:
    """A condition as DuckDB needs it: its ISNAN, unlike Spark's, is null for null."""
    tree = sqlglot.parse_one(text, dialect="spark")
    for found in list(tree.find_all(exp.IsNan)):
        found.replace(exp.func("coalesce", found.copy(), exp.false()))
    return tree.sql("duckdb")


def rows_of(columns: tuple[str, ...], *selected: str) -> tuple[int, ...]:
    """The number of rows of a grid for which each of some conditions is true."""
    counts = ", ".join(f"count(*) FILTER (WHERE {in_duck(text)})" for text in selected)
    found = _DATABASE.execute(f"SELECT {counts} FROM {grid(columns)}").fetchone()
    assert found is not None
    return found


@seeded(SEED)
@settings(max_examples=60, suppress_health_check=list(HealthCheck), database=None)
@given(pairs())
def test_no_row_contradicts_what_is_decided(pair: tuple[tuple[str, ...], str, str]) -> None:
    columns, *texts = pair
    for wanted, had in (texts, texts[::-1]):
        check(columns, condition(wanted), condition(had))


def check(columns: tuple[str, ...], wanted: Scalar, had: Scalar) -> bool:
    """Compare what is decided about two conditions with the rows of a grid; return whether all that holds is found."""
    lacking = f"({wanted.sql}) AND NOT COALESCE({had.sql}, FALSE)"
    made = difference(wanted, had, TYPES)
    sql = made.sql if made is not None else "FALSE"
    both = f"({sql}) AND ({lacking})"
    some, all_, left, same, found = rows_of(columns, "TRUE", wanted.sql, lacking, both, sql)
    assert left == same == found, sql
    assert not (left and implies(wanted, had, TYPES))
    assert not (all_ and is_unsatisfiable(wanted, TYPES))
    assert some
    assert made is None or not implies(wanted, had, TYPES)
    return not (left == 0 and made is not None)


def test_spark_agrees(spark: SparkSession) -> None:
    draw = random.Random(SEED)
    more = {
        "n": (None, 0, 6, 7, 8, 1 << 53),
        "f": (None, float("nan"), -0.0, 1.5, 1.75, 2.0, 3.0),
        "t": (None, *(datetime(2024, month, day, hour) for month in (1, 2) for day in (1, 2) for hour in (0, 12))),
        "unknown": (None, 0, 5, 10, 20, 30),
    }
    values = VALUES | more | {"i": (*VALUES["i"], 6, 7, 8), "s": (*VALUES["s"], "it's", "z" * 30, "z" * 70)}
    columns = {name: kind or "int" for name, kind in TYPES.items()}
    rows = [tuple(draw.choice(values[name]) for name in columns) for _ in range(300)]
    grid = spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, kind in columns.items()))
    asked = [*CONTAINED, *EQUIVALENT, *((wanted or "true", had or "true") for wanted, had, _ in DIFFERENCES)]
    asked += [(other, one) for one, other in (*CONTAINED, *EQUIVALENT)]
    steady = [pair for pair in asked if "rand" not in pair[0]]
    pairs = [(condition(one), condition(other)) for one, other in draw.sample(steady, 60)]
    counts = []
    for wanted, had in pairs:
        made = difference(wanted, had, TYPES)
        lacking = f"COALESCE({wanted.sql}, FALSE) AND NOT COALESCE({had.sql}, FALSE)"
        counts.append(f"count_if(({lacking}) <> COALESCE({'FALSE' if made is None else made.sql}, FALSE))")
    found = grid.selectExpr(*counts).first()
    assert found is not None
    assert [pair for pair, count in zip(pairs, found, strict=True) if count] == []
