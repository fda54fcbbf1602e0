"""What a scheduler decides, against a slow statement of what it may and must do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from kilonova.model.trigger import RunOutcome, Trigger
from kilonova.schedule.queueing import SERIES, SERIES_SECONDS, ObservedBinding, QueuedFiring
from kilonova.schedule.scheduler import Decision, Observation, ObservedTrigger, TriggerScheduler
from kilonova.schedule.trigger_evaluation import initial_state
from tests.schedule.trigger_histories import START, Arrives, Ends, after, fired_by_definition, triggers
from tests.schedule.world import World

SCHEDULER = TriggerScheduler()


@dataclass(frozen=True)
class Arrive:
    channel: str


@dataclass(frozen=True)
class Wait:
    seconds: int


@dataclass(frozen=True)
class Decide:
    free_workers: int
    limit: int | None


@dataclass(frozen=True)
class End:
    which: int
    outcome: RunOutcome | None
    """None if the run is abandoned."""


Action = Arrive | Wait | Decide | End

actions: st.SearchStrategy[list[Action]] = st.lists(
    st.builds(Arrive, st.sampled_from("ab"))
    | st.builds(Wait, st.integers(0, 20))
    | st.builds(Decide, st.integers(0, 3), st.none() | st.integers(1, 2))
    | st.builds(End, st.integers(0, 9), st.none() | st.sampled_from(RunOutcome)),
    max_size=25,
)
reads = st.frozensets(st.tuples(st.sampled_from("pqr"), st.integers(-1, 1)), max_size=2)
properties = st.fixed_dictionaries(
    {
        "workflow": st.sampled_from("uv"),
        "priority": st.integers(0, 2),
        "merge_window": st.none() | st.integers(0, 30).map(float),
        "reads": reads,
        "seconds": st.none() | st.floats(0, 0.6),
    }
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    bindings = {name: ObservedBinding(name=name, **draw(properties)) for name in "wxyz"}
    some: list[tuple[str, Trigger]] = draw(st.lists(st.tuples(st.sampled_from("wxyz"), triggers), max_size=6))
    return World(
        bindings,
        {
            number: ObservedTrigger(
                number=number,
                binding=binding,
                trigger=trigger,
                state=initial_state(trigger, START, 0),
                next_check=START,
            )
            for number, (binding, trigger) in enumerate(some, 1)
        },
    )


def waiting_by_definition(observation: Observation, decision: Decision) -> dict[str, list[QueuedFiring]]:
    """The queued firings of each binding that does not run."""
    found: dict[str, list[QueuedFiring]] = {}
    for each in (*observation.queued, *decision.queued):
        if each.binding not in observation.running:
            found.setdefault(each.binding, []).append(each)
    return found


def groups_by_definition(
    observation: Observation, waiting: dict[str, list[QueuedFiring]]
) -> dict[frozenset[str], datetime]:
    """What starts together, and when at the latest: whoever can be reached over what several would read."""
    windows = {
        name: None if any(each.attempts for each in own) else observation.bindings[name].merge_window
        for name, own in waiting.items()
    }
    group = {name: {name} for name in waiting}
    for _ in waiting:
        for one in waiting:
            for other in waiting:
                mergeable = windows[one] is not None and windows[other] is not None
                if mergeable and observation.bindings[one].reads & observation.bindings[other].reads:
                    group[one] = group[other] = group[one] | group[other]
    return {
        frozenset(names): min(
            min(each.occurrence.time for each in waiting[name]) + timedelta(seconds=windows[name] or 0)
            for name in names
        )
        for names in group.values()
    }


def check_decision(observation: Observation, decision: Decision) -> None:
    """Whether a decision is one that Nova's rules allow."""
    bindings, limit = observation.bindings, observation.workflow_limit
    waiting = waiting_by_definition(observation, decision)
    groups = groups_by_definition(observation, waiting)
    series = [[frozenset({run.binding}) for run in batch.runs] for batch in decision.batches if not batch.merged]
    merged = [[frozenset(run.binding for run in batch.runs)] for batch in decision.batches if batch.merged]
    assert all(len(names) > 1 for (names,) in merged)
    started = [group for batch in (*series, *merged) for group in batch]
    full_workers = len(decision.batches) == observation.free_workers
    assert len(decision.batches) <= observation.free_workers
    assert max(Counter(name for batch in started for name in batch).values(), default=0) <= 1
    for several in series:
        if len(several) > 1:  # only short runs follow others, and only while no worker is free
            seconds = [bindings[name].seconds for group in several for name in group]
            assert full_workers
            assert len(several) <= SERIES
            assert sum(each if each is not None else inf for each in seconds) <= SERIES_SECONDS
            assert not any(each.attempts for group in several for name in group for each in waiting[name])
            assert all(bindings[name].merge_window is None for group in several for name in group)
    for batch in decision.batches:
        for run in batch.runs:
            assert sorted(run.firings, key=repr) == sorted(waiting[run.binding], key=repr)
    assert all(groups[batch] <= observation.now for batch in started)  # each is a whole group
    own = Counter(workflow for batch in started for workflow in {bindings[name].workflow for name in batch})
    counts = own + Counter(observation.running.values())
    if limit is not None:
        assert all(counts[workflow] <= limit for workflow in own)
    left = {names: time for names, time in groups.items() if names not in started}
    full = {workflow for workflow in counts if limit is not None and counts[workflow] >= limit}
    for names, time in left.items():
        if time > observation.now:
            assert not observation.free_workers or (decision.next_check and decision.next_check <= time)
        elif not full & {bindings[name].workflow for name in names}:
            assert full_workers
            priority = max(bindings[name].priority for name in names)
            assert all(max(bindings[name].priority for name in other) >= priority for other in started)
    assert decision.next_check is None or decision.next_check in left.values()


