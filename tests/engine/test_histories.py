"""Random histories of a workflow with every mode, step by step beside the reference.

After each step every channel is compared: its newest rows, those at points seen before, and the changes since then.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.declare.ddl import parse_schema
from kilonova.errors import NotFound
from kilonova.model.encoding import Append, Changes, Encoding, Increment, Upsert, delta_schema
from kilonova.model.task import Mode, Port, Production
from kilonova.service.project import Project, open_project
from kilonova.service.reports import RunReport
from kilonova.testing import reference
from kilonova.testing.reference import Bag, ReferenceChannel, ReferenceTask, ReferenceWorkflow
from tests.frames import frame_of
from tests.seeds import SEED

EVENTS = "id int, user string, n bigint"
USERS = "user string, town string, level int"

CHANNELS: dict[str, tuple[str, Encoding]] = {
    "events": (EVENTS, Append()),
    "users": (USERS, Upsert(("user",))),
    "big": (EVENTS, Append()),
    "per_user": ("user string, events bigint, total bigint", Increment(("user",), ("events", "total"))),
    "joined": ("id int, user string, n bigint, town string, level int", Changes()),
    "per_town": ("town string, events bigint, total bigint", Increment(("town",), ("events", "total"))),
    "unique": (EVENTS, Append()),
    "seen": ("user string, id int", Upsert(("user",))),
    "report": ("town string, total bigint, people bigint", Upsert(("town",))),
    "marks": ("user string, mark int", Upsert(("user",))),
}


def sums(events: DataFrame, key: str, weight: Any) -> DataFrame:
    return events.groupBy(key).agg(
        F.sum(weight).cast("bigint").alias("events"), F.sum(weight * F.col("n")).cast("bigint").alias("total")
    )


def declared(least: int, bonus: int) -> kn.Workflow:
    """The workflow; the two numbers are parts of its logic that change."""
    wf = kn.Workflow("histories")
    for name, (schema, encoding) in CHANNELS.items():
        match encoding:
            case Append():
                wf.channel(name, schema)
            case Changes():
                wf.channel(name, schema, encoding="changes")
            case Increment(key, measures):
                wf.channel(name, schema, key=key, encoding=kn.increment(*measures))
            case Upsert(key):
                wf.channel(name, schema, key=key)

    @wf.task
    def big(events: kn.New) -> kn.Delta:
        return events.where(F.col("n") >= least)

    @wf.task
    def per_user(events: kn.New) -> kn.Delta:
        return sums(events.where("user IS NOT NULL").withColumn("n", F.col("n") + bonus), "user", F.lit(1))

    @wf.task(reads={"events_old": "events", "users_old": "users", "users_changed": "users"})
    def joined(events: kn.New, events_old: kn.Old, users_changed: kn.Changes, users_old: kn.Old) -> kn.Delta:
        columns = ["id", "user", "n", "town", "level", "_weight"]
        arrived = events.join(users_old, "user").withColumn("_weight", F.lit(1).cast("bigint"))
        revised = events_old.unionByName(events).join(users_changed, "user")
        return arrived.select(columns).unionByName(revised.select(columns))

    @joined.variant
    def joined_batch(events: kn.All, users: kn.All) -> kn.Base:
        return events.join(users, "user").select("id", "user", "n", "town", "level")

    @wf.task
    def per_town(joined: kn.Changes) -> kn.Delta:
        return sums(joined.where("town IS NOT NULL"), "town", F.col("_weight"))

    @wf.task(writes=("unique", "seen"))
    def dedupe(big: kn.New, seen: kn.All) -> tuple[kn.Delta, kn.Delta]:
        first = big.where("user IS NOT NULL").groupBy("user").agg(F.min(F.struct("id", "n")).alias("first"))
        unseen = first.join(seen, "user", "left_anti")
        return unseen.select("first.id", "user", "first.n"), unseen.select("user", "first.id")

    @wf.task
    def report(per_town: kn.All, users: kn.All) -> kn.Base:
        people = users.groupBy("town").agg(F.count("*").alias("people"))
        return per_town.join(people, "town").select("town", (F.col("total") + bonus).alias("total"), "people")

    @wf.task
    def marks(users: kn.Inserts) -> kn.Delta:
        return users.select("user", (F.col("level") * 2).alias("mark"))

    @marks.variant
    def marks_batch(users: kn.All) -> kn.Base:
        return users.select("user", (F.col("level") * 2).alias("mark"))

    return wf


class Expected(ReferenceWorkflow):
    """The same in plain Python; tasks whose definition changed begin from nothing."""

    def __init__(self) -> None:
        self.least, self.bonus = 0, 0
        self.fresh: set[str] = set()
        delta, base = Production.DELTA, Production.BASE

        def task(name: str, production: Production, function: Any, *ports: tuple[str, str, Mode]) -> ReferenceTask:
            writes = ("unique", "seen") if name == "dedupe" else (name,)
            bound = tuple(Port(port, channel, mode) for port, channel, mode in ports)
            return ReferenceTask(
                name=name, ports=bound, writes=writes, productions=(production,) * len(writes), function=function
            )

        events, users = ("events", "events", Mode.NEW), ("users", "users", Mode.ALL)
        super().__init__(
            [ReferenceChannel(name, parse_schema(ddl), encoding) for name, (ddl, encoding) in CHANNELS.items()],
            [
                task("big", delta, self.big, events),
                task("per_user", delta, self.per_user, events),
                task(
                    "joined",
                    delta,
                    self.joined,
                    events,
                    ("events_old", "events", Mode.OLD),
                    ("users_changed", "users", Mode.CHANGES),
                    ("users_old", "users", Mode.OLD),
                ),
                task("per_town", delta, self.per_town, ("joined", "joined", Mode.CHANGES)),
                task("dedupe", delta, self.dedupe, ("big", "big", Mode.NEW), ("seen", "seen", Mode.ALL)),
                task("report", base, self.report, ("per_town", "per_town", Mode.ALL), users),
                task("marks", base, self.marks, users),
            ],
        )

    def change(self, task: str) -> None:
        """Change the numbers in a task's logic, and in that of whichever shares them."""
        if task == "big":
            self.least -= 1
            self.fresh |= {"big"}
        else:
            self.bonus += 1
            self.fresh |= {"per_user", "report"}

    def due(self, task: ReferenceTask) -> bool:
        if task.name not in self.fresh:
            return super().due(task)
        return any(self.channels[port.channel].at(self.channels[port.channel].readable) for port in task.ports)

    def _execute(self, task: ReferenceTask) -> None:
        if task.name not in self.fresh:
            super()._execute(task)
            return
        before = self.snapshot("big")
        self.rerun(task.name)
        self.fresh -= {task.name}
        if self.snapshot("big") != before:
            self.fresh |= {"dedupe"}  # which cannot process that its input was rewritten

    def big(self, events: Bag) -> Bag:
        return Counter({row: times for row, times in events.items() if row[2] >= self.least})

    def per_user(self, events: Bag) -> dict[Any, Any]:
        rows = {(id_, user, n + self.bonus): times for (id_, user, n), times in events.items()}
        return self._sums(rows, 1)

    @staticmethod
    def _sums(rows: dict[Any, int], key: int) -> dict[Any, Any]:
        counts: Counter[Any] = Counter()
        totals: Counter[Any] = Counter()
        for row, weight in rows.items():
            if row[key] is not None:
                counts[row[key]] += weight
                totals[row[key]] += weight * row[2]
        return {(name,): (counts[name], totals[name]) for name in counts if counts[name] or totals[name]}

    def joined(self, events: Bag, events_old: Bag, users_changed: dict[Any, int], users_old: Bag) -> dict[Any, int]:
        def join(left: Bag, right: Bag) -> Bag:
            return Counter(
                {
                    (*event, town, level): times
                    for event, times in left.items()
                    for user, town, level in right
                    if user == event[1]
                }
            )

        users = Counter(users_old)
        users.update(users_changed)
        old, new = join(events_old, users_old), join(events_old + events, +users)
        return {row: new[row] - old[row] for row in old | new if new[row] != old[row]}

    def per_town(self, joined: dict[Any, int]) -> dict[Any, Any]:
        return self._sums(joined, 3)

    def dedupe(self, big: Bag, seen: Bag) -> dict[str, Any]:
        known = {user for user, _ in seen}
        first: dict[str, tuple[int, int]] = {}
        for id_, user, n in big:
            if user is not None and user not in known:
                first[user] = min(first.get(user, (id_, n)), (id_, n))
        return {
            "unique": Counter((id_, user, n) for user, (id_, n) in first.items()),
            "seen": {(user,): (user, id_) for user, (id_, _) in first.items()},
        }

    def report(self, per_town: Bag, users: Bag) -> Bag:
        people = Counter(town for _, town, _ in users)
        return Counter((town, total + self.bonus, people[town]) for town, _, total in per_town if people[town])

    @staticmethod
    def marks(users: Bag) -> Bag:
        return Counter((user, 2 * level) for user, _, level in users)


