"""Participants are called in the transactions that start and end a run, and roll back with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kilonova.catalog import bindings, channel_store, events, firings, runs
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.firings import Claim
from kilonova.engine.lease import renewed_lease
from kilonova.engine.run_protocol import (
    ActiveRun,
    Participant,
    RunEnvironment,
    RunPlan,
    RunResults,
    execute_run,
    start_runs,
)
from kilonova.engine.run_request import requeued_firings
from kilonova.errors import (
    Cancelled,
    CatalogError,
    CatalogUnavailable,
    Conflict,
    InputError,
    KilonovaError,
    LeaseLost,
    NotFound,
)
from kilonova.model.binding import Binding
from kilonova.model.channel import PointState
from kilonova.model.event import EventKind
from kilonova.model.firing import FiringState
from kilonova.model.run import RunKind, RunOutput, RunState
from kilonova.model.version import Version
from tests.catalog.building import claim_batches
from tests.databases import Clock, empty_database
from tests.engine.plain import LEASE, Fuse, Process, declare

RUNNING, SUCCEEDED = RunState.RUNNING, RunState.SUCCEEDED


@dataclass
class Witness:
    """Records each of its calls in memory, with the run's state then, and in the catalog; raises in one of them."""

    raises: str | None = None
    calls: list[tuple[str, RunState]] = field(default_factory=list)

    @property
    def participant(self) -> Participant:
        return Participant(
            on_start=lambda tx, run: self._record(tx, run, "start"),
            on_commit=lambda tx, run: self._record(tx, run, "commit"),
            on_abort=lambda tx, run, error: self._record(tx, run, f"abort: {type(error).__name__}"),
        )

    def _record(self, tx: Transaction, run: int, call: str) -> None:
        self.calls.append((call, runs.find_run(tx, run).state))
        events.record(tx, EventKind.SKIPPED, run=run, text=call)
        if self.raises is not None and call.startswith(self.raises):
            raise RuntimeError(call)


@dataclass
class Stage:
    """A process, and what became of its run."""

    process: Process
    clock: Clock

    def execute(
        self,
        known: Participant,
        action: Callable[[int], None] = lambda _: None,
        late: Participant | None = None,
        claim: Claim | None = None,
    ) -> None:
        """Execute a run that writes nothing to `source`, with an action as its work."""

        def prepare(_: Transaction) -> RunPlan[None]:
            return RunPlan(kind=RunKind.INGEST, writes=("source",), plan=None, claim=claim, participants=(known,))

        def work(run: ActiveRun[None]) -> RunResults:
            action(run.run)
            output = RunOutput(
                channel="source",
                point=run.points["source"],
                block=None,
                version=Version(),
                task=None,
                reason="",
                seconds=0,
            )
            return RunResults(inputs=(), outputs=(output,), advances=(), participants=(late,) if late else ())

        execute_run(self.process.environment, prepare, work)

    def recorded(self) -> list[str]:
        with self.process.catalog.reading() as tx:
            return [event.text for event in events.since(tx, 0) if event.kind is EventKind.SKIPPED]

    def state(self) -> RunState:
        with self.process.catalog.reading() as tx:
            return runs.find_run(tx, None).state

    def reserved(self) -> bool:
        with self.process.catalog.reading() as tx:
            points = channel_store.channel_state(tx, "source").points
        return any(point.state is PointState.RESERVED for point in points)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with empty_database("sqlite") as url:
        clock = Clock()
        process = Process.started(url, tmp_path / "warehouse", clock)
        process.catalog.create()
        declare(process.catalog)
        yield Stage(process, clock)
        process.end()


def test_participants_take_part_in_the_start_and_the_commit(stage: Stage) -> None:
    witness, late = Witness(), Witness()
    stage.execute(witness.participant, late=late.participant)
    assert witness.calls == [("start", RUNNING), ("commit", SUCCEEDED)]
    assert late.calls == [("commit", SUCCEEDED)]
    assert stage.recorded() == ["start", "commit", "commit"]


@dataclass
class Planner:
    """Plans runs that write nothing, from the state of `source`; records in which transactions it is called."""

    brief: list[bool] = field(default_factory=list)

    def __call__(self, tx: Transaction) -> RunPlan[None]:
        self.brief.append(tx.brief)
        channel_store.channel_state(tx, "source")
        return RunPlan(kind=RunKind.INGEST, tasks=(), writes=("source",), pins=(), plan=None)

    def run(self, stage: Stage) -> None:
        execute_run(stage.process.environment, self, lambda run: RunResults(outputs=()))


def test_a_run_is_planned_once_while_there_is_little_to_load(stage: Stage) -> None:
    planner = Planner()
    planner.run(stage)
    assert planner.brief == [True]


