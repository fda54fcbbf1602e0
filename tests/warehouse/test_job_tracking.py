from __future__ import annotations

from pyspark.sql import SparkSession

from kilonova.warehouse.job_tracking import track_jobs


def test_concurrent_work_shares_spark_fairly(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert context.getConf().get("spark.scheduler.mode") == "FAIR"
    before = context.getLocalProperty("spark.scheduler.pool")
    pools = set()
    for name in ("run 1: sales", "run 1: stock", "run 2: sales"):
        with track_jobs(spark, name) as jobs:
            pools.add(context.getLocalProperty("spark.scheduler.pool"))
            assert spark.range(10).count() == 10
            assert jobs.amount().done > 0
    assert len(pools) == 3
    assert before not in pools
    assert context.getLocalProperty("spark.scheduler.pool") == before
