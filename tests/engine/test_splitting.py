"""The outputs of one invocation come from one evaluation, also where the code gives other rows each time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.service.project import Project

ROWS = 1000


def chance() -> float:
    import random

    return random.SystemRandom().random()


def by_function(a: DataFrame) -> DataFrame:
    return a.withColumn("r", F.udf(chance, DoubleType())())


def by_rand(a: DataFrame) -> DataFrame:
    return a.withColumn("nothing", F.lit(None)).withColumn("r", F.rand())


def by_expression(a: DataFrame) -> DataFrame:
    return a.selectExpr("id", "rand() AS r").repartition(3)


def by_time(a: DataFrame) -> DataFrame:
    seconds = F.unix_micros(F.current_timestamp())
    return a.select("id", (F.abs(F.hash("id", seconds)) % 1000 / 1000).alias("r"))


def split(noise: Callable[[DataFrame], DataFrame]) -> kn.Workflow:
    wf = kn.Workflow("split")
    wf.channel("a", "id bigint")
    for name in ("low", "high", "rest"):
        wf.channel(name, "id bigint")
    wf.channel("counted", "low bigint, high bigint, rest bigint")

    @wf.task(writes=("low", "high", "rest", "counted"))
    def parts(a: kn.New) -> kn.Delta:
        x = noise(a)
        upper = x.where("r >= 0.3")
        counted = x.agg(
            F.count_if(x.r < 0.3).alias("low"),
            F.count_if((x.r >= 0.3) & (x.r < 0.6)).alias("high"),
            F.count_if(x.r >= 0.6).alias("rest"),
        )
        ids = [frame.select("id") for frame in (x.where("r < 0.3"), upper.where("r < 0.6"), upper.where("r >= 0.6"))]
        return (*ids, counted)  # type: ignore[return-value]

    return wf


@pytest.mark.parametrize("noise", [by_function, by_rand, by_expression, by_time])
def test_each_row_is_written_to_one_output(project: Project, noise: Callable[[DataFrame], DataFrame]) -> None:
    project.apply(split(noise))
    project.ingest("a", project.warehouse.spark.range(ROWS))
    project.run()
    found = {name: [row.id for row in project.read(name).collect()] for name in ("low", "high", "rest")}
    assert sorted(id_ for ids in found.values() for id_ in ids) == list(range(ROWS))
    assert [tuple(row) for row in project.read("counted").collect()] == [tuple(map(len, found.values()))]
    live = {block.name for c in project.status().channels.values() for block in c.blocks}
    assert set(project.warehouse.blocks()) == live


def test_what_is_known_to_give_the_same_is_not_written(project: Project) -> None:
    wf = kn.Workflow("steady")
    wf.channel("a", "id bigint")
    for name in ("low", "high"):
        wf.channel(name, "id bigint")

    @wf.task(writes=("low", "high"))
    def parts(a: kn.New) -> kn.Delta:
        x = a.where("id >= 0")
        return x.where("id < 3"), x.where("id >= 3")  # type: ignore[return-value]

    project.apply(wf)
    project.ingest("a", project.warehouse.spark.range(10))
    project.run()
    with project.catalog.reading() as tx:
        assert set(channel_store.block_states(tx).values()) == {channel_store.LIVE}
