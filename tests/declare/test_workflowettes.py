from __future__ import annotations

from typing import Any

import pytest

import kilonova as kn
from kilonova.errors import DeclarationError
from kilonova.model.binding import Binding, validate_bindings
from kilonova.model.schedule import Cron, Every
from kilonova.model.task import Mode
from kilonova.model.trigger import AllOf, ArrivalTrigger, MisfirePolicy, RunOutcome, RunTrigger, TimeTrigger
from kilonova.model.workflow import WorkflowDefinition as WorkflowValue


def dedupe() -> kn.Workflowette:
    found = kn.Workflowette("dedupe")
    found.channel("incoming", "id string, site string")
    found.channel("hashes", "id string", key="id")
    found.channel("unique", "id string, site string")

    @found.task(writes=("unique", "hashes"))
    def sort_out(incoming: kn.New, hashes: kn.All) -> tuple[kn.Delta, kn.Delta]:
        raise NotImplementedError

    found.view("per_site", "SELECT unique.site, count(*) AS n FROM unique GROUP BY unique.site")
    return found


def news() -> kn.Workflow:
    workflow = kn.Workflow("news")
    workflow.channel("us", "id string, site string")
    workflow.channel("eu", "id string, site string")
    return workflow


def value(workflow: kn.Workflow) -> WorkflowValue:
    return workflow.declared().workflow


def ports(workflow: WorkflowValue, task: str) -> dict[str, tuple[str, Mode]]:
    found = next(item for item in workflow.tasks if item.name == task)
    return {port.name: (port.channel, port.mode) for port in found.variants[0].ports}


def test_a_workflowette_can_be_bound_more_than_once() -> None:
    workflow = news()
    workflow.bind("a", dedupe(), {"incoming": "us"}, on=kn.arrival("us"))
    workflow.bind("b", dedupe(), {"incoming": "eu", "unique": "eu_unique"}, priority=3, merge_window="30 seconds")
    found = value(workflow)
    assert ports(found, "a__sort_out") == {"incoming": ("us", Mode.NEW), "hashes": ("a__hashes", Mode.ALL)}
    assert ports(found, "b__sort_out") == {"incoming": ("eu", Mode.NEW), "hashes": ("b__hashes", Mode.ALL)}
    assert found.channel("eu_unique").schema == found.channel("a__unique").schema
    assert "eu_unique" in next(task for task in found.tasks if task.name == "b__per_site").reads
    first, second = found.bindings
    assert first == Binding(
        name="a", tasks=("a__sort_out", "a__per_site"), triggers=(ArrivalTrigger(channel="us"),), workflowette="dedupe"
    )
    assert (second.priority, second.merge_window, second.triggers) == (3, 30, ())


def test_workflowettes_can_be_bound_in_workflowettes() -> None:
    inner = kn.Workflowette("inner")
    inner.channel("rows", "id string, site string")
    inner.view("sites", "SELECT site FROM rows GROUP BY site")
    outer = kn.Workflowette("outer")
    outer.channel("pages", "id string, site string")
    outer.bind("deduped", dedupe(), {"incoming": "pages"})
    outer.bind("listed", inner, {"rows": "deduped__unique", "sites": "sites"})
    workflow = news()
    workflow.bind("all_us", outer, {"pages": "us", "sites": "us_sites"})
    found = value(workflow)
    assert ports(found, "all_us__deduped__sort_out")["incoming"] == ("us", Mode.NEW)
    assert next(task for task in found.tasks if task.name == "us_sites").reads == ("all_us__deduped__unique",)
    assert len(found.bindings) == 1


def test_tasks_outside_of_bindings_have_implicit_bindings() -> None:
    workflow = news()
    workflow.view("per_site", "SELECT site, count(*) AS n FROM us GROUP BY site")
    workflow.view("hourly", "SELECT count(*) AS n FROM eu", schedule="every 1 hour")
    workflow.view("sites", "SELECT DISTINCT site FROM us JOIN eu USING (site)")
    workflow.workflowette("report", ["sites"])
    bindings = {binding.name: binding for binding in value(workflow).bindings}
    assert bindings["per_site"].triggers == (ArrivalTrigger(channel="us"),)
    assert bindings["hourly"].triggers == (TimeTrigger(schedule=Every(3600)),)
    assert [bindings[name].implicit for name in ("report", "per_site", "hourly")] == [False, True, True]
    assert bindings["report"].tasks[-1] == "sites"
    assert set(bindings) == {"report", "per_site", "hourly"}


def test_triggers_as_users_write_them() -> None:
    assert kn.arrival("us", rows=5, age="10 minutes") == ArrivalTrigger(channel="us", rows=5, seconds=600)
    assert kn.every("1 week", missed="skip") == TimeTrigger(schedule=Every(604800), missed=MisfirePolicy.SKIP)
    assert kn.cron("0 6 * * *", zone="Europe/Berlin") == TimeTrigger(schedule=Cron("0 6 * * *", "Europe/Berlin"))
    assert kn.after("a", "failed") == RunTrigger(binding="a", reached=RunOutcome.FAILED)
    both = kn.all_of(kn.arrival("us"), kn.after("a"))
    assert both == AllOf((ArrivalTrigger(channel="us"), RunTrigger(binding="a")))
    for wrong, said in (
        (lambda: kn.arrival("us", rows=0), "a number of rows or a time"),
        (lambda: kn.arrival("us", age="soon"), "no unit 'soon'"),
        (lambda: kn.every("1 fortnight"), "no unit 'fortnight'"),
        (lambda: kn.every("1 hour", missed="maybe"), "there is no misfire policy 'maybe'"),  # type: ignore[arg-type]
        (lambda: kn.cron("0 6 * *"), "five fields"),
        (lambda: kn.cron("0 6 31 2 *"), "not a valid cron expression"),
        (lambda: kn.cron("0 6 * * *", zone="Mars/Olympus"), "no time zone 'Mars/Olympus'"),
        (lambda: kn.after("a", "done"), "there is no run outcome 'done'"),  # type: ignore[arg-type]
        (lambda: kn.all_of(kn.arrival("us")), "at least two triggers"),
        (lambda: kn.all_of(kn.arrival("us"), both), "simple triggers"),  # type: ignore[arg-type]
    ):
        with pytest.raises(DeclarationError, match=said):
            wrong()


