"""What a faulty logic version has touched, and which repairs are enough: no property of Spark or the catalog."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.model.channel import Channel, ChannelState, Point, PointState
from kilonova.model.encoding import Append
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Task
from kilonova.model.version import Version
from kilonova.model.workflow import WorkflowDefinition
from kilonova.schedule.due import PlannerInput, TaskState
from kilonova.schedule.reflected_versions import reflected_versions
from kilonova.schedule.retraction import RepairStep, plan_retraction
from tests.catalog.building import a_task
from tests.databases import NOON

SCHEMA = Schema.of(("id", "bigint"))
FAULTY, GOOD = 1, 2
TASKS = ("early", "faulty", "next", "other", "last")
"""Tasks in topological order, each with a channel of its name; `faulty` has the faulty version."""


@dataclass
class World:
    """Channels and tasks as versions only: a run of a task appends the version that its output would reflect.

    If it changes nothing, the newest point reflects that version, too.
    """

    tasks: dict[str, Task]
    versions: dict[str, list[Version]]
    extended: dict[str, Version] = field(default_factory=dict)
    cursors: dict[str, dict[str, int]] = field(default_factory=dict)
    logic: int = 0

    def ingest(self, source: str) -> None:
        self.versions[source].append(Version.source(source, len(self.versions[source])))

    def number(self, task: str) -> int:
        return self.logic if task == "faulty" else 0

    def run(self, name: str, *, whole: bool = False, quiet: bool = False) -> None:
        """Run a task: the change of its inputs, or of whole inputs; lookups are read as they are."""
        task, number = self.tasks[name], self.number(name)
        whole = whole or name not in self.cursors
        computed = self.versions[name][-1]
        version = Version() if whole else self.reflected(name)
        modes = {port.channel: port.mode for port in task.variants[0].ports}
        for channel in task.reads:
            end = self.versions[channel][-1].through(name, number)
            if whole:
                version = version.joined(end)
                continue
            advances = modes[channel].advances
            start = self.versions[channel][self.cursors[name][channel]].through(name, number) if advances else end
            version = version.advanced(start, end, computed)
        if quiet and len(self.versions[name]) > 1:
            self.extended[name] = version
        else:
            self.versions[name].append(version)
            self.extended.pop(name, None)
        self.cursors[name] = {channel: len(self.versions[channel]) - 1 for channel in task.reads}

    def reflected(self, name: str) -> Version:
        return self.extended.get(name, self.versions[name][-1])

    def known(self) -> PlannerInput:
        channels = {name: Channel(name=name, schema=SCHEMA, encoding=Append()) for name in self.versions}
        return PlannerInput(
            workflow=WorkflowDefinition(name="w", channels=tuple(channels.values()), tasks=tuple(self.tasks.values())),
            versions={
                name: (
                    TaskState(
                        task=task,
                        logic=self.number(name),
                        started=name in self.cursors,
                        cursors=self.cursors.get(name, {}),
                    ),
                )
                for name, task in self.tasks.items()
            },
            channels={name: ChannelState(each, self.points(name), ()) for name, each in channels.items()},
        )

    def touched(self, name: str) -> bool:
        return FAULTY in reflected_versions(self.known())(name, len(self.versions[name]) - 1).logics("faulty")

    def points(self, name: str) -> tuple[Point, ...]:
        found = [
            Point(number=number, state=PointState.FILLED, version=version, time=NOON, run=number)
            for number, version in enumerate(self.versions[name][1:], 1)
        ]
        if name in self.extended:
            found[-1] = replace(found[-1], extended=self.extended[name])
        return tuple(found)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a workflow, and a history in which the faulty version may run, be replaced, and be read by others."""
    tasks: dict[str, Task] = {}
    for place, name in enumerate(TASKS):
        above = ["source", "lookup", *TASKS[:place]]
        read = draw(st.lists(st.sampled_from(above), min_size=1, max_size=3, unique=True))
        if name == "next" and "faulty" not in read:
            read.append("faulty")
        modes = {each: draw(st.sampled_from([Mode.NEW, Mode.ALL])) for each in read}
        modes[read[-1]] = Mode.NEW
        tasks[name] = a_task(name, modes, (name,))
    world = World(tasks, {name: [Version()] for name in ("source", "lookup", *TASKS)})
    for step in draw(st.lists(st.sampled_from(["source", "lookup", "change", *TASKS, *TASKS]), max_size=25)):
        if step == "change":
            world.logic = min(world.logic + 1, GOOD)
            world.cursors.pop("faulty", None)
        elif step in tasks:
            world.run(step, quiet=draw(st.booleans()))
        else:
            world.ingest(step)
    return world


