"""Rules for columns: what can be declared, and how the columns of input become those of a channel."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

import kilonova as kn
from kilonova.errors import DeclarationError, SchemaMismatch
from kilonova.model.column_mapping import ColumnMapping, InputColumns, map_columns
from kilonova.model.column_rules import STRICT, OnNewColumn, rules_of
from kilonova.model.schema import Schema

SCHEMA = Schema.of(("id", "bigint"), ("title", "string"), ("site", "string"))


def mapped(*names: str, on: str = "quarantine", **given: Any) -> ColumnMapping:
    rules = rules_of(on, given.get("rename", {}), given.get("defaults", {}), SCHEMA)
    return map_columns(names, InputColumns(SCHEMA, (), rules))


def refused(*names: str, on: str = "quarantine", **given: Any) -> str:
    with pytest.raises(SchemaMismatch) as caught:
        mapped(*names, on=on, **given)
    return f"{caught.value.column}: {caught.value.problem}"


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("string", "unknown", "unknown"),
        ("boolean", True, "true"),
        ("tinyint", -128, "-128"),
        ("bigint", "12", "12"),
        ("double", 1, "1.0"),
        ("double", float("-inf"), "-Infinity"),
        ("decimal(5,2)", Decimal("1.5"), "1.5"),
        ("decimal(5,2)", "999.99", "999.99"),
        ("date", date(2026, 1, 2), "2026-01-02"),
        ("timestamp", datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        ("timestamp_ntz", "2026-01-02 03:04:05", "2026-01-02T03:04:05"),
        ("array<int>", None, None),
    ],
)
def test_a_default_is_a_value_of_its_type(kind: str, value: object, text: str | None) -> None:
    assert rules_of("ignore", {}, {"c": value}, Schema.of(("c", kind))).defaults == (("c", text),)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", 1),
        ("boolean", "yes"),
        ("tinyint", 128),
        ("int", True),
        ("int", 1.0),
        ("bigint", "one"),
        ("double", "one"),
        ("decimal(5,2)", 1000),
        ("decimal(5,2)", "1.005"),
        ("decimal(5,2)", 0.1),
        ("date", datetime(2026, 1, 2)),
        ("date", "2026-02-30"),
        ("timestamp", date(2026, 1, 2)),
        ("timestamp_ntz", datetime(2026, 1, 2, tzinfo=UTC)),
        ("array<int>", [1]),
    ],
)
def test_another_default_is_refused(kind: str, value: object) -> None:
    with pytest.raises(DeclarationError, match="default") as caught:
        rules_of("ignore", {}, {"c": value}, Schema.of(("c", kind)))
    assert caught.value.column == "c"


@pytest.mark.parametrize(
    "given",
    [
        {"on_new_column": "drop"},
        {"rename": {"headline": "titel"}},
        {"rename": {"site": "title"}},
        {"rename": {"TITLE": "title"}},
        {"rename": {"a": "title", "A": "id"}},
        {"rename": {"_deleted": "title"}},
        {"defaults": {"body": ""}},
        {"schema": None, "rename": {"a": "b"}},
        {"on_new_column": "add", "several_writers": True},
        {"on_new_column": "add", "key": "id", "encoding": "columns"},
        {"defaults": {"site": ""}, "key": "id", "encoding": "columns"},
    ],
    ids=str,
)
def test_rules_that_fit_no_column_or_encoding_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        kn.Workflow("news").channel("articles", **{"schema": "id bigint, title string, site string", **given})


def test_a_channel_that_a_task_writes_has_no_rules() -> None:
    news = kn.Workflow("news")
    news.channel("articles", "id bigint")
    news.channel("copies", "id bigint", on_new_column="ignore")

    @news.task
    def copies(articles: kn.New) -> kn.Delta:
        return articles

    with pytest.raises(DeclarationError, match="no task can write it"):
        news.declared()


def test_columns_are_mapped_by_name_without_case() -> None:
    assert mapped("SITE", "id", "Title") == ColumnMapping(("site", "id", "title"), (), ())
    rename = {"headline": "title", "head": "title"}
    assert mapped("id", "HEADLINE", "site", rename=rename).targets == ("id", "title", "site")
    assert mapped("id", "head", "site", rename=rename).targets == ("id", "title", "site")
    assert mapped("id", "title", defaults={"site": "x"}).filled == (("site", "x"),)
    assert mapped("id", "title", defaults={"site": None}).filled == (("site", None),)
    assert mapped("id", "title", "site", "n", "m", on="ignore").targets == ("id", "title", "site", None, None)
    assert mapped("n", "id", "title", "site", on="add") == ColumnMapping(("n", "id", "title", "site"), ("n",), ())


def test_what_does_not_fit_is_named() -> None:
    lacking = "site: the file lacks the column (it has: id, title)"
    assert refused("id", "title") == lacking
    assert refused("id", "title", defaults={"title": ""}) == lacking
    assert refused("id", "title", "site", "n") == "n: the file has a column that the channel does not have"
    assert refused("id", "title", "site", "ID") == "id: the file has the column twice, as id and as ID"
    rename = {"headline": "title"}
    both = refused("id", "title", "site", "headline", rename=rename)
    assert both == "title: the file has the column twice, as title and as headline"
    for on in OnNewColumn:
        extra = refused("id", "title", "site", "_deleted", on=on.value)
        assert extra == "_deleted: the file has a column that the channel does not have"
    assert "without a name" in refused("id", "title", "site", "", on="add")
    assert "twice" in refused("id", "title", "site", "n", "N", on="add")
    assert mapped("id", "title", "site", "", "", on="ignore").targets[3:] == (None, None)


def test_a_channel_without_rules_is_strict() -> None:
    assert rules_of("quarantine", {}, {}, SCHEMA) == STRICT