def _bound_and_declared(workflow: kn.Workflow, ports: dict[str, str]) -> None:
    workflow.bind("a", dedupe(), ports)
    workflow.declared()


def test_what_does_not_fit_is_refused() -> None:
    workflow = news()
    workflow.channel("other", "id string, place string")
    workflow.channel("typed", "id string, site bigint")
    workflow.channel("wide", "id string, site string, more string")
    workflow.channel("keyed", "id string, site string", key="id")
    for ports, said in (
        ({"incomin": "us"}, "no port incomin"),
        ({}, "port incoming is not attached"),
        ({"incoming": "other"}, "no column site"),
        ({"incoming": "typed"}, "has type bigint, but the port incoming requires string"),
        ({"incoming": "wide"}, "does not have this column"),
        ({"incoming": "keyed"}, "has the encoding upsert"),
        ({"incoming": "us", "unique": "keyed"}, "has the encoding upsert"),
        ({"incoming": "nowhere"}, "no such channel"),
    ):
        trial = news()
        trial._drafts.channels.update(workflow._drafts.channels)
        with pytest.raises(DeclarationError, match=said):
            _bound_and_declared(trial, ports)
    lost = kn.Workflowette("lost")
    lost.channel("rows", "id string")
    lost.view("all_rows", "SELECT id FROM rows JOIN us USING (id)")
    workflow.bind("lost", lost, {"rows": "us"})
    with pytest.raises(DeclarationError, match="no such port"):
        workflow.declared()


def bound(name: str, *triggers: kn.Workflow | object, task: str = "") -> Binding:
    return Binding(name=name, tasks=(task or f"{name}_task",), triggers=tuple(triggers))  # type: ignore[arg-type]


def test_bindings_that_cannot_be_together_are_refused() -> None:
    writes = {"a_task": ["a_out"], "b_task": ["b_out"], "c_task": ["c_out"]}
    channels = ["us", "a_out", "b_out", "c_out"]
    fine = [
        bound("a", ArrivalTrigger(channel="us")),
        bound("b", AllOf((RunTrigger(binding="c"), TimeTrigger(schedule=Every(60))))),
        bound("c", RunTrigger(binding="b"), ArrivalTrigger(channel="a_out")),
    ]
    validate_bindings(fine, channels, writes)
    for wrong, said in (
        ([bound("a"), bound("a", task="b_task")], "declared twice"),
        ([bound("a_task", task="b_task")], "a task already has this name"),
        ([bound("a"), bound("b", task="a_task")], "already belongs to the binding a"),
        ([bound("a", task="d_task")], "no such task"),
        ([bound("a", ArrivalTrigger(channel="uk"))], "refers to a channel that does not exist"),
        ([bound("a", RunTrigger(binding="b"))], "refers to the binding b"),
        ([bound("a", ArrivalTrigger(channel="a_out"))], "the triggers form a cycle"),
        (
            [bound("a", RunTrigger(binding="b")), bound("b", RunTrigger(binding="a"))],
            "a is started by b is started by a",
        ),
        (
            [
                bound("a", ArrivalTrigger(channel="b_out")),
                bound("b", AllOf((RunTrigger(binding="a"), ArrivalTrigger(channel="a_out")))),
            ],
            "the triggers form a cycle",
        ),
    ):
        with pytest.raises(DeclarationError, match=said):
            validate_bindings(wrong, channels, writes)


@pytest.mark.parametrize(
    ("hint", "found"),
    [
        (kn.Delta, "delta delta"),
        (tuple[kn.Base, ...], "base base"),
        (tuple[kn.Base, kn.Base], "base base"),
        (tuple[kn.Delta, kn.Base], "delta base"),
    ],
)
def test_a_task_says_what_it_writes_to_each_output_or_to_all(hint: Any, found: str) -> None:
    task = next(iter(value(parting(hint)).tasks))
    assert [production.value for production in task.variants[0].productions] == found.split()


def test_a_task_says_of_each_output_what_it_writes_there() -> None:
    with pytest.raises(DeclarationError, match="annotated with 3 results, but the task writes 2 channels") as refused:
        value(parting(tuple[kn.Delta, kn.Base, kn.Base]))
    assert refused.value.task == "parted"


def parting(hint: Any) -> kn.Workflow:
    """A workflow with a task of two outputs whose result is annotated so."""

    def parted(us: kn.New) -> Any:
        raise NotImplementedError

    parted.__annotations__["return"] = hint
    workflow = news()
    workflow.channel("left", "id string")
    workflow.channel("right", "id string")
    workflow.task(parted, writes=("left", "right"))
    return workflow
