from __future__ import annotations

import pytest

from kilonova.errors import DeclarationError, SchemaMismatch
from kilonova.model.schema import RESERVED, Column, Schema, check_names

FLIGHTS = Schema.of(("carrier", "string"), ("flight", "int"), ("delay", "double"))


def test_columns_are_the_same_whatever_their_order() -> None:
    FLIGHTS.validate(Schema(FLIGHTS.columns[::-1]))


def test_a_missing_column_is_named_with_those_there_are() -> None:
    with pytest.raises(SchemaMismatch, match=r"carrier, delay.* \[column flight\]") as caught:
        FLIGHTS.validate(FLIGHTS.without("flight"))
    assert caught.value.hint == "Supply it with type int"


def test_an_optional_column_may_be_missing_but_not_of_another_type() -> None:
    FLIGHTS.validate(FLIGHTS.without("delay"), optional=("delay",))
    with pytest.raises(SchemaMismatch, match=r"string instead of double.* \[column delay\]"):
        FLIGHTS.validate(FLIGHTS.without("delay").plus(("delay", "string")), optional=("delay",))


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match=r"not part.* \[column gate\]"):
        FLIGHTS.validate(FLIGHTS.plus(("gate", "string")))


def test_no_columns_lack_all() -> None:
    with pytest.raises(SchemaMismatch, match="none"):
        FLIGHTS.validate(Schema(()))


def test_names_differ_in_more_than_case() -> None:
    with pytest.raises(DeclarationError, match="column Carrier"):
        FLIGHTS.plus(("Carrier", "string"))


def test_parts_keep_the_order_of_the_whole() -> None:
    assert FLIGHTS.only(("delay", "carrier")).names == ("carrier", "delay")
    assert FLIGHTS.without("flight").names == ("carrier", "delay")
    assert FLIGHTS.plus(("gate", "string")).columns[-1] == Column("gate", "string")
    assert FLIGHTS.type_of("flight") == "int"
    with pytest.raises(SchemaMismatch):
        FLIGHTS.type_of("gate")


@pytest.mark.parametrize("name", [*RESERVED, "_DELETED"])
def test_names_of_control_columns_are_reserved(name: str) -> None:
    with pytest.raises(DeclarationError, match="reserved"):
        check_names(Schema.of((name, "int")))
