from __future__ import annotations

import pytest

from kilonova.model.block import Base, Block, Delta, Kind, Statistics
from kilonova.model.encoding import Append, Changes, Columns, Custom, Encoding, Increment, Upsert
from kilonova.model.row_count import RowCount
from kilonova.model.schema import Schema

SCHEMA = Schema.of(("id", "int"), ("n", "int"))


def a_block(kind: Kind, rows: int, net_rows: int | None = None, encoding: Encoding | None = None) -> Block:
    return Block(
        number=kind.at if isinstance(kind, Base) else kind.end,
        kind=kind,
        schema=SCHEMA,
        encoding=encoding or Append(),
        columns=SCHEMA,
        buckets=0,
        statistics=Statistics(rows=rows, bytes=rows, files=1, net_rows=net_rows),
    )


def test_rows_are_those_of_the_base_and_what_deltas_add() -> None:
    assert RowCount.of([]) == RowCount(0, 0)
    blocks = [a_block(Base(1), 4), a_block(Delta(1, 2), 5, 1), a_block(Delta(2, 3), 2, -2)]
    assert RowCount.of(blocks) == RowCount(3, 3)


@pytest.mark.parametrize(
    ("encoding", "most"),
    [
        (Upsert(("id",)), 9),
        (Columns(("id",)), 9),
        (Increment(("id",), ("n",)), 9),
        (Changes(), None),
        (Custom(("id",), "f"), None),
    ],
)
def test_a_delta_that_was_not_compared_adds_at_most_its_rows_in_some_encodings(
    encoding: Encoding, most: int | None
) -> None:
    blocks = [a_block(Base(1), 4), a_block(Delta(1, 2), 5, None, encoding), a_block(Delta(2, 3), 3, 0)]
    assert RowCount.of(blocks) == RowCount(None, most)
