"""Servers with real workers: a project that runs by itself, and user code that takes its process with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import kilonova as kn
from kilonova.model.event import Event, EventKind
from kilonova.model.file import FileState
from kilonova.model.firing import FiringState
from kilonova.server.loop import Server
from kilonova.service.project import Project


@contextmanager
def serving(place: Path, **settings: object) -> Iterator[Server]:
    """A server over a project, until the end of the block."""
    said: list[str] = []

    def log(text: str, _event: Event | None) -> None:
        said.append(text)

    server = Server(place, {"serve": {"workers": 1, "grace": 5.0, **settings}, "spark": {"master": "local[2]"}}, log)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(60)
        print("\n".join(said))
        assert not thread.is_alive()


def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to it in time"
        time.sleep(0.05)


def ended(project: Project, binding: str, times: int = 1) -> bool:
    firings = project.operation(100, binding).firings
    return sum(firing.state.ended for firing in firings) >= times and all(firing.state.ended for firing in firings)


def rows(project: Project, channel: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in project.rows(channel)[1])


def clicks_of(spark: SparkSession, *users: str) -> DataFrame:
    return spark.createDataFrame([(user,) for user in users], "user string")


def test_a_project_runs_by_itself(project: Project, spark: SparkSession, tmp_path: Path) -> None:
    shop = kn.Workflow("shop")
    shop.channel("clicks", "user string")
    shop.view("per_user", "SELECT user, count(*) AS n FROM clicks GROUP BY user")
    counting = kn.Workflowette("counting")
    counting.channel("incoming", "user string")
    counting.view("total", "SELECT count(*) AS n FROM incoming")
    shop.bind("all_clicks", counting, {"incoming": "clicks"}, on=kn.after("per_user"))
    project.apply(shop)
    project.ingest("clicks", clicks_of(spark, "ann", "bob"))
    with serving(tmp_path):
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
        firings = project.operation(100).firings
        assert {firing.state for firing in firings} == {FiringState.SUCCEEDED, FiringState.IDLE}
        late = _latencies(project)
        assert late, "no run was launched for an arrival"
    assert [server.state for server in project.operation().servers] == ["stopped"]


def test_what_reads_the_same_is_merged_and_each_reports_for_itself(
    project: Project, spark: SparkSession, tmp_path: Path
) -> None:
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

    shop = kn.Workflow("shop")
    shop.channel("clicks", "user string")
    for name in ("one", "two"):
        shop.bind(name, copies, {"rows": "clicks"}, on=kn.arrival("clicks"), mergeable="2 seconds")
    shop.bind("three", failing, {"rows": "clicks"}, on=kn.arrival("clicks"), mergeable="1 minute")
    project.apply(shop)
    project.ingest("clicks", clicks_of(spark, "ann", "bob", "ann"))
    with serving(tmp_path):
        until(lambda: all(ended(project, name) for name in ("one", "two", "three")))
    assert rows(project, "one__users") == rows(project, "two__users") == [("ann",), ("bob",)]
    found = {firing.binding: firing for firing in project.operation(100).firings}
    assert {name: firing.state for name, firing in found.items()} == {
        "one": FiringState.SUCCEEDED,
        "two": FiringState.SUCCEEDED,
        "three": FiringState.FAILED,
    }
    assert (found["one"].attempts, found["three"].attempts) == (0, 1)  # what failed merged is tried again alone
    history, _ = project.history()
    first = {run.tasks: run for run in reversed(history) if run.tasks}
    one, two = first["one__listed",], first["two__listed",]
    assert one.ended is not None
    assert two.started < one.ended
    assert one.started < (two.ended or two.started)
    assert len([run for run in history if run.tasks == ("three__broken",)]) == 2
    for run, task, other in ((one, "one__listed", "two__"), (two, "two__listed", "one__")):
        log = project.log(run.number).text
        assert log.count(f"{task} [stdout] the users are listed\n") == 1
        assert other not in log
    assert 'raise ValueError("no luck")' in project.log(first["three__broken",].number).text


def _latencies(project: Project) -> list[float]:
    """Seconds from a firing to the launch of its run."""
    events = project.events()
    launched = {event.run: event.time for event in events if event.kind is EventKind.LAUNCHED}
    return [
        (launched[firing.run] - firing.time).total_seconds()
        for firing in project.operation(100).firings
        if firing.run is not None
    ]


def test_user_code_cannot_take_the_server_down(project: Project, spark: SparkSession, tmp_path: Path) -> None:
    trap = kn.Workflow("trap")
    trap.channel("clicks", "user string")

    @trap.task
    def exits(clicks: kn.New) -> kn.Delta:
        os._exit(3)

    @trap.task
    def hangs(clicks: kn.New) -> kn.Delta:
        print("before it hangs")
        time.sleep(3600)
        return clicks

    @trap.task
    def raises(clicks: kn.New) -> kn.Delta:
        raise ValueError("no luck")

    @trap.task
    def greedy(clicks: kn.New) -> kn.Delta:
        assert len(bytearray(3 << 30)) > 0
        return clicks

    trap.view("fine", "SELECT count(*) AS n FROM clicks")
    project.apply(trap)
    project.ingest("clicks", clicks_of(spark, "ann"))
    with serving(tmp_path, seconds=25.0, memory=2000):
        until(lambda: all(ended(project, name) for name in ("exits", "hangs", "raises", "greedy", "fine")), 240)
    states = {firing.binding: firing.state for firing in project.operation(100).firings}
    assert states.pop("fine") is FiringState.SUCCEEDED
    assert states == dict.fromkeys(states, FiringState.FAILED)
    attempts = {firing.binding: firing.attempts for firing in project.operation(100).firings}
    assert attempts["exits"] > 1
    assert attempts["hangs"] == 0
    runs, _ = project.history()
    said = {run.tasks: run.error for run in runs if run.error}
    assert "no luck" in str(said["raises",])
    assert "MemoryError" in str(said["greedy",])
    assert "longer than" in str(said["hangs",])
    [hung] = [run.number for run in runs if run.tasks == ("hangs",)]
    log = project.log(hung).text
    assert "hangs [stdout] before it hangs\n" in log
    assert log.splitlines()[-1].endswith("run: abandoned: its process ended: it took longer than serve.seconds allows")


def test_files_that_are_dropped_while_servers_run_are_taken_once(project: Project, tmp_path: Path) -> None:
    shop = kn.Workflow("shop")
    shop.channel("orders", "id bigint", watch=kn.directory("inbox", "*.csv", every="1 second", settle="1 second"))
    shop.view("counted", "SELECT count(*) AS n, sum(id) AS s FROM orders")
    project.apply(shop)
    inbox = tmp_path / "inbox"
    inbox.mkdir()

    def drop(number: int) -> None:
        (inbox / f"{number}.csv").write_text(f"id\n{number}\n" if number != 5 else "id\nfive\n")

    def taken() -> int:
        return sum(file.state is FileState.TAKEN for file in project.files("orders", 100).files)

    with serving(tmp_path), serving(tmp_path) as second:
        for number in range(5):
            drop(number)
        until(lambda: taken() == 5)
        second.stop()
        for number in range(5, 10):
            drop(number)
        until(lambda: taken() == 9 and project.files("orders", state=FileState.ASIDE).files != ())
        until(lambda: not project.due() and ended(project, "counted"))
        assert rows(project, "orders") == [(number,) for number in (0, 1, 2, 3, 4, 6, 7, 8, 9)]
        until(lambda: rows(project, "counted") == [(9, 40)])


def test_nothing_is_lost_or_doubled_when_who_gathers_is_killed(project: Project, tmp_path: Path) -> None:
    """A process that takes one file after the other is killed amid it, twice; another finishes."""
    shop = kn.Workflow("shop")
    shop.channel("orders", "id bigint", watch=kn.directory("inbox", settle="0 seconds"))
    project.apply(shop)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for number in range(40):
        (inbox / f"{number}.csv").write_text(f"id\n{number}\n")
    words = [sys.executable, "-m", "kilonova", "-C", str(tmp_path), "gather"]
    environment = {**os.environ, "KILONOVA_GATHER__FILES": "1", "KILONOVA_LEASE": "2"}
    for more in (3, 6):
        before = len(project.files("orders", 100, FileState.TAKEN).files)
        with subprocess.Popen(words, env=environment, start_new_session=True, stdout=subprocess.DEVNULL) as process:
            until(lambda at=before + more: len(project.files("orders", 100, FileState.TAKEN).files) >= at)
            os.killpg(process.pid, signal.SIGKILL)
    until(lambda: project.take_up() is None and not project.counts().runs.get("running"))
    while project.files("orders", 100, FileState.READY).files:
        project.gather()
    assert rows(project, "orders") == [(number,) for number in range(40)]


def test_what_a_server_cannot_do_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(kn.KilonovaError, match="no catalog"):
        Server(tmp_path, {}, lambda text, event: None).run()
