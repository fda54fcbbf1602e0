"""Previews of changed workflows: the rows that would differ, without a change of the project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.errors import TaskFailed
from kilonova.service.preview import ChannelPreview
from kilonova.service.project import Project


def shop(threshold: int, *, total: str = "n", wrong: bool = False) -> kn.Workflow:
    wf = kn.Workflow("shop")
    wf.channel("orders", "id int, shop string, n int", key="id")
    wf.view("large", f"SELECT id, shop, n FROM orders WHERE n > {threshold}")
    wf.view("shops", f"SELECT shop, count(*) AS orders, sum({total}) AS total FROM large GROUP BY shop")

    @wf.task(schema="id int, n int", encoding="changes")
    def copied(orders: kn.Changes) -> kn.Delta:
        return orders.where(F.col("n") > threshold).select("id", "n", "_weight")

    if wrong:

        @copied.migration(from_version=0)
        def nothing(copied: kn.All) -> kn.Delta:
            return copied.where("false").withColumn("_weight", F.lit(-1).cast("bigint"))

    return wf


def files(project: Project) -> set[str]:
    return {name for _, _, names in os.walk(project.directory) for name in names}


@pytest.fixture
def filled(project: Project) -> Project:
    project.apply(shop(2))
    rows: list[tuple[Any, ...]] = [(number, f"s{number % 2}", number) for number in range(10)]
    project.ingest("orders", project.warehouse.spark.createDataFrame(rows[:8], "id int, shop string, n int"))
    project.run()
    project.ingest("orders", project.warehouse.spark.createDataFrame(rows[8:], "id int, shop string, n int"))
    return project


def test_a_preview_shows_the_rows_that_differ_and_changes_nothing(filled: Project) -> None:
    before, there = filled.status(), files(filled)
    found = filled.preview([shop(4)], verify=True)
    by_name = {each.channel: each for each in found.channels}
    assert set(by_name) == {"large", "shops", "copied"}
    large = by_name["large"]
    assert (large.before, large.after, large.added, large.removed) == (7, 5, 0, 2)
    assert sorted((sign, row["n"]) for sign, row in large.examples) == [("-", 3), ("-", 4)]
    assert (by_name["shops"].before, by_name["shops"].added, by_name["shops"].removed) == (2, 2, 2)
    assert found.wrong == ()
    after = filled.status()
    assert (after.channels, after.tasks) == (before.channels, before.tasks)
    assert files(filled) == there
    filled.run()
    assert len(filled.rows("large")[1]) == 7


def test_columns_that_differ_are_shown(filled: Project) -> None:
    found = filled.preview([shop(2, total="n * 1.5")])
    (shops,) = found.channels
    assert shops == ChannelPreview(
        channel="shops", before=2, after=2, added=0, removed=0, columns=shops.columns, examples=()
    )
    assert shops.columns == ("total: decimal(23,1) instead of bigint",)


def test_a_migration_that_disagrees_with_recomputation_is_found(filled: Project) -> None:
    found = filled.preview([shop(4, wrong=True)], verify=True)
    assert found.wrong == (("copied", 2),)


def test_a_branch_is_deleted_when_its_run_fails(filled: Project) -> None:
    wf = shop(2)

    @wf.task(schema="id int")
    def failing(orders: kn.New) -> kn.Delta:
        raise ValueError("not here")

    there = files(filled)
    with pytest.raises(TaskFailed, match="not here"):
        filled.preview([wf])
    assert files(filled) == there
    assert not list(Path(filled.directory).rglob("_branches/*"))