_user = st.sampled_from(("ada", "bob", "cy"))
_event = st.tuples(st.integers(0, 4), st.none() | _user, st.integers(-2, 3))
_row = st.tuples(st.none() | st.sampled_from(("Oslo", "Rome")), st.integers(0, 2))
_step = st.one_of(
    st.tuples(st.just("events"), st.lists(_event, max_size=4)),
    st.tuples(st.just("users"), st.dictionaries(_user, st.none() | _row, max_size=3)),
    st.tuples(st.sampled_from(("run", "run", "run", "same", "collect")), st.none()),
    st.tuples(st.just("run"), st.sampled_from(("big", "per_user", "joined", "per_town", "dedupe", "report", "marks"))),
    st.tuples(st.just("compact"), st.sampled_from(("users", "joined", "per_user", "unique", "events"))),
    st.tuples(st.just("change"), st.sampled_from(("big", "per_user"))),
)


class History:
    """A project and the reference, side by side."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.expected = Expected()
        self.seen: dict[str, dict[int, Bag]] = {name: {0: Counter()} for name in CHANNELS}
        self.collected = False
        project.apply(declared(0, 0))

    def step(self, kind: str, what: Any) -> None:
        match kind:
            case "events":
                self._ingest("events", Counter(what))
            case "users":
                self._ingest("users", {(user,): row and (user, *row) for user, row in what.items()})
            case "same":
                users = self.expected.snapshot("users")
                self._ingest("users", {row[:1]: row for row in users} | {("nobody",): None})
            case "run":
                self._run(None if what is None else [what])
            case "compact":
                self.project.compact(what)
            case "collect":
                self.project.collect_garbage()
                self.collected = True
            case "change":
                self.expected.change(what)
                self.project.apply(declared(self.expected.least, self.expected.bonus))
        if kind in ("run", "compact", "collect"):
            self.compare()

    def _ingest(self, name: str, delta: Any) -> None:
        channel = self.expected.channels[name]
        rows = reference.rows_of(channel.encoding, channel.schema, delta)
        frame = frame_of(self.project.warehouse.spark, delta_schema(channel.encoding, channel.schema), rows)
        due = self.project.due()
        report = self.project.ingest(name, frame)
        changed = self.expected.ingest(name, delta)
        assert (report.made[0].block is not None) == changed
        if not changed:
            assert self.project.due() == due

    def _run(self, names: list[str] | None) -> None:
        before = {name: self.expected.snapshot(name) for name in CHANNELS}
        report = self.project.run(names)
        done = self.expected.run(names)
        if names is None:
            assert not self.project.due()
            assert report is not None or not done
        self._assert_nothing_needless(report, before)

    def _assert_nothing_needless(self, report: RunReport | None, before: dict[str, Bag]) -> None:
        """An incremental step that changes nothing publishes nothing."""
        for made in report.made if report else ():
            unchanged = before[made.channel] == self.expected.snapshot(made.channel)
            if unchanged and made.reason.startswith("incremental") and made.channel != "report":
                assert made.block is None, made

    def compare(self) -> None:
        """Everything that can be read, in one job."""
        newest = {name: state.latest_readable for name, state in self.project.status().channels.items()}
        frames: list[DataFrame] = []
        expected: dict[str, dict[Any, int]] = {}
        for name, channel in self.expected.channels.items():
            bag = self.expected.snapshot(name)
            self.seen[name][newest[name]] = bag
            self._add(frames, expected, f"{name} now", bag, lambda name=name: self.project.read(name))
            for point, then in list(self.seen[name].items())[-3:-2]:
                self._add(
                    frames,
                    expected,
                    f"{name} since {point}",
                    reference.diff(Changes(), channel.schema, then, bag),
                    lambda name=name, point=point: self.project.read(name, since=point),
                )
            for point, then in list(self.seen[name].items())[-2:-1]:
                self._add(
                    frames,
                    expected,
                    f"{name} at {point}",
                    then,
                    lambda name=name, point=point: self.project.read(name, at=point),
                )
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        found: dict[str, Counter[Any]] = {about: Counter() for about in expected}
        for about, row, weight in whole.collect():
            found[about][tuple(json.loads(row).values())] += weight
        for about, rows in expected.items():
            assert dict(found[about]) == dict(rows), about

    def _add(
        self,
        frames: list[DataFrame],
        expected: dict[str, dict[Any, int]],
        about: str,
        rows: Any,
        read: Any,
    ) -> None:
        try:
            frame = read()
        except NotFound:
            assert self.collected
            assert "now" not in about
            return
        weight = F.col("_weight") if "_weight" in frame.columns else F.lit(1).cast("bigint")
        columns = [name for name in frame.columns if name != "_weight"]
        text = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
        frames.append(frame.select(F.lit(about).alias("about"), text.alias("row"), weight.alias("weight")))
        expected[about] = rows


@pytest.mark.parametrize("histories", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_random_histories_agree_with_the_reference(spark: SparkSession, tmp_path: Path, histories: int) -> None:
    number = 0

    @seed(SEED)
    @settings(
        max_examples=histories,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(_step, min_size=14, max_size=14))
    def follow(steps: list[tuple[str, Any]]) -> None:
        nonlocal number
        number += 1
        larger = (SEED + number) % 4 == 2
        # Every other history leaves all work to Spark.
        sizes = {"local_check_max": 0} if (SEED + number) % 2 else {"single_task_max": 0} if larger else {}
        with (
            pytest.MonkeyPatch.context() as patch,
            open_project(tmp_path / str(number), session=spark, retry={"wait": 0}, sizes=sizes) as project,
        ):
            if (SEED + number) % 4 == 0:  # as if there were many rows
                patch.setattr("kilonova.warehouse.local_read._LITERAL", 0)
            if larger:  # as if blocks were
                patch.setattr("kilonova.warehouse.local_write._EXPECTED", -1)
                patch.setattr("kilonova.warehouse.local_write._DENSE", 1 << 20)
                patch.setattr("kilonova.schedule.layout._TASK_SIZE", 1 << 9)
            project.create()
            history = History(project)
            for place, (kind, what) in enumerate([*steps, ("run", None), ("collect", None), ("run", None)]):
                try:
                    history.step(kind, what)
                except Exception as error:
                    error.add_note(f"history {number}, step {place}: {steps[: place + 1]}")
                    raise

    follow()
