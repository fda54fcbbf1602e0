"""The check of a custom encoding's functions finds what breaks a law, and passes what breaks none."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kilonova.errors import DeclarationError, EncodingError
from kilonova.testing import check_encoding

Rows = list[dict[str, Any]]
SCHEMA = "k string, n bigint"


class Sum:
    def merge(self, base: Rows, *deltas: Rows) -> Rows:
        bags = [base, *deltas]
        return [{"k": next(r for rows in bags for r in rows)["k"], "n": sum(r["n"] for rows in bags for r in rows)}]

    def chain(self, first: Rows, second: Rows) -> Rows:
        return self.merge(first, second)

    def diff(self, old: Rows, new: Rows) -> Rows:
        return [{"k": (old + new)[0]["k"], "n": sum(r["n"] for r in new) - sum(r["n"] for r in old)}]


class Latest(Sum):
    """Depends on the order of rows."""

    def merge(self, base: Rows, *deltas: Rows) -> Rows:
        return [[row for rows in (base, *deltas) for row in rows][-1]]


class Average(Sum):
    """Chains by averaging, which is not associative."""

    def chain(self, first: Rows, second: Rows) -> Rows:
        both = self.merge(first), self.merge(second)
        return [{"k": both[0][0]["k"], "n": (both[0][0]["n"] + both[1][0]["n"]) // 2}]


class Backwards(Sum):
    def diff(self, old: Rows, new: Rows) -> Rows:
        return super().diff(new, old)


class Elsewhere(Sum):
    def chain(self, first: Rows, second: Rows) -> Rows:
        return [{"k": "z" + first[0]["k"], "n": 1}]


class Random(Sum):
    count = itertools.count()

    def merge(self, base: Rows, *deltas: Rows) -> Rows:
        return [{"k": deltas[0][0]["k"], "n": next(self.count)}]


class AtOnce(Sum):
    """Forgets all but the last of several deltas."""

    def merge(self, base: Rows, *deltas: Rows) -> Rows:
        return super().merge(base, deltas[-1])


class Wider(Sum):
    def merge(self, base: Rows, *deltas: Rows) -> Rows:
        return [row | {"m": 1} for row in super().merge(base, *deltas)]


class Failing(Sum):
    def merge(self, base: Rows, *deltas: Rows) -> Rows:
        raise ZeroDivisionError("no")


def test_functions_that_obey_the_laws_pass() -> None:
    check_encoding(Sum(), SCHEMA, key="k")


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (Latest, "in another order"),
        (Average, "merging their chain|not associative"),
        (Backwards, "does not lead from one to the other"),
        (Elsewhere, "a row of another key"),
        (Random, "at another"),
        (AtOnce, "at once differs"),
        (Wider, "returns the column m"),
        (Failing, "raises ZeroDivisionError: no"),
    ],
)
def test_functions_that_break_a_law_are_named_with_a_small_case(functions: type[Sum], said: str) -> None:
    with pytest.raises(EncodingError, match=said) as raised:
        check_encoding(functions(), SCHEMA, key="k")
    assert len(str(raised.value)) < 800


class Stock:
    """Deltas are orders: their amounts are added or taken."""

    def merge(self, base: Rows, *orders: Rows) -> Rows:
        left = sum(row["pieces"] for row in base)
        rows = [row for order in orders for row in order]
        left += sum(row["amount"] if row["order"] == "in" else -row["amount"] for row in rows)
        return [{"item": [*base, *rows][0]["item"], "pieces": left}]

    def chain(self, *orders: Rows) -> Rows:
        return [row for order in orders for row in order]


def test_a_delta_may_have_columns_of_its_own_and_given_rows() -> None:
    rows = [{"order": order, "amount": n} for order in ("in", "out") for n in (1, 2)]
    arguments = {"key": "item", "delta": "item string, order string, amount bigint"}
    check_encoding(Stock(), "item string, pieces bigint", rows=rows, **arguments)
    with pytest.raises(DeclarationError, match="do not include a column of the key"):
        check_encoding(Stock(), "item string, pieces bigint", key="item", delta="order string, amount bigint")
    with pytest.raises(DeclarationError, match="cannot be generated"):
        check_encoding(Stock(), "item string, pieces array<int>", key="item")
