"""The order of the rows of ORDER BY … LIMIT, as columns of the result."""

from __future__ import annotations

import pytest

from kilonova.query.row_order import row_order

SHOWN = [
    ("SELECT a, b FROM t ORDER BY b DESC, a LIMIT 2", "b desc, a"),
    ("SELECT a, b FROM t ORDER BY B LIMIT 2", "b"),
    ("SELECT a, b FROM t ORDER BY 2 DESC, 1 LIMIT 2", "b desc, a"),
    ("SELECT a, b FROM t ORDER BY 3 LIMIT 2", ""),
    ("SELECT t.a, b FROM t ORDER BY a, t.b LIMIT 2", "a, b"),
    ("SELECT x AS a, upper(y) AS b FROM t ORDER BY upper(y), x LIMIT 2", "b, a"),
    ("SELECT upper(a) AS a, b FROM t ORDER BY t.a LIMIT 2", ""),
    ("SELECT a, b FROM t ORDER BY a, c, b LIMIT 2", "a"),
    ("SELECT * FROM t ORDER BY b DESC NULLS FIRST, A NULLS LAST LIMIT 2", "b desc nulls first, a nulls last"),
    ("SELECT a, b FROM t UNION ALL SELECT b, a FROM t ORDER BY b LIMIT 2", "b"),
    ("WITH s AS (SELECT a, b FROM t) SELECT a, b FROM s ORDER BY b OFFSET 1", "b"),
    ("SELECT a, b FROM t ORDER BY b", ""),
    ("SELECT a, b FROM t LIMIT 2", ""),
]


@pytest.mark.parametrize(("query", "shown"), SHOWN)
def test_rows_are_ordered_by_the_columns_that_order_by_names(query: str, shown: str) -> None:
    texts = []
    for key in row_order(query, ["a", "b"]):
        direction = " desc" if key.descending else ""
        usual = key.nulls_first != key.descending
        texts.append(key.column + direction + ("" if usual else f" nulls {'first' if key.nulls_first else 'last'}"))
    assert ", ".join(texts) == shown
