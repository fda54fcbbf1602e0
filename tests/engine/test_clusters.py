"""The examples on a standalone master with two workers, and over Spark Connect, all on loopback.

The daemons are those of the installed PySpark. Each example runs in a process of its own and checks itself.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from kilonova.jvm.runtime import java_environment

ROOT = Path(__file__).parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PATIENCE = 120.0

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def daemon(place: Path, name: str, *words: str) -> Iterator[None]:
    """A Java process of Spark, for the time of a `with` block."""
    variables = {
        **java_environment(os.environ),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(place / name),
        "PYSPARK_PYTHON": sys.executable,
    }
    with (place / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [str(SPARK_CLASS), *words], env=variables, cwd=place, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def await_port(port: int, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-2000:])


def await_text(text: str, times: int, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while log.read_text().count(text) < times:
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.2)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master with two workers."""
    place, port = tmp_path_factory.mktemp("cluster"), free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    ports = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        stack.enter_context(daemon(place, "master", f"{deploy}.master.Master", *ports, "--port", str(port)))
        await_port(port, place / "master.log")
        for name in ("one", "two"):
            worker = (f"{deploy}.worker.Worker", *ports, "--cores", "1", "--memory", "1g", url)
            stack.enter_context(daemon(place, name, *worker))
        await_text("Registering worker", 2, place / "master.log")
        yield url


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Connect server."""
    place, port = tmp_path_factory.mktemp("connect"), free_port()
    words = (
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[2]", "--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.ui.enabled=false"),
        *("--conf", f"spark.sql.warehouse.dir={place / 'tables'}", "--conf", "spark.sql.shuffle.partitions=8"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    )
    with daemon(place, "connect", *words):
        await_port(port, place / "connect.log")
        yield f"sc://127.0.0.1:{port}"


PROGRESS = """
import sys, time
from pathlib import Path
import kilonova as kn
from kilonova.engine.run_events import ProgressUpdated

go = Path("go").absolute()  # what waits has a directory of its own

def waiting(batches):
    for batch in batches:
        end = time.monotonic() + 60
        while batch["id"][0] > 0 and not go.exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield batch

wf = kn.Workflow("wf")
wf.channel("numbers", "n int")

@wf.task(schema="n bigint")
def counted(numbers: kn.New) -> kn.Delta:
    spark = numbers.sparkSession
    return spark.range(0, 6, 1, 6).mapInPandas(waiting, "id bigint").selectExpr("id AS n").repartition(1)

def hear(telling):
    if isinstance(telling, ProgressUpdated):
        for going in telling.progress.going:
            if going.step == "counted" and going.amount.done and going.amount.total >= 6:
                go.touch()

with kn.open_project(".", listener=hear, spark={"remote": sys.argv[1]}) as project:
    project.create()
    project.apply(wf)
    project.ingest("numbers", project.warehouse.spark.createDataFrame([(1,)], "n int"))
    project.run()
    print(sorted(row[0] for row in project.rows("counted")[1]), "told" if go.exists() else "not told")
"""


CANCELLED = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import kilonova as kn

wf = kn.Workflow("wf")
wf.channel("numbers", "n int")

@wf.task(schema="n bigint")
def endless(numbers: kn.New) -> kn.Delta:
    spark = numbers.sparkSession
    many = spark.range(0, 3_000_000, 1, 2).crossJoin(spark.range(0, 1_000_000).toDF("m"))
    return many.where("(id * m) % 1000003 = 999999 AND id + m < 5").selectExpr("id AS n")

with kn.open_project(".", spark={"remote": sys.argv[1]}) as project, ThreadPoolExecutor(1) as pool:
    project.create()
    project.apply(wf)
    project.ingest("numbers", project.warehouse.spark.createDataFrame([(1,)], "n int"))
    run = pool.submit(project.run)
    while project.runs(1)[0].run.progress is None and not run.done():
        time.sleep(0.1)
    project.cancel(2, "ann")
    print(run.exception(20))
    print(project.rows("numbers")[1])
"""


def run(example: str, *words: str) -> str:
    variables = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "KILONOVA_SIZES__BUCKETING_MIN": "20000"}
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{example}", *words],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_flights_on_a_cluster(master: str) -> None:
    printed = run("flights", "--by", "day", "--batches", "2", "--master", master)
    assert "Every derived channel equals its recomputation." in printed


def test_news_on_a_cluster(master: str) -> None:
    assert "batch 5: 342 unique articles" in run("news", "--master", master)


def test_flights_over_connect(remote: str) -> None:
    printed = run("flights", "--by", "day", "--batches", "2", "--remote", remote)
    assert "Every derived channel equals its recomputation." in printed


def test_news_over_connect(remote: str) -> None:
    assert "batch 5: 342 unique articles" in run("news", "--remote", remote)


SPLIT = """
import random, sys
import kilonova as kn
from pyspark.sql import functions as F

wf = kn.Workflow("wf")
wf.channel("a", "id bigint")
for name in ("low", "high", "rest"):
    wf.channel(name, "id bigint")
wf.channel("counted", "low bigint, high bigint, rest bigint")

@wf.task(writes=("low", "high", "rest", "counted"))
def parts(a: kn.New) -> kn.Delta:
    by_chance = F.udf(lambda: random.SystemRandom().random(), "double")
    x = a.withColumn("nothing", F.lit(None)).withColumn("r", by_chance())
    upper = x.where(x.r >= 0.3)
    counted = x.agg(
        F.count_if(x.r < 0.3).alias("low"),
        F.count_if((x.r >= 0.3) & (x.r < 0.6)).alias("high"),
        F.count_if(x.r >= 0.6).alias("rest"),
    )
    return (
        x.where(x.r < 0.3).select(x.id),
        upper.where(x.r < 0.6).select(a.id),
        upper.where("r >= 0.6").select("id"),
        counted,
    )

with kn.open_project(".", spark={"remote": sys.argv[1]}) as project:
    project.create()
    project.apply(wf)
    project.ingest("a", project.warehouse.spark.range(1000))
    project.run()
    found = [[row.id for row in project.read(name).collect()] for name in ("low", "high", "rest")]
    print(sorted(sum(found, [])) == list(range(1000)), project.read("counted").collect()[0] == tuple(map(len, found)))
"""

