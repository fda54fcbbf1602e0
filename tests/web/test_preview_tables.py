"""Previews as tables: which values of the rows of a key differ."""

from __future__ import annotations

from typing import Any

from kilonova.web.preview_tables import preview_tables


def tabled(key: list[str], *rows: tuple[str, dict[str, Any]]) -> Any:
    channel = {"channel": "c", "key": key, "examples": [{"sign": sign, "row": row} for sign, row in rows]}
    [table] = preview_tables({"channels": [channel], "wrong": [{"channel": "c", "rows": 2}]}).channels
    return table


def test_the_values_that_differ_between_the_rows_of_a_key_are_marked() -> None:
    table = tabled(
        ["k"],
        ("-", {"k": 1, "x": "a", "y": None}),
        ("+", {"k": 1, "x": "b", "y": None}),
        ("+", {"k": 2, "x": "b", "y": 1}),
    )
    assert [[cell.differs for cell in row.cells] for row in table.rows] == [
        [False, True, False],
        [False, True, False],
        [False, False, False],
    ]
    assert [row.paired for row in table.rows] == [True, True, False]
    assert (table.columns, table.numeric) == (("k", "x", "y"), (True, False, True))
    assert table.rows[0].cells[2].text is None


def test_rows_without_a_key_are_not_compared_with_each_other() -> None:
    table = tabled([], ("-", {"x": True}), ("+", {"x": "long " * 100}))
    assert not any(cell.differs for row in table.rows for cell in row.cells)
    assert table.numeric == (False,)
    assert len(table.rows[1].cells[0].text) == 201
