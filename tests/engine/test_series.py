"""Short runs that a worker starts in one transaction and executes in turn."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

import kilonova as kn
from kilonova.catalog import runs, servers
from kilonova.catalog.firings import Batch
from kilonova.errors import Cancelled, KilonovaError, TaskFailed
from kilonova.model.event import EventKind
from kilonova.model.firing import FiringState
from kilonova.model.run import RunKind
from kilonova.schedule import queueing
from kilonova.service.project import Project
from tests.catalog.building import claim_batches, fire_triggers
from tests.engine.test_started import insert, read
from tests.seeds import SEED

LEASE = timedelta(hours=1)
STEPS = 12


@pytest.fixture
def stage(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a chain of two tasks, a task that reads the same, and one that fails for the row 13."""
    monkeypatch.setattr(queueing, "SERIES_SECONDS", 1e6)
    wf = kn.Workflow("short")
    wf.channel("a", "id int")
    wf.channel("b", "id int")
    wf.sql("first", "SELECT id FROM {a}", reads={"a": kn.New}, produces=kn.Delta, schema="id int")
    wf.sql("second", "SELECT id FROM {first}", reads={"first": kn.New}, produces=kn.Delta, schema="id int")
    wf.sql("third", "SELECT id FROM {b}", reads={"b": kn.New}, produces=kn.Delta, schema="id int")
    text = "SELECT if(id = 13, cast(raise_error('no') as int), id) AS id FROM {a}"
    wf.sql("fussy", text, reads={"a": kn.New}, produces=kn.Delta, schema="id int")
    project.apply(wf)
    with project.catalog.writing() as tx:
        servers.register(tx, "one", "here", LEASE)
    return project


def claimed(project: Project, workers: int = 1) -> list[Batch]:
    with project.catalog.writing() as tx:
        fire_triggers(tx)
        batches, _ = claim_batches(tx, "one", workers)
    return batches


def execute(project: Project, batch: Batch) -> dict[str, KilonovaError | None]:
    """Execute a batch as a worker does; the failure of each binding."""
    found: dict[str, KilonovaError | None] = {}
    assert not batch.merged
    for claim, run in zip(batch.claims, project.runner.run_claims(batch.claims), strict=True):
        begun: list[int] = []
        found[claim.binding] = None
        try:
            report = run(begun=begun.append)
            assert report is None or begun == [report.run]
        except KilonovaError as error:
            found[claim.binding] = error
    return found


def until_quiet(project: Project) -> None:
    while batches := claimed(project):
        for batch in batches:
            assert set(execute(project, batch).values()) == {None}


def states(project: Project) -> Counter[FiringState]:
    return Counter(firing.state for firing in project.reader.firings(100))


def grown(project: Project) -> Project:
    """The project once all of its tasks have run, so that it is known that they are short."""
    insert(project, "a", 1)
    insert(project, "b", 2)
    until_quiet(project)
    return project


def test_runs_of_unknown_length_are_not_started_with_others(stage: Project) -> None:
    insert(stage, "a", 1)
    insert(stage, "b", 2)
    assert [len(batch.claims) for batch in claimed(stage)] == [1]


def test_a_series_starts_in_one_transaction_and_reads_what_was_there_then(stage: Project) -> None:
    grown(stage)
    insert(stage, "a", 3)
    insert(stage, "b", 4)
    [batch] = claimed(stage)
    assert {claim.binding for claim in batch.claims} == {"first", "third", "fussy"}
    before = stage.events()[-1].number
    waiting = stage.runner.run_claims(batch.claims)
    launched = [event for event in stage.events() if event.number > before]
    assert [event.kind for event in launched] == [EventKind.LAUNCHED] * 3
    assert len({event.time for event in launched}) == 1
    insert(stage, "a", 5)
    for run in waiting:
        assert run(begun=lambda _: None) is not None
    assert read(stage, "first") == read(stage, "fussy") == [(1,), (3,)]
    until_quiet(stage)
    assert read(stage, "first") == read(stage, "second") == read(stage, "fussy") == [(1,), (3,), (5,)]
    assert read(stage, "third") == [(2,), (4,)]


def test_the_failure_of_one_run_does_not_concern_the_others(stage: Project) -> None:
    grown(stage)
    insert(stage, "a", 13)
    insert(stage, "b", 4)
    [batch] = claimed(stage)
    found = execute(stage, batch)
    assert isinstance(found.pop("fussy"), TaskFailed)
    assert found == {"first": None, "third": None}
    assert read(stage, "first") == [(1,), (13,)]
    assert states(stage)[FiringState.FAILED] == 1


def test_what_cannot_be_started_together_is_started_one_by_one(stage: Project) -> None:
    grown(stage)
    insert(stage, "a", 3)
    insert(stage, "b", 4)
    [batch] = claimed(stage)
    with stage.catalog.writing() as tx:
        runs.start(tx, kind=RunKind.TASKS, tasks=["third"], writes=["third"], owner="elsewhere", lease=LEASE)
    found = execute(stage, batch)
    assert isinstance(found.pop("third"), kn.errors.Conflict)
    assert found == {"first": None, "fussy": None}


def test_a_run_that_is_cancelled_while_it_waits_publishes_nothing(stage: Project) -> None:
    grown(stage)
    insert(stage, "a", 3)
    insert(stage, "b", 4)
    [batch] = claimed(stage)
    waiting = dict(zip((claim.binding for claim in batch.claims), stage.runner.run_claims(batch.claims), strict=True))
    begun: list[int] = []
    with stage.catalog.writing() as tx:
        [number] = [
            run for run in runs.running_of(tx, stage.resources.owner) if runs.find_run(tx, run).binding == "third"
        ]
        runs.cancel(tx, number, "ann")
    for name, run in waiting.items():
        if name == "third":
            with pytest.raises(Cancelled):
                run(begun=begun.append)
        else:
            run(begun=lambda _: None)
    assert begun == [number]
    assert read(stage, "third") == [(2,)]
    assert read(stage, "first") == [(1,), (3,)]


def test_whatever_arrives_while_series_run_is_read_once(stage: Project) -> None:
    chance = random.Random(SEED)
    rows: dict[str, list[tuple[int, ...]]] = {"a": [], "b": []}
    sizes: Counter[int] = Counter()

    def arrive() -> None:
        for channel in chance.sample(sorted(rows), chance.randint(0, 2)):
            rows[channel].append((100 + sum(map(len, rows.values())),))
            insert(stage, channel, *rows[channel][-1])

    arrive()
    until_quiet(stage)
    for _ in range(STEPS):
        arrive()
        if chance.random() < 0.5:
            stage.fire(chance.choice(["first", "second", "third"]))
        for batch in claimed(stage, chance.randint(1, 2)):
            waiting = stage.runner.run_claims(batch.claims)
            sizes[len(waiting)] += 1
            for run in waiting:
                if chance.random() < 0.2:
                    arrive()
                run(begun=lambda _: None)
    until_quiet(stage)
    for name in ("first", "second", "fussy"):
        assert read(stage, name) == sorted(rows["a"]), (name, SEED)
    assert read(stage, "third") == sorted(rows["b"]), SEED
    assert not states(stage).keys() - {FiringState.SUCCEEDED, FiringState.SKIPPED}