CHECKED = """
import sys
import kilonova as kn
from kilonova.errors import CheckFailed

wf = kn.Workflow("wf")
wf.channel("a", "id bigint, amount int", key="id", checks={"expressions": ["amount >= 0"]})

with kn.open_project(".", spark={"remote": sys.argv[1]}) as project:
    project.create()
    project.apply(wf)
    for amount in (1, -1, 2):
        try:
            project.ingest("a", project.warehouse.spark.createDataFrame([(amount, amount)], "id bigint, amount int"))
        except CheckFailed as error:
            print(error.channel)
    print(sorted(map(tuple, project.read("a").collect())))
"""


MISFITS = """
import sys
from pathlib import Path
import kilonova as kn
from kilonova.errors import KilonovaError

wf = kn.Workflow("wf")
wf.channel("a", "id bigint, amount int")
wf.channel("b", "id bigint", encoding="changes")

@wf.task(schema="id int")
def c(a: kn.New) -> kn.Delta:
    return a.selectExpr("int(raise_error('a row was retracted more often than it occurs')) AS id")

Path("a.csv").write_text("id,amount\\n1,2\\nx,3\\n")
Path("a.jsonl").write_text('{"id": 1, "amount": 2, "more": 3}\\n')
Path("b.csv").write_text("id,_weight\\n1,-1\\n")
Path("good.csv").write_text("id,amount\\n1,2\\n")
with kn.open_project(".", spark={"remote": sys.argv[1]}) as project:
    project.create()
    project.apply(wf)
    project.ingest("a", "good.csv")
    for act in (
        lambda: project.ingest("a", "a.csv"),
        lambda: project.ingest("a", "a.jsonl"),
        lambda: project.ingest("b", "b.csv"),
        project.run,
    ):
        try:
            act()
        except KilonovaError as error:
            print(type(error).__name__, error.column, error.problem.partition(" than ")[0].partition(" [")[0])
"""


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        pytest.param(PROGRESS, "[0, 1, 2, 3, 4, 5] told", id="progress"),
        pytest.param(
            CANCELLED,
            "the run was cancelled by ann. Nothing was published. [binding endless, run 2]\n[(1,)]",
            id="cancelling",
        ),
        pytest.param(SPLIT, "True True", id="splitting"),
        pytest.param(CHECKED, "a\n[(1, 1), (2, 2)]", id="checks"),
        pytest.param(
            MISFITS,
            "InputError id line 3: 'x' is not of type bigint\n"
            "SchemaMismatch more line 1: the channel has no such column\n"
            "EncodingError None a row is retracted more often\n"
            "TaskFailed None the task failed in Spark:",
            id="errors",
        ),
    ],
)
def test_what_holds_in_this_process_holds_over_connect(remote: str, tmp_path: Path, script: str, printed: str) -> None:
    (tmp_path / "script.py").write_text(script)
    words = [sys.executable, "script.py", remote]
    variables = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=400)
    assert done.stdout.strip() == printed, done.stdout + done.stderr


COMPACTED = """
import sys
import kilonova as kn
from kilonova.warehouse.task_merge import TaskMerge

written = []
write = TaskMerge.write

def seen(*arguments):
    written.append(write(*arguments))
    return written[-1]

TaskMerge.write = seen
wf = kn.Workflow("wf")
wf.channel("a", "id bigint, `a.b` string, at timestamp", key=("id", "a.b"))
sizes = {"bucketing_min": 1, "bucket_size": 20_000, "local_check_max": 1}

with kn.open_project(".", spark={sys.argv[1]: sys.argv[2]}, sizes=sizes) as project:
    project.create()
    project.apply(wf)
    spark = project.warehouse.spark

    def rows(low, high, deleted):
        columns = ("id", "string(id % 7) AS `a.b`", f"timestamp_seconds(id + {low}) AS at", f"{deleted} AS _deleted")
        return spark.range(low, high).selectExpr(*columns)

    project.ingest("a", rows(0, 20_000, False).drop("_deleted"))
    project.ingest("a", rows(0, 10, True))
    project.compact("a")  # in buckets from now on
    for place in range(4):
        project.ingest("a", rows(4000 * place, 4000 * place + 6000, f"id % {place + 2} = 0"))
    before = sorted(map(tuple, project.read("a").collect()))
    project.compact("a", deltas=True)
    assert sorted(map(tuple, project.read("a").collect())) == before
    project.ingest("a", rows(100, 200, True))
    after = [row for row in before if not 100 <= row[0] < 200]
    project.compact("a")
    assert sorted(map(tuple, project.read("a").collect())) == after
    print([files is not None and len(files) > 1 for files in written], project.fsck(checksums=True).damaged)
"""


@pytest.mark.parametrize("kind", ["master", "remote"])
def test_workers_merge_blocks(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    (tmp_path / "script.py").write_text(COMPACTED)
    words = [sys.executable, "script.py", kind, request.getfixturevalue(kind)]
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    variables = {**os.environ, **python, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=400)
    assert done.stdout.strip() == "[True, True] ()", done.stdout + done.stderr
