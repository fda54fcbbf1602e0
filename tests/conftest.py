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
from tests.long_tests import chosen, read_durations, write_durations
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


_seconds: list[tuple[str, float]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options about tests that take long."""
    group = parser.getgroup("tests that take long")
    group.addoption(
        "--long-share",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="share of the tests that take longer than a second, chosen by KILONOVA_SEED (1: all)",
    )
    group.addoption("--record-durations", action="store_true", help="record which tests take long, if all have passed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that take long and that this run does not choose."""
    kept = chosen([item.nodeid for item in items], config.getoption("long_share"), read_durations())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long a test took, without what it shares with others and was prepared before it."""
    if report.when == "call" and report.passed:
        _seconds.append((report.nodeid, report.duration))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the seed of the random tests, to repeat them."""
    if not hasattr(session.config, "workerinput"):
        print(f"KILONOVA_SEED={SEED}", flush=True)


def pytest_collection_finish() -> None:
    """Look for garbage only in what tests make: a look at all that they have imported takes most of a second."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Record durations; leave the last garbage to the end, which xdist does not wait for longer than five seconds."""
    if session.config.getoption("record_durations") and not hasattr(session.config, "workerinput") and not exitstatus:
        write_durations(_seconds)
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
