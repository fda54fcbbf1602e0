"""Each declared attribute that changes is shown by the plan, and registered when it is applied."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import kilonova as kn
from kilonova.catalog import bindings, bounds, channel_store, registry
from kilonova.catalog.database import Catalog
from kilonova.declare.views import Refresh
from kilonova.errors import DeclarationError
from kilonova.model.binding import Binding
from kilonova.model.task import Task
from kilonova.service import plan_application, workflow_plan
from kilonova.service.bound_plan import path_of_bound
from kilonova.service.plan_action import Action
from kilonova.service.workflow_plan import WorkflowPlan
from tests.databases import Clock, empty_database
from tests.seeds import some

COLUMNS = "id bigint, n bigint"
GROUPS = "SELECT n, count(*) AS c FROM orders GROUP BY n"


class Summing:
    def merge(self, base: list[dict[str, Any]], delta: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return base + delta

    def chain(self, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return first + second


class Replacing(Summing):
    def merge(self, base: list[dict[str, Any]], delta: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return delta


def copied(orders: kn.New) -> kn.Delta:
    return orders


def doubled(id: Any) -> Any:
    return id * 2


def filtered() -> Callable[..., Any]:
    def copied(orders: kn.New) -> kn.Delta:
        return orders.where("n > 0")

    return copied


def counting(name: str = "counting", query: str = "SELECT count(*) AS n FROM incoming") -> kn.Workflowette:
    found = kn.Workflowette(name)
    found.channel("incoming", COLUMNS)
    found.view("total", query)
    return found


def shop(changed: Mapping[str, Any]) -> kn.Workflow:
    """Return a workflow with everything that can be declared; some parameters differ, by `function.parameter`."""

    def given(function: str, /, **usual: Any) -> dict[str, Any]:
        own = {name.partition(".")[2]: value for name, value in changed.items() if name.startswith(f"{function}.")}
        return {name: value for name, value in (usual | own).items() if value is not None}

    shop = kn.Workflow("shop")
    archive = given("channel", name="archive", schema=COLUMNS)
    shop.channel("prices", COLUMNS, key="id", sequence_by=archive.pop("sequence_by", None))
    shop.channel(**archive)
    shop.channel("orders", COLUMNS)
    shop.channel("orders2", COLUMNS)
    inbox = kn.watched_directory(**given("watched_directory", path="inbox", pattern="*.csv"))
    shop.channel("filled", COLUMNS, watch=inbox)
    encoding = kn.increment(*given("increment", measures=("n",))["measures"])
    key = [name for name in ("id", "n", "m") if name not in encoding.measures]
    shop.channel("sums", "id bigint, n bigint, m bigint", key=key, encoding=encoding)
    shop.channel("merged", COLUMNS, key="id", encoding=kn.custom(**given("custom", functions=Summing())))
    task = given("task", function=copied, schema=COLUMNS)
    if "columns" in task:
        task["key"] = "id"
    shop.task(task.pop("function"), **task)
    usual = {"name": "selected", "query": "SELECT * FROM {orders2}", "reads": {"orders2": kn.New}}
    shop.sql(**given("sql", **usual, produces=kn.Delta, schema=COLUMNS))
    shop.view(**given("view", name="groups", query=GROUPS))
    shop.view("matched", "SELECT o.id FROM orders o JOIN orders2 USING (id)")
    shop.bound_staleness(**given("bound_staleness", channel="matched", path="orders", limit="1 day"))
    shop.accept_blocks(**given("accept_blocks", channel="matched", kind="base"))
    shop.bound_inconsistency(**given("bound_inconsistency", channel="matched", limit="1 week"))
    shop.view("one", "SELECT id FROM orders2")
    shop.view("other", "SELECT n FROM orders2")
    shop.view("early", "SELECT n FROM orders2")
    shop.workflowette(**given("workflowette", name="both", tasks=("one",), on=kn.arrival("orders2")))
    shop.bind(**given("bind", name="counted", workflowette=counting(), ports={"incoming": "orders2"}))
    shop.workflowette("first", ("early",))
    trigger = kn.all_of(
        kn.arrival(**given("arrival", channel="orders2")),
        kn.every(**given("every", interval="1 day")),
        kn.cron(**given("cron", expression="0 6 * * *")),
        kn.after(**given("after", binding="first")),
    )
    conditions = given("all_of", triggers=trigger.triggers)["triggers"]
    shop.workflowette("triggered", ("other",), on=kn.all_of(*conditions))
    return shop


_DECLARED = (
    *("channel", "task", "sql", "view", "workflowette", "bind"),
    *("bound_staleness", "bound_inconsistency", "accept_blocks"),
)
DECLARING: dict[str, Callable[..., Any]] = {
    **{each: getattr(kn.Workflow, each) for each in _DECLARED},
    **{each: getattr(kn, each) for each in ("watched_directory", "increment", "custom")},
    **{each: getattr(kn, each) for each in ("arrival", "every", "cron", "after", "all_of")},
}
"""All functions that declare something; `on` of a workflowette and of a binding take the triggers."""

CHANGES: dict[str, tuple[Any, str]] = {
    "channel.name": ("archive3", "add archive3"),
    "channel.schema": (f"{COLUMNS}, at date", "change archive: adds the column at date"),
    "channel.key": ("id", "change archive: append becomes upsert(id)"),
    "channel.encoding": ("changes", "change archive: append becomes changes"),
    "channel.description": ("All orders", "change archive: changes the description"),
    "channel.checks": ({"not_null": "id"}, "change archive: adds the check not_null(id)"),
    "channel.watch": (kn.watched_directory("in"), "change archive: ingests the files of in/* every 30 seconds"),
    "channel.several_writers": (True, "change archive: may have several writers"),
    "channel.sequence_by": ("n", "change prices: the row of a key with the highest n counts"),
    "channel.retention": ("3 days", "change archive: keeps points for 3 days"),
    "channel.on_new_column": ("ignore", "change archive: ignores new columns of ingested rows"),
    "channel.rename": ({"number": "n"}, "change archive: reads the column number as n"),
    "channel.defaults": ({"n": 7}, "change archive: fills the column n with '7' where it is lacking"),
    "watched_directory.path": ("other", "change filled: ingests the files of other/*.csv instead of inbox/*.csv"),
    "watched_directory.pattern": ("*.json", "change filled: ingests the files of inbox/*.json instead of inbox/*.csv"),
    "watched_directory.format": ("csv", "change filled: format csv instead of inferred"),
    "watched_directory.options": ({"sep": ";"}, "change filled: option sep: ';' instead of default"),
    "watched_directory.poll_interval": ("1 day", "change filled: scans every 1 day instead of every 30 seconds"),
    "watched_directory.settle_time": ("0 seconds", "change filled: settle time 0 seconds instead of 5 seconds"),
    "watched_directory.in_order": (True, "change filled: ingests files in order"),
    "increment.measures": (("n", "m"), "change sums: increment(id, m; n) becomes increment(id; n, m)"),
    "custom.functions": (Replacing(), "becomes custom(id; Replacing"),
    "custom.delta": ("id bigint", "change merged: changes the columns of its deltas"),
    "task.function": (filtered(), "change copied: logic version 0 → 1: the code of copied changed"),
    "task.reads": ({"orders": "orders2"}, "change copied: logic version 0 → 1: the ports or result of copied changed"),
    "task.writes": ("copied2", "change copied: logic version 0 → 1: it writes other channels"),
    "task.schema": ("n bigint, id bigint", "change copied: changes the order of the columns"),
    "task.key": ("id", "change copied: append becomes upsert(id)"),
    "task.encoding": ("changes", "change copied: append becomes changes"),
    "task.columns": ({"n": doubled}, "change copied: logic version 0 → 1: the declaration of the channel copied has"),
    "task.where": ("n > 1", "change copied: logic version 0 → 1: the code of copied changed"),
    "task.per_row": (True, "change copied: logic version 0 → 1: the code of copied changed"),
    "task.requires": ({"orders": COLUMNS}, "change copied: requires id bigint and n bigint of orders"),
    "sql.name": ("chosen", "drop selected: no longer declared"),
    "sql.query": ("SELECT * FROM {orders2} WHERE n > 0", "change selected: logic version 0 → 1: the code"),
    "sql.reads": ({"orders2": kn.All}, "change selected: logic version 0 → 1: the ports or result"),
    "sql.produces": (kn.Base, "change selected: logic version 0 → 1: the ports or result"),
    "sql.schema": (f"{COLUMNS}, at date", "change selected: adds the column at date"),
    "sql.key": ("id", "change selected: append becomes upsert(id)"),
    "sql.encoding": ("changes", "change selected: append becomes changes"),
    "sql.requires": ({"orders2": "n bigint"}, "change selected: requires n bigint of orders2"),
    "view.name": ("per_n", "drop groups: no longer declared"),
    "view.query": (GROUPS.replace("count(*)", "sum(id)"), "change groups: logic version 0 → 1: its query changed"),
    "view.key": (("c", "n"), "change groups: changes becomes upsert(c, n)"),
    "view.refresh": ("incremental", "change groups: is refreshed incrementally instead of by the cheapest method"),
    "view.description": ("Orders per n", "change groups: changes the description"),
    "view.checks": ({"not_null": "c"}, "change groups: adds the check not_null(c)"),
    "view.schedule": ("every 1 hour", "change groups: runs every 1 hour instead of whenever there is new input"),
    "view.materialized": (False, "drop groups: no longer declared"),
    "view.retention": ("1 day", "change groups: keeps points for 1 day"),
    "view.requires": ({"orders": "m bigint"}, "change groups: requires m bigint of orders"),
    "workflowette.name": ("pair", "add pair"),
    "workflowette.tasks": (("one", "groups"), "change both: also runs groups"),
    "workflowette.on": (kn.every("1 hour"), "change both: every 1 hour instead of orders2 has new data"),
    "workflowette.priority": (7, "change both: priority 7 instead of 0"),
    "workflowette.merge_window": ("1 minute", "change both: merge window 1 minute instead of none"),
    "bind.name": ("tallied", "drop counted: no longer declared"),
    "bind.workflowette": (counting("tallying"), "binds the workflowette tallying instead of the workflowette counting"),
    "bind.ports": ({"incoming": "orders"}, "change counted__total: logic version 0 → 1: its query changed"),
    "bind.on": (kn.every("1 hour"), "change counted: every 1 hour instead of by hand"),
    "bind.priority": (-1, "change counted: priority -1 instead of 0"),
    "bind.merge_window": ("90 seconds", "change counted: merge window 90 seconds instead of none"),
    "bound_staleness.channel": ("copied", "add copied: copied is at most 1 day behind orders›copied"),
    "bound_staleness.path": ("orders2", "add matched: matched is at most 1 day behind orders2›matched"),
    "bound_staleness.limit": (
        "2 days",
        "change matched: matched is at most 2 days behind orders›matched, instead of 1",
    ),
    "bound_inconsistency.channel": ("copied", "add copied: copied is at most 1 week inconsistent"),
    "bound_inconsistency.limit": (0, "change matched: matched is always consistent, instead of 1 week"),
    "accept_blocks.channel": ("groups", "change groups: readers accept only bases"),
    "accept_blocks.kind": ("delta", "change matched: readers accept only deltas"),
    "arrival.channel": ("orders", "change triggered: orders has new data, and every 1 day"),
    "arrival.rows": (5, "change triggered: orders2 has 5 new rows, and"),
    "arrival.age": ("1 hour", "change triggered: orders2 has new data that is 1 hour old, and"),
    "every.interval": ("2 days", "change triggered: orders2 has new data, and every 2 days, and"),
    "every.missed": ("skip", "every 1 day (missed times are skipped), and"),
    "cron.expression": ("0 7 * * *", "and 0 7 * * *, and"),
    "cron.zone": ("Europe/Berlin", "and 0 6 * * * in Europe/Berlin, and"),
    "cron.missed": ("skip", "and 0 6 * * * (missed times are skipped), and"),
    "after.binding": ("counted", "and counted has succeeded instead of"),
    "after.reached": ("failed", "and first has failed instead of"),
    "all_of.triggers": ((kn.every("1 day"), kn.arrival("orders")), "every 1 day, and orders has new data instead of"),
}
"""Another value for each parameter, and what the plan says of it."""


def parameters() -> Iterator[str]:
    for name, function in DECLARING.items():
        yield from (f"{name}.{each}" for each in inspect.signature(function).parameters if each != "self")


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with empty_database("sqlite") as url:
        made = Catalog(url, Clock())
        made.create()
        yield made
        made.close()


def applied(catalog: Catalog, workflow: kn.Workflow) -> WorkflowPlan:
    declared = workflow.declared()
    with catalog.writing() as tx:
        plan = workflow_plan.plan_changes(tx, declared.workflow, declared.functions)
        plan_application.apply_plan(tx, plan)
    return plan


def told(plan: WorkflowPlan) -> list[str]:
    parts = [
        *((item.action, item.channel.name, item.detail) for item in plan.channels),
        *((item.action, item.task.name, item.detail) for item in plan.tasks),
        *((item.action, item.binding.name, item.detail) for item in plan.bindings),
        *((item.action, item.bound.channel, item.detail) for item in plan.bounds),
    ]
    return [f"{action.value} {name}: {detail}" for action, name, detail in parts if action is not Action.KEEP]


def test_every_parameter_of_every_declaration_is_tried() -> None:
    assert sorted(CHANGES) == sorted(parameters())


@pytest.mark.parametrize("parameter", some(CHANGES, len(CHANGES) // 2))
def test_a_change_is_shown_and_takes_effect(catalog: Catalog, parameter: str) -> None:
    value, said = CHANGES[parameter]
    applied(catalog, shop({}))
    assert applied(catalog, shop({})).empty
    lines = told(applied(catalog, shop({parameter: value})))
    assert any(said in line for line in lines), lines
    assert applied(catalog, shop({parameter: value})).empty
    wanted = shop({parameter: value}).declared().workflow
    with catalog.reading() as tx:
        channels = {name: state.channel for name, state in channel_store.channel_states(tx).items()}
        tasks = {name: known.task for name, known in registry.tasks(tx).items()}
        known = {name: each.binding for name, each in bindings.bindings(tx).items()}
        bound = {(each.channel, each.path[:1], each.limit) for each in bounds.bounds(tx)}
    assert bound == {(each.channel, path_of_bound(each)[:1], each.limit) for each in wanted.bounds}
    for channel in wanted.channels:
        stored = channels[channel.name]
        assert stored.adopts == (channel.schema is None)
        assert [column.type for column in (stored.schema.columns if stored.schema else ())] == [
            column.type for column in (channel.schema.columns if channel.schema else ())
        ]
        compared = (
            "encoding",
            "description",
            "checks",
            "watch",
            "several_writers",
            "sequence_by",
            "retention",
            "rules",
            "accepts",
        )
        assert [getattr(stored, each) for each in compared] == [getattr(channel, each) for each in compared]
    assert {name: (task.schedule, task.written) for name, task in tasks.items()} == {
        task.name: (task.schedule, task.written) for task in wanted.tasks
    }
    assert {name: definitions(task) for name, task in tasks.items()} == {
        task.name: definitions(task) for task in wanted.tasks
    }
    assert {name: parts(each) for name, each in known.items()} == {each.name: parts(each) for each in wanted.bindings}


def definitions(task: Task) -> tuple[object, ...]:
    return task.writes, [(each.name, each.ports, each.productions, each.fingerprint) for each in task.variants]


def parts(binding: Binding) -> tuple[object, ...]:
    others = (binding.workflowette, binding.priority, binding.merge_window, binding.implicit)
    return set(binding.tasks), set(binding.triggers), *others


def test_the_order_of_variants_is_a_preference(catalog: Catalog) -> None:
    def ordered(*names: str) -> WorkflowPlan:
        def whole(orders: kn.All) -> kn.Base:
            return orders

        def added(orders: kn.New) -> kn.Delta:
            return orders

        functions = {"whole": whole, "added": added}
        workflow = kn.Workflow("shop")
        workflow.channel("orders", COLUMNS)
        workflow.channel("copies", COLUMNS)

        def copies(orders: kn.New) -> kn.Delta:
            return orders.distinct()

        task = workflow.task(copies)
        for name in names:
            task.variant(functions[name])
        return applied(catalog, workflow)

    ordered("whole", "added")
    [changed] = [item for item in ordered("added", "whole").tasks if item.action is Action.CHANGE]
    assert changed.detail == "prefers its variants in the order copies, added, whole"
    assert (changed.logic, changed.anew, changed.rows) == (0, False, 0)
    assert ordered("added", "whole").empty
    with catalog.reading() as tx:
        known = registry.tasks(tx)["copies"]
    assert [variant.name for variant in known.task.variants] == ["copies", "added", "whole"]


CLICKS = "SELECT n, count(*) AS k FROM clicks GROUP BY n"
JOINED = f"SELECT o.n, count(*) AS c FROM orders o JOIN ({CLICKS}) USING (n) GROUP BY o.n"


def joined(catalog: Catalog, refresh: Refresh) -> list[tuple[str, str, bool]]:
    workflow = kn.Workflow("shop")
    workflow.channel("orders", COLUMNS)
    workflow.channel("clicks", COLUMNS)
    workflow.view("joined", JOINED, refresh=refresh)
    plan = applied(catalog, workflow)
    assert applied(catalog, workflow).empty
    return [(item.task.name, item.detail, item.anew) for item in plan.tasks if item.action is not Action.KEEP]


def test_a_view_is_refreshed_otherwise_without_recomputing_it(catalog: Catalog) -> None:
    first = joined(catalog, "auto")
    assert [anew for _, _, anew in first] == [True] * len(first)
    assert ("joined", "is refreshed incrementally instead of by the cheapest method", False) in joined(
        catalog, "incremental"
    )
    with catalog.reading() as tx:
        tasks = registry.tasks(tx)
    assert {task: known.task.variants[0].name for task, known in tasks.items()} == dict.fromkeys(tasks, "incremental")
    assert ("joined", "is refreshed by the cheapest method instead of incrementally", False) in joined(catalog, "auto")
    with catalog.reading() as tx:
        tasks = registry.tasks(tx)
    assert tasks["joined"].task.from_sources is not None
    assert {known.logic for known in tasks.values()} == {0}


def test_a_view_that_was_computed_from_its_sources_is_recomputed(catalog: Catalog) -> None:
    joined(catalog, "auto")
    with catalog.writing() as tx:
        registry.move_cursors(tx, "joined", 0, [("orders", 0), ("clicks", 0)])
    assert [anew for name, _, anew in joined(catalog, "incremental") if name == "joined"] == [True]


def test_columns_can_be_declared_later_and_no_longer(catalog: Catalog) -> None:
    def copying(schema: str | None) -> list[str]:
        workflow = kn.Workflow("shop")
        workflow.channel("orders", schema)
        found = told(applied(catalog, workflow))
        assert applied(catalog, workflow).empty
        return found

    copying(COLUMNS)
    assert copying(None) == ["change orders: takes the columns of the rows that are written"]
    with catalog.reading() as tx:
        assert channel_store.channel(tx, "orders").adopts
    assert copying(COLUMNS) == ["change orders: declares its columns"]


def test_only_the_workflow_of_a_channel_describes_it(catalog: Catalog) -> None:
    applied(catalog, shop({"channel.description": "All orders"}))
    reader = kn.Workflow("reader")
    reader.channel("archive", COLUMNS, description="Some orders")
    with pytest.raises(DeclarationError, match="its description"):
        applied(catalog, reader)


REWRITTEN = """
WITH per_n AS (SELECT count(1) AS k, n AS m FROM clicks GROUP BY n)
SELECT x.n, count(*) AS c FROM per_n JOIN orders x ON per_n.m = x.n GROUP BY 1"""


def test_a_definition_that_is_written_differently_is_the_same(catalog: Catalog) -> None:
    def declared(view: str, opaque: str, sql: str) -> kn.Workflow:
        workflow = kn.Workflow("shop")
        workflow.channel("orders", COLUMNS)
        workflow.channel("clicks", COLUMNS)
        workflow.view("joined", view)
        workflow.view("sampled", opaque)
        workflow.sql("copied", sql, reads={"orders": kn.New}, produces=kn.Delta, schema=COLUMNS)
        return workflow

    applied(catalog, declared(JOINED, "SELECT n FROM orders TABLESAMPLE (50 PERCENT)", "SELECT * FROM {orders}"))
    with catalog.reading() as tx:
        before = registry.tasks(tx)
    rewritten = declared(
        REWRITTEN, "select n -- half\n from orders tablesample (50 percent)", "SELECT *\nFROM {orders} -- all"
    )
    plan = applied(catalog, rewritten)
    assert plan.empty
    assert {each.task.name for each in plan.tasks if each.detail == "same logic, written differently"} == {
        "joined",
        "sampled",
        "copied",
    }
    with catalog.reading() as tx:
        after = registry.tasks(tx)
    assert {name: each.logic for name, each in after.items()} == {name: each.logic for name, each in before.items()}
    assert after["joined"].task.variants == before["joined"].task.variants
    assert after["joined"].task.written == REWRITTEN.strip()
    assert after["copied"].task.variants[0].logic.text == "SELECT *\nFROM {orders} -- all"
    assert not any(each.detail for each in applied(catalog, rewritten).tasks)


def test_texts_that_differ_are_shown_as_a_diff(catalog: Catalog) -> None:
    applied(catalog, shop({}))
    query = "SELECT n,\n  count(*) AS c\nFROM orders\n"
    applied(catalog, shop({"view.query": f"{query}GROUP BY n"}))
    plan = applied(
        catalog, shop({"view.query": f"{query}WHERE n > 0\nGROUP BY n", "sql.query": "SELECT 1 AS id, 2 AS n"})
    )
    assert {item.task.name: item.diff.splitlines() for item in plan.tasks if item.diff} == {
        "groups": [
            "--- groups (registered)",
            "+++ groups (declared)",
            "@@ -1,4 +1,5 @@",
            " SELECT n,",
            "   count(*) AS c",
            " FROM orders",
            "+WHERE n > 0",
            " GROUP BY n",
        ],
        "selected": [
            "--- selected (registered)",
            "+++ selected (declared)",
            "@@ -1 +1 @@",
            "-SELECT * FROM {orders2}",
            "+SELECT 1 AS id, 2 AS n",
        ],
    }
    assert not any(item.diff for item in applied(catalog, shop({})).tasks if item.task.name == "copied")
