"""The loop of a server with workers that are played: what it gives to whom, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kilonova.catalog import (
    bindings,
    channel_registry,
    channel_store,
    deferred,
    events,
    files,
    firings,
    registry,
    runs,
    scheduling,
    servers,
    tables,
)
from kilonova.catalog.database import Transaction
from kilonova.catalog.firings import Batch, Claim
from kilonova.errors import CatalogUnavailable
from kilonova.model.binding import Binding
from kilonova.model.block import Delta
from kilonova.model.compaction_policy import MaxDeltas
from kilonova.model.encoding import Upsert
from kilonova.model.event import Event, EventKind
from kilonova.model.firing import FiringState
from kilonova.model.run import RunInput, RunKind
from kilonova.model.task import Mode
from kilonova.model.trigger import ArrivalTrigger
from kilonova.model.version import Version
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.schedule import queueing
from kilonova.schedule.run_scope import RunScope
from kilonova.schedule.scheduler import Decision, Observation, ScheduledBatch, Scheduler, TriggerScheduler
from kilonova.scheduler import loop
from kilonova.scheduler.loop import Server
from kilonova.scheduler.messages import (
    BatchEnded,
    Dismissal,
    FiringOutcome,
    Message,
    OperationDone,
    OperationFailure,
    OperationRequest,
    Work,
    WorkerReady,
    decode,
    encode,
)
from kilonova.scheduler.workers import Worker
from kilonova.service.project import Project, open_project
from kilonova.service.spark_operations import OperationFailed
from kilonova.service.watched_directories import WatchedDirectories
from tests.catalog.building import LEASE, a_block, a_channel, a_task, an_output, begin, claim_batches, commit, ingested
from tests.receiver import receiving


class Player(Worker):
    """A worker that notes what it is given, and says what it is told to."""

    def __init__(self, heard: Callable[[Worker, Message | None], None], *, ready: bool) -> None:
        self._heard = heard
        self.given: list[Work | Dismissal] = []
        self.doing, self.answer, self.since, self.killed, self.ready = None, None, 0.0, "", False
        if ready:
            self.start()

    @property
    def owner(self) -> str:
        return f"player {id(self)}"

    def give(self, work: Work | Dismissal, answer: Future[Any] | None = None) -> None:
        self.given.append(work)
        self.doing, self.answer, self.since = work, answer, time.monotonic()

    def say(self, message: Message | None) -> None:
        self._heard(self, message)

    def start(self) -> None:
        self.ready = True
        self.say(WorkerReady())

    def done(self, result: object = None) -> None:
        self.say(OperationDone(result))

    def kill(self, why: str) -> None:
        if not self.killed:
            self.killed = why
            self.say(None)


class Stage:
    """A server over a project, and its workers."""

    def __init__(self, project: Project, scheduler: Scheduler | None = None, **settings: Any) -> None:
        self.project = project
        self.players: list[Player] = []
        self.prompt = True  # whether workers are ready at once
        serve = {"workers": 1, "extra_worker": False, "lease": 1.5, "shutdown_grace": 0.0, "maintenance_interval": 0.0}
        given = {"serve": {**serve, **settings}}
        self.server = Server(
            project.directory,
            given,
            lambda text, event: None,
            hire=self._hired,
            scheduler=scheduler or TriggerScheduler(),
        )

    def _hired(self, directory: Path, settings: Any, heard: Callable[[Worker, Message | None], None]) -> Worker:
        self.players.append(Player(heard, ready=self.prompt))
        return self.players[-1]

    def given(self) -> list[Work | Dismissal]:
        return [work for player in self.players for work in player.given]

    def until_given(self, count: int) -> Work | Dismissal:
        until(lambda: len(self.given()) >= count)
        return self.given()[count - 1]

    def until_claimed(self, count: int) -> Claim:
        """The only part of the batch that a worker is given."""
        batch = self.until_given(count)
        assert isinstance(batch, Batch)
        [part] = batch.claims
        return part


@contextmanager
def playing(project: Project, scheduler: Scheduler | None = None, **settings: Any) -> Iterator[Stage]:
    stage = Stage(project, scheduler, **settings)
    thread = threading.Thread(target=stage.server.run)
    thread.start()
    try:
        yield stage
    finally:
        stage.server.stop()
        thread.join(20)
        assert not thread.is_alive()


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to it in time"
        time.sleep(0.01)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with open_project(tmp_path, spark={"analyse": False}) as fresh:
        fresh.create()
        with fresh.catalog.writing() as tx:
            channel_registry.add_channels(tx, [a_channel("clicks", Upsert(("id",)))], "w")
            for name in "ab":
                channel_registry.add_channels(tx, [a_channel(f"{name}_out")], "w")
                registry.put_task(tx, a_task(f"{name}_task", {"clicks": Mode.NEW}, (f"{name}_out",)), "w")
            bindings.put(
                tx,
                "w",
                [
                    Binding(name=name, tasks=(f"{name}_task",), triggers=(ArrivalTrigger(channel="clicks"),))
                    for name in "ab"
                ],
            )
        yield fresh


def states(project: Project) -> list[str]:
    return sorted(firing.state.value for firing in project.reader.firings(100))


def test_what_fires_is_given_to_who_is_free_and_the_rest_waits(project: Project) -> None:
    with playing(project, workers=1) as stage:
        ingested(project.catalog, "clicks")
        first = stage.until_claimed(1)
        time.sleep(0.2)
        assert len(stage.given()) == 1
        assert states(project) == ["claimed", "queued"]
        with project.catalog.writing() as tx:
            firings.skip(tx, first, "nothing to do")
        stage.players[0].say(BatchEnded((FiringOutcome(),)))
        second = stage.until_claimed(2)
        assert {first.binding, second.binding} == {"a", "b"}
    assert states(project) == ["queued", "skipped"]  # what was not begun is handed back


def test_what_was_claimed_without_the_server_knowing_is_claimed_again(project: Project) -> None:
    with playing(project, workers=2, lease=0.6) as stage:
        until(lambda: bool(stage.server.name))
        with project.catalog.writing() as tx:
            firings.fire_manually(tx, "a", "me")
            [[batch], _] = claim_batches(tx, stage.server.name, 9)
        assert stage.until_claimed(1) == batch.claims[0]


def test_pending_evaluations_are_made_when_the_database_is_back(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = scheduling.store, []

    def store(tx: Transaction, decision: Decision, server: str) -> list[Batch]:
        if decision.queued and len(failures) < 2:
            failures.append(decision.queued)
            raise CatalogUnavailable("the connection was lost")
        return real(tx, decision, server)

    with playing(project, workers=2) as stage:
        until(lambda: len(stage.players) == 2)
        time.sleep(0.2)
        monkeypatch.setattr(scheduling, "store", store)
        ingested(project.catalog, "clicks")
        assert {stage.until_claimed(number).binding for number in (1, 2)} == {"a", "b"}
    assert len(failures) == 2


class Hoarder:
    """A scheduler that starts nothing before some firings wait, and then leaves later input for later."""

    def __init__(self, firings: int) -> None:
        self._firings = firings

    def decide(self, observation: Observation) -> Decision:
        decision = TriggerScheduler().decide(observation)
        if len(observation.queued) + len(decision.queued) < self._firings:
            return replace(decision, batches=(), next_check=None)
        held_back = tuple(
            ScheduledBatch(tuple(replace(run, scope=RunScope(until={"clicks": 3})) for run in batch.runs))
            for batch in decision.batches
        )
        return replace(decision, batches=held_back)


def test_a_server_starts_what_its_scheduler_decides(project: Project) -> None:
    project.pause("b")
    with playing(project, Hoarder(10), workers=1) as stage:
        for number in range(1, 11):
            time.sleep(0.1)
            assert stage.given() == []
            ingested(project.catalog, "clicks")
            until(lambda number=number: len(states(project)) == number)
        claimed = stage.until_claimed(1)
        assert (claimed.binding, len(claimed.firings), claimed.scope.until) == ("a", 10, {"clicks": 3})
        assert decode(encode(Batch((claimed,)))) == Batch((claimed,))


def test_a_server_that_cannot_write_the_catalog_is_not_ready(project: Project) -> None:
    with playing(project, lease=1.0) as stage:
        until(lambda: stage.server.impediment is None)
        with project.catalog.writing():
            until(lambda: isinstance(stage.server.impediment, CatalogUnavailable))
        until(lambda: stage.server.impediment is None)


def test_maintenance_reaches_every_channel_and_garbage_whatever_fails(project: Project) -> None:
    for name in "ab":
        project.pause(name)
        project.operator.set_policy(f"{name}_out", MaxDeltas(deltas=1))
        ingested(project.catalog, f"{name}_out")
    with playing(project, maintenance_interval=0.05) as stage:
        given = []
        for number in range(1, 5):
            operation = stage.until_given(number)
            assert isinstance(operation, OperationRequest)
            given.append(operation.arguments["channel"])
            stage.players[0].say(OperationFailure({"error": "storage", "problem": "the disk is full"}))
    assert given == ["a_out", "b_out", None, "a_out"]


def test_maintenance_is_done_though_a_server_is_always_busy(project: Project) -> None:
    project.pause("b")
    ingested(project.catalog, "clicks")
    with playing(project, workers=2, maintenance_interval=0.05) as stage:
        until(lambda: len(stage.given()) == 2)
        assert sum(isinstance(work, Batch) for work in stage.given()) == 1  # which never ends
        assert OperationRequest("maintain", {"channel": None}) in stage.given()


def test_operations_go_first_and_are_answered(project: Project) -> None:
    with playing(project) as stage:
        until(lambda: bool(stage.players))
        answer = stage.server.operation("page", channel="clicks")
        assert stage.until_given(1) == OperationRequest("page", {"channel": "clicks"})
        stage.players[0].say(OperationDone([1, "x"]))
        assert answer.result(5) == [1, "x"]
        other = stage.server.operation("page", channel="nowhere")
        stage.until_given(2)
        stage.players[0].say(OperationFailure({"error": "unknown", "problem": "no such channel"}))
        with pytest.raises(OperationFailed, match="no such channel"):
            other.result(5)
        third = stage.server.operation("page", channel="clicks")
        stage.until_given(3)
        stage.players[0].kill("it broke")
        with pytest.raises(OperationFailed, match="it broke"):
            third.result(5)
        until(lambda: len(stage.players) == 2)


def test_operations_are_cancelled(project: Project) -> None:
    with playing(project) as stage:
        until(lambda: bool(stage.players))
        first, second = (stage.server.operation("preview", verify=each) for each in (True, False))
        stage.until_given(1)
        later = stage.server.operation("preview")
        assert stage.server.before(later) == 2
        assert second.cancel()
        assert stage.server.before(later) == 1
        assert later.cancel()
        stage.server.cancel(first)
        with pytest.raises(OperationFailed, match="the operation was cancelled") as failed:
            first.result(5)
        assert failed.value.content["error"] == "cancelled"
        until(lambda: len(stage.players) == 2)  # another worker has replaced it
        third = stage.server.operation("preview")
        assert stage.until_given(2) == OperationRequest("preview", {})
        stage.players[1].done("seen")
        assert third.result(5) == "seen"
        stage.server.cancel(third)
        assert third.result() == "seen"


def test_pages_come_after_what_has_fired(project: Project) -> None:
    with playing(project) as stage:
        until(lambda: bool(stage.players))
        stage.server.operation("run", tasks=["x"])
        stage.until_given(1)
        pages = [stage.server.operation("page", channel="clicks") for _ in range(5)]
        assert [stage.server.before(page) for page in pages] == [1, 2, 3, 4, 5]
        other = stage.server.operation("run", tasks=["y"])
        assert (stage.server.before(other), stage.server.before(pages[0])) == (1, 2)
        assert other.cancel()
        ingested(project.catalog, "clicks")
        until(lambda: len(states(project)) == 2)
        stage.players[0].say(OperationDone(None))
        assert isinstance(stage.until_given(2), Batch)
        assert not any(page.running() for page in pages)


def test_pages_leave_a_worker_to_others(project: Project) -> None:
    with playing(project, workers=3) as stage:
        until(lambda: len(stage.players) == 3)
        pages = [stage.server.operation("page", channel="clicks") for _ in range(5)]
        stage.until_given(2)
        stage.server.operation("run", tasks=["x"])
        until(lambda: len(stage.given()) == 3)
        assert sorted(work.what for work in stage.given() if isinstance(work, OperationRequest)) == [
            "page",
            "page",
            "run",
        ]
        assert sum(page.running() for page in pages) == 2


def test_a_page_that_waits_for_too_long_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with playing(project) as stage:
        until(lambda: bool(stage.players))
        stage.server.operation("run", tasks=["x"])
        stage.until_given(1)
        monkeypatch.setattr(loop, "_PATIENCE", 0.0)
        with pytest.raises(OperationFailed, match="no worker was free") as told:
            stage.server.operation("page", channel="clicks").result(20)
        assert told.value.content["error"] == "spark"


def test_an_operation_of_a_disconnected_client_is_skipped(project: Project) -> None:
    with playing(project) as stage:
        until(lambda: bool(stage.players))
        first = stage.server.operation("page", channel="clicks")
        stage.until_given(1)
        assert not first.cancel()
        second, third = stage.server.operation("run", tasks=["a"]), stage.server.operation("run", tasks=["b"])
        assert second.cancel()
        stage.players[0].say(OperationDone([1, "x"]))
        assert first.result(5) == [1, "x"]
        assert stage.until_given(2) == OperationRequest("run", {"tasks": ["b"]})
        stage.players[0].say(OperationDone(None))
        assert third.result(5) is None


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extra workers are started at once, and dismissed only when a test says so."""
    monkeypatch.setattr(loop, "_STALL", 0.05)
    monkeypatch.setattr(loop, "_SPARE", 3600.0)


