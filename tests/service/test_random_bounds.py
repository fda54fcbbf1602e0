"""Random workflows with random bounds, data, failures and lost runs, served on a real catalog.

At every moment no reader is given an inconsistency beyond its bound; bounds on staleness hold whenever nothing failed;
and each channel is what its task makes of its inputs as of the points up to which it has read them.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.catalog.bound_status import bound_statuses
from kilonova.catalog.planner_input import load_planner_input
from kilonova.errors import DeclarationError, KilonovaError, StorageFailed
from kilonova.model.bound_phase import BoundPhase
from kilonova.model.task import Mode, Production
from kilonova.model.workflow_path import paths_to
from tests.generator.declared import Spec, TaskSpec, standard
from tests.generator.ops import OPS
from tests.generator.rows import Rows
from tests.seeds import SEED, some
from tests.service.bounded_search import World

LIMITS = ("0 seconds", "10 minutes", "3 hours", "2 days")
USED = ("copy", "above", "weights", "sums", "whole", "joined", "lookup", "inserts", "split")
EXACT = {"copy", "above", "weights", "whole", "joined", "inserts"}


def random_spec(chance: random.Random) -> Spec:
    channels = [standard(f"s{number}", chance.choice(("append", "upsert"))) for number in range(chance.randint(1, 3))]
    tasks: list[TaskSpec] = []
    while len(tasks) < 5:
        op = chance.choice(USED)
        inputs = [[each for each in channels if each.kind in kinds] for kinds in OPS[op].inputs]
        if not all(inputs):
            continue
        chosen = [chance.choice(each) for each in inputs]
        if len({each.name for each in chosen}) < len(chosen):
            continue
        name = f"t{len(tasks)}"
        kinds = [chance.choice(each) for each in OPS[op].outputs(*(each.kind for each in chosen))]
        made = [standard(f"{name}_{number}", kind) for number, kind in enumerate(kinds)]
        channels += made
        writes = tuple(each.name for each in made)
        tasks.append(TaskSpec(name, op, tuple(each.name for each in chosen), writes, chance.randint(0, 2)))
    return Spec(tuple(channels), tuple(tasks))


def bounded(spec: Spec, chance: random.Random) -> kn.Workflow:
    workflow = spec.declare("pure")
    definition = workflow.declared().workflow
    written = [name for task in spec.tasks for name in task.writes]
    for channel in chance.sample(written, chance.randint(1, 3)):
        paths = paths_to(channel, definition)
        for path in chance.sample(paths, chance.randint(1, min(2, len(paths)))):
            workflow.bound_staleness(channel, path, chance.choice(LIMITS))
    for channel in chance.sample(written, chance.randint(0, 2)):
        workflow.bound_inconsistency(channel, chance.choice(LIMITS))
    return workflow


def _accepted(directory: Path, chance: random.Random) -> tuple[Spec, World]:
    """Return a workflow whose bounds can be kept; what no variant can keep is refused."""
    for number in range(50):
        spec, place = random_spec(chance), directory / str(number)
        place.mkdir(parents=True)
        try:
            return spec, World(place, bounded(spec, chance))
        except DeclarationError as error:
            if "no variant of the tasks before it can keep this" not in str(error):
                raise
    raise AssertionError("no bounds are accepted")


class History:
    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.chance = chance
        self.spec, self.world = _accepted(directory, chance)
        self.failed = False
        self.fails = 0

    def arrive(self, channel: str) -> None:
        schema = self.spec.channel(channel).schema
        keys = self.chance.sample(range(9), self.chance.randint(1, 4))
        self.world.arrive(channel, schema, [(key, self.chance.randint(0, 4), "w")[: len(schema.names)] for key in keys])

    def step(self) -> None:
        self.world.project._pauses = []
        self.world.advance(self.chance.choice((1, 60, 700, 4000, 90_000)))
        if self.chance.random() < 0.3:
            self.world.lost = self.chance.randint(1, 2)
            self.arrive(self.chance.choice(self.spec.sources).name)
            self.world.start()  # its runs are lost, so that what is to arrive comes before they are retried
        for source in self.chance.sample(self.spec.sources, self.chance.randint(0, len(self.spec.sources))):
            self.arrive(source.name)
        if self.chance.random() < 0.15:
            self.failed = True
            self.fails += 1
            self.world.project.interrupt(self._fail)
        if self.chance.random() < 0.1:
            self.world.clock.now -= timedelta(hours=2)
        try:
            self.world.serve()
        except AssertionError as error:
            if not (self.failed and isinstance(error.__cause__, KilonovaError)):
                raise

    @staticmethod
    def _fail() -> None:
        raise StorageFailed("the disk failed", path="nowhere")

    def check(self) -> None:
        with self.world.project.catalog.reading() as tx:
            found = bound_statuses(tx)
            known = load_planner_input(tx)
            states = channel_store.channel_states(tx)
        for each in found:
            if not each.registered.path:
                assert each.phase is not BoundPhase.VIOLATED, each
            elif each.phase is BoundPhase.VIOLATED and not self.failed and not self._excused(each.registered.channel):
                # what has failed is not repeated with the same input
                left = self.world.project.bound_schedule().not_repeated if self.fails else ()
                assert left, (each, self.world.decision.plan)
        for task in self.spec.tasks:
            (state,) = known.versions[task.name]
            if task.op in EXACT and state.started:
                cursors = {name: state.cursor(name) for name in task.inputs}
                wanted = made_of(task, [self._rows(states[name], point) for name, point in cursors.items()])
                (output,) = task.writes
                got = self._rows(states[output], states[output].latest_readable)
                assert bag(got) == bag(wanted), (str(task), cursors)

    def _excused(self, channel: str) -> bool:
        """Whether the planner has said that it cannot keep a bound of a channel."""
        plan = self.world.decision.plan
        return any(each.channel == channel for each in (() if plan is None else plan.unmet))

    def _rows(self, state: Any, point: int) -> list[dict[str, Any]]:
        if point == 0:
            return []
        (found,) = self.world.project.look_up([state.snapshot(point)])
        assert isinstance(found, Rows), found
        return found.records


def made_of(task: TaskSpec, inputs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What a task makes of whole inputs."""
    way = OPS[task.op].variants[-1]
    given: dict[str, Any] = {}
    for port in way.ports:
        assert port.of is not None
        rows = inputs[port.of]
        if port.mode is Mode.OLD:
            rows = []
        elif port.mode is Mode.CHANGES:
            rows = [{**row, "_weight": 1} for row in rows]
        given[port.name] = rows
    made: list[dict[str, Any]] = way.function(task.constant, **given)[0]
    whole = way.productions == (Production.BASE,)
    return [{name: value for name, value in row.items() if name != "_weight"} for row in made] if whole else made


def bag(rows: list[dict[str, Any]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in rows:
        weight = row.get("_weight", 1)
        found[tuple(sorted((k, v) for k, v in row.items() if not k.startswith("_")))] += weight
    return +found


@pytest.mark.parametrize("number", some(range(60), 2))
def test_bounds_hold_whatever_arrives_and_fails(tmp_path: Path, number: int) -> None:
    chance = random.Random(f"{SEED} {number}")
    history = History(tmp_path, chance)
    for source in history.spec.sources:
        history.arrive(source.name)
    history.world.serve()
    for _ in range(25):
        history.step()
        history.check()
    history.failed = False
    history.world.project._pauses = []
    for source in history.spec.sources:
        history.arrive(source.name)
    history.world.serve()
    history.check()
