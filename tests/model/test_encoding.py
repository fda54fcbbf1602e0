from __future__ import annotations

import pytest

from kilonova.errors import DeclarationError
from kilonova.model.encoding import (
    Append,
    Changes,
    Columns,
    Custom,
    Encoding,
    Increment,
    Upsert,
    check_encoding,
    delta_schema,
    describe_encoding,
    is_append_only,
    key_of,
    name_of,
    optional_columns,
)
from kilonova.model.schema import Schema
from tests.strategies import ENCODINGS, schema_of

SALES = Schema.of(("shop", "string"), ("tags", "map<string,int>"), ("n", "bigint"), ("sum", "decimal(10,2)"))
SUMS = SALES.without("tags")


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_what_fits_is_accepted(encoding: Encoding) -> None:
    schema = schema_of(encoding)
    check_encoding(encoding, schema)
    columns = delta_schema(encoding, schema).names
    assert columns[: len(schema.names)] == schema.names
    assert set(optional_columns(encoding, schema)) <= set(columns)
    assert not set(optional_columns(encoding, schema)) & set(key_of(encoding))


@pytest.mark.parametrize(
    ("encoding", "schema", "problem"),
    [
        (Upsert(("city",)), SALES, r"the key names a column that is not in the schema.* \[column city\]"),
        (Upsert(("tags",)), SALES, r"a map cannot be a key.* \[column tags\]"),
        (Upsert(("x",)), Schema.of(("x", "array<map<string,int>>")), "a map cannot be a key"),
        (Upsert(("shop", "shop")), SALES, "names a column twice"),
        (Upsert(()), SALES, "upsert needs a key"),
        (Columns(()), SALES, "columns needs a key"),
        (Custom((), "f"), SALES, "custom needs a key"),
        (Increment((), ("n",)), SALES, "increment needs a key"),
        (Changes(("city",)), SALES, "column city"),
        (Increment(("shop",), ()), SUMS, "at least one measure"),
        (Increment(("shop",), ("n", "total")), SUMS, r"a measure names a column.* \[column total\]"),
        (Increment(("shop",), ("n",)), SUMS, r"the column is neither key nor measure.* \[column sum\]"),
        (Increment(("shop", "n"), ("n", "sum")), SUMS, "both key and measure"),
        (Increment(("n", "sum"), ("shop",)), SUMS, r"a measure must be an integer or a decimal.* \[column shop\]"),
        (Increment(("n",), ("x",)), Schema.of(("n", "int"), ("x", "double")), "not double"),
        (Increment(("n",), ("x",)), Schema.of(("n", "int"), ("x", "array<int>")), "not array<int>"),
        (Increment(("n",), ("x",)), Schema.of(("n", "int"), ("x", "decimal(38,7)")), "at most 6 decimal places"),
    ],
)
def test_what_does_not_fit_is_refused(encoding: Encoding, schema: Schema, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        check_encoding(encoding, schema)


def test_append_and_changes_need_no_key() -> None:
    check_encoding(Append(), SALES)
    check_encoding(Changes(), SALES)
    assert key_of(Append()) == key_of(Changes()) == ()


def test_only_append_never_removes() -> None:
    assert [encoding for encoding in ENCODINGS if is_append_only(encoding)] == [Append()]


@pytest.mark.parametrize(
    ("encoding", "name", "text"),
    [
        (Append(), "append", "append"),
        (Upsert(("a", "b")), "upsert", "upsert(a, b)"),
        (Changes(), "changes", "changes"),
        (Changes(("a",)), "changes", "changes(a)"),
        (Increment(("a",), ("n", "m")), "increment", "increment(a; n, m)"),
        (Columns(("a",)), "columns", "columns(a)"),
        (Custom(("a",), "f"), "custom", "custom(a; f)"),
    ],
)
def test_encodings_are_called_what_users_call_them(encoding: Encoding, name: str, text: str) -> None:
    assert name_of(encoding) == name
    assert describe_encoding(encoding) == text