@settings(max_examples=300)
@given(worlds())
def test_the_repair_steps_are_enough_and_nothing_is_recomputed_needlessly(world: World) -> None:
    found = plan_retraction("faulty", FAULTY, world.known())
    assert {each.channel for each in found.touched if each.newest} == {name for name in TASKS if world.touched(name)}
    assert set(found.steps) == {name for name in TASKS if world.touched(name)}
    for each in found.touched:
        for number, version in enumerate(world.versions[each.channel]):
            assert (number in each.points) == (FAULTY in version.logics("faulty"))
    world.logic = GOOD
    for name in TASKS:
        step = found.steps.get(name)
        if step in (RepairStep.REPLACE, RepairStep.RUN, RepairStep.RECOMPUTE):
            if step is RepairStep.RECOMPUTE and name != "faulty":
                by_changes = replace(world, versions={n: list(v) for n, v in world.versions.items()})
                by_changes.cursors, by_changes.extended = dict(world.cursors), dict(world.extended)
                by_changes.run(name)
                assert by_changes.touched(name)
            world.run(name, whole=True)
        elif step is RepairStep.CHANGES:
            world.run(name)
        assert not world.touched(name)


def reflected(world: World, name: str, point: int) -> Version:
    """The definition of `kilonova.schedule.reflected_versions`, recursively."""
    if point < len(world.versions[name]) - 1:
        return world.versions[name][point]
    version = world.reflected(name)
    for read, cursor in world.cursors.get(name, {}).items():
        number = world.number(name)
        computed, newest = world.versions[read][cursor], reflected(world, read, cursor)
        version = version.relabelled(computed.through(name, number), newest.through(name, number))
    return version


@given(worlds())
def test_a_point_reflects_the_newest_versions_of_what_it_was_computed_from(world: World) -> None:
    found = reflected_versions(world.known())
    for name, versions in world.versions.items():
        for point in range(1, len(versions)):
            assert found(name, point) == reflected(world, name, point)


def test_chains_of_tasks_may_be_long() -> None:
    tasks = {"t0": a_task("t0", {"source": Mode.NEW}, ("t0",))}
    for number in range(1, 1500):
        tasks[f"t{number}"] = a_task(f"t{number}", {f"t{number - 1}": Mode.NEW}, (f"t{number}",))
    world = World(tasks, {name: [Version()] for name in ("source", *tasks)})
    world.ingest("source")
    for name in tasks:
        world.run(name)
    assert reflected_versions(world.known())("t1499", 1) == world.versions["t1499"][1]


def test_a_lookup_that_is_not_followed_needs_a_recomputation() -> None:
    tasks = {
        "faulty": a_task("faulty", {"source": Mode.NEW}, ("faulty",)),
        "next": a_task("next", {"lookup": Mode.NEW, "faulty": Mode.ALL}, ("next",)),
        "last": a_task("last", {"next": Mode.NEW}, ("last",)),
    }
    world = World(tasks, {name: [Version()] for name in ("source", "lookup", *tasks)}, logic=FAULTY)
    world.ingest("source")
    world.ingest("lookup")
    for name in tasks:
        world.run(name)
    found = plan_retraction("faulty", FAULTY, world.known())
    assert found.steps == {"faulty": RepairStep.REPLACE, "next": RepairStep.RECOMPUTE, "last": RepairStep.CHANGES}
    assert found.tasks(RepairStep.RECOMPUTE) == ("next",)
