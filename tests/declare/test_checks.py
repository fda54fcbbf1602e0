"""Checks as they are written, as values, and as the catalog keeps them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kilonova as kn
from kilonova.catalog.codec import checks_from_json, checks_to_json
from kilonova.declare.checks import checks_of
from kilonova.errors import DeclarationError, KilonovaError, QueryError
from kilonova.model.check import AcceptedValues, Check, NotNull, RowCondition, Unique

NAME = st.text(min_size=1)
CHECK: st.SearchStrategy[Check] = st.one_of(
    st.builds(NotNull, NAME),
    st.builds(Unique, st.lists(NAME, min_size=1).map(tuple)),
    st.builds(AcceptedValues, NAME, st.lists(st.text(), min_size=1).map(tuple)),
    st.builds(RowCondition, st.text()),
)


def test_checks_are_the_values_that_they_say() -> None:
    assert checks_of(
        {
            "not_null": "a",
            "unique": ["a", "b"],
            "accepted_values": {"c": ["x", 1, True, Decimal("1.50"), datetime.date(2024, 2, 29)]},
            "expressions": ["a  > 0", "b <> 'two  spaces'"],
        }
    ) == (
        NotNull("a"),
        Unique(("a", "b")),
        AcceptedValues("c", ("x", "1", "true", "1.50", "2024-02-29")),
        RowCondition("a > 0"),
        RowCondition("b <> 'two  spaces'"),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"not_nul": ["a"]},
        {"not_null": 3},
        {"not_null": []},
        {"unique": [["a"], 3]},
        {"accepted_values": ["a"]},
        {"accepted_values": {"a": "b"}},
        {"accepted_values": {"a": ["b", None]}},
        {"expressions": {"a": "b"}},
        {"expressions": "a > (SELECT 1)"},
        {"expressions": "row_number() OVER (ORDER BY a) > 1"},
        {"expressions": "(a"},
    ],
    ids=str,
)
def test_checks_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(KilonovaError) as raised:
        checks_of(wrong)
    assert isinstance(raised.value, DeclarationError | QueryError)


@given(checks=st.lists(CHECK).map(tuple))
def test_checks_come_back_from_the_catalog(checks: tuple[Check, ...]) -> None:
    assert checks_from_json(checks_to_json(checks)) == checks


def test_conditions_name_columns_as_sql_does() -> None:
    workflow = kn.Workflow("w")
    workflow.channel(
        "c",
        "`a b` int, tags array<string>, place struct<town:string>",
        checks={"expressions": ["`A B` > 0", "forall(tags, tag -> tag <> '')", "place.town <> ''"]},
    )
    with pytest.raises(DeclarationError, match=r"mean tags.*column tag, check expression\(tag > 0\)"):
        workflow.channel("d", "tags array<string>", checks={"expressions": "tag > 0"})


def test_only_rows_can_be_checked() -> None:
    with pytest.raises(DeclarationError, match="not supported by the encoding increment"):
        kn.Workflow("w").channel(
            "c", "a int, n bigint", key="a", encoding=kn.increment("n"), checks={"expressions": "n > 0"}
        )
