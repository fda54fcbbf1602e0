"""Bindings that are started, by triggers and by hand, whether their inputs have changed or not."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.catalog import servers
from kilonova.errors import TaskFailed
from kilonova.schedule.run_scope import RunScope
from kilonova.service.project import Project
from kilonova.service.reports import RunReport
from tests.catalog.building import claim_batches, fire_triggers
from tests.seeds import SEED


class Server:
    """One server's work, in this process."""

    def __init__(self, project: Project) -> None:
        self.project = project
        with project.catalog.writing() as tx:
            servers.register(tx, "one", "here", timedelta(hours=1))

    def turn(self) -> dict[str, RunReport | None]:
        """Fire the triggers that fire, and carry out what that starts."""
        with self.project.catalog.writing() as tx:
            fire_triggers(tx)
            batches, _ = claim_batches(tx, "one", 10)
        done: dict[str, RunReport | None] = {}
        for part in (part for batch in batches for part in batch.claims):
            done[part.binding] = None
            with suppress(TaskFailed):
                done[part.binding] = self.project.runner.run_claim(part)
        return done


def insert(project: Project, channel: str, *ids: int) -> None:
    project.ingest(channel, project.warehouse.spark.createDataFrame([(each,) for each in ids], "id int"))


def read(project: Project, channel: str) -> list[tuple[int, ...]]:
    return sorted(tuple(row) for row in project.read(channel).collect())


def test_what_is_started_is_executed_with_what_is_new_or_nothing(project: Project) -> None:
    wf = kn.Workflow("started")
    wf.channel("a", "id int")
    wf.channel("b", "id int")

    @wf.task(schema="new bigint, there bigint")
    def counted(a: kn.New, b: kn.All) -> kn.Base:
        return a.agg(F.count("*").alias("new")).crossJoin(b.agg(F.count("*").alias("there")))

    @wf.task(schema="new bigint")
    def alone(a: kn.New, b: kn.All) -> kn.Base:
        return a.agg(F.count("*").alias("new"))

    wf.workflowette("counting", [counted], on=kn.arrival("b"))
    project.apply(wf)
    server, chance = Server(project), random.Random(SEED)
    new = unread = there = 0
    begun = ["a", "b", "turn", "b", "turn", "fire", "turn"]
    for kind in (*begun, *(chance.choice(["a", "b", "turn", "fire", "run"]) for _ in range(8)), "b", "turn"):
        started: bool | None = None
        match kind:
            case "a":
                insert(project, "a", 1, 2)
                new += 2
                unread += 2
            case "b":
                insert(project, "b", 1)
                there += 1
            case "fire":
                project.fire("counting")
            case "run":
                assert project.run(["counting"]) is not None
                started = True
            case _:
                done = server.turn()
                started = "counting" in done
                assert ("alone" in done) == bool(unread), "its news alone make it due"
                unread = 0
        if started:
            assert read(project, "counted") == [(new, there)], kind
            new = 0


def test_a_run_reads_as_far_as_its_claim_says_and_the_next_one_the_rest(project: Project) -> None:
    wf = kn.Workflow("held_back")
    wf.channel("a", "id int")

    @wf.task(schema="id int")
    def copied(a: kn.New) -> kn.Delta:
        return a

    project.apply(wf)
    server = Server(project)
    insert(project, "a", 1)
    insert(project, "a", 2)
    with project.catalog.writing() as tx:
        fire_triggers(tx)
        [batch], _ = claim_batches(tx, "one", 10)
    [claim] = batch.claims
    project.runner.run_claim(replace(claim, scope=RunScope(until={"a": 1})))
    assert read(project, "copied") == [(1,)]
    insert(project, "a", 3)
    assert set(server.turn()) == {"copied"}
    assert read(project, "copied") == [(1,), (2,), (3,)]


def test_cascades_see_runs_by_hand(project: Project) -> None:
    wf = kn.Workflow("cascading")
    wf.channel("a", "id int")
    wf.channel("o", "id int")

    @wf.task(schema="id int")
    def good(a: kn.New) -> kn.Delta:
        return a

    @wf.task(schema="id int")
    def bad(a: kn.New) -> kn.Delta:
        return a.selectExpr("cast(raise_error('no') as int) id")

    @wf.task(schema="id int")
    def after_good(o: kn.All) -> kn.Base:
        return o

    @wf.task(schema="id int")
    def after_bad(o: kn.All) -> kn.Base:
        return o

    wf.workflowette("first", [good])
    wf.workflowette("failing", [bad])
    wf.workflowette("runs_after_good", [after_good], on=kn.after("first"))
    wf.workflowette("runs_after_bad", [after_bad], on=kn.after("failing", "failed"))
    project.apply(wf)
    server = Server(project)
    insert(project, "o", 1)
    insert(project, "a", 1)
    assert server.turn() == {}
    for _ in range(2):  # the second time nothing is new
        project.run(["first"])
        assert set(server.turn()) == {"runs_after_good"}
        with pytest.raises(TaskFailed):
            project.run(["failing"])
        done = server.turn()
        assert set(done) == {"runs_after_bad"}
        assert done["runs_after_bad"] is not None
    assert server.turn() == {}


def test_columns_of_a_task_without_input_are_known_to_its_readers(project: Project) -> None:
    wf = kn.Workflow("joined")
    for name in ("a", "b"):
        wf.channel(name, "id int")

    @wf.task
    def left(a: kn.All) -> kn.Base:
        return a

    @wf.task
    def right(b: kn.All) -> kn.Base:
        return b

    @wf.task
    def both(left: kn.All, right: kn.All) -> kn.Base:
        return left.unionByName(right)

    wf.workflowette("together", [left, right, both], on=kn.arrival("b"))
    project.apply(wf)
    insert(project, "b", 1)
    done = Server(project).turn()
    assert done["together"] is not None
    assert read(project, "both") == [(1,)]
    insert(project, "a", 2)
    project.run(["together"])
    assert read(project, "both") == [(1,), (2,)]
