"""The schema function and the constraints of the paper's example (logic evolution, sections 3.3 and 3.3.1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kilonova.model.block import Base, Block, Delta, Kind, Statistics
from kilonova.model.channel import Channel, ChannelState, Point, PointState
from kilonova.model.encoding import Append
from kilonova.model.logic import Sql
from kilonova.model.required_columns import RequiredColumn, absent_columns, accepted_end
from kilonova.model.schema import Schema
from kilonova.model.schema_function import ColumnTypes, SchemaFunction, SchemaTransformation
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.model.version import Version
from kilonova.schedule.due import TaskState, due_version, read_ends, schema_alert, version_in_force
from kilonova.schedule.planning import remaining_ends

EXTRACTED = ("name", "address", "hours", "confidence")


def fields(*names: str) -> ColumnTypes:
    return dict.fromkeys(names)


def extraction(*dropped: str) -> SchemaTransformation:
    """f : (S₁, S₂) → (S₂ \\ dropped) ∪ {name, address, hours, confidence}"""

    def columns(read: tuple[ColumnTypes | None, ...]) -> ColumnTypes:
        assert read[1] is not None
        assert {*dropped} <= read[1].keys(), "the projection step would throw an error"
        return {name: None for name in read[1] if name not in dropped} | fields(*EXTRACTED)

    return SchemaTransformation(reads=("place_urls", "crawled_pages"), columns=columns)


def crawl_source(channel: str, point: int) -> ColumnTypes:
    if channel == "place_urls":
        return fields("url")
    return fields("url", "content") if point < 3 else fields("url", "time", "content")


PAPER = SchemaFunction(
    sources=crawl_source,
    writers={"extraction_output": "extract"},
    transformations={
        ("extraction_output", 0): extraction("content"),
        ("extraction_output", 1): extraction("content"),
        ("extraction_output", 2): extraction("time", "content"),
    },
)


def vector(place: int, crawl: int, logic: int) -> Version:
    """The version vector [place, crawl, logic] of the extraction output."""
    return Version.source("place_urls", place).joined(Version.source("crawled_pages", crawl)).through("extract", logic)


@pytest.mark.parametrize("crawl", [0, 1, 2, 3])
def test_source_tasks_declare_the_schema_of_every_version(crawl: int) -> None:
    assert PAPER.columns("place_urls", Version.source("place_urls", 0)) == fields("url")
    wanted = fields("url", "content") if crawl < 3 else fields("url", "time", "content")
    assert PAPER.columns("crawled_pages", Version.source("crawled_pages", crawl)) == wanted


@pytest.mark.parametrize(
    ("crawl", "logic", "columns"),
    [
        *((crawl, logic, ("url", *EXTRACTED)) for crawl in (0, 1, 2) for logic in (0, 1)),
        (3, 0, ("url", "time", *EXTRACTED)),
        (3, 1, ("url", "time", *EXTRACTED)),
        (3, 2, ("url", *EXTRACTED)),
    ],
)
def test_the_schema_function_has_the_values_of_the_paper(crawl: int, logic: int, columns: tuple[str, ...]) -> None:
    assert PAPER.columns("extraction_output", vector(0, crawl, logic)) == fields(*columns)


def test_the_schema_is_that_of_the_newest_of_several_reflections() -> None:
    mixed = vector(0, 2, 0).joined(vector(0, 3, 1))
    assert PAPER.columns("extraction_output", mixed) == fields("url", "time", *EXTRACTED)
    assert PAPER.columns("extraction_output", vector(0, 3, 7)) is None


# The crawl time of section 3.3.1

URL, PAGES = Schema.of(("url", "string")), Schema.of(("url", "string"), ("content", "string"))
TIMED = Schema.of(("url", "string"), ("time", "timestamp"), ("content", "string"))


def block(number: int, kind: Kind, schema: Schema) -> Block:
    statistics = Statistics(rows=1, bytes=1, files=1, removals=0)
    return Block(
        number=number, kind=kind, schema=schema, encoding=Append(), columns=schema, buckets=0, statistics=statistics
    )


def channel(name: str, *schemas: Schema) -> ChannelState:
    """A source channel whose points have these columns, the first of them declared."""
    points = tuple(
        Point(number=at, state=PointState.FILLED, version=Version.source(name, at), time=None, run=at)
        for at in range(1, len(schemas) + 1)
    )
    blocks = tuple(block(at, Delta(at - 1, at) if at > 1 else Base(1), each) for at, each in enumerate(schemas, 1))
    declared = Channel(name=name, schema=schemas[-1], encoding=Append())
    return ChannelState(channel=declared, points=points, blocks=blocks)


def extract(logic: int, *requires: RequiredColumn) -> Task:
    ports = tuple(Port(name, name, Mode.NEW) for name in ("place_urls", "crawled_pages"))
    variant = Variant(
        name="extract",
        ports=ports,
        productions=(Production.BASE,),
        logic=Sql(text=str(logic)),
        fingerprint=str(logic),
    )
    return Task(name="extract", writes=("extraction_output",), variants=(variant,), requires=requires)


CRAWL_TIME = RequiredColumn("crawled_pages", "time", "timestamp")
"""Version 2 would include crawl time among the schema constraints of its second input."""


def upgraded(crawled: int) -> TaskState:
    """Version 2, registered when version 1 has read the first crawl; it goes on for now."""
    cursors = {"place_urls": 1, "crawled_pages": crawled}
    previous = TaskState(task=extract(1), logic=1, started=True, cursors=cursors)
    return TaskState(task=extract(2, CRAWL_TIME), logic=2, started=False, cursors={}, previous=previous, continues=True)


def test_the_version_with_the_crawl_time_is_not_invoked_on_data_that_predates_it() -> None:
    channels = {"place_urls": channel("place_urls", URL), "crawled_pages": channel("crawled_pages", PAGES, PAGES)}
    state = upgraded(1)
    found = version_in_force(state, channels)
    assert found is not None
    assert found.logic == 1
    assert read_ends(found, channels) == {"place_urls": 1, "crawled_pages": 2}
    due = due_version([state], channels)
    assert due is not None
    assert due[1] == "crawled_pages advanced from point 1 to 2"
    assert schema_alert(state, channels) == (
        "logic version 2 waits for data with time timestamp of crawled_pages: version 1 goes on until then"
    )


def test_the_system_switches_after_enqueued_data_of_prior_versions_has_been_processed() -> None:
    crawls = channel("crawled_pages", PAGES, PAGES, PAGES, TIMED)
    channels = {"place_urls": channel("place_urls", URL), "crawled_pages": crawls}
    state = upgraded(1)
    assert version_in_force(state, channels) is state
    assert remaining_ends(state, channels) == {"place_urls": 1, "crawled_pages": 3}
    assert read_ends(state, channels) == {"place_urls": 1, "crawled_pages": 4}
    assert remaining_ends(upgraded(3), channels) is None
    assert schema_alert(state, channels) is None


def test_data_that_no_instance_accepts_is_stuck_with_an_alert() -> None:
    state = TaskState(task=extract(2, CRAWL_TIME), logic=2, started=True, cursors={"place_urls": 1, "crawled_pages": 2})
    crawls = channel("crawled_pages", PAGES, TIMED, TIMED, PAGES)
    channels = {"place_urls": channel("place_urls", URL), "crawled_pages": crawls}
    assert read_ends(state, channels)["crawled_pages"] == 3
    stuck = replace(state, cursors={"place_urls": 1, "crawled_pages": 3})
    assert due_version([stuck], channels) is None
    assert schema_alert(stuck, channels) == (
        "stops after point 3 of crawled_pages: version 2 requires time timestamp of crawled_pages"
    )


def test_the_schema_function_anticipates_what_an_upgrade_makes_stuck() -> None:
    consumer = [RequiredColumn("extraction_output", "time")]
    before, after = (PAPER.columns("extraction_output", vector(0, 3, logic)) for logic in (1, 2))
    assert before is not None
    assert after is not None
    assert not absent_columns(consumer, before)
    assert absent_columns(consumer, after) == tuple(consumer)


def test_inferred_columns_are_null_where_a_source_declares_them_and_data_lacks_them() -> None:
    crawls = channel("crawled_pages", PAGES, PAGES)
    declared = replace(crawls, channel=replace(crawls.channel, schema=TIMED))
    inferred = RequiredColumn("crawled_pages", "time")
    assert accepted_end([inferred], declared, 1, 2) == 2
    assert accepted_end([CRAWL_TIME], declared, 1, 2) == 1
    assert accepted_end([CRAWL_TIME], declared, 0, 2) is None