def test_much_is_loaded_before_the_transaction_that_starts_a_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        Planner().run(stage)
    monkeypatch.setattr(channel_store, "_LISTED", 2)
    planner = Planner()
    planner.run(Stage(replace(stage.process, environment=_fresh(stage)), stage.clock))
    assert planner.brief == [True, False, False]


def test_what_another_process_has_written_since_is_loaded_before_it_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Stage(replace(stage.process, environment=_fresh(stage)), stage.clock)
    for _ in range(2):
        Planner().run(other)
    for _ in range(3):
        Planner().run(stage)
    monkeypatch.setattr(channel_store, "_LISTED", 3)
    planner = Planner()
    planner.run(other)
    assert planner.brief == [True, False, False]


def test_lost_runs_are_recovered_before_a_run_is_planned(stage: Stage) -> None:
    with stage.process.catalog.writing() as tx:
        lost, _ = runs.start(tx, kind=RunKind.INGEST, tasks=(), writes=("source",), owner="lost", lease=LEASE)
    stage.clock.forward(2 * LEASE.total_seconds())
    planner = Planner()
    planner.run(stage)
    assert planner.brief == [False, False]
    with stage.process.catalog.reading() as tx:
        assert runs.find_run(tx, lost).state is RunState.ABANDONED


def _fresh(stage: Stage) -> RunEnvironment:
    """Return the environment of another process, which has nothing cached."""
    environment = stage.process.environment
    return replace(environment, catalog=Catalog(environment.catalog.url, stage.clock))


def test_participants_take_part_in_the_abort_of_a_run_whose_work_raised(stage: Stage) -> None:
    witness = Witness()

    def work(_: int) -> None:
        raise InputError("it is bad")

    with pytest.raises(InputError):
        stage.execute(witness.participant, work)
    assert witness.calls == [("start", RUNNING), ("abort: InputError", RUNNING)]
    assert (stage.recorded(), stage.state()) == (["start", "abort: InputError"], RunState.FAILED)


def test_a_run_that_was_cancelled_elsewhere_is_not_aborted_again(stage: Stage) -> None:
    witness, late = Witness(), Witness()

    def cancel(run: int) -> None:
        with stage.process.catalog.writing() as tx:
            runs.cancel(tx, run, "ann")

    with pytest.raises(Cancelled):
        stage.execute(witness.participant, cancel, late.participant)
    assert witness.calls == [("start", RUNNING)]
    assert late.calls == []
    assert (stage.recorded(), stage.state()) == (["start"], RunState.CANCELLED)


def test_a_run_that_has_lost_its_lease_is_neither_committed_nor_aborted(stage: Stage) -> None:
    witness, late = Witness(), Witness()

    def expire(run: int) -> None:
        stage.clock.forward(2 * LEASE.total_seconds())
        with stage.process.catalog.writing() as tx:
            assert [each.number for each in runs.expire(tx)] == [run]

    with pytest.raises(LeaseLost):
        stage.execute(witness.participant, expire, late.participant)
    assert witness.calls == [("start", RUNNING)]
    assert late.calls == []
    assert (stage.recorded(), stage.state()) == (["start"], RunState.ABANDONED)


def test_a_run_whose_participant_refuses_its_start_does_not_exist(stage: Stage) -> None:
    witness = Witness(raises="start")
    with pytest.raises(RuntimeError, match="start"):
        stage.execute(witness.participant)
    with pytest.raises(NotFound):
        stage.state()
    assert (stage.recorded(), stage.reserved()) == ([], False)


@pytest.mark.parametrize("joined", ["at the start", "by the work"])
def test_a_commit_that_a_participant_refuses_is_an_abort(stage: Stage, joined: str) -> None:
    refuses, other = Witness(raises="commit"), Witness()
    witness, late = (refuses, other) if joined == "at the start" else (other, refuses)
    with pytest.raises(RuntimeError, match="commit"):
        stage.execute(witness.participant, late=late.participant)
    assert refuses.calls[-2:] == [("commit", SUCCEEDED), ("abort: RuntimeError", RUNNING)]
    assert stage.recorded() == ["start", "abort: RuntimeError", "abort: RuntimeError"]
    assert (stage.state(), stage.reserved()) == (RunState.FAILED, False)


def test_a_run_whose_participant_refuses_its_abort_is_left_to_its_lease(stage: Stage) -> None:
    witness = Witness(raises="abort")

    def work(_: int) -> None:
        raise InputError("it is bad")

    with pytest.raises(RuntimeError, match="abort"):
        stage.execute(witness.participant, work)
    assert (stage.recorded(), stage.state(), stage.reserved()) == (["start"], RUNNING, True)
    stage.clock.forward(2 * LEASE.total_seconds())
    with stage.process.catalog.writing() as tx:
        assert len(runs.expire(tx)) == 1
    assert not stage.reserved()