@given(worlds(), actions)
def test_each_occurrence_is_queued_once_and_runs_start_by_the_rules(world: World, steps: list[Action]) -> None:
    second, history, looks = 0, list[Arrives | Ends](), list[int]()
    known = dict(world.triggers)
    for step in steps:
        second += 1
        now = after(second)
        match step:
            case Arrive(channel):
                world.points.setdefault(channel, []).append(now)
                history.append(Arrives(second, channel, 1))
            case Wait(seconds):
                second += seconds
            case Decide(free_workers, limit):
                observation = world.observation(now, free_workers, limit)
                decision = SCHEDULER.decide(observation)
                check_decision(observation, decision)
                world.store(decision)
                again = SCHEDULER.decide(world.observation(now, 0, limit))
                assert again == Decision()
                looks.append(second)
            case End(which, outcome) if world.running:
                binding = sorted(world.running)[which % len(world.running)]
                if outcome is None:
                    world.requeue(binding, 99)
                else:
                    world.end(binding, outcome, len(world.events) + 1, now)
                    history.append(Ends(second, binding, outcome))
    stored = Counter((each.trigger, each.occurrence.name) for each in world.stored)
    assert not stored or max(stored.values()) == 1
    for number, trigger in known.items():
        fired = sum(each.trigger == number for each in world.stored)
        assert fired == len(fired_by_definition(trigger.trigger, history, looks))


@given(worlds(), actions)
def test_whatever_waits_for_others_to_be_merged_has_a_time_at_which_it_starts(
    world: World, steps: list[Action]
) -> None:
    """With free workers everywhere, all that has fired has started or has a time at which it does."""
    now = START
    for step in steps:
        now += timedelta(seconds=step.seconds if isinstance(step, Wait) else 1)
        if isinstance(step, Arrive):
            world.points.setdefault(step.channel, []).append(now)
        if isinstance(step, Decide):
            world.store(SCHEDULER.decide(world.observation(now, step.free_workers, step.limit)))
    while True:
        decision = SCHEDULER.decide(world.observation(now, 9, None))
        world.store(decision)
        if decision.next_check is None:
            break
        assert decision.next_check > now
        now = decision.next_check
    assert all(each.binding in world.running for each in world.queued)
