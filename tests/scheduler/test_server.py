"""Servers with real workers: a project that runs by itself, and user code that takes its process with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pandas as pd
import psutil
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

import kilonova as kn
from kilonova.catalog import channel_store, firings
from kilonova.model.event import EventKind
from kilonova.model.firing import FiringState
from kilonova.model.run import RunState
from kilonova.model.watched_file import FileState
from kilonova.scheduler import loop
from kilonova.scheduler.loop import Server
from kilonova.service.project import Project, open_project
from kilonova.web.application import serve_http
from tests.fakes import Slow
from tests.serving import serving
from tests.shop import api


@dataclass(frozen=True)
class Served:
    """A project with a server, and a client of its API for an admin."""

    server: Server
    project: Project
    client: httpx2.Client


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Served]:
    """Two workers are shared by all tests: starting one takes longer than most of what they do."""
    place = tmp_path_factory.mktemp("served")
    settings = {
        "workers": 2, "shutdown_grace": 5.0, "maintenance_interval": 0.0, "run_timeout": 45.0,
        "python_memory_mb": 2000, "load_timeout": 4, "port": 0, "max_upload_mb": 1,
    }  # fmt: skip
    with open_project(place, session=spark, retry={"wait": 0}, serve=settings) as project:
        project.create()
        bearing = {"Authorization": f"Bearer {project.operator.create_token('tests', 'admin')}"}
        with (
            serving(place, **settings) as server,
            serve_http(server, project) as address,
            httpx2.Client(base_url=address, headers=bearing, timeout=120) as client,
        ):
            yield Served(server, project, client)
        assert {each.server.state for each in project.reader.servers(10)} == {"stopped"}


@pytest.fixture
def project(served: Served) -> Project:
    return served.project


@pytest.fixture
def client(served: Served) -> httpx2.Client:
    return served.client


def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to it in time"
        time.sleep(0.05)


def free_workers(server: Server) -> int:
    return sum(worker.free for worker in list(server._workers))


def ended(project: Project, binding: str, times: int = 1) -> bool:
    found = project.reader.firings(100, binding)
    return sum(firing.state.ended for firing in found) >= times and all(firing.state.ended for firing in found)


def rows(project: Project, channel: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in project.rows(channel)[1])


def clicks_of(spark: SparkSession, *users: str) -> DataFrame:
    return spark.createDataFrame([(user,) for user in users], "user string")


def test_a_server_runs_a_project_automatically(project: Project, spark: SparkSession) -> None:
    shop = kn.Workflow("shop")
    shop.channel("clicks", "user string")
    shop.view("per_user", "SELECT user, count(*) AS n FROM clicks GROUP BY user")
    counting = kn.Workflowette("counting")
    counting.channel("incoming", "user string")
    counting.view("total", "SELECT count(*) AS n FROM incoming")
    shop.bind("all_clicks", counting, {"incoming": "clicks"}, on=kn.after("per_user"))
    project.apply(shop)
    project.ingest("clicks", clicks_of(spark, "ann", "bob"))
    until(lambda: ended(project, "all_clicks"))
    assert rows(project, "per_user") == [("ann", 1), ("bob", 1)]
    assert rows(project, "all_clicks__total") == [(2,)]
    project.pause("per_user")
    project.ingest("clicks", clicks_of(spark, "ann"))
    project.fire("all_clicks")
    until(lambda: ended(project, "all_clicks", 2))
    assert rows(project, "per_user") == [("ann", 1), ("bob", 1)]
    assert rows(project, "all_clicks__total") == [(3,)]
    project.resume("per_user")
    until(lambda: ended(project, "per_user", 2) and ended(project, "all_clicks", 3))
    assert rows(project, "per_user") == [("ann", 2), ("bob", 1)]
    fired = [*project.reader.firings(100, "per_user"), *project.reader.firings(100, "all_clicks")]
    assert {firing.state for firing in fired} == {FiringState.SUCCEEDED}
    launched = {event.run for event in project.events() if event.kind is EventKind.LAUNCHED}
    assert launched >= {firing.run for firing in fired if firing.run is not None} > set()


def test_what_reads_the_same_is_merged_and_each_reports_for_itself(project: Project, spark: SparkSession) -> None:
    copies = kn.Workflowette("copies")
    copies.channel("rows", "user string")
    copies.channel("users", "user string")

    @copies.task(writes="users")
    def listed(rows: kn.All) -> kn.Base:
        print("the users are listed")
        return rows.distinct()

    failing = kn.Workflowette("failing")
    failing.channel("rows", "user string")
    failing.channel("users", "user string")

    @failing.task(writes="users")
    def broken(rows: kn.All) -> kn.Base:
        raise ValueError("no luck")

    merging = kn.Workflow("merging")
    merging.channel("seen", "user string")
    for name in ("one", "two"):
        merging.bind(name, copies, {"rows": "seen"}, on=kn.arrival("seen"), merge_window="1 second")
    merging.bind("three", failing, {"rows": "seen"}, on=kn.arrival("seen"), merge_window="1 minute")
    project.apply(merging)
    project.ingest("seen", clicks_of(spark, "ann", "bob", "ann"))
    until(lambda: all(ended(project, name) for name in ("one", "two", "three")))
    assert rows(project, "one__users") == rows(project, "two__users") == [("ann",), ("bob",)]
    found = {name: project.reader.firings(1, name)[0] for name in ("one", "two", "three")}
    assert {name: firing.state for name, firing in found.items()} == {
        "one": FiringState.SUCCEEDED,
        "two": FiringState.SUCCEEDED,
        "three": FiringState.FAILED,
    }
    assert (found["one"].attempts, found["three"].attempts) == (0, 1)  # what failed merged is tried again alone
    past = [each.run for each in project.runs(100)]
    first = {run.tasks: run for run in reversed(past) if run.tasks}
    one, two = first["one__listed",], first["two__listed",]
    assert one.ended is not None
    assert two.started < one.ended
    assert one.started < (two.ended or two.started)
    assert len([run for run in past if run.tasks == ("three__broken",)]) == 2
    logs = [project.log(run.number).text for run in (one, two)]
    assert "two__" not in logs[0]
    assert "one__" not in logs[1]
    assert sorted(log.count("__listed [stdout] the users are listed\n") for log in logs) == [0, 1]
    assert sorted(log.count("another run of the batch") for log in logs) == [0, 1]
    assert 'raise ValueError("no luck")' in project.log(first["three__broken",].number).text


SALES = b"""
import kilonova as kn

