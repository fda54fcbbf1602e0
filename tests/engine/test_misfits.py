"""Lines of files that do not fit: the error says which, and the reader options may allow them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kilonova as kn
from kilonova.errors import DeclarationError, InputError, KilonovaError, SchemaMismatch, SettingsError
from kilonova.service.project import Project
from kilonova.service.reports import RunReport

LENIENT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "rescued"}


@pytest.fixture
def ingest(project: Project, tmp_path: Path) -> Callable[..., RunReport]:
    """Ingests a file with the given text."""
    shop = kn.Workflow("shop")
    shop.channel("orders", "id bigint, day date, price decimal(6,2)")
    shop.channel("nested", "id int, items array<struct<n:int>>")
    shop.channel("rescued", "id bigint, rescued string")
    project.apply(shop)

    def ingest(name: str, text: str, channel: str = "orders", encoding: str = "utf-8", **given: Any) -> RunReport:
        path = tmp_path / name
        data = text.encode(encoding)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return project.ingest(channel, path, **given)

    return ingest


def refused(act: Callable[[], object], kind: type[KilonovaError] = InputError) -> KilonovaError:
    with pytest.raises(kind) as raised:
        act()
    assert type(raised.value) is kind
    return raised.value


GOOD = "1,2026-01-01,1.00\n"
HEADER = "id,day,price\n"


@pytest.mark.parametrize("name", ["a b%20[1].csv", "a.csv.gz"])
def test_the_line_the_column_the_value_and_the_type_are_named(ingest: Callable[..., RunReport], name: str) -> None:
    text = HEADER + GOOD * 2 + "\n" + "x'y,2026-01-01,1.00\n" + GOOD + "7,2026-13-01,9.00\n" + "8,2026-01-01,1e9,5\n"
    error = refused(lambda: ingest(name, text))
    assert (error.channel, error.column) == ("orders", "id")
    assert error.path is not None
    assert error.path.endswith(name)
    assert error.problem == (
        "line 5: \"x'y\" is not of type bigint; 2 more lines do not fit (line 7, column day: '2026-13-01' is not of "
        "type date; line 8, column price: '1e9' is not of type decimal(6,2))"
    )


def test_other_lines_are_counted(ingest: Callable[..., RunReport]) -> None:
    error = refused(lambda: ingest("a.csv", HEADER + GOOD * 1000 + "x,2026-01-01,1.00\n" * 2000))
    assert error.problem.startswith("line 1002: 'x' is not of type bigint; 1999 more lines do not fit (line 1003, ")
    assert error.problem.endswith("; …)")


def test_the_lines_of_a_large_file_are_numbered_across_its_blocks(
    project: Project, ingest: Callable[..., RunReport]
) -> None:
    spark = project.warehouse.spark
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
    try:
        error = refused(lambda: ingest("a.csv", HEADER + GOOD * 1000 + "x,2026-01-01,1.00\n" + GOOD * 1000))
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before or "128MB")
    assert error.problem == "line 1002: 'x' is not of type bigint"


def test_values_of_several_lines_are_counted_as_records(ingest: Callable[..., RunReport]) -> None:
    text = 'id,day,price\n1,"2026-\n01-01",1.00\nx,2026-01-01,1.00\n'
    error = refused(lambda: ingest("a.csv", text, options={"multiLine": "true"}))
    assert error.problem == (
        "record 1: '2026-\\n01-01' is not of type date; 1 more record does not fit (record 2, column id: 'x' is not of "
        "type bigint)"
    )


def test_lines_of_other_encodings_are_counted_as_records(ingest: Callable[..., RunReport]) -> None:
    text = HEADER + GOOD + "é,2026-01-01,1.00\n"
    error = refused(lambda: ingest("a.csv", text, encoding="latin-1", options={"encoding": "ISO-8859-1"}))
    assert error.problem == "record 2: 'é' is not of type bigint"


def test_comments_and_blank_lines_are_numbered_but_fit(ingest: Callable[..., RunReport]) -> None:
    text = HEADER + "# x\n\n" + GOOD + "x,2026-01-01,1.00\n"
    error = refused(lambda: ingest("a.csv", text, options={"comment": "#"}))
    assert error.problem == "line 5: 'x' is not of type bigint"
    error = refused(lambda: ingest("a.csv", HEADER + GOOD + "x,,\n", options={"comment": ""}))
    assert error.problem == "line 3: 'x' is not of type bigint"


def test_long_values_are_shortened(ingest: Callable[..., RunReport]) -> None:
    error = refused(lambda: ingest("a.csv", HEADER + "x" * 100_000 + ",,\n"))
    assert error.problem == f"line 2: '{'x' * 100}…' is not of type bigint"
    error = refused(lambda: ingest("a.jsonl", "x" * 100_000))
    assert error.problem == f"line 1: this is not a JSON object: '{'x' * 100}…'"


def test_separators_may_have_several_characters(ingest: Callable[..., RunReport]) -> None:
    text = (HEADER + GOOD).replace(",", "||")
    assert ingest("a.csv", text, options={"sep": "||"}).made[0].rows == 1
    error = refused(lambda: ingest("b.csv", text + "x||2026-01-01||1.00\n", options={"sep": "||"}))
    assert error.problem == "line 3: 'x' is not of type bigint"


def test_a_line_with_other_columns_is_named(ingest: Callable[..., RunReport]) -> None:
    error = refused(lambda: ingest("a.csv", HEADER + GOOD + "1,2026-01-01\n"))
    assert error.problem == "line 3: this is not 3 values: '1,2026-01-01'"
    good = {"id": 1, "day": "2026-01-01", "price": 1}
    for row, column, problem in (
        (good | {"more": 1}, "more", "line 3: the channel has no such column"),
        ({"id": 1, "day": None}, "price", "line 3: the column is missing"),
    ):
        text = f"{json.dumps(good)}\n\n{json.dumps(row)}\n"
        error = refused(lambda text=text: ingest("a.jsonl", text), SchemaMismatch)  # type: ignore[misc]
        assert (error.column, error.problem) == (column, problem)
        assert (error.path or "").endswith("/a.jsonl")


def test_json_values_are_named(ingest: Callable[..., RunReport], tmp_path: Path) -> None:
    lines = [
        '{"id": 1, "day": null, "price": 1}',
        '{"id": "x", "day": null, "price": 1}',
        '{"id": 1, "day": null, "price": 123456}',
        "no json",
    ]
    error = refused(lambda: ingest("a.jsonl", "\n".join(lines)))
    assert error.column == "id"
    assert error.problem == (
        "line 2: 'x' is not of type bigint; 2 more lines do not fit (line 3, column price: '123456' is not of type "
        "decimal(6,2); line 4, this is not a JSON object: 'no json')"
    )
    error = refused(lambda: ingest("b.jsonl", '{"id": 1, "items": [{"n": "x"}]}', "nested"))
    assert error.column == "items"
    assert error.problem == 'line 1: \'[{"n":"x"}]\' is not of type array<struct<n:int>>'


def test_the_file_of_several_is_named(project: Project, ingest: Callable[..., RunReport], tmp_path: Path) -> None:
    row = '{"id": %s, "day": null, "price": 1}\n'
    for format_, good, bad in (
        ("csv", HEADER + GOOD, HEADER + GOOD + "x,2026-01-01,1.00\n"),
        ("jsonl", row % 1, "\n" + row % 1 + row % '"x"'),
    ):
        folder = tmp_path / format_
        folder.mkdir()
        for number in range(4):
            (folder / f"{number}.{format_}").write_text(bad if number == 2 else good)
        error = refused(lambda folder=folder: project.ingest("orders", folder))  # type: ignore[misc]
        assert (error.path or "").endswith(f"/2.{format_}")
        assert error.problem.startswith("line 3: 'x'")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.csv", ["id,day,price", "1,2026-01-01,1.00", "x,2026-01-01,2.00", "3,,4.00,5"]),
        (
            "a.jsonl",
            [
                '{"id": 1, "day": "2026-01-01", "price": 1}',
                '{"id": "x", "day": "2026-01-01", "price": 2}',
                '{"id": 3, "price": 4}',
            ],
        ),
    ],
)
def test_modes_count_what_they_make_null_and_drop(
    project: Project, ingest: Callable[..., RunReport], name: str, lines: list[str]
) -> None:
    text = "\n".join(lines)
    report = ingest(name, text, options={"mode": "DROPMALFORMED"})
    assert (report.malformed, report.made[0].rows) == (2, 1)
    assert report.made[0].reason.endswith("; 2 lines did not fit, whose rows were dropped")
    report = ingest(name, text, options={"mode": "permissive"})
    assert (report.malformed, report.made[0].rows) == (2, 3)
    assert report.made[0].reason.endswith("; 2 lines did not fit, whose wrong values became null")
    found = sorted((row[0] or 0, float(row[2])) for row in project.rows("orders")[1])
    assert found == [(0, 2.0), (1, 1.0), (1, 1.0), (3, 4.0)]
    assert "2 lines did not fit" in project.row_reader.log(report.run).text


@pytest.mark.parametrize("in_place", [False, True])
def test_a_rescued_column_keeps_the_lines_that_do_not_fit(
    project: Project, ingest: Callable[..., RunReport], in_place: bool
) -> None:
    ingest("a.csv", "id\n1\nx\n", "rescued", options=LENIENT, in_place=in_place)
    report = ingest("a.jsonl", '{"id": 2}\n{"id": 3, "more": 4}\n', "rescued", options=LENIENT, in_place=in_place)
    assert report.malformed == 1
    assert sorted(map(tuple, project.rows("rescued")[1]), key=str) == [
        (1, None),
        (2, None),
        (3, '{"id": 3, "more": 4}'),
        (None, "x"),
    ]


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("a.csv", {"headers": "true"}, "no reader option 'headers'. Did you mean header?"),
        ("a.csv", {"header": "yes"}, "header must be true or false, and is 'yes'"),
        ("a.csv", {"mode": "STRICT"}, "mode must be one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ("a.csv", {"sep": ""}, "sep must be a text"),
        ("a.csv", {"encoding": "utf-9"}, "encoding must be the name of a character encoding"),
        ("a.csv", {"pathGlobFilter": "*"}, "no reader option 'pathGlobFilter'"),
        ("a.csv", {"columnNameOfCorruptRecord": "rescued"}, "needs the mode PERMISSIVE"),
        ("a.jsonl", {"multiLine": "true"}, "no reader option 'multiLine'"),
        ("a.parquet", {"mode": "PERMISSIVE"}, "no reader option 'mode'"),
    ],
)
def test_reader_options_are_checked(
    ingest: Callable[..., RunReport], name: str, options: dict[str, str], says: str
) -> None:
    error = refused(lambda: ingest(name, "id,day,price\n", options=options), SettingsError)
    assert says in str(error)


def test_reader_options_of_watched_directories_are_checked() -> None:
    with pytest.raises(DeclarationError, match="Did you mean header"):
        kn.watched_directory("inbox", "*.csv", options={"heeder": "true"})
