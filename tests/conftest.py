"""One Spark session for all tests, and projects on it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from kilonova.service.project import Project, open_project
from kilonova.warehouse.session import SparkSettings, open_session
from tests.seeds import SEED

# Most of a test's time would be compilation: of Java's code and of Spark's plans. With one compiler, Java keeps 48 MB
# of compiled code only, of which tests need more, and compiles again and again what it gave up. PySpark's call sites
# are left out, for which each operation on a column calls Java eight times. These are arguments and no configuration
# file, with which Java would use no class-data archive.
os.environ.setdefault(
    "PYSPARK_SUBMIT_ARGS",
    '--conf "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"'
    " --conf spark.sql.codegen.factoryMode=NO_CODEGEN --conf spark.sql.codegen.wholeStage=false"
    " --conf spark.python.sql.dataFrameDebugging.enabled=false pyspark-shell",
)

settings.register_profile("kilonova", deadline=None)  # tests never depend on how long something takes
settings.load_profile("kilonova")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the seed of the random tests, to repeat them."""
    if not hasattr(session.config, "workerinput"):
        print(f"KILONOVA_SEED={SEED}", flush=True)


def pytest_collection_finish() -> None:
    """Look for garbage only in what tests make: a look at all that they have imported takes most of a second."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Leave the last garbage to the end of the process: xdist interrupts a process that takes five seconds to end."""
    gc.freeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as Kilonova opens it, small."""
    conf = (("spark.sql.shuffle.partitions", "3"), ("spark.sql.execution.arrow.maxRecordsPerBatch", "1000"))
    session, _ = open_session(SparkSettings(master="local[2]", conf=conf))
    yield session
    session.stop()


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Iterator[Project]:
    """A new project with nothing in it."""
    with open_project(tmp_path, session=spark, retry={"wait": 0}) as fresh:
        fresh.create()
        yield fresh
