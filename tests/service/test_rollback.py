"""Rollback to an earlier logic version of a task or view."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kilonova as kn
from kilonova.catalog import bindings, channel_store, registry
from kilonova.catalog.database import Catalog
from kilonova.declare.workflow import Declared
from kilonova.errors import DeclarationError, NotFound
from kilonova.service import plan_application, workflow_plan
from kilonova.service.plan_action import Action
from kilonova.service.project import Project
from kilonova.service.rollback import earlier_definition
from kilonova.service.workflow_plan import WorkflowPlan
from tests.databases import Clock, empty_database

COLUMNS = "url string, q double, site string"
JOINED = "SELECT site, count(*) AS n FROM pages JOIN (SELECT url, count(*) AS c FROM visits GROUP BY url) USING (url) "


class History:
    """A catalog to which workflows are applied one after another."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self.catalog, self._clock = catalog, clock

    def apply(self, workflow: kn.Workflow | Declared) -> WorkflowPlan:
        self._clock.forward(60)
        declared = workflow if isinstance(workflow, Declared) else workflow.declared()
        with self.catalog.writing() as tx:
            plan = workflow_plan.plan_changes(tx, declared.workflow, declared.functions)
            plan_application.apply_plan(tx, plan)
        return plan

    def rollback(self, name: str, version: int | None = None) -> WorkflowPlan:
        with self.catalog.reading() as tx:
            earlier = earlier_definition(tx, name, version)
        return self.apply(earlier)

    def state(self) -> tuple[object, ...]:
        """Return everything that is registered and active, without numbers and texts of views that are equivalent."""
        with self.catalog.reading() as tx:
            tasks = {name: (known.task.fingerprint, known.task) for name, known in registry.tasks(tx).items()}
            written = {name for _, task in tasks.values() for name in task.writes}
            channels = channel_store.channel_states(tx)
            own = bindings.bindings(tx).values()
            return (
                tasks,
                {name: (channels[name].channel.encoding, channels[name].channel.schema) for name in written},
                {each.binding.name: (set(each.binding.tasks), set(each.binding.triggers)) for each in own},
            )

    def logic(self, name: str) -> int:
        with self.catalog.reading() as tx:
            return registry.tasks(tx, [name])[name].logic


@pytest.fixture
def history() -> Iterator[History]:
    with empty_database("sqlite") as url:
        clock = Clock()
        catalog = Catalog(url, clock)
        catalog.create()
        yield History(catalog, clock)
        catalog.close()


def web(good: str, *, threshold: int = 0, grouped: str = "", others: bool = False) -> kn.Workflow:
    wf = kn.Workflow("web")
    wf.channel("pages", COLUMNS, key="url")
    wf.channel("visits", "url string, at bigint")
    wf.view("good", good)

    @wf.task(schema="url string, at bigint", encoding="changes" if threshold > 5 else "append")
    def late(visits: kn.New) -> kn.Delta:
        return visits.where(f"at > {threshold}")

    if grouped:
        wf.view("grouped", grouped)
        wf.workflowette("both", ("grouped", "late"), on=kn.arrival("visits"))
    if others:
        wf.view("more", "SELECT url FROM pages")
    return wf


