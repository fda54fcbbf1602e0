"""Changes of the functions of custom encodings: seen by plans, and in force for what comes after."""

from __future__ import annotations

import kilonova as kn
from kilonova.service.project import Project
from kilonova.testing.sandbox import Sandbox


class Times:
    """Keeps the last value, times a factor."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def merge(self, base, delta):  # type: ignore[no-untyped-def]
        return [{"k": delta[-1]["k"], "v": delta[-1]["v"] * self.factor}]

    def chain(self, first, second):  # type: ignore[no-untyped-def]
        return second


def flow(factor: int) -> kn.Workflow:
    workflow = kn.Workflow("w")
    workflow.channel("source", "k int, v int", key="k", encoding=kn.custom(Times(factor)))
    workflow.channel("made", "k int, v int", key="k", encoding=kn.custom(Times(factor)))

    @workflow.task
    def made(source: kn.All) -> kn.Delta:
        return source

    return workflow


def test_changed_functions_hold_for_new_deltas_and_remake_derived_channels(project: Project) -> None:
    box = Sandbox(project)
    project.apply(flow(1))
    box.ingest("source", [{"k": 1, "v": 2}, {"k": 2, "v": 2}])
    box.run()
    assert project.plan(flow(1)).empty

    plan = project.apply(flow(10))
    details = {change.channel.name: change.detail for change in plan.channels}
    assert "existing deltas keep the functions they were written with" in details["source"]
    assert "custom(k; Times_" in details["made"]
    (task,) = plan.tasks
    assert task.anew
    assert task.rows == 2
    assert project.plan(flow(10)).empty

    assert box.rows("source") == [{"k": 1, "v": 2}, {"k": 2, "v": 2}]
    box.ingest("source", [{"k": 1, "v": 3}])
    assert box.rows("source") == [{"k": 1, "v": 30}, {"k": 2, "v": 2}]
    box.run()
    assert box.rows("made") == [{"k": 1, "v": 300}, {"k": 2, "v": 20}]
    project.compact("source")
    assert box.rows("source") == [{"k": 1, "v": 30}, {"k": 2, "v": 2}]


def test_a_plan_names_what_it_cannot_see_through(project: Project) -> None:
    workflow = kn.Workflow("w")
    workflow.channel("source", "k int")

    @workflow.task
    def made(source: kn.New) -> kn.Delta:
        return eval("source")  # type: ignore[no-any-return]

    (only,) = project.plan(workflow).unseen
    assert (only.kind, only.name) == ("task", "made")
    assert only.what.startswith("code that eval creates")
