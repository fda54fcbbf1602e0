"""`kilonova run` beside a server: the server executes what the command asks for, and the command reports it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.catalog import firings, runs, servers
from kilonova.catalog.firings import Claim
from kilonova.cli.server_runner import ServerRunner
from kilonova.engine.run_request import RunDue
from kilonova.errors import Cancelled, KilonovaError
from kilonova.model.firing import FiringState
from kilonova.model.run import RunKind, RunState
from kilonova.service.project import Project, open_project
from kilonova.service.runner import Interruption
from tests.databases import DIALECTS, empty_database
from tests.serving import until

RELEASE = version("kilonova")
LONG = timedelta(seconds=600)


def declared() -> kn.Workflow:
    shop = kn.Workflow("shop")
    shop.channel("orders", "id bigint")
    shop.channel("visits", "id bigint")
    shop.view("doubled", "SELECT 2 * id AS n FROM orders")
    shop.view("seen", "SELECT id FROM visits")
    shop.view("odd", "SELECT assert_true(id < 2) AS n FROM visits")
    shop.workflowette("both", ["doubled", "seen"])
    return shop


@pytest.fixture(params=DIALECTS)
def shop(tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Project]:
    """A project with a workflowette of two views, and new input of one of them."""
    with (
        empty_database(request.param) as url,
        open_project(tmp_path, catalog=url, session=spark, retry={"wait": 0}) as project,
    ):
        project.create()
        project.apply(declared())
        project.ingest("orders", spark.range(1, 3))
        yield project


def register(project: Project, release: str = RELEASE, lease: timedelta = LONG) -> None:
    """Register a server that does nothing."""
    with project.catalog.writing() as tx:
        servers.register(tx, "idle", release, lease)


def owners(project: Project) -> list[str]:
    return [each.run.owner for each in project.runs(10) if each.run.tasks]


@contextmanager
def played(project: Project) -> Iterator[None]:
    """A server that claims what is fired, and runs it."""
    register(project)
    ended = threading.Event()

    def play() -> None:
        while not ended.wait(0.05):
            for each in project.reader.firings(10, state=FiringState.QUEUED):
                claim = Claim(binding=each.binding, firings=(each.number,), server="idle")
                with project.catalog.writing() as tx:
                    firings.claim(tx, [claim], "idle")
                with suppress(KilonovaError):  # the run records it
                    project.runner.run_claim(claim)

    def leave(_: object) -> None:
        with project.catalog.writing() as tx:
            servers.deregister(tx, "idle")

    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(play)
        playing.add_done_callback(leave)  # or the command would wait for a server that has failed
        try:
            yield
        finally:
            ended.set()
            playing.result()


def test_a_server_runs_only_the_tasks_that_are_due(shop: Project) -> None:
    with played(shop):
        done = ServerRunner(shop).run_each()
    assert {made.channel for made in done.made} == {"doubled"}
    [firing] = shop.reader.firings(10)
    assert (firing.binding, firing.server, firing.run) == ("both", "idle", done.runs[0].run)


def test_a_server_runs_all_tasks_of_a_binding_that_is_named(shop: Project) -> None:
    with played(shop):
        done = ServerRunner(shop).run_each(["both"])
    assert {made.task for made in done.made} == {"doubled", "seen"}


def test_a_failure_on_the_server_is_that_of_its_binding(shop: Project) -> None:
    shop.ingest("visits", shop.warehouse.spark.range(1, 3))
    with played(shop):
        done = ServerRunner(shop).run_each()
    assert {made.channel for made in done.made} == {"doubled", "seen"}
    [(binding, error)] = done.failed.items()
    assert binding == "odd"
    assert "is not true" in error.problem
    assert error.run is not None


def test_without_a_server_that_can_run_it_the_command_does(shop: Project) -> None:
    register(shop, release="0.0.1")
    assert ServerRunner(shop).run_each().runs
    assert owners(shop) == [shop.resources.owner]
    assert shop.reader.firings(10) == []


def test_some_tasks_of_a_binding_are_run_by_the_command(shop: Project) -> None:
    register(shop)
    assert ServerRunner(shop).run_each(["doubled"]).runs
    assert shop.reader.firings(10) == []


@pytest.mark.parametrize("claimed", [False, True])
def test_a_server_that_dies_is_not_waited_for(shop: Project, claimed: bool) -> None:
    register(shop, lease=timedelta(seconds=2))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(ServerRunner(shop).run_each)
        until(lambda: bool(shop.reader.firings(10)))
        if claimed:
            with shop.catalog.writing() as tx:
                [firing] = firings.firings(tx, 10)
                firings.claim(tx, [Claim(binding="both", firings=(firing.number,), server="idle")], "idle")
        assert {made.channel for made in done.result().made} == {"doubled"}
    assert owners(shop) == [shop.resources.owner]
    assert shop.reader.firings(10) == []


def test_what_no_server_has_begun_is_withdrawn_when_the_user_interrupts(shop: Project) -> None:
    register(shop)
    interruption = Interruption(shop.catalog)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(ServerRunner(shop).execute, RunDue(("doubled", "seen")), interruption)
        until(lambda: bool(shop.reader.firings(10)))
        interruption.interrupt()
        with pytest.raises(Cancelled):
            done.result()
    assert shop.reader.firings(10) == []
    assert owners(shop) == []


def test_what_a_server_has_begun_is_cancelled_when_the_user_interrupts(shop: Project) -> None:
    register(shop)
    interruption = Interruption(shop.catalog)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(ServerRunner(shop).execute, RunDue(("doubled", "seen")), interruption)
        until(lambda: bool(shop.reader.firings(10)))
        with shop.catalog.writing() as tx:
            [firing] = firings.firings(tx, 10)
            claim = Claim(binding="both", firings=(firing.number,), server="idle")
            firings.claim(tx, [claim], "idle")
            run, _ = runs.start(
                tx, kind=RunKind.TASKS, tasks=["doubled"], writes=["doubled"], owner="idle", lease=LONG, binding="both"
            )
            firings.launch(tx, [(claim, run)])
        interruption.interrupt()
        with pytest.raises(Cancelled):
            done.result()
    assert shop.run_detail(run).run.state is RunState.CANCELLED
    assert [each.state for each in shop.reader.firings(10)] == [FiringState.FAILED]


COMMAND = """
import sys
from kilonova.cli import main
try:
    main(sys.argv[1:])
