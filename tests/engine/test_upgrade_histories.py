"""Random histories of upgrades, upstream and downstream in any order, with lagging tasks: nothing is lost.

Three tasks in a row, each in a workflow of its own, get versions that add and drop columns, and that require those
which they read. Each point that is ever readable is compared with what the logic versions in its version vector give
for all rows of the source up to the point that it reflects.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kilonova.model.schema import Schema
from kilonova.model.schema_function import ColumnTypes, SchemaFunction, SchemaTransformation
from kilonova.model.version import Version
from tests.engine.test_required_columns import Logic, World, ddl, source, workflow
from tests.generator.rows import Rows
from tests.seeds import SEED

TASKS = {"first": "source", "second": "first", "third": "second"}
"""The tasks, which write channels of the same names, and what each reads."""


class History(World):
    """A random history.

    Attributes:
        logics: the versions of each task, each with the one that went on when it was registered; None if none did.
        columns: the columns with which each point of `source` was written.
        seen: the version of each point of each channel that was ever readable.
        steps: the steps so far.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory)
        self.random = random.Random(seed)
        self.logics: dict[tuple[str, int], tuple[Logic, int | None]] = {}
        self.columns: dict[int, str] = {}
        self.seen: dict[str, dict[int, Version]] = {name: {} for name in ("source", *TASKS)}
        self.steps: list[str] = []
        self.declared = "kx"
        self.project.apply(source(self.declared))
        for task in TASKS:
            self.upgrade(task)

    def upgrade(self, task: str) -> None:
        """Apply a version of a task; it may require columns that are not there yet, or drop some that are needed."""
        columns, reads = ("".join(name for name in "xyz" if self.random.random() < share) for share in (0.6, 0.4))
        logic = Logic(f"k{columns}", reads, self.random.randrange(1, 1000))
        self.steps.append(f"{task} := {logic}")
        (change,) = self.project.apply(workflow(task, TASKS[task], logic, f"k{reads}")).tasks
        self.logics[task, change.logic] = logic, change.continues

    def step(self) -> None:
        weights = {"ingest": 4, "run": 2, "run one": 6, "upgrade": 3, "add a column": 1, "compact": 1}
        kind = self.random.choices(list(weights), list(weights.values()))[0]
        name = self.random.choice(list(TASKS))
        match kind:
            case "ingest":
                self.steps.append(f"ingest {self.declared}")
                self.ingest(self.declared)
                self.columns[self.state("source").latest] = self.declared
            case "run":
                self.steps.append("run")
                self.run()
            case "run one":
                self.steps.append(f"run {name}")
                self.run(name)
            case "upgrade":
                self.upgrade(name)
            case "add a column":
                self.declared = "kxyz"[: len(self.declared) + 1]
                self.steps.append(f"source := {ddl(self.declared)}")
                self.project.apply(source(self.declared))
            case _:
                self.steps.append(f"compact {name} and collect")
                self.project.compact(name)
                self.project.collect_garbage()

    def check(self) -> None:
        """Check all points that have become readable since the last time, and those that still are."""
        for task, channel in {"source": "", **TASKS}.items():
            state = self.state(task)
            for point in state.readable_points:
                self.seen[task][point.number] = point.version
                assert self.function.columns(task, point.version) == types(state.written_schema(point.number))
                if channel:
                    (frame,) = self.project.look_up([state.as_written(point.number)])
                    assert isinstance(frame, Rows)
                    assert ordered(frame.records) == self.wanted(task, point.version), (task, point)

    def wanted(self, task: str, version: Version) -> list[dict[str, Any]]:
        """What the logic versions of a version vector give for the rows of the source; each reads what is there."""
        ((path, (reflection,)),) = version.entries
        assert path[-1] == task
        rows = [
            {name: key if name == "k" else 10 * key if name in self.columns[key] else None for name in "kxyz"}
            for key in range(1, reflection.last + 1)
        ]
        there = self.columns[reflection.last]
        for name, number in zip(path[1:], reflection.logic, strict=True):
            logic, _ = self.logics[name, number]
            assert {*logic.reads} <= {*there}, f"{name} {number} was invoked on rows without columns that it requires"
            rows, there = logic.rows(rows), logic.columns
        return ordered(rows)

    @property
    def function(self) -> SchemaFunction:
        def constant(schema: Schema) -> SchemaTransformation:
            return SchemaTransformation(reads=(), columns=lambda read: types(schema))

        return SchemaFunction(
            sources=lambda channel, point: types(Logic(self.columns[point], "").schema),
            writers={task: task for task in TASKS},
            transformations={key: constant(logic.schema) for key, (logic, _) in self.logics.items()},
        )

    def check_handovers(self) -> None:
        """Check that each version finished the input that the one after it, which waited meanwhile, does not accept."""
        for task, channel in TASKS.items():
            points = sorted(self.seen[task].items())
            for (_, before), (_, after) in itertools.pairwise(points):
                old, new = newest(before), newest(after)
                if old == new or self.logics[task, new][1] is None:
                    continue
                read = self.between(channel, before.before(), after.before())
                left = [
                    version
                    for version in read
                    if self.accepts(task, old, channel, version) and not self.accepts(task, new, channel, version)
                ]
                assert not left, (task, str(before), str(after), list(map(str, left)))

    def between(self, channel: str, start: Version, end: Version) -> Iterable[Version]:
        """The versions of the points of a channel after the first of two versions, before the second."""
        versions = [version for _, version in sorted(self.seen[channel].items())]
        return versions[versions.index(start) + 1 : versions.index(end)]

    def accepts(self, task: str, number: int, channel: str, version: Version) -> bool:
        columns = self.function.columns(channel, version)
        assert columns is not None
        return {*self.logics[task, number][0].reads} <= columns.keys()

    def check_progress(self) -> None:
        """Check that nothing is left once all has run: the newest input was processed, or there is an alert."""
        for _ in range(6):
            self.run()
        self.check()
        for task, channel in TASKS.items():
            read, state = self.state(channel), self.state(task)
            version = read.version(read.latest_readable)
            newest_logic = max(number for name, number in self.logics if name == task)
            if not read.latest_distinct:
                continue
            if self.accepts(task, newest_logic, channel, version):
                assert state.version(state.latest_readable) == version.through(task, newest_logic)
                assert not self.alert(task)
            elif state.latest_distinct and self.accepts(task, newest(state.committed), channel, version):
                assert state.committed == version.through(task, newest(state.committed))
                assert "goes on until then" in self.alert(task)
            else:
                assert self.alert(task), task


def types(schema: Schema | None) -> ColumnTypes | None:
    return None if schema is None else {column.name: column.type for column in schema.columns}


def ordered(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=lambda record: record["k"])


def newest(version: Version) -> int:
    """The logic version of the last task of a version vector."""
    ((_, (reflection,)),) = version.entries
    return reflection.logic[-1]


@pytest.mark.parametrize("part", range(4))
def test_each_point_is_what_the_versions_in_force_give(tmp_path: Path, part: int) -> None:
    history = History(tmp_path, SEED + part)
    try:
        for _ in range(25):
            history.step()
            history.check()
        history.check_progress()
        history.check_handovers()
    except BaseException as error:
        error.add_note("\n".join(history.steps))
        raise
    finally:
        history.project.close()
