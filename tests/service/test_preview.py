"""Previews of changed workflows: the rows that would differ, without a change of the project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.catalog import pins
from kilonova.errors import DeclarationError, TaskFailed
from kilonova.model.sample import sample_of
from kilonova.service.affected_channels import DownstreamEffect
from kilonova.service.branch import branch
from kilonova.service.plan_action import Action
from kilonova.service.preview import ChannelPreview
from kilonova.service.project import Project
from kilonova.service.queries import ProjectReader
from kilonova.service.runner import Runner


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


def test_a_preview_says_which_columns_are_renamed(project: Project) -> None:
    def selecting(columns: str) -> kn.Workflow:
        wf = kn.Workflow("shop")
        wf.channel("orders", "id int, shop string, n int", key="id")
        wf.view("large", f"SELECT id, {columns} FROM orders")
        return wf

    project.apply(selecting("shop, n"))
    project.ingest("orders", project.warehouse.spark.createDataFrame([(1, "a", 1)], "id int, shop string, n int"))
    project.run()
    (found,) = project.preview([selecting("shop AS n, n * 2 AS twice")]).channels
    assert found.columns == ("renames shop to n", "adds twice int", "removes n")
    assert (found.added, found.removed, found.changed) == (0, 0, 0)
    (found,) = project.preview([selecting("shop AS place, n + 1 AS n")]).channels
    assert found.columns == ("renames shop to place",)
    assert found.differing == (("n", 1),)


def test_all_columns_may_be_other_ones(project: Project) -> None:
    def counting(query: str) -> kn.Workflow:
        wf = kn.Workflow("shop")
        wf.channel("orders", "id int, shop string, n int", key="id")
        wf.view("large", query)
        return wf

    project.apply(counting("SELECT id, n FROM orders"))
    rows = [(number, "a", number) for number in range(4)]
    project.ingest("orders", project.warehouse.spark.createDataFrame(rows, "id int, shop string, n int"))
    project.run()
    (found,) = project.preview([counting("SELECT shop, sum(n) AS total FROM orders GROUP BY shop")]).channels
    assert (found.before, found.after, found.examples) == (4, 1, ())
    assert found.columns == ("adds shop string", "adds total bigint", "removes id", "removes n")


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


def test_the_plan_of_a_preview_is_that_of_the_project(filled: Project) -> None:
    def bounded(least: int) -> kn.Workflow:
        changed = shop(least)
        changed.bound_staleness("large", ["orders", "large"], "1 day")
        return changed

    filled.apply(bounded(2))
    filled.run()
    planned = filled.plan(bounded(4))
    assert any(each.migration is not None and each.migration.seconds for each in planned.tasks)
    (plan,) = filled.preview([bounded(4)]).plans
    assert [each.migration for each in plan.tasks] == [each.migration for each in planned.tasks]
    assert [each.action for each in plan.bounds] == [Action.KEEP]


def test_columns_that_differ_are_shown(filled: Project) -> None:
    found = filled.preview([shop(2, total="n * 1.5")])
    (shops,) = found.channels
    assert shops == ChannelPreview(
        channel="shops", before=2, after=2, added=0, removed=0, columns=shops.columns, examples=(), key=shops.key
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


def test_a_branch_whose_process_was_killed_is_collected(filled: Project) -> None:
    def branches() -> list[Path]:
        return list(Path(filled.directory).rglob("_branches/*"))

    with branch(filled.resources) as other:
        Runner(other, ProjectReader(other.catalog)).run_each(None)
        assert filled.collect_garbage().branches == 0
        assert len(branches()) == 1
        with filled.catalog.writing() as tx:
            (holder,) = pins.holders(tx)
            pins.unpin(tx, holder)
        assert filled.collect_garbage().branches == 1
        assert not branches()
    assert len(filled.rows("large")[1]) == 5


def test_rows_of_a_key_are_compared_by_column(filled: Project) -> None:
    steps: list[str] = []
    found = filled.preview([shop(4)], progress=steps.append)
    shops = {each.channel: each for each in found.channels}["shops"]
    assert (shops.key, shops.changed, dict(shops.differing)) == (("shop",), 2, {"orders": 2, "total": 2})
    assert [(sign, row["shop"]) for sign, row in shops.examples[::2]] == [
        ("-", row["shop"]) for _, row in shops.examples[1::2]
    ]
    assert {"copying the catalog", "comparing copied"} <= {*steps}
    assert {"sign", "row"} == found.to_dict()["channels"][0]["examples"][0].keys()


def joined(threshold: int) -> kn.Workflow:
    wf = kn.Workflow("joined")
    wf.channel("orders", "id int, shop string, n int", key="id")
    wf.channel("places", "shop string, city string", key="shop")
    wf.view("large", f"SELECT id, shop, n FROM orders WHERE n >= {threshold}")
    wf.view("cities", "SELECT city, count(*) AS orders FROM large JOIN places USING (shop) GROUP BY city")
    wf.view("counted", "SELECT count(*) AS orders FROM orders")
    return wf


def test_a_preview_on_a_sample_computes_both_definitions_from_the_same_rows(project: Project) -> None:
    project.apply(joined(0))
    spark = project.warehouse.spark
    orders = [(number, f"s{number % 50}", number // 50 % 10) for number in range(1000)]
    project.ingest("orders", spark.createDataFrame(orders, "id int, shop string, n int"))
    project.ingest("places", spark.createDataFrame([(f"s{n}", f"c{n}") for n in range(50)], "shop string, city string"))
    project.run()
    before = project.status()

    found = project.preview([joined(5)], verify=True, sample=sample_of("20%", ("shop",)))
    sampled = {each.channel: each for each in found.sample}
    shops = sampled["places"].rows
    assert 0 < shops < 50
    assert (sampled["orders"].rows, sampled["orders"].of) == (20 * shops, 1000)  # all orders of the chosen shops
    by_name = {each.channel: each for each in found.channels}
    assert set(by_name) == {"large", "cities"}
    assert (by_name["large"].before, by_name["large"].after) == (20 * shops, 10 * shops)
    assert (by_name["cities"].before, by_name["cities"].after) == (shops, shops)
    assert (found.wrong, set(found.verified)) == ((), {"large"})

    found = project.preview([joined(5)], sample=sample_of("100"))
    sampled = {each.channel: each for each in found.sample}
    assert sampled["orders"].by == ("id",)
    assert 50 < sampled["orders"].rows < 200
    with pytest.raises(DeclarationError, match="no source channel has the column sho"):
        project.preview([joined(5)], sample=sample_of("1%", ("sho",)))
    assert project.status() == before


def test_a_task_of_another_workflow_that_breaks_is_a_result(filled: Project) -> None:
    filled.run()
    report = kn.Workflow("report")
    report.view("mean", "SELECT shop, avg(n) AS mean FROM large GROUP BY shop")
    report.view("copies", "SELECT n FROM copied")
    report.sql("numbers", "SELECT n FROM {large}", reads={"large": kn.All}, produces=kn.Base)
    filled.apply(report)
    filled.run()
    changed = kn.Workflow("shop")
    changed.channel("orders", "id int, shop string, n int", key="id")
    changed.view("large", "SELECT id, shop, n AS m FROM orders WHERE n > 4")
    changed.view("shops", "SELECT shop, count(*) AS orders, sum(m) AS total FROM large GROUP BY shop")

    @changed.task(schema="id int, n int", encoding="changes")
    def copied(orders: kn.Changes) -> kn.Delta:
        return orders.where(F.col("n") > 2).select("id", "n", "_weight")

    affected = {each.channel: each for each in filled.plan(changed).affected}
    assert affected["mean"].effect is DownstreamEffect.BREAKS
    assert affected["mean"].detail == "cannot run: it reads the column n, which large loses"
    found = filled.preview([changed], verify=True)
    [(binding, problem)] = found.failed
    assert binding == "numbers"
    assert "`n`" in problem
    assert [each.task for plan in found.plans for each in plan.incompatible] == ["mean"]
    assert {each.channel for each in found.channels} == {"large", "shops", "copied"}
    assert found.wrong == ()


def test_a_task_that_fails_already_is_a_result(filled: Project) -> None:
    broken = kn.Workflow("broken")
    broken.sql("never", "SELECT raise_error('never') AS e FROM {orders}", reads={"orders": kn.All}, produces=kn.Base)
    filled.apply(broken)
    found = filled.preview([shop(4)])
    assert [binding for binding, _ in found.failed] == ["never"]
    assert "large" in {each.channel for each in found.channels}


def test_a_rollback_can_be_previewed(filled: Project) -> None:
    filled.run()
    filled.apply(shop(4))
    filled.run()
    found = filled.preview([filled.registration.earlier("large", 0)], verify=True)
    large = {each.channel: each for each in found.channels}["large"]
    assert (large.before, large.after, large.added) == (5, 7, 2)
    assert (found.wrong, found.verified) == ((), ("large",))
