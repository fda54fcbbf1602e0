"""Tasks that read their own output by cursor, beside the reference: each run tells how many rows it was fed.

Each ingest has a number, so that no run writes a row again that is there: `New` of an upsert channel may contain it.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.model.encoding import Append, Changes, Encoding, Upsert
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production
from kilonova.service.project import Project
from kilonova.testing.reference import Bag, ReferenceChannel, ReferenceTask, ReferenceWorkflow
from tests.frames import bag_of, frame_of
from tests.seeds import SEED, some

IDS = Schema.of(("id", "int"), ("ingest", "int"))
OUT = Schema.of(("id", "int"), ("ingest", "int"), ("new", "bigint"), ("old", "bigint"), ("logic", "int"))
CASES: dict[str, tuple[Encoding, dict[str, Any], Mode, Any]] = {
    "append, NEW": (Append(), {}, Mode.NEW, kn.New),
    "append, INSERTS": (Append(), {}, Mode.INSERTS, kn.Inserts),
    "upsert, NEW": (Upsert(("id",)), {"key": "id"}, Mode.NEW, kn.New),
    "upsert, CHANGES": (Upsert(("id",)), {"key": "id"}, Mode.CHANGES, kn.Changes),
    "changes, NEW": (Changes(), {"encoding": "changes"}, Mode.NEW, kn.New),
}


def declared(name: str, logic: int) -> kn.Workflow:
    encoding, options, _, mode = CASES[name]
    weight = "sum(_weight)" if name in ("upsert, CHANGES", "changes, NEW") else "count(*)"
    wf = kn.Workflow("loop")
    wf.channel("a", IDS.ddl)
    wf.channel("x", OUT.ddl, **options)

    def step(a: Any, x: Any, x_old: Any) -> Any:
        counts = x.agg(F.expr(f"coalesce({weight}, 0)").alias("new")).crossJoin(x_old.agg(F.expr("count(*) old")))
        out = a.groupBy("id").agg(F.max("ingest").alias("ingest")).crossJoin(counts).withColumn("logic", F.lit(logic))
        return out.withColumn("_weight", F.lit(1).cast("bigint")) if isinstance(encoding, Changes) else out

    step.__annotations__ = {"a": kn.New, "x": mode, "x_old": kn.Old, "return": kn.Delta}
    wf.task(writes="x", reads={"x_old": "x"})(step)
    return wf


def expected(name: str) -> tuple[ReferenceWorkflow, list[int]]:
    encoding, _, mode, _ = CASES[name]
    logic = [0]

    def step(a: Bag, x: Any, x_old: Bag) -> Any:
        new = len(x) if name == "upsert, NEW" else sum(x.values())
        latest = {id: max(ingest for other, ingest in a if other == id) for id, _ in a}
        rows = Counter((*row, new, sum(x_old.values()), logic[0]) for row in latest.items())
        return {row[:1]: row for row in rows} if isinstance(encoding, Upsert) else rows

    ports = (Port("a", "a", Mode.NEW), Port("x", "x", mode), Port("x_old", "x", Mode.OLD))
    task = ReferenceTask(name="step", ports=ports, writes=("x",), productions=(Production.DELTA,), function=step)
    channels = [ReferenceChannel("a", IDS, Append()), ReferenceChannel("x", OUT, encoding)]
    return ReferenceWorkflow(channels, [task]), logic


@pytest.mark.parametrize("name", some(CASES, 2))
def test_a_task_is_fed_what_it_wrote_since_it_last_read_it(project: Project, name: str) -> None:
    chance = random.Random(f"{SEED}/{name}")
    reference, logic = expected(name)
    project.apply(declared(name, 0))
    steps = ["ingest", "ingest", "run", "run", "change", "compact", "collect"]
    begun = ["ingest", "run", "ingest", "run", "ingest", "run"]
    kinds = (*begun, *(chance.choice(steps) for _ in range(5)), "ingest", "run", "ingest", "run")
    for number, kind in enumerate(kinds):
        match kind:
            case "ingest":
                ids = chance.sample(range(6), chance.randint(1, 3))
                rows = [{"id": each, "ingest": number} for each in ids]
                frame = frame_of(project.warehouse.spark, IDS, rows)
                project.ingest("a", frame)
                reference.ingest("a", Counter((each, number) for each in ids))
            case "run":
                project.run()
                reference.run()
                assert not project.due(), "its own output alone makes a task due"
            case "change":
                logic[0] += 1
                project.apply(declared(name, logic[0]))
                project.run()
                reference.rerun("step")
            case "compact":
                project.compact("x")
            case _:
                project.collect_garbage()
        assert bag_of(project.read("x")) == reference.snapshot("x"), kind
