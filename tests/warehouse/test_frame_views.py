"""Tests of temporary views that last as long as their frames."""

from __future__ import annotations

import gc
import threading

import pytest
from pyspark.sql import SparkSession

from kilonova.warehouse.frame_views import FrameViews


def views(spark: SparkSession) -> int:
    """Return the number of temporary views."""
    return spark.sql("SHOW VIEWS").where("isTemporary").count()


@pytest.fixture
def frame_views(spark: SparkSession) -> FrameViews:
    """Return the views of the session of the tests."""
    return FrameViews(spark)


def test_views_of_kept_frames_are_used_again(spark: SparkSession, frame_views: FrameViews) -> None:
    before = views(spark)
    kept, other = frame_views.keep(spark.range(3)), spark.range(2, 4)
    for _ in range(3):
        found = frame_views.sql(
            "SELECT id FROM {kept} JOIN {other} USING (id) WHERE '{{}}' = '{{}}'", {"kept": kept, "other": other}
        )
        assert [row.id for row in found.collect()] == [2]
        assert views(spark) == before + 1


def test_a_frame_may_be_named_twice(spark: SparkSession, frame_views: FrameViews) -> None:
    kept = frame_views.keep(spark.range(3))
    found = frame_views.sql("SELECT count(*) AS n FROM {a} a CROSS JOIN {b} b", {"a": kept, "b": kept})
    assert found.collect()[0].n == 9


def test_views_are_dropped_after_their_frames(spark: SparkSession, frame_views: FrameViews) -> None:
    before = views(spark)
    kept = frame_views.keep(spark.range(3))
    found = frame_views.sql("SELECT id FROM {kept}", {"kept": kept})
    del kept
    gc.collect()
    frame_views.sql("SELECT 1", {})
    assert views(spark) == before
    assert found.count() == 3


def test_frames_may_end_while_others_are_queried(spark: SparkSession, frame_views: FrameViews) -> None:
    before, failed = views(spark), []

    def query() -> None:
        try:
            for place in range(20):
                frame = frame_views.keep(spark.range(place))
                assert frame_views.sql("SELECT id FROM {frame}", {"frame": frame}).count() == place
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=query) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    frame_views.sql("SELECT 1", {})
    assert not failed
    assert views(spark) == before