PLAIN, STRICT = "SELECT url, q FROM pages WHERE q > 0.5", "SELECT url, q FROM pages WHERE q > 0.7"
STORED, DIRECT = JOINED + "GROUP BY site", "SELECT site, 1 AS n FROM pages"


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        (web(PLAIN), web(STRICT), "good"),
        (web(PLAIN), web("SELECT site, count(*) AS n FROM pages GROUP BY site"), "good"),
        (web("SELECT site, count(*) AS n FROM pages GROUP BY site"), web(PLAIN), "good"),
        (web(STORED), web(DIRECT), "good"),
        (web(DIRECT), web(STORED), "good"),
        (web(STORED), web(STORED.replace("FROM visits", "FROM visits WHERE at > 3")), "good"),
        (web(PLAIN, grouped=STORED), web(PLAIN, grouped=DIRECT), "grouped"),
        (web(PLAIN, grouped=DIRECT), web(PLAIN, grouped=STORED), "grouped"),
        (web(PLAIN), web(PLAIN, threshold=3), "late"),
        (web(PLAIN), web(PLAIN, threshold=9), "late"),
    ],
    ids=range(10),
)
def test_a_rollback_registers_what_was_there_as_a_new_version(
    history: History, first: kn.Workflow, second: kn.Workflow, name: str
) -> None:
    history.apply(first)
    before = history.state()
    history.apply(second)
    between, logic = history.state(), history.logic(name)
    plan = history.rollback(name)
    assert {item.task.name for item in plan.tasks if item.action is not Action.KEEP} <= {
        task.name for workflow in (first, second) for task in workflow.declared().workflow.tasks
    }
    assert history.state() == before
    assert history.logic(name) >= logic
    assert history.apply(first).empty
    assert history.rollback(name) != plan
    assert history.state() == between


def test_a_version_is_named_and_other_changes_of_the_workflow_stay(history: History) -> None:
    for query in (PLAIN, STRICT, "SELECT url FROM pages"):
        history.apply(web(query))
    history.apply(web("SELECT url FROM pages", threshold=4, others=True))
    plan = history.rollback("good", 0)
    assert [(item.task.name, item.logic) for item in plan.tasks if item.action is not Action.KEEP] == [("good", 3)]
    assert history.apply(web(PLAIN, threshold=4, others=True)).empty
    history.rollback("good", 1)
    assert history.apply(web(STRICT, threshold=4, others=True)).empty


def test_what_cannot_be_restored_is_refused(history: History) -> None:
    history.apply(web(STORED))
    with history.catalog.reading() as tx:
        [kept] = {*registry.view_tasks(tx, "good")} - {"good"}
    for name, version, problem in (
        ("good", None, "no earlier logic version"),
        ("good", 0, "is the present one"),
        (kept, None, "part of the view good"),
    ):
        with pytest.raises(DeclarationError, match=problem):
            history.rollback(name, version)
    for name, version in (("good", 7), ("goood", None)):
        with pytest.raises(NotFound):
            history.rollback(name, version)
    checked = web(DIRECT)
    checked.view("sums", "SELECT n FROM good")
    history.apply(checked)
    history.apply(web(DIRECT))
    without_visits = kn.Workflow("web")
    without_visits.channel("pages", COLUMNS, key="url")
    without_visits.view("good", DIRECT, checks={"not_null": "site"})
    history.apply(without_visits)
    with pytest.raises(DeclarationError, match="checks of the channel good have changed") as refused:
        history.rollback("good")
    assert "file of the workflow web" in str(refused.value)
    without_visits = kn.Workflow("web")
    without_visits.channel("pages", COLUMNS, key="url")
    without_visits.view("good", DIRECT)
    history.apply(without_visits)
    with history.catalog.writing() as tx:
        channel_store.drop_channel(tx, "visits")
    with pytest.raises(DeclarationError, match="the channel visits, which is read, would not exist"):
        history.rollback("good")


def test_a_rollback_migrates_the_output(project: Project) -> None:
    def rows() -> list[tuple[object, ...]]:
        return sorted(map(tuple, project.rows("good")[1]))

    def applied(query: str) -> None:
        wf = kn.Workflow("web")
        wf.channel("pages", COLUMNS, key="url")
        wf.view("good", query)
        project.apply(wf)

    applied(PLAIN)
    given = [("a", 0.9, "x"), ("b", 0.6, "y"), ("c", 0.2, "y")]
    project.ingest("pages", project.warehouse.spark.createDataFrame(given, COLUMNS))
    project.run()
    applied("SELECT url FROM pages WHERE q > 0.7")
    project.run()
    assert rows() == [("a",)]
    plan = project.rollback("good", dry_run=True)
    assert "migrated at the next run" in plan.tasks[0].detail
    assert plan == project.rollback("good")
    done = project.run()
    assert done is not None
    assert done.made[0].reason.startswith("migration")
    assert rows() == [("a", 0.9), ("b", 0.6)]