finally:
    print("pyspark" in sys.modules, file=sys.stderr)
"""


def test_a_command_in_a_process_of_its_own_needs_no_spark_beside_a_server(tmp_path: Path, spark: SparkSession) -> None:
    environment = {**os.environ, "KILONOVA_SPARK__MASTER": "local[2]"}
    with open_project(tmp_path, session=spark) as project:
        project.create()
        project.apply(declared())
        project.ingest("orders", spark.range(1, 3))

        def kilonova(*words: str) -> subprocess.CompletedProcess[str]:
            script = [sys.executable, "-c", COMMAND, *words]
            return subprocess.run(
                script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
            )

        serve = [sys.executable, "-m", "kilonova", "serve", "--port", "0", "--workers", "1"]
        with subprocess.Popen(serve, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as server:
            try:
                until(lambda: bool(project.reader.servers(1)))
                ended = kilonova("run", "both")
                assert ended.returncode == 0, ended
                assert "doubled" in ended.stdout
                name = project.reader.servers(1)[0].server.name
                assert f"The server {name} runs it" in ended.stderr
                assert ended.stderr.endswith("False\n")
                again = kilonova("run", "--json")
                nothing = {"runs": [], "failed": {}, "quarantined": {}}
                assert (again.returncode, json.loads(again.stdout)) == (3, nothing), again
            finally:
                server.send_signal(signal.SIGTERM)