def test_a_run_whose_commit_went_through_without_an_answer_is_not_aborted(stage: Stage) -> None:
    witness = Witness()

    def lose_the_answer(_: int) -> None:
        def lost() -> None:
            raise CatalogError("the connection was lost")

        stage.process.catalog.fuse = Fuse(1, lost)  # type: ignore[attr-defined]

    stage.execute(witness.participant, lose_the_answer)
    assert stage.process.catalog.fuse.burnt  # type: ignore[attr-defined]
    assert witness.calls == [("start", RUNNING), ("commit", SUCCEEDED)]
    assert (stage.recorded(), stage.state()) == (["start", "commit"], SUCCEEDED)


def claimed(stage: Stage) -> Claim:
    """The claim of a server on a binding that a person has fired."""
    with stage.process.catalog.writing() as tx:
        bindings.put(tx, "w", [Binding(name="all", tasks=("copied", "counted"), triggers=())])
        firings.fire_manually(tx, "all", "ann")
        ((batch,), _) = claim_batches(tx, "one", 1)
    return batch.claims[0]


def firing_state(stage: Stage) -> FiringState:
    with stage.process.catalog.reading() as tx:
        (firing,) = firings.firings(tx, 2)
    return firing.state


@pytest.mark.parametrize(
    ("merged", "error", "state"),
    [
        (False, InputError("it is bad"), FiringState.FAILED),
        (True, InputError("it is bad"), FiringState.QUEUED),
        (False, CatalogUnavailable("it is away"), FiringState.QUEUED),
    ],
)
def test_firings_are_queued_again_after_a_failure_that_another_run_may_not_have(
    stage: Stage, merged: bool, error: KilonovaError, state: FiringState
) -> None:
    def work(_: int) -> None:
        raise error

    with pytest.raises(type(error)):
        stage.execute(requeued_firings(merged=merged), work, claim=claimed(stage))
    assert firing_state(stage) is state


def test_firings_succeed_with_their_run(stage: Stage) -> None:
    stage.execute(requeued_firings(merged=False), claim=claimed(stage))
    assert firing_state(stage) is FiringState.SUCCEEDED


def test_a_run_of_firings_that_another_server_has_taken_over_does_not_start(stage: Stage) -> None:
    claim = claimed(stage)
    with stage.process.catalog.writing() as tx:
        firings.release(tx, ["one"])
        claim_batches(tx, "two", 1)
    with pytest.raises(LeaseLost):
        stage.execute(requeued_firings(merged=False), claim=claim)
    with pytest.raises(NotFound):
        stage.state()
    assert firing_state(stage) is FiringState.CLAIMED


def test_the_lease_of_a_run_that_has_waited_is_renewed_at_once(stage: Stage) -> None:
    with stage.process.catalog.writing() as tx:
        run, _ = runs.start(tx, kind=RunKind.INGEST, tasks=(), writes=("source",), owner="me", lease=LEASE)
        before = runs.find_run(tx, run).lease_until
    stage.clock.forward(1)
    waited = time.monotonic() - LEASE.total_seconds() / 2
    with renewed_lease(stage.process.catalog, run, LEASE, lambda: None, since=waited):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with stage.process.catalog.reading() as tx:
                if (after := runs.find_run(tx, run).lease_until) > before:
                    break
            time.sleep(0.05)
    assert after > before


def test_runs_start_together_or_not_at_all(stage: Stage) -> None:
    process, skipped = stage.process, list[int]()

    def prepare(_: Transaction) -> list[RunPlan[str] | None]:
        plans = [RunPlan(kind=RunKind.TASKS, tasks=(name,), writes=("source",), plan=name) for name in wanted]
        return [*plans, None]

    def skip(_: Transaction, place: int) -> None:
        skipped.append(place)

    wanted = ["copied", "counted"]
    first, second, nothing = start_runs(process.environment, prepare, skip)
    assert first is not None
    assert second is not None
    assert (nothing, skipped) == (None, [2])
    assert [first.plan, second.plan] == wanted
    assert second.points["source"] == first.points["source"] + 1
    with pytest.raises(Conflict, match="another run has this task"):
        start_runs(process.environment, prepare, skip)
    first.complete(lambda run: RunResults(outputs=()))
    wanted = ["copied", "copied"]
    with pytest.raises(Conflict, match="two runs"):
        start_runs(process.environment, prepare, skip)
    assert stage.state() is RunState.RUNNING  # the second one is still the last
    second.complete(lambda run: RunResults(outputs=()))
    assert stage.state() is RunState.SUCCEEDED
