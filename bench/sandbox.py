"""A project in a temporary directory, and the bare Spark that it is measured against."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import kilonova as kn
from kilonova.service.project import Project

COLUMNS = "k bigint, a int, b double, c string, d decimal(10,2)"
"""What the rows of all benchmarks but the joins look like; `k` is the key where there is one."""


def rows(keys: DataFrame, seed: int) -> DataFrame:
    """Rows of `COLUMNS` with made-up values.

    Args:
        keys: the column `id` holds the keys.
        seed: what the values follow from.
    """
    return keys.selectExpr(
        "id AS k",
        f"cast(rand({seed}) * 1000000 AS int) AS a",
        f"rand({seed + 1}) AS b",
        "concat('name-', id % 100003) AS c",
        "cast(id % 17 AS decimal(10,2)) AS d",
    )


def touching(spark: SparkSession, size: int, of: int, seed: int) -> DataFrame:
    """About `size` distinct keys, nineteen in twenty below `of` and the rest new."""
    spread = f"cast(pmod(xxhash64(id, {seed}), {int(of * 1.05)}) AS bigint) AS id"
    return spark.range(size).selectExpr(spread).distinct()


def noop(frame: DataFrame) -> None:
    """Read all of it."""
    frame.write.format("noop").mode("overwrite").save()


def write(frame: DataFrame, path: Path) -> None:
    """Write it as Kilonova would: Parquet with zstd."""
    frame.write.mode("overwrite").option("compression", "zstd").parquet(str(path))


def files_of(path: Path) -> list[Path]:
    """The Parquet files in a directory."""
    return sorted(path.glob("*.parquet"))


@contextmanager
def sandbox(workflow: kn.Workflow | None = None, **settings: Any) -> Iterator[tuple[Project, Path]]:
    """A new project with a workflow, and a directory for what else there is; all of it goes at the end."""
    place = Path(tempfile.mkdtemp(prefix="kilonova-bench-"))
    try:
        with kn.open_project(place / "project", **settings) as project:
            (place / "project").mkdir(exist_ok=True)
            project.create()
            if workflow is not None:
                project.apply(workflow)
            yield project, place
    finally:
        shutil.rmtree(place, ignore_errors=True)