def busy_with_runs(project: Project, stage: Stage) -> None:
    """Wait until each worker executes a run, and fire the bindings again."""
    ingested(project.catalog, "clicks")
    until(lambda: [type(player.doing) for player in stage.players] == [Batch] * len(stage.players) != [])
    ingested(project.catalog, "clicks")
    until(lambda: len(states(project)) == 4)


@pytest.mark.usefixtures("hurried")
def test_uploads_do_not_wait_for_runs_which_are_no_more_than_before(project: Project) -> None:
    with playing(project, extra_worker=True) as stage:
        busy_with_runs(project, stage)
        assert len(stage.players) == 1
        run = stage.server.operation("run", tasks=["x"])
        time.sleep(0.2)
        assert len(stage.players) == 1  # a run waits for the others
        upload, page = stage.server.operation("ingest", channel="clicks"), stage.server.operation("page", channel="x")
        until(lambda: len(stage.players) == 2 and upload.running())
        [regular, extra] = stage.players
        assert extra.doing == OperationRequest("ingest", {"channel": "clicks"})
        assert (stage.server.before(page), stage.server.before(run)) == (1, 2)
        extra.done({"run": 7})
        assert upload.result(5) == {"run": 7}
        until(page.running)
        extra.done([1, "x"])
        until(lambda: extra.doing is None)
        time.sleep(0.2)
        assert extra.given[2:] == []  # neither the operation that is a run nor one of the firings
        assert not run.running()
        regular.say(BatchEnded((FiringOutcome({"error": "declaration", "problem": "it cannot be"}),)))
        until(run.running)
        time.sleep(0.2)
        assert sum(player.doing is not None for player in stage.players) == 1
        assert len(stage.players) == 2


