"""Runs that read channels up to given points: reading in parts leads to what reading at once leads to."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import kilonova as kn
from kilonova.catalog import channel_store, run_records
from kilonova.catalog.planner_input import load_planner_input
from kilonova.catalog.read_models import run_queries
from kilonova.engine.run_request import RunDue, RunTasks
from kilonova.errors import InvalidState
from kilonova.service.project import Project
from tests.generator.declared import ChannelSpec, Spec, TaskSpec, standard
from tests.generator.history import History, projects
from tests.generator.ops import OPS
from tests.generator.proposing import Proposer
from tests.generator.steps import Apply, Ingest

SEED = int(os.environ.get("KILONOVA_SEED") or random.randrange(1 << 30))

EXACT = ("copy", "above", "weights", "sums", "whole", "split", "inserts", "patched", "revised", "joined")
"""Operations whose output depends on what their inputs are, not on how they came to be so."""


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with projects(tmp_path_factory.mktemp("projects")) as begin:
        yield begin


def declared(chance: random.Random, op: str) -> Spec:
    """Two tasks that do the same to the same channels: `once` and `parts`."""
    operation = OPS[op]
    sources = [standard(f"c{number}", chance.choice(kinds)) for number, kinds in enumerate(operation.inputs)]
    outputs = [chance.choice(kinds) for kinds in operation.outputs(*(source.kind for source in sources))]
    channels, tasks, constant = list(sources), [], chance.randint(0, 2)
    for name in ("once", "parts"):
        writes = []
        for number, kind in enumerate(outputs):
            columns = standard("", kind).columns if kind in ("increment", "columns") else sources[0].columns
            writes.append(ChannelSpec(f"{name}_{number}", kind, columns))
        channels += writes
        read, written = tuple(each.name for each in sources), tuple(each.name for each in writes)
        tasks.append(TaskSpec(name, op, read, written, constant))
    return Spec(tuple(channels), tuple(tasks))


def filled(chance: random.Random, begin: Any, op: str) -> History:
    """A project with such tasks, whose sources have come to some point; now and then by being replaced or compacted."""
    history: History = begin()
    history.step(Apply(declared(chance, op)))
    proposer = Proposer(chance, history.expected)
    made = [proposer._ingest] * 8 + [proposer._replace, proposer._compact]
    for _ in range(chance.randint(1, 8)):
        if (step := chance.choice(made)()) is not None:
            history.step(step)
    return history


def points(project: Project) -> dict[str, range]:
    """The points of each channel that can be read, if they have not been collected."""
    with project.catalog.reading() as tx:
        found = channel_store.channel_states(tx)
    return {name: range(state.first_retained, state.latest_readable + 1) for name, state in found.items()}


def settled(project: Project, channel: str, point: int) -> int:
    with project.catalog.reading() as tx:
        return channel_store.channel_state(tx, channel).settled(point)


def cursors(project: Project, task: str) -> Mapping[str, int]:
    with project.catalog.reading() as tx:
        return load_planner_input(tx, [task]).newest[task].cursors


def relation(project: Any, channel: str) -> Counter[Any]:
    with project.catalog.reading() as tx:
        state = channel_store.channel_state(tx, channel)
    (rows,) = project.look_up([state.snapshot(state.latest_readable)])
    return Counter(rows.rows)


@pytest.mark.parametrize("op", EXACT)
def test_reading_in_parts_leads_to_what_reading_at_once_leads_to(begin: Any, op: str) -> None:
    print(f"KILONOVA_SEED={SEED}")
    for number in range(2):
        chance = random.Random(f"{SEED}/{op}/{number}")
        history = filled(chance, begin, op)
        project, known = history.project, points(history.project)
        sources = [name for name in known if name.startswith("c")]
        outputs = {name: f"parts{name.removeprefix('once')}" for name in known if name.startswith("once")}
        ends = dict.fromkeys(sources, 0)
        for _ in range(chance.randint(0, 4)):
            ends = {name: chance.choice([end, *(p for p in known[name] if p > end)]) for name, end in ends.items()}
            project.runner._run(RunTasks(("parts",), until=ends))
            if any(settled(project, name, end) for name, end in ends.items()):
                assert {name: cursors(project, "parts")[name] for name in sources} == ends
            else:
                assert cursors(project, "parts") == {}
            if chance.random() < 0.5:
                project.runner._run(RunTasks(("once",), until=ends))
                for once, parts in outputs.items():
                    assert relation(project, once) == relation(project, parts), (number, ends)
            if chance.random() < 0.2:
                history.project.collect_garbage()
                ends = {name: known[name][-1] for name in sources}  # what lies between may be gone
        project.run()
        for name in sources:  # which may be different points, but equal ones: the last may be cancelled
            assert len({settled(project, name, cursors(project, task).get(name, 0)) for task in ("once", "parts")}) == 1
        for once, parts in outputs.items():
            assert relation(project, once) == relation(project, parts), number
        assert project.due() == {}


def filled_with(begin: Any, number: int) -> History:
    """A project in which `d` copies `c0`, which has a number of points, and `e` copies `d`."""
    history: History = begin()
    channels = tuple(standard(name, "append") for name in ("c0", "d", "e"))
    tasks = (TaskSpec("d", "copy", ("c0",), ("d",), 0), TaskSpec("e", "copy", ("d",), ("e",), 0))
    history.step(Apply(Spec(channels, tasks)))
    for value in range(number):
        history.step(Ingest("c0", channels[0].schema, ((value, 1, "a"),)))
    return history


def test_what_is_held_back_is_read_later_once(begin: Any) -> None:
    project = filled_with(begin, 4).project
    project.runner._run(RunDue(until={"c0": 2}))
    assert (cursors(project, "d"), project.due()) == ({"c0": 2}, {"d": "c0 advanced from point 2 to 4"})
    assert relation(project, "d").total() == 2
    assert project.runner._run(RunDue(until={"c0": 2})) is None
    project.runner._run(RunDue(until={"c0": 3}))
    project.run()
    assert (cursors(project, "d"), project.due()) == ({"c0": 4}, {})
    assert relation(project, "d") == relation(project, "c0")
    with project.catalog.reading() as tx:
        inputs = run_records.inputs(tx, [run.number for run in run_queries.runs(tx)])
    assert sorted((item.start, item.end) for _, item in inputs if item.task == "d") == [(0, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("end", [1, 5])
def test_an_end_before_the_cursor_or_after_what_is_readable_is_refused(begin: Any, end: int) -> None:
    history = filled_with(begin, 4)
    history.project.runner._run(RunTasks(("d",), until={"c0": 2}))
    for request in (RunTasks(("d",), until={"c0": end}), RunDue(until={"c0": end})):
        with pytest.raises(InvalidState) as raised:
            history.project.runner._run(request)
        assert (raised.value.channel, raised.value.point, raised.value.task) == ("c0", end, "d")
    assert cursors(history.project, "d") == {"c0": 2}


def test_a_channel_that_the_run_writes_is_read_to_its_end(begin: Any) -> None:
    history = filled_with(begin, 3)
    history.project.runner._run(RunDue(until={"c0": 2, "d": 0}))
    assert (cursors(history.project, "d"), cursors(history.project, "e")) == ({"c0": 2}, {"d": 1})
    assert relation(history.project, "e") == relation(history.project, "d")


TOWNS = "SELECT town, count(*) AS n, sum(amount) AS total FROM orders JOIN users USING (user) GROUP BY town"


def test_a_view_that_reads_in_parts_leads_to_what_reading_at_once_leads_to(project: Project) -> None:
    wf = kn.Workflow("views")
    wf.channel("orders", "id bigint, user string, amount bigint", key="id")
    wf.channel("users", "user string, town string", key="user")
    wf.channel("clicks", "user string, n bigint", key="user", encoding=kn.increment("n"))
    views = {"towns": TOWNS, "clicked": "SELECT town, sum(n) AS n FROM clicks JOIN users USING (user) GROUP BY town"}
    for name, text in views.items():
        wf.view(name, text)
        wf.view(f"{name}_at_once", text)
    project.apply(wf)
    chance = random.Random(SEED)
    print(f"KILONOVA_SEED={SEED}")
    frame = project.warehouse.spark.createDataFrame
    for number in range(4):
        users = [(user, chance.choice("xyz")) for user in chance.sample("abcdef", 3)]
        orders = [(id_, chance.choice("abcdef"), chance.randint(1, 9)) for id_ in chance.sample(range(9), 5)]
        clicks = [(user, number + 1) for user in chance.sample("abcdef", 2)]
        project.ingest("users", frame(users, "user string, town string"))
        project.ingest("orders", frame(orders, "id bigint, user string, amount bigint"))
        project.ingest("clicks", frame(clicks, "user string, n bigint"))
    for ends in ({"users": 1, "orders": 2, "clicks": 0}, {"users": 3, "orders": 2, "clicks": 3}):
        project.runner._run(RunTasks(tuple(views), until=ends))
        for name in views:
            assert cursors(project, name).items() <= ends.items()
    project.run()
    for name in views:
        assert cursors(project, name) == cursors(project, f"{name}_at_once")
        rows = [sorted(map(tuple, project.read(each).collect())) for each in (name, f"{name}_at_once")]
        assert rows[0] == rows[1]
