"""Rows that are read as JSON are inserted again as they were, for every type that a channel may have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.api.json_rows import json_rows
from kilonova.errors import KilonovaError
from kilonova.service.project import Project, open_project
from kilonova.service.spark_operations import OperationFailed, SparkOperations
from tests.seeds import some
from tests.shop import OFTEN, api

NAN, INFINITY = float("nan"), float("inf")
VALUES: dict[str, tuple[str, ...]] = {
    "tinyint": ("-128Y", "127Y"),
    "smallint": ("-32768S", "32767S"),
    "int": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807", "9007199254740993"),
    "float": ("0.1", "-0.0F", "1e-45", "3.4028235e38", "'NaN'", "'Infinity'", "'-Infinity'"),
    "double": ("0.1", "-0.0D", "5e-324", "1.7976931348623157e308", "'NaN'", "'Infinity'", "'-Infinity'"),
    "decimal(38,10)": ("12345678901234567890.0123456789", "-0.0000000001", "0"),
    "decimal(38,38)": ("0.00000000000000000000000000000000000001",),
    "boolean": ("true", "false"),
    "string": ("''", r"'\u0000\\ \" \n \u2028 \u00e9 🦜'", "'null'", "'1'"),
    "binary": ("X''", "X'00ff10'", "'text'"),
    "date": ("'0001-01-01'", "'1582-10-04'", "'2024-02-29'", "'9999-12-31'", "'+12345-01-01'", "'-0044-03-15'"),
    "timestamp": ("'0001-01-01T00:00:00Z'", "'2024-03-31T01:30:00.123456Z'", "'9999-12-31T23:59:59.999999Z'"),
    "timestamp_ntz": ("'0001-01-01T00:00:00'", "'2024-03-31T02:30:00.000001'", "'9999-12-31T23:59:59.999999'"),
    "array<decimal(20,2)>": ("array()", "array(1.10, NULL)"),
    "map<string,binary>": ("map()", "map('', X'00', 'a\"b', NULL)"),
    "map<int,date>": ("map(1, '2024-02-29', -2, NULL)",),
    "map<decimal(4,2),string>": ("map(1.10, 'x')",),
    "map<timestamp,double>": ("map(TIMESTAMP '2024-02-29T12:00:00Z', 'NaN')",),
    "struct<a:binary,b:struct<c:timestamp,d:array<map<string,decimal(4,1)>>>>": (
        "named_struct('a', X'01', 'b', named_struct('c', TIMESTAMP '2024-02-29T12:00:00Z', 'd', array(map('k', 1.5))))",
        "named_struct('a', NULL, 'b', NULL)",
        "named_struct('a', NULL, 'b', named_struct('c', NULL, 'd', array(NULL, map('k', NULL))))",
    ),
    "array<array<array<map<int,struct<x:float>>>>>": (
        "array(array(), NULL, array(array(map(7, named_struct('x', 'NaN')))))",
    ),
}


class Here(SparkOperations):
    """Does operations in the process of the test."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def operation(self, what: str, **arguments: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()
        try:
            if what == "page":
                answer.set_result(self._project.row_reader.page(**arguments))
            else:
                answer.set_result(self._project.ingest(**arguments))
        except KilonovaError as error:
            answer.set_exception(OperationFailed.by(error))
        return answer


@pytest.fixture(scope="module")
def project(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    place = tmp_path_factory.mktemp("types")
    workflow = kn.Workflow("types")
    for number, kind in enumerate(VALUES):
        for side in ("read", "written"):
            workflow.channel(f"{side}_{number}", f"id int, v {kind}")
    with open_project(place, session=spark, serve={"rate_limit": OFTEN, "read_rate_limit": OFTEN}) as opened:
        opened.create()
        opened.apply(workflow)
        yield opened


@pytest.mark.parametrize("kind", some(VALUES, 9))
def test_what_is_read_can_be_pushed_back(project: Project, spark: SparkSession, kind: str) -> None:
    number = [*VALUES].index(kind)
    rows = (f"SELECT {place}, {value}" for place, value in enumerate((*VALUES[kind], "NULL")))
    frame = spark.sql(
        f"SELECT CAST(id AS int) AS id, CAST(v AS {kind}) AS v FROM ({' UNION ALL '.join(rows)}) t(id, v)"
    )
    project.ingest(f"read_{number}", frame)
    client = TestClient(api(Here(project), project), base_url="http://localhost")
    channels = "/api/v1/channels"
    read = client.get(f"{channels}/read_{number}/rows")
    assert len(json.loads(read.content)) == len(VALUES[kind]) + 1
    answer = client.post(f"{channels}/written_{number}/blocks?format=json", content=read.content)
    assert answer.status_code == 200, answer.text
    again = client.get(f"{channels}/written_{number}/rows")
    assert again.content == read.content
    exact = [client.get(f"{channels}/{side}_{number}/rows?format=arrow").content for side in ("read", "written")]
    assert exact[0] == exact[1]


def test_types_are_written_as_documented() -> None:
    table = pa.table(
        {
            "decimal": pa.array([Decimal("12345678901234567890.0123456789"), Decimal("0E-10"), None]),
            "float": pa.array([0.1, NAN, -INFINITY], pa.float32()),
            "binary": [b"\x00\xff", b"", None],
            "date": [date(2024, 2, 29), None, date(1, 1, 1)],
            "time": pa.array(
                [datetime(2024, 2, 29, 12), None, datetime(1, 1, 1, 0, 0, 0, 1)], pa.timestamp("us", "UTC")
            ),
            "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int8())),
            "numbered": pa.array([[(1, "x")], [], None], pa.map_(pa.int8(), pa.string())),
            "nested": [{"a": [{"b": None}]}, None, {"a": None}],
            "interval": [timedelta(1, 7384, 5), timedelta(0), timedelta(microseconds=-1)],
        }
    )
    expected = [
        {
            "decimal": "12345678901234567890.0123456789",
            "float": 0.1,
            "binary": "AP8=",
            "date": "2024-02-29",
            "time": "2024-02-29T12:00:00Z",
            "map": {"a": 1},
            "numbered": {"1": "x"},
            "nested": {"a": [{"b": None}]},
            "interval": "INTERVAL '1 02:03:04.000005' DAY TO SECOND",
        },
        {
            "decimal": "0.0000000000",
            "float": "NaN",
            "binary": "",
            "date": None,
            "time": None,
            "map": {},
            "numbered": {},
            "nested": None,
            "interval": "INTERVAL '0 00:00:00' DAY TO SECOND",
        },
        {
            "decimal": None,
            "float": "-Infinity",
            "binary": None,
            "date": "0001-01-01",
            "time": "0001-01-01T00:00:00.000001Z",
            "map": None,
            "numbered": None,
            "nested": {"a": None},
            "interval": "INTERVAL '-0 00:00:00.000001' DAY TO SECOND",
        },
    ]
    assert json.loads(json_rows(table)) == expected
    assert json.loads(json_rows(pa.concat_tables([table.slice(2), table.slice(0, 2)]))) == [expected[2], *expected[:2]]
    assert json_rows(table.slice(3)) == b"[]"


def test_a_variant_is_written_as_its_json(spark: SparkSession) -> None:
    text = '{"a":[1,null,"x"]}'
    table = spark.sql(f"SELECT parse_json('{text}') AS v").toArrow()
    assert json.loads(json_rows(table)) == [{"v": json.loads(text)}]