@pytest.mark.usefixtures("hurried")
def test_all_workers_execute_runs_while_an_extra_one_has_an_upload(project: Project) -> None:
    with playing(project, workers=2, extra_worker=True) as stage:
        busy_with_runs(project, stage)
        stage.server.operation("ingest", channel="clicks")
        until(lambda: len(stage.players) == 3 and stage.players[2].doing is not None)
        stage.players[0].kill("it broke")
        until(lambda: len(stage.players) == 4 and isinstance(stage.players[3].doing, Batch))
        assert [type(player.doing) for player in stage.players[1:]] == [Batch, OperationRequest, Batch]


@pytest.mark.usefixtures("hurried")
def test_an_extra_worker_is_dismissed_when_it_is_not_needed_and_returns_when_it_is(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with playing(project, extra_worker=True, lease=0.6) as stage:
        busy_with_runs(project, stage)
        upload = stage.server.operation("ingest", channel="clicks")
        until(lambda: len(stage.players) == 2 and upload.running())
        extra = stage.players[1]
        monkeypatch.setattr(loop, "_SPARE", 0.3)
        time.sleep(1.0)
        assert not any(isinstance(work, Dismissal) for work in stage.given())  # it is busy
        extra.done()
        until(lambda: isinstance(extra.doing, Dismissal))
        again = stage.server.operation("ingest", channel="clicks")
        extra.kill("its process ended")  # as it was told to
        until(lambda: len(stage.players) == 3 and again.running())
        assert isinstance(stage.players[0].doing, Batch)
        assert stage.players[0].killed == ""
        assert {firing.attempts for firing in project.reader.firings(100)} == {0}


@pytest.mark.usefixtures("hurried")
def test_an_extra_worker_that_starts_slowly_is_needed_all_the_same(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_SPARE", 0.1)
    with playing(project, extra_worker=True, lease=0.6) as stage:
        busy_with_runs(project, stage)
        stage.prompt = False
        upload = stage.server.operation("ingest", channel="clicks")
        until(lambda: len(stage.players) == 2)
        time.sleep(1.0)
        stage.players[1].start()
        until(upload.running)
        assert stage.players[1].given == [OperationRequest("ingest", {"channel": "clicks"})]


@pytest.mark.usefixtures("hurried")
def test_an_extra_worker_that_does_not_end_is_killed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_OBEY", 0.1)
    monkeypatch.setattr(loop, "_SPARE", 0.2)
    with playing(project, extra_worker=True, lease=0.6) as stage:
        busy_with_runs(project, stage)
        upload = stage.server.operation("ingest", channel="clicks")
        until(lambda: len(stage.players) == 2 and upload.running())
        stage.players[1].done()
        until(lambda: stage.players[1].killed != "")
        assert isinstance(stage.players[1].doing, Dismissal)
        assert stage.players[0].killed == ""
        time.sleep(0.2)
        assert len(stage.players) == 2


@pytest.mark.usefixtures("hurried")
def test_an_upload_of_an_extra_worker_that_ends_is_answered_and_another_is_started(project: Project) -> None:
    with playing(project, extra_worker=True) as stage:
        busy_with_runs(project, stage)
        first, second = (stage.server.operation("ingest", channel="clicks") for _ in range(2))
        until(lambda: len(stage.players) == 2 and first.running())
        stage.players[1].kill("it broke")
        with pytest.raises(OperationFailed, match="it broke") as told:
            first.result(5)
        assert told.value.content["error"] == "spark"
        until(lambda: len(stage.players) == 3 and second.running())
        stage.players[2].done({"run": 7})
        assert second.result(5) == {"run": 7}
        assert isinstance(stage.players[0].doing, Batch)


@pytest.mark.usefixtures("hurried")
def test_a_server_that_is_stopped_waits_for_its_extra_worker(project: Project) -> None:
    with playing(project, extra_worker=True, shutdown_grace=60.0) as stage:
        busy_with_runs(project, stage)
        upload, late = (stage.server.operation("ingest", channel="clicks") for _ in range(2))
        until(lambda: len(stage.players) == 2 and upload.running())
        stage.server.stop()
        stage.players[0].say(BatchEnded((FiringOutcome(),)))
        time.sleep(0.2)
        assert stage.players[1].killed == ""
        stage.players[1].done({"run": 7})
        assert upload.result(5) == {"run": 7}
        with pytest.raises(OperationFailed, match="the server was stopped"):
            late.result(20)


def test_a_server_can_do_without_an_extra_worker(project: Project, hurried: None) -> None:
    with playing(project) as stage:
        busy_with_runs(project, stage)
        upload = stage.server.operation("ingest", channel="clicks")
        time.sleep(0.2)
        assert stage.server.before(upload) == 1
        assert len(stage.players) == 1


def test_a_server_without_room_waits_for_a_worker_and_not_for_a_time_that_is_past(project: Project) -> None:
    with project.catalog.writing() as tx:
        for name in "ab":
            tx.connection.execute(
                tables.binding.update()
                .where(tables.binding.c.name == name)
                .values(merge_window=0.5 if name == "b" else None)
            )
    with playing(project, lease=60.0) as stage:
        ingested(project.catalog, "clicks")
        assert stage.until_claimed(1).binding == "a"
        time.sleep(0.7)
        assert stage.server._pause() > 1


def test_what_cannot_be_begun_fails_and_what_may_pass_is_tried_again(project: Project) -> None:
    with playing(project) as stage:
        ingested(project.catalog, "clicks")
        stage.until_given(1)
        stage.players[0].say(BatchEnded((FiringOutcome({"error": "declaration", "problem": "it cannot be"}),)))
        for number in range(2, 2 + firings.ATTEMPTS):
            stage.until_given(number)
            stage.players[0].say(
                BatchEnded((FiringOutcome({"error": "catalog", "problem": "it was away"}, passing=True),))
            )
        until(lambda: states(project) == ["failed", "failed"])
    attempts = sorted(firing.attempts for firing in project.reader.firings(100))
    assert attempts == [0, firings.ATTEMPTS]


def test_a_worker_that_takes_too_long_is_ended_and_replaced(project: Project) -> None:
    with playing(project, run_timeout=0.3) as stage:
        ingested(project.catalog, "clicks")
        claimed = stage.until_claimed(1)
        with project.catalog.writing() as tx:
            run, _ = runs.start(
                tx,
                kind=RunKind.TASKS,
                tasks=bindings.tasks_of(tx, claimed.binding),
                writes=(),
                owner=stage.players[0].owner,
                lease=LEASE,
                binding=claimed.binding,
            )
            firings.launch(tx, [(claimed, run)])
        until(lambda: len(stage.players) >= 2)
        assert "longer than" in stage.players[0].killed
        failed = next(each for each in project.reader.firings(100) if each.binding == claimed.binding)
        assert failed.state is FiringState.FAILED
    assert any("longer than" in (each.run.error or "") for each in project.runs(100))


@pytest.mark.parametrize("late", [True, False])
def test_of_runs_that_were_started_together_only_the_first_can_have_ended_the_worker(
    project: Project, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(queueing, "SERIES_SECONDS", 1e6)
    for name in "ab":  # so that it is known how long they take
        with project.catalog.writing() as tx:
            run, points = begin(tx, f"{name}_out", kind=RunKind.TASKS, binding=name)
        commit(project.catalog, run, points)
    with playing(project, run_timeout=0.5 if late else 600) as stage:
        ingested(project.catalog, "clicks")
        batch = stage.until_given(1)
        assert isinstance(batch, Batch)
        first, second = batch.claims
        with project.catalog.writing() as tx:
            starting = [
                runs.NewRun(kind=RunKind.TASKS, tasks=(f"{each.binding}_task",), binding=each.binding, claim=each)
                for each in batch.claims
            ]
            runs.start_all(tx, starting, owner=stage.players[0].owner, lease=LEASE)
        if not late:
            stage.players[0].kill("it exited")
        again = stage.until_claimed(2)  # alone, although both are due if the first was not at fault
        assert again.binding == (second.binding if late else first.binding)
        found = {each.binding: each for each in project.reader.firings(100)}
    assert found[first.binding].state is (FiringState.FAILED if late else FiringState.CLAIMED)
    assert found[first.binding].attempts == (0 if late else 1)
    assert found[second.binding].state is (FiringState.CLAIMED if late else FiringState.QUEUED)
    assert found[second.binding].attempts == 0


def test_a_server_whose_lease_expired_continues_under_another_name(project: Project) -> None:
    with playing(project) as stage:
        until(lambda: bool(stage.server.name))
        name = stage.server.name
        with project.catalog.writing() as tx:
            tx = type(tx)(tx.connection, tx.now + LEASE * 100)
            assert servers.expire(tx) == [name]
        until(lambda: stage.server.name != name)
        ingested(project.catalog, "clicks")
        claimed = stage.until_claimed(1)
        assert claimed.server == stage.server.name


def test_a_worker_with_nothing_to_do_compacts_what_is_worth_it(project: Project) -> None:
    ingested(project.catalog, "clicks", base=True)
    for _ in range(8):
        ingested(project.catalog, "clicks")
        with project.catalog.writing() as tx:
            run, _ = runs.start(tx, kind=RunKind.TASKS, tasks=(), writes=(), owner="me", lease=LEASE)
            found = channel_store.channel_state(tx, "clicks")
            blocks = tuple(block.number for block in found.blocks)
            item = RunInput(task="t", port="p", channel="clicks", start=0, end=found.latest_readable, blocks=blocks)
            runs.commit(tx, run, inputs=[item], outputs=(), advances=())
    with playing(project, maintenance_interval=0.1) as stage:
        for number in (1, 2):
            claimed = stage.until_claimed(number)
            with project.catalog.writing() as tx:
                firings.skip(tx, claimed, "nothing to do")
            stage.players[0].say(BatchEnded((FiringOutcome(),)))
        assert stage.until_given(3) == OperationRequest("maintain", {"channel": "clicks"})


def test_a_worker_applies_the_deferred_workflows_when_they_take_effect(project: Project) -> None:
    def put_off(seconds: float) -> None:
        with project.catalog.writing() as tx:
            deferred.defer(tx, "w", tx.now + timedelta(seconds=seconds), {"a_task": 1}, b"")
            events.record(tx, EventKind.DEFERRED)

    put_off(3600)
    with playing(project, lease=600) as stage:
        until(lambda: bool(stage.server.name))
        put_off(0.2)
        assert stage.until_given(1) == OperationRequest("apply-deferred", {})
        with project.catalog.writing() as tx:
            deferred.discard(tx, "w")
        stage.players[0].done()
        ingested(project.catalog, "clicks")
        assert stage.until_claimed(2).binding == "a"


def test_a_server_can_stop_once_nothing_is_due(project: Project) -> None:
    ingested(project.catalog, "clicks")
    stage = Stage(project)
    stage.server = Server(
        project.directory, {"serve": {"workers": 2}}, lambda text, event: None, until_idle=True, hire=stage._hired
    )
    thread = threading.Thread(target=stage.server.run)
    thread.start()
    for number in (1, 2):
        claimed = stage.until_claimed(number)
        with project.catalog.writing() as tx:
            firings.skip(tx, claimed, "nothing to do")
    for player in stage.players:
        player.say(BatchEnded((FiringOutcome(),)))
    thread.join(20)
    assert not thread.is_alive()
    assert [each.server.state for each in project.reader.servers(20)] == ["stopped"]


def test_what_a_server_says_begins_and_ends_with_itself(project: Project) -> None:
    stage = Stage(project)
    said: list[Event] = []
    stage.server = Server(
        project.directory,
        {"serve": {"workers": 1, "shutdown_grace": 0.0}},
        lambda text, event: said.append(event) if event else None,
        until_idle=True,
        hire=stage._hired,
    )
    stage.server.run()
    assert [event.kind for event in said] == [EventKind.SERVER_STARTED, EventKind.SERVER_STOPPED]


def test_a_server_reports_stuck_firings(project: Project) -> None:
    with playing(project, stuck_after=0.1, lease=0.6) as stage:
        ingested(project.catalog, "clicks")
        stage.until_claimed(1)  # which is never launched
        until(lambda: sum(event.kind is EventKind.STUCK for event in project.events()) == 2)
        time.sleep(0.5)
    stuck = [event.binding for event in project.events() if event.kind is EventKind.STUCK]
    assert sorted(map(str, stuck)) == ["a", "b"]


def watching(project: Project, place: str = "inbox", **given: int) -> None:
    """Let the channel `clicks` take the files of a directory."""
    with project.catalog.writing() as tx:
        directory = WatchedDirectory(location=place, **{"poll_interval": 1, "settle_time": 0, **given})
        channel_registry.update_channel_metadata(tx, replace(a_channel("clicks", Upsert(("id",))), watch=directory))


def test_a_server_scans_directories_and_a_worker_ingests_their_files(project: Project) -> None:
    (project.directory / "inbox").mkdir()
    watching(project)
    project.pause("b")
    with playing(project) as stage:
        until(lambda: bool(stage.players))
        (project.directory / "inbox" / "a.csv").write_text("id,note\n1,x\n")
        operation = stage.until_given(1)
        assert isinstance(operation, OperationRequest)
        assert (operation.what, operation.arguments["channel"]) == ("ingest-files", "clicks")
        ingested(project.catalog, "clicks")  # another server's doing: what fires has its turn before there is more
        stage.players[0].say(OperationDone(True))
        part = stage.until_claimed(2)
        with project.catalog.writing() as tx:
            firings.skip(tx, part, "nothing to do")
        stage.players[0].say(BatchEnded((FiringOutcome(),)))
        assert isinstance(again := stage.until_given(3), OperationRequest)
        assert again.what == "ingest-files"
        stage.players[0].say(OperationFailure({"error": "storage", "problem": "the disk is full"}))
        for number in (4, 5):  # what is still ready at the next look is asked for again
            assert stage.until_given(number) == operation
            stage.players[-1].kill("it broke")


def test_a_directory_that_hangs_holds_up_nothing_else(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = threading.Event()
    watching(project, "slow")
    real = WatchedDirectories.scan

    def look(self: WatchedDirectories, channel: str) -> object:
        if channel == "clicks":
            hanging.wait()
        return real(self, channel)

    monkeypatch.setattr(WatchedDirectories, "scan", look)
    with project.catalog.writing() as tx:
        directory = WatchedDirectory(location="inbox", poll_interval=1, settle_time=0)
        channel_registry.add_channels(tx, [replace(a_channel("orders"), watch=directory)], "w")
    (project.directory / "inbox").mkdir()
    (project.directory / "inbox" / "a.csv").write_text("id,note\n1,x\n")
    try:
        with playing(project) as stage:
            assert isinstance(operation := stage.until_given(1), OperationRequest)
            assert operation.arguments["channel"] == "orders"
            stage.players[0].say(OperationDone(False))
            assert stage.server._pause() > 0
            ingested(project.catalog, "clicks")
            until(lambda: any(isinstance(work, Batch) for work in stage.given()))
    finally:
        hanging.set()


def test_a_server_that_stops_once_nothing_is_due_takes_what_is_there(project: Project) -> None:
    (project.directory / "inbox").mkdir()
    (project.directory / "inbox" / "a.csv").write_text("id,note\n1,x\n")
    watching(project, settle_time=1)
    stage = Stage(project)
    stage.server = Server(
        project.directory, {"serve": {"workers": 1}}, lambda text, event: None, until_idle=True, hire=stage._hired
    )
    thread = threading.Thread(target=stage.server.run)
    thread.start()
    assert isinstance(stage.until_given(1), OperationRequest)
    with project.catalog.writing() as tx:
        run, points = begin(tx, "clicks")
        paths = [one.path for one in files.ready_files(tx, "clicks", 10)]
        files.claim_files(tx, run, "clicks", paths)
    commit(project.catalog, run, points)
    with project.catalog.writing() as tx:
        tx.connection.execute(tables.file.update().values(state="ingested"))
        tx.connection.execute(tables.trigger.update().values(active=False))
        tx.connection.execute(tables.firing.delete())
    stage.players[0].say(OperationDone(False))
    thread.join(20)
    assert not thread.is_alive()


def test_webhooks_are_told_when_a_bound_is_at_risk_violated_and_kept_again(tmp_path: Path) -> None:
    """By the time that passes, and by runs; each once."""
    served = {"webhooks": ["127.0.0.1"]}
    with open_project(tmp_path, spark={"analyse": False}, serve=served) as project, receiving() as receiver:
        project.create()
        with project.catalog.writing() as tx:
            channel_registry.add_channels(tx, [a_channel("clicks"), a_channel("copies")], "w")
            registry.put_task(tx, a_task("copies", {"clicks": Mode.NEW}, ("copies",)), "w")
        kinds = ("bound-at-risk", "bound-violated", "bound-restored")
        project.operator.add_webhook("pager", receiver.url, kinds)
        project.set_bound("copies", timedelta(seconds=1), "clicks")
        with playing(project, **served):
            ingested(project.catalog, "clicks")
            until(lambda: len(receiver.taken) == 2)
            with project.catalog.writing() as tx:
                run, points = begin(tx, "copies", tasks=("copies",), kind=RunKind.TASKS)
                block = a_block(channel_store.new_block(tx, "copies", run), Delta(0, 1))
                version = Version.source("clicks", 1).through("copies", 0)
                output = replace(an_output("copies", points["copies"], block, "copies"), version=version)
                advance = runs.Advance(task="copies", logic=0, points=(("clicks", 1),))
                runs.commit(tx, run, inputs=(), outputs=(output,), advances=(advance,))
            until(lambda: len(receiver.taken) == 3)
            time.sleep(0.1)
    told = [(each["data"]["kind"], each["data"]["channels"]) for each in receiver.taken]
    assert told == [(kind, ["copies"]) for kind in kinds]
