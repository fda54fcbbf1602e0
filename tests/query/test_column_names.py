"""What a query selects without a name is called as Spark calls it."""

from __future__ import annotations

import pytest

from kilonova.query.parsing import parse_query
from kilonova.query.tree import names
from tests.query.histories import KNOWN

NAMES = {
    "MIN(r.a)": "min(a)",
    "count(*)": "count(1)",
    "count(DISTINCT a, s)": "count(DISTINCT a, s)",
    "sum(d * (b+1))": "sum((d * (b + 1)))",
    "max(b) FILTER (WHERE b <> 2 AND NOT a >= 1)": "max(b) FILTER (WHERE ((NOT (b = 2)) AND (NOT (a >= 1))))",
    "sum(CASE s WHEN 'x' THEN 1 ELSE -b END)": "sum(CASE WHEN (s = x) THEN 1 ELSE (- b) END)",
    "mean(CAST(b AS decimal(10, 2)))": "mean(CAST(b AS DECIMAL(10,2)))",
    "count_if(s LIKE 'x%' OR s IN ('y', 'z'))": "count_if((s LIKE x% OR (s IN (y, z))))",
    "count(s IS NOT NULL)": "count((s IS NOT NULL))",
    "nvl(min(b), 0)": "nvl(min(b), 0)",
    "2": "2",
}
"""By what is selected, its name in Spark 4."""


@pytest.mark.parametrize("value", NAMES)
def test_what_has_no_name_is_called_as_in_spark(value: str) -> None:
    assert names(parse_query(f"SELECT {value} FROM r", KNOWN)) == (NAMES[value],)


def test_the_name_of_a_column_without_one_can_be_used() -> None:
    tree = parse_query("SELECT `min(b)` + 1 AS n FROM (SELECT a, min(b) FROM r GROUP BY a) WHERE `min(b)` > 0", KNOWN)
    assert names(tree) == ("n",)
    assert names(parse_query("SELECT upper(s), a FROM r ORDER BY upper(s) LIMIT 1", KNOWN)) == ("upper(s)", "a")
    assert names(parse_query("SELECT rank() OVER (ORDER BY a), s FROM r", KNOWN)) == ("_col_0", "s")