print("what code prints when it is loaded disturbs nobody")
sales = kn.Workflow("sales")
sales.channel("sold", "id bigint, item string", key="id")
sales.view("items", "SELECT item, count(*) AS n FROM sold GROUP BY item")
"""


def test_everything_can_be_done_by_http(client: httpx2.Client, tmp_path: Path) -> None:
    until(lambda: client.get("/ready").status_code == 200)
    [plan] = client.post("/api/v1/workflows?dry_run=true", content=SALES).json()
    assert [change["action"] for change in plan["tasks"]] == ["add"]
    assert client.get("/api/v1/channels/sold").status_code == 404
    assert client.post("/api/v1/workflows", content=SALES).json() == [plan]
    [again] = client.post("/api/v1/workflows", content=SALES).json()
    assert again["empty"]
    assert client.post("/api/v1/bindings/items/pause").status_code == 200
    sold = b"id;item\n1;book\n2;pen\n3;pen\n"
    run = client.post("/api/v1/channels/sold/blocks?name=sold.csv&option=sep=;", content=sold).json()["run"]
    [made] = client.get(f"/api/v1/runs/{run}").json()["made"]
    assert (made["rows"], made["reason"]) == (3, "ingested from sold.csv")
    assert client.get("/api/v1/tasks/items").json()["due"]
    place = client.post("/api/v1/runs?task=items&wait=false").headers["Location"]
    until(lambda: client.get(place).json()["state"] == "done")
    assert client.get("/api/v1/tasks/items").json()["due"] is None
    first = client.get("/api/v1/channels/items/rows")
    assert sorted(row["n"] for row in first.json()) == [1, 2]
    arrow = client.get("/api/v1/channels/items/rows?format=arrow&limit=1&offset=1").content
    assert pa.ipc.open_stream(arrow).read_all().num_rows == 1
    export = f"/api/v1/channels/items/exports?format=json&target={tmp_path / 'out'}"
    assert client.post(export).status_code == 200
    assert len(list((tmp_path / "out").glob("*.json"))) == 1
    assert client.post(export).json()["error"] == "settings"


def test_what_is_damaged_is_mended_by_http(client: httpx2.Client, project: Project) -> None:
    client.post("/api/v1/workflows", content=SALES.replace(b"sold", b"lent").replace(b"items", b"lent_items"))
    client.post("/api/v1/bindings/lent_items/pause")
    client.post("/api/v1/channels/lent/blocks?format=csv", content=b"id,item\n1,book\n2,pen\n").raise_for_status()
    client.post("/api/v1/runs?task=lent_items").raise_for_status()
    lost = [file_of(project, channel) for channel in ("lent", "lent_items")]
    lost[1].unlink()
    both = "/api/v1/verification?channel=lent&channel=lent_items"
    assert client.get(both).json()["damages"][0]["file"] == lost[1].name
    assert client.post(both).json() == {"blocks": 2, "mended": ["lent_items"], "left": []}
    assert client.get(both).json()["damages"] == []
    assert rows(project, "lent_items") == [("book", 1), ("pen", 1)]
    lost[0].unlink()
    place = client.post(f"{both}&wait=false").headers["Location"]
    until(lambda: client.get(place).json()["state"] == "done")
    [left] = client.get(place).json()["result"]["left"]
    assert left["channel"] == "lent"
    assert "ingest" in left["remedy"]


def test_an_upload_says_which_lines_do_not_fit(client: httpx2.Client) -> None:
    client.post("/api/v1/workflows", content=SALES.replace(b"sold", b"noted").replace(b"items", b"noted_items"))
    content = b"id,item\n1,book\ntwo,pen\nthree,cup\n"
    refused = client.post("/api/v1/channels/noted/blocks?format=csv", content=content)
    assert (refused.status_code, refused.json()["column"]) == (422, "id")
    assert refused.json()["problem"].startswith("line 3: 'two' is not of type bigint; 1 more line does not fit (line 4")
    allowed = "/api/v1/channels/noted/blocks?format=csv&option=mode=DROPMALFORMED"
    assert client.post(allowed, content=content).json()["malformed"] == 2


def test_a_repeated_ingest_is_answered_without_a_worker(client: httpx2.Client, project: Project) -> None:
    client.post("/api/v1/workflows", content=SALES.replace(b"sold", b"given").replace(b"items", b"given_items"))
    ingest = "/api/v1/channels/given/blocks?format=csv"
    headers = {"Idempotency-Key": "monday", "Authorization": client.headers["Authorization"]}
    content = b"id,item\n1,book\n"
    first = client.post(ingest, content=content, headers=headers).json()
    assert not first["repeated"]
    alone = TestClient(api(Slow(), project), base_url="http://localhost")
    assert alone.post(ingest, content=content, headers=headers).json() == {
        "run": first["run"],
        "repeated": True,
        "malformed": 0,
    }
    refused = alone.post(ingest, content=b"id,item\n2,pen\n", headers=headers)
    assert (refused.status_code, refused.json()["run"]) == (422, first["run"])
    assert rows(project, "given") == [(1, "book")]


def file_of(project: Project, channel: str) -> Path:
    """The only file of the only block of a channel."""
    with project.catalog.reading() as tx:
        [block] = channel_store.channel_state(tx, channel).blocks
    [file] = (project.directory / ".kilonova" / "warehouse" / block.name.directory).glob("part-*")
    return file


@pytest.mark.parametrize(
    ("format", "content", "error"),
    [
        ("csv", b"id,item\nx,book\n", "unreadable"),
        ("csv", b"\xff\xfe\x00", "unreadable"),
        ("json", b'{"id": 1, "item": ', "unreadable"),
        ("json", b'{"id": 1, "thing": "x"}', "schema"),
        ("parquet", b"PAR1 is not all that it takes", "unreadable"),
    ],
)
def test_unreadable_input_is_an_error_and_changes_nothing(
    client: httpx2.Client, format: str, content: bytes, error: str
) -> None:
    client.post("/api/v1/workflows", content=SALES.replace(b"sold", b"misread").replace(b"items", b"misread_items"))
    before = client.get("/api/v1/channels/misread").json()["rows"]
    answer = client.post(f"/api/v1/channels/misread/blocks?format={format}&name=monday.{format}", content=content)
    assert (answer.status_code, answer.json()["error"], answer.json()["channel"]) == (422, error, "misread")
    assert "kilonova-process-" not in answer.text
    failed = client.get("/api/v1/runs?state=failed&limit=1").json()[0]["run"]["number"]
    told = client.get(f"/api/v1/runs/{failed}").text + client.get(f"/api/v1/runs/{failed}/log").text
    assert "kilonova-process-" not in told
    assert f"monday.{format}" in told
    assert client.get("/api/v1/channels/misread").json()["rows"] == before


def test_user_code_cannot_take_the_server_down(
    project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firings, "ATTEMPTS", 2)
    trap = kn.Workflow("trap")
    trap.channel("bait", "user string")

    @trap.task
    def exits(bait: kn.New) -> kn.Delta:
        os._exit(3)

    @trap.task
    def hangs(bait: kn.New) -> kn.Delta:
        print("before it hangs")
        time.sleep(3600)
        return bait

    @trap.task
    def raises(bait: kn.New) -> kn.Delta:
        raise ValueError("no luck")

    @trap.task
    def greedy(bait: kn.New) -> kn.Delta:
        assert len(bytearray(3 << 30)) > 0
        return bait

    trap.view("fine", "SELECT count(*) AS n FROM bait")
    project.apply(trap)
    project.ingest("bait", clicks_of(spark, "ann"))
    names = ("exits", "hangs", "raises", "greedy", "fine")
    until(lambda: all(ended(project, name) for name in names), 240)
    found = {name: project.reader.firings(1, name)[0] for name in names}
    assert found.pop("fine").state is FiringState.SUCCEEDED
    assert {firing.state for firing in found.values()} == {FiringState.FAILED}
    assert found["exits"].attempts == 2
    assert found["hangs"].attempts == 0
    past = [each.run for each in project.runs(100)]
    said = {run.tasks: run.error for run in past if run.error}
    assert "no luck" in str(said["raises",])
    assert "MemoryError" in str(said["greedy",])
    assert "longer than" in str(said["hangs",])
    [hung] = [run.number for run in past if run.tasks == ("hangs",)]
    log = project.log(hung).text
    assert "hangs [stdout] before it hangs\n" in log
    assert log.splitlines()[-1].endswith(
        "run: abandoned: its process ended: it took longer than serve.run_timeout",
    )


def test_a_worker_ends_with_its_java_and_with_its_process_and_is_replaced(
    project: Project, client: httpx2.Client, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firings, "ATTEMPTS", 1)
    mine = kn.Workflow("mine")
    mine.channel("ore", "user string")

    @mine.task
    def headless(ore: kn.New) -> kn.Delta:
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        return ore

    @mine.task
    def survived(ore: kn.New) -> kn.Delta:
        if os.fork() == 0:
            os.setsid()
            time.sleep(120)
        os._exit(1)

    mine.view("ores", "SELECT count(*) AS n FROM ore")
    project.apply(mine)
    project.ingest("ore", clicks_of(spark, "ann"))
    until(lambda: all(ended(project, name) for name in ("headless", "survived", "ores")), 240)
    found = {name: project.reader.firings(1, name)[0] for name in ("headless", "survived")}
    assert {firing.state for firing in found.values()} == {FiringState.FAILED}
    assert {firing.attempts for firing in found.values()} == {1}
    until(lambda: client.get("/ready").status_code == 200, 120)
    assert rows(project, "ores") == [(1,)]


def test_a_run_that_is_cancelled_by_http_stops_and_its_worker_continues(
    served: Served, project: Project, client: httpx2.Client, spark: SparkSession, tmp_path: Path
) -> None:
    def sleeping(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            (tmp_path / "asleep").touch()
            while not (tmp_path / "wake").exists():
                time.sleep(0.05)
            yield batch

    slow = kn.Workflow("slow")
    slow.channel("pebbles", "user string")

    @slow.task(schema="user string")
    def weighed(pebbles: kn.New) -> kn.Delta:
        return pebbles.coalesce(1).mapInPandas(sleeping, "user string")

    slow.view("alarmed", "SELECT count(*) AS n FROM pebbles")
    slow.workflowette("alarm", ["alarmed"], on=kn.after("weighed", "failed"))
    project.apply(slow)
    until(lambda: free_workers(served.server) == 2, 240)  # or the limit of the run below would pass while one starts
    project.ingest("pebbles", clicks_of(spark, "ann"))
    until((tmp_path / "asleep").exists)
    [run] = [each.run for each in project.runs(10) if each.run.tasks == ("weighed",)]
    other = client.post("/api/v1/runs?task=weighed")
    assert (other.status_code, other.json()["error"]) == (409, "busy"), other.text
    answer = client.post(f"/api/v1/runs/{run.number}/cancel")
    assert (answer.status_code, answer.json()["run"]["state"]) == (200, "cancelled")
    until(lambda: "run: stopped" in client.get(f"/api/v1/runs/{run.number}/log").text, 10)
    assert client.get(f"/api/v1/runs/{run.number}/log").text.endswith("run: cancelled by tests\n")
    assert client.get("/ready").status_code == 200
    assert [firing.state for firing in project.reader.firings(10, "weighed")] == [FiringState.FAILED]
    assert project.reader.firings(10, "alarm") == []
    (tmp_path / "wake").touch()
    again = client.post(f"/api/v1/runs/{run.number}/retry")
    assert (again.status_code, [each["binding"] for each in again.json()]) == (202, ["weighed"])
    until(lambda: ended(project, "weighed", 2))
    assert rows(project, "weighed") == [("ann",)]
    assert {event.kind for event in project.events() if event.run == run.number} == {
        EventKind.LAUNCHED,
        EventKind.CANCELLED,
    }


def test_a_client_that_waits_for_a_run_learns_that_it_was_cancelled(
    project: Project, client: httpx2.Client, spark: SparkSession, tmp_path: Path
) -> None:
    lazy = kn.Workflow("lazy")
    lazy.channel("stones", "user string")

    @lazy.task(schema="user string")
    def waited(stones: kn.New) -> kn.Delta:
        (tmp_path / "asleep").touch()
        end = time.monotonic() + 15
        while not (tmp_path / "wake").exists() and time.monotonic() < end:
            time.sleep(0.05)
        return stones

    project.apply(lazy)
    project.pause("waited")
    project.ingest("stones", clicks_of(spark, "ann"))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.post, "/api/v1/runs?task=waited")
        until((tmp_path / "asleep").exists)
        [run] = [each.run for each in project.runs(10) if each.run.tasks == ("waited",)]
        assert client.post(f"/api/v1/runs/{run.number}/cancel").status_code == 200
        (tmp_path / "wake").touch()
        told = answer.result(30)
    assert (told.status_code, told.json()["error"], told.json()["run"]) == (409, "cancelled", run.number)
    assert "Retry-After" not in told.headers
    assert "cancelled by tests" in told.json()["problem"]


def test_an_upload_does_not_wait_until_a_run_ends(
    served: Served,
    project: Project,
    client: httpx2.Client,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "_SPARE", 1.0)
    full = kn.Workflow("full")
    full.channel("loads", "user string")
    full.channel("parcels", "id bigint")

    def waiting(loads: DataFrame) -> DataFrame:
        end = time.monotonic() + 40
        while not (tmp_path / "over").exists() and time.monotonic() < end:
            time.sleep(0.05)
        return loads

    @full.task(schema="user string")
    def left(loads: kn.New) -> kn.Delta:
        return waiting(loads)

    @full.task(schema="user string")
    def right(loads: kn.New) -> kn.Delta:
        return waiting(loads)

    def running() -> set[tuple[str, ...]]:
        return {each.run.tasks for each in project.runs(10) if each.run.state is RunState.RUNNING}

    project.apply(full)
    until(lambda: free_workers(served.server) == 2, 240)
    project.ingest("loads", clicks_of(spark, "ann"))
    until(lambda: running() == {("left",), ("right",)})
    client.post("/api/v1/channels/parcels/blocks?format=csv", content=b"id\n1\n").raise_for_status()
    assert rows(project, "parcels") == [(1,)]
    assert running() == {("left",), ("right",)}
    extra = served.server._workers[-1]
    until(lambda: extra not in served.server._workers)
    assert extra._process.returncode == 0  # it has stopped its Spark
    assert running() == {("left",), ("right",)}
    (tmp_path / "over").touch()
    until(lambda: ended(project, "left") and ended(project, "right"))
    assert rows(project, "left") == rows(project, "right") == [("ann",)]


def test_code_that_does_not_end_when_its_run_is_cancelled_is_ended(
    project: Project, client: httpx2.Client, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_OBEY", 0.5)
    deaf = kn.Workflow("deaf")
    deaf.channel("shouts", "user string")

    @deaf.task(schema="user string")
    def unheard(shouts: kn.New) -> kn.Delta:
        (tmp_path / "asleep").touch()
        time.sleep(600)
        return shouts

    project.apply(deaf)
    project.pause("unheard")
    project.ingest("shouts", clicks_of(spark, "ann"))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.post, "/api/v1/runs?task=unheard")
        until((tmp_path / "asleep").exists)
        [run] = [each.run for each in project.runs(10) if each.run.tasks == ("unheard",)]
        process = psutil.Process(int(run.owner.split(":")[-2]))
        assert client.post(f"/api/v1/runs/{run.number}/cancel").status_code == 200
        told = answer.result(30)
    assert (told.status_code, told.json()["error"]) == (409, "cancelled")
    assert "did not end" in told.json()["problem"]
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    assert project.run_detail(run.number).run.state is RunState.CANCELLED
    assert client.get("/api/v1/channels/shouts/rows").json() == [{"user": "ann"}]


def test_files_that_are_dropped_while_servers_run_are_taken_once(project: Project) -> None:
    post = kn.Workflow("post")
    post.channel(
        "orders",
        "id bigint",
        watch=kn.watched_directory("inbox", "*.csv", poll_interval="1 second", settle_time="1 second"),
    )
    post.view("counted", "SELECT count(*) AS n, sum(id) AS s FROM orders")
    project.apply(post)
    inbox = project.directory / "inbox"
    inbox.mkdir()

    def drop(number: int) -> None:
        (inbox / f"{number}.csv").write_text(f"id\n{number}\n" if number != 5 else "id\nfive\n")

    def taken() -> int:
        return sum(file.state is FileState.INGESTED for file in project.reader.files("orders", 100).files)

    with serving(project.directory, workers=1) as second:
        for number in range(5):
            drop(number)
        until(lambda: taken() == 5)
        second.stop()
        for number in range(5, 10):
            drop(number)
        until(lambda: taken() == 9 and project.reader.files("orders", state=FileState.QUARANTINED).files != ())
        until(lambda: "counted" not in project.due() and ended(project, "counted"))
        assert rows(project, "orders") == [(number,) for number in (0, 1, 2, 3, 4, 6, 7, 8, 9)]
        until(lambda: rows(project, "counted") == [(9, 40)])


@pytest.fixture
def unserved(tmp_path: Path, spark: SparkSession) -> Iterator[Project]:
    with open_project(tmp_path, session=spark) as project:
        project.create()
        yield project


def test_nothing_is_lost_or_doubled_when_who_gathers_is_killed(unserved: Project, tmp_path: Path) -> None:
    """A process that takes one file after the other is killed amid it, twice; another finishes."""
    project = unserved
    shop = kn.Workflow("shop")
    shop.channel("orders", "id bigint", watch=kn.watched_directory("inbox", settle_time="0 seconds"))
    project.apply(shop)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for number in range(40):
        (inbox / f"{number}.csv").write_text(f"id\n{number}\n")
    words = [sys.executable, "-m", "kilonova", "-C", str(tmp_path), "scan"]
    environment = {**os.environ, "KILONOVA_SCAN__MAX_FILES": "1", "KILONOVA_RUN_LEASE": "2"}
    for more in (3, 6):
        before = len(project.reader.files("orders", 100, FileState.INGESTED).files)
        with subprocess.Popen(words, env=environment, start_new_session=True, stdout=subprocess.DEVNULL) as process:
            until(lambda at=before + more: len(project.reader.files("orders", 100, FileState.INGESTED).files) >= at)
            os.killpg(process.pid, signal.SIGKILL)
        until(
            lambda: (
                project.resources.recover_expired_runs() is None and not project.reader.metrics().runs.get("running")
            )
        )
    while project.reader.files("orders", 100, FileState.READY).files:
        project.directories.ingest()
    assert rows(project, "orders") == [(number,) for number in range(40)]


def test_what_a_server_cannot_do_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(kn.KilonovaError, match="no catalog"):
        Server(tmp_path, {}, lambda text, event: None).run()
