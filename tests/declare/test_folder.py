"""Folders of SQL files as workflows: what they declare, and what is said where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.catalog.database import Catalog
from kilonova.declare.folder import workflow_from_folder
from kilonova.declare.frontmatter import split_front_matter
from kilonova.declare.load import load
from kilonova.declare.modes import All, Base
from kilonova.declare.workflow import Declared, Workflow
from kilonova.errors import DeclarationError, KilonovaError, QueryError
from kilonova.model.bound import describe_bound
from kilonova.model.check import NotNull, RowCondition
from kilonova.model.encoding import Append, Changes, Upsert
from kilonova.model.schedule import Every
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.service import plan_application, workflow_plan
from kilonova.service.plan_action import Action
from tests.databases import NOON, Clock

ORDERS = "CREATE TABLE orders (id BIGINT, customer STRING, amount DECIMAL(10, 2), PRIMARY KEY (id));\n"
TURNOVER = "---\nkey: customer\ndescription: What each customer spent\n---\nSELECT customer, sum(amount) AS amount\n"
TURNOVER += "FROM orders GROUP BY customer\n"
FILES = {
    "sources/orders.sql": ORDERS,
    "sources/clicks.sql": "CREATE TABLE clicks (page STRING COMMENT 'a URL', n INT)",
    "a_large.sql": "-- views over views, in any order\nSELECT * FROM turnover WHERE amount > 100; -- the end",
    "turnover.sql": TURNOVER,
}


def written(place: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (place / "models" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "models" / name).write_text(text)
    return place / "models"


def declared(place: Path, files: dict[str, str]) -> Declared:
    return workflow_from_folder(written(place, files)).declared()


def test_a_view_that_is_not_materialized_is_part_of_those_that_read_it(tmp_path: Path) -> None:
    (tmp_path / "orders.sql").write_text(
        "CREATE TABLE orders (id BIGINT, customer STRING, amount INT, PRIMARY KEY (id))"
    )
    (tmp_path / "paid.sql").write_text("---\nmaterialized: false\n---\nSELECT * FROM orders WHERE amount > 0")
    (tmp_path / "large.sql").write_text("---\nmaterialized: false\n---\nSELECT id, amount FROM paid WHERE amount > 9")
    (tmp_path / "rest.sql").write_text("WITH p AS (SELECT * FROM paid) SELECT id FROM p EXCEPT SELECT id FROM large")
    beyond = "SELECT id FROM paid GROUP BY id HAVING EXISTS (SELECT 1 FROM large)"
    (tmp_path / "beyond.sql").write_text(beyond)
    workflow = workflow_from_folder(tmp_path).declared().workflow
    reads = {task.name: set(task.reads) for task in workflow.tasks}
    assert {channel.name for channel in workflow.channels} == {"orders", *reads}
    assert not {"paid", "large"} & set.union(*reads.values())
    assert reads["beyond"] == {"orders"}


@pytest.mark.parametrize(
    ("field", "query", "what"),
    [
        ("materialized: false\nkey: id", "SELECT id FROM orders", "not materialized cannot have a key"),
        ("materialized: false", "SELECT idd FROM orders", "idd"),
        ("materialized: maybe", "SELECT id FROM orders", "line 2: materialized must be true or false"),
    ],
)
def test_a_view_that_is_not_materialized_is_validated_on_its_own(
    tmp_path: Path, field: str, query: str, what: str
) -> None:
    (tmp_path / "orders.sql").write_text("CREATE TABLE orders (id BIGINT)")
    (tmp_path / "some.sql").write_text(f"---\n{field}\n---\n{query}")
    with pytest.raises(KilonovaError, match=what):
        workflow_from_folder(tmp_path).declared()


def test_a_folder_is_the_workflow_that_python_would_declare(tmp_path: Path) -> None:
    same = Workflow("models")
    same.channel("clicks", "page string, n int")
    same.channel("orders", "id bigint, customer string, amount decimal(10,2)", key="id")
    same.view("a_large", "SELECT * FROM turnover WHERE amount > 100")
    same.view(
        "turnover",
        "SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer",
        key="customer",
        description="What each customer spent",
    )
    assert declared(tmp_path, FILES) == same.declared()
    assert [item.name for item in load(tmp_path / "models")] == ["models"]


def test_keys_and_modes_are_those_of_the_front_matter(tmp_path: Path) -> None:
    files = {
        "orders.sql": ORDERS,
        "pairs.sql": (
            "---\nkey: [customer, id]\nrefresh: full\nschedule: every day\n---\nSELECT id, customer FROM orders"
        ),
        "plain.sql": "---\n---\nSELECT customer FROM orders",
        "entries.sql": "CREATE TABLE entries (id INT NOT NULL PRIMARY KEY)",
        "marks.sql": "CREATE TABLE marks (a INT, b INT, CONSTRAINT k PRIMARY KEY (b, a))",
        "log.sql": (
            "---\nchecks: {expressions: n > 0}\n---\nCREATE TABLE IF NOT EXISTS log (line STRING NOT NULL, n INT);"
        ),
    }
    workflow = declared(tmp_path, files).workflow
    assert {channel.name: channel.encoding for channel in workflow.channels} == {
        "entries": Upsert(("id",)),
        "log": Append(),
        "marks": Upsert(("b", "a")),
        "orders": Upsert(("id",)),
        "pairs": Upsert(("customer", "id")),
        "plain": Changes(),
    }
    assert {task.name: task.schedule for task in workflow.tasks} == {"pairs": Every(86_400), "plain": None}
    assert workflow.channel("log").checks == (NotNull("line"), RowCondition("n > 0"))
    assert [v.name for t in workflow.tasks if t.name == "pairs" for v in t.variants] == ["full"]


BAD: dict[str, tuple[dict[str, str], str]] = {
    "no files": ({"readme.md": "hello"}, r"the folder contains no \.sql file.* \[path .*models\]"),
    "an empty file": ({"v.sql": " \n"}, r"the file contains no statement.* \[path .*models/v\.sql\]"),
    "only a comment": ({"v.sql": "-- later\n"}, "contains no statement"),
    "only front matter": ({"v.sql": "---\nkey: id\n---\n"}, "contains no statement"),
    "two statements": ({"v.sql": "---\n---\nSELECT 1 AS a;\n\n SELECT 2"}, r"^line 5, column 2: a second.*v\.sql\]"),
    "another statement": ({"v.sql": "DROP TABLE x"}, "neither a query nor a CREATE TABLE"),
    "two files of one name": ({"a/v.sql": "SELECT 1", "b/V.sql": "SELECT 1"}, r"a/v\.sql has the same.*b/V\.sql\]"),
    "no name": ({"my-view.sql": "SELECT 1"}, "not a valid channel name"),
    "a syntax error": ({"v.sql": "---\nkey: a\n---\nSELECT a\nFRM t WHERE x"}, r"line 5, column 5: .*near 't'"),
    "an open string": ({"v.sql": "SELECT 'a"}, r"the statement cannot be parsed.*models/v\.sql\]"),
    "an unknown table": ({"v.sql": "---\n---\nSELECT id\n  FROM ordrs"}, r"line 4, column 8: .*Did you mean orders"),
    "an unknown column": ({"v.sql": "---\n---\nSELECT id,\n  custmer FROM orders"}, r"line 4, column 3.*mean customer"),
    "a column of an alias": ({"v.sql": "SELECT o.custmer FROM orders o"}, "line 1, column 10"),
    "a cycle": ({"v.sql": "SELECT * FROM w", "w.sql": "SELECT * FROM v"}, r"the views form a cycle.*[vw]\.sql\]"),
    "an unknown field": ({"v.sql": "---\nrefresh: full\nkeys: id\n---\nSELECT 1 AS a"}, "line 3: .*'keys'.*mean key"),
    "a field of views only": ({"t.sql": "---\nrefresh: full\n---\nCREATE TABLE t (a INT)"}, "line 2: a table has no"),
    "no mapping": ({"v.sql": "---\n- key\n---\nSELECT 1 AS a"}, "line 2: the front matter is not a mapping"),
    "a word": ({"v.sql": "---\nkey\n---\nSELECT 1 AS a"}, "line 2: the front matter is not a mapping"),
    "no YAML": ({"v.sql": "---\nrefresh: full\nkey: [a\n---\nSELECT 1 AS a"}, r"line \d: the front matter is not YAML"),
    "no end": ({"v.sql": "---\nkey: a\nSELECT 1 AS a"}, "line 1: the front matter is not closed"),
    "twice": ({"v.sql": "---\nkey: a\nkey: b\n---\nSELECT 1 AS a"}, "line 3: the field key occurs twice"),
    "an unknown refresh method": (
        {"v.sql": "---\nrefresh: ful\n---\nSELECT 1 AS a"},
        "no refresh method 'ful'.*mean full",
    ),
    "a key that is no name": (
        {
            "v.sql": "---\nkey: {a: b}\n---\nSELECT 1 AS a",
        },
        "line 2: key must be a column or a list",
    ),
    "a key that is not there": ({"v.sql": "---\nkey: it\n---\nSELECT id FROM orders"}, r"the key names.*v\.sql\]"),
    "a schedule that is none": (
        {"v.sql": "---\nschedule: hourly\n---\nSELECT 1 AS a"},
        "line 2: .* five fields",
    ),
    "a schedule of a table": ({"t.sql": "---\nschedule: every day\n---\nCREATE TABLE t (a INT)"}, "a table has no"),
    "checks that are no mapping": (
        {"v.sql": "---\nchecks: [a]\n---\nSELECT 1 AS a"},
        "line 2: checks must be a mapping",
    ),
    "an unknown check": ({"v.sql": "---\nchecks: {nut_null: a}\n---\nSELECT 1 AS a"}, "line 2: .*mean not_null"),
    "a check of no column": (
        {"v.sql": "---\nchecks: {not_null: custmer}\n---\nSELECT customer FROM orders"},
        r"does not exist.*mean customer\? \[task v, column custmer, check not_null\(custmer\), path .*v\.sql\]",
    ),
    "a check of no column of a table": (
        {"t.sql": "---\nchecks: {unique: [[a, b]]}\n---\nCREATE TABLE t (a INT)"},
        "does not exist",
    ),
    "a condition on no column": (
        {"v.sql": "---\nchecks: {expressions: amont > 0}\n---\nSELECT amount FROM orders"},
        "mean amount",
    ),
    "a condition that is none": (
        {
            "v.sql": "---\nchecks:\n  expressions: a >\n---\nSELECT 1 AS a",
        },
        "line 2: .* parsed",
    ),
    "a condition on all rows": (
        {
            "v.sql": "---\nchecks: {expressions: sum(a) > 1}\n---\nSELECT 1 AS a",
        },
        r"cannot contain SUM",
    ),
    "a table of another name": ({"t.sql": "CREATE TABLE u (a INT)"}, r"Rename it to u\.sql"),
    "a table of a query": ({"t.sql": "CREATE TABLE t AS SELECT 1 AS a"}, "without columns"),
    "a table of a format": ({"t.sql": "CREATE TABLE t (a INT) USING parquet"}, "USING PARQUET"),
    "a default": ({"t.sql": "CREATE TABLE t (a INT DEFAULT 3)"}, "DEFAULT 3"),
    "a check in a table": ({"t.sql": "CREATE TABLE t (a INT, CHECK (a > 3))"}, r"CHECK \(a > 3\)"),
    "a key twice": ({"t.sql": "CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))"}, "two primary keys"),
    "a key of no column": ({"t.sql": "CREATE TABLE t (a INT, PRIMARY KEY (b))"}, "key names a column"),
    "a type that is none": ({"t.sql": "CREATE TABLE t (a JSON)"}, r"the type.*t\.sql\]"),
    "a qualified name": ({"t.sql": "CREATE TABLE db.t (a INT)"}, "qualified"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_folder_is_one_clear_error(what: str, tmp_path: Path) -> None:
    files, expected = BAD[what]
    with pytest.raises(KilonovaError, match=expected) as raised:
        declared(tmp_path, files if what == "no files" else {**files, "orders.sql": ORDERS})
    assert isinstance(raised.value, QueryError | DeclarationError)
    assert str(raised.value.path).startswith(str(tmp_path / "models"))


def test_a_file_that_is_no_text_is_one_clear_error(tmp_path: Path) -> None:
    written(tmp_path, {"v.sql": ""}).joinpath("v.sql").write_bytes(b"SELECT '\xff'")
    with pytest.raises(DeclarationError, match="not UTF-8"):
        workflow_from_folder(tmp_path / "models")


LINES = st.lists(st.text(alphabet="ab'é, ", max_size=8), max_size=4)


@given(fields=st.dictionaries(st.sampled_from("abcd"), st.text(alphabet="xyz", min_size=1)), body=LINES, blank=LINES)
def test_front_matter_and_body_come_apart_where_they_were_put_together(
    fields: dict[str, str], body: list[str], blank: list[str]
) -> None:
    above = ["" for _ in blank]
    lines = [*above, "---", *(f"{name}: {value}" for name, value in fields.items()), "---"]
    found = split_front_matter("\n".join([*lines, *body]))
    assert {name: field.value for name, field in found.fields.items()} == fields
    assert all(lines[field.line - 1].startswith(f"{name}:") for name, field in found.fields.items())
    assert (found.body, found.line) == ("\n".join(body), len(lines) + 1)


@given(text=st.text())
def test_any_text_is_split_or_rejected(text: str) -> None:
    try:
        split_front_matter(text)
        split_front_matter(f"---\n{text}\n---\n")
    except DeclarationError:
        pass


def apply(catalog: Catalog, workflow: Workflow) -> dict[str, Action]:
    with catalog.reading() as tx:
        others = workflow_plan.others(tx, workflow.name)
    value = workflow.declared(others)
    with catalog.writing() as tx:
        plan = workflow_plan.plan_changes(tx, value.workflow, value.functions)
        plan_application.apply_plan(tx, plan)
    return {item.channel.name: item.action for item in plan.channels if item.action is not Action.KEEP}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(f"sqlite:///{tmp_path}/catalog.db", Clock(NOON))
    made.create()
    return made


def test_a_view_may_read_channels_of_another_workflow(catalog: Catalog, tmp_path: Path) -> None:
    base = Workflow("base")
    base.channel("orders", "id bigint, customer string", key="id")
    apply(catalog, base)
    models = written(tmp_path, {"names.sql": "SELECT DISTINCT customer FROM orders"})
    assert set(apply(catalog, workflow_from_folder(models))) == {"names"}
    assert apply(catalog, workflow_from_folder(models)) == {}
    base.view("back", "SELECT customer FROM names")
    with pytest.raises(DeclarationError, match="columns are not known"):
        apply(catalog, base)


def test_only_the_workflow_of_a_channel_says_what_is_checked(catalog: Catalog) -> None:
    base, other, same = Workflow("base"), Workflow("other"), Workflow("other")
    base.channel("orders", "id bigint", checks={"not_null": "id"})
    apply(catalog, base)
    same.channel("orders", "id bigint")
    assert apply(catalog, same) == {}
    other.channel("orders", "id bigint", checks={"expressions": "id > 0"})
    with pytest.raises(DeclarationError, match="belongs to the workflow base"):
        apply(catalog, other)


def test_a_table_may_take_the_files_of_a_directory(tmp_path: Path) -> None:
    more = "watch: {path: inbox/, pattern: '**/*.csv', poll_interval: 1 hour, options: {sep: ;}, in_order: true}"
    table = "CREATE TABLE a (n INT PRIMARY KEY, at DATE)"
    files = {
        "a.sql": f"---\nwatch: inbox\nsequence_by: at\nretention: 7 days\n---\n{table}",
        "b.sql": f"---\n{more}\n---\nCREATE TABLE b (n INT)",
    }
    a, b = declared(tmp_path, files).workflow.channels
    assert (a.watch, a.sequence_by, a.retention) == (WatchedDirectory(location="inbox"), "at", 7 * 86400)
    assert b.watch == WatchedDirectory(
        location="inbox", pattern="**/*.csv", poll_interval=3600, options=(("sep", ";"),), in_order=True
    )


@pytest.mark.parametrize(
    "watch",
    [
        "{pattern: x}",
        "[a]",
        "{path: a, settled: 1 day}",
        "{path: a, options: x}",
        "{path: a, poll_interval: soon}",
        "{path: a, in_order: 1}",
    ],
)
def test_a_watch_that_cannot_be_is_one_clear_error(tmp_path: Path, watch: str) -> None:
    with pytest.raises(DeclarationError, match="line 2"):
        declared(tmp_path, {"a.sql": f"---\nwatch: {watch}\n---\nCREATE TABLE a (n INT)"})


def test_workflows_cannot_form_a_cycle_together(catalog: Catalog) -> None:
    one, other, again = Workflow("one"), Workflow("other"), Workflow("one")
    one.channel("y", "a int")
    apply(catalog, one)
    other.channel("y", "a int")
    other.sql("z", "SELECT a FROM {y}", reads={"y": All}, produces=Base, schema="a int")
    apply(catalog, other)
    again.view("y", "SELECT a FROM z")
    with pytest.raises(DeclarationError, match="the tasks form a cycle"):
        apply(catalog, again)


def test_what_a_folder_no_longer_holds_is_not_read_silently(catalog: Catalog, tmp_path: Path) -> None:
    models = written(tmp_path, {"orders.sql": ORDERS, "v.sql": "SELECT id FROM orders"})
    apply(catalog, workflow_from_folder(models))
    (models / "orders.sql").unlink()
    with pytest.raises(QueryError, match="no such channel"):
        apply(catalog, workflow_from_folder(models))


def test_a_schedule_is_no_change_of_logic(catalog: Catalog, tmp_path: Path) -> None:
    apply(catalog, workflow_from_folder(written(tmp_path, FILES)))
    files = {"turnover.sql": TURNOVER.replace("key:", "schedule: 0 6 * * *\nkey:")}
    value = workflow_from_folder(written(tmp_path, files)).declared().workflow
    with catalog.writing() as tx:
        plan = workflow_plan.plan_changes(tx, value, {})
        plan_application.apply_plan(tx, plan)
        again = workflow_plan.plan_changes(tx, value, {})
    changed = {item.task.name: (item.detail, item.logic) for item in plan.tasks if item.action is Action.CHANGE}
    said = ("runs at 0 6 * * * instead of whenever there is new input", 0)
    assert changed == {"turnover": said}
    assert not plan.empty
    assert again.empty


def test_a_description_is_no_change_of_logic(catalog: Catalog, tmp_path: Path) -> None:
    apply(catalog, workflow_from_folder(written(tmp_path, FILES)))
    more = TURNOVER.replace("What each", "How much each")
    assert apply(catalog, workflow_from_folder(written(tmp_path, {"turnover.sql": more}))) == {
        "turnover": Action.CHANGE
    }
    with catalog.reading() as tx:
        plan = workflow_plan.plan_changes(tx, workflow_from_folder(tmp_path / "models").declared().workflow, {})
        known = {channel.name: channel for channel in workflow_plan.others(tx, "")}
    assert plan.empty
    assert known["turnover"].description == "How much each customer spent"
    assert {item.logic for item in plan.tasks} == {0}


def test_a_view_declares_its_bounds(tmp_path: Path) -> None:
    bounds = "bound_staleness: {orders: 1 day, clicks/per_page: 2 hours}\nbound_inconsistency: 0\n"
    found = declared(tmp_path, {**FILES, "late.sql": f"---\n{bounds}---\nSELECT * FROM turnover"}).workflow.bounds
    assert [describe_bound(each) for each in found] == [
        "late is at most 1 day behind orders",
        "late is at most 2 hours behind clicks›per_page",
        "late is always consistent",
    ]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("bound_staleness: 1 day", "line 2: bound_staleness must be a mapping of strings"),
        ("bound_staleness: {orders: -1 day}", "line 2: the limit -1 day of a bound is negative"),
        ("bound_inconsistency: soon", "line 2: there is no unit 'soon'"),
    ],
)
def test_a_bound_of_a_view_that_cannot_be_read_is_refused(tmp_path: Path, field: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        declared(tmp_path, {"orders.sql": ORDERS, "late.sql": f"---\n{field}\n---\nSELECT * FROM orders"})
