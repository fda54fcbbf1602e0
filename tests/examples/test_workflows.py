"""The examples on the engine, against the truth and against recomputation."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from examples.flights import feed as flights_feed
from examples.flights.workflow import wf as flights
from examples.news.__main__ import deduplicate
from examples.restaurants.__main__ import evolve
from examples.restaurants.workflow import CHANGES
from kilonova.service.project import Project
from kilonova.testing import count_differences, recompute


def test_news_finds_just_the_articles_that_are_new(project: Project, tmp_path: Path) -> None:
    deduplicate(project, tmp_path)


def test_restaurants_are_migrated_at_each_change_of_their_extraction(project: Project) -> None:
    done = dict(evolve(project, pages=60))
    assert list(done) == ["first", *CHANGES]
    assert done["the confidence threshold is raised"].startswith("migration")


def test_flights_by_day_equal_recomputation(project: Project, tmp_path: Path) -> None:
    project.apply(flights)
    formats = ("parquet", "csv", "json")
    days = flights_feed.batches("day", first=date(2013, 1, 30), last=date(2013, 2, 1))
    for format_, batch in zip(formats, days, strict=True):
        for channel, path in batch.write(tmp_path, format_).items():  # type: ignore[arg-type]
            project.ingest(channel, path)
        report = project.run()
        assert report is not None
    assert project.run() is None
    made = list(recompute(project))
    assert {item.channel for item in made} == {
        name for task in flights.declared().workflow.tasks for name in task.writes
    }
    assert {item.channel: count_differences(project.read(item.channel), item.rows) for item in made} == {
        item.channel: 0 for item in made
    }
    assert {item.channel for item in made if item.replayed} == {"enriched"}
