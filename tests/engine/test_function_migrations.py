"""Python tasks whose column functions or conditions change: only these columns and rows are computed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import kilonova as kn
from kilonova.errors import SchemaMismatch
from kilonova.service.plan_action import Action
from kilonova.service.project import Project, open_project
from tests.seeds import SEED, some

PAGES = "url string, text string, q double"


def size(text: Any) -> Any:
    return F.length(text)


def size_by_words(text: Any) -> Any:
    return F.size(F.split(text, " "))


@F.udf(StringType())
def first(text: str | None) -> str | None:
    return text and text[0]


@F.udf(StringType())
def last(text: str | None) -> str | None:
    return text and text[-1]


def double(q: Any) -> Any:
    return q * 2


OLD = {"size": size, "letter": first}
NEW = {"size": size, "letter": last, "twice": double}
SCHEMAS = {3: "url string, size int, letter string", 4: "url string, size int, letter string, twice double"}


def facts(columns: Mapping[str, Callable[..., Any]], schema: str | None = None, least: float = 0.0) -> kn.Workflow:
    wf = kn.Workflow("web")
    wf.channel("pages", PAGES, key="url")

    @wf.task(schema=schema or SCHEMAS[len(columns) + 1], key="url", columns=columns)
    def facts(pages: kn.New) -> kn.Delta:
        return pages.where(f"q >= {least} OR q IS NULL OR _deleted").select("url", "text", "q", "_deleted")

    wf.view("letters", "SELECT letter, count(*) AS n FROM facts GROUP BY letter", refresh="incremental")
    return wf


def ingest(project: Project, *rows: tuple[Any, ...], channel: str = "pages") -> None:
    project.ingest(channel, project.warehouse.spark.createDataFrame(list(rows), PAGES))


def rows(project: Project, channel: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, project.rows(channel)[1]), key=str)


def methods(project: Project, task: str) -> list[str]:
    made = [item for run in reversed(project.runs(100)) for item in run.made if item.task == task and item.block]
    return [item.reason.partition(":")[0] for item in made]


def detail(project: Project, workflow: kn.Workflow) -> str:
    return next(item.detail for item in project.plan(workflow).tasks if item.task.name == "facts")


def test_only_changed_columns_are_computed_again(project: Project) -> None:
    project.apply(facts(OLD))
    ingest(project, ("a", "one two", 0.5), ("b", "three", None), ("c", None, 0.1))
    project.run()
    assert rows(project, "facts") == [("a", 7, "o"), ("b", 5, "t"), ("c", None, None)]
    assert "migrated at the next run: computes letter again, adds twice; reads pages" in detail(project, facts(NEW))
    project.apply(facts(NEW))
    project.apply(facts(NEW))
    ingest(project, ("b", "four", 2.0), ("d", "five", 1.0))
    project.run()
    expected = [("a", 7, "o", 1.0), ("b", 4, "r", 4.0), ("c", None, None, 0.2), ("d", 4, "e", 2.0)]
    assert rows(project, "facts") == expected
    assert rows(project, "letters") == [("e", 1), ("o", 1), ("r", 1), (None, 1)]
    assert methods(project, "facts") == ["initial", "migration", "incremental"]
    assert "full" not in methods(project, "letters")[1:]
    project.rollback("facts")
    project.run()
    assert [row[2] for row in rows(project, "facts")] == ["o", "f", None, "f"]
    assert methods(project, "facts")[3:] == ["migration"]


def test_a_column_that_is_no_longer_declared_is_dropped_without_reading(project: Project) -> None:
    project.apply(facts(OLD))
    ingest(project, ("a", "one two", 0.5))
    project.run()
    fewer = facts({"letter": first}, "url string, letter string")
    assert "migrated at the next run: drops size" in detail(project, fewer)
    project.apply(fewer)
    ingest(project, ("b", "two", 0.5))
    project.run()
    assert rows(project, "facts") == [("a", "o"), ("b", "t")]
    assert methods(project, "facts") == ["initial", "incremental"]


def test_a_column_that_only_functions_read_is_written_once_declared(project: Project) -> None:
    project.apply(facts(OLD))
    ingest(project, ("a", "one", 0.5))
    project.run()
    wider = facts(OLD, "url string, size int, letter string, text string")
    assert "computes" not in detail(project, wider)
    assert "adds text" in detail(project, wider)
    project.apply(wider)
    project.run()
    assert rows(project, "facts") == [("a", 3, "o", "one")]


def test_a_change_of_the_task_itself_recomputes_its_output(project: Project) -> None:
    project.apply(facts(OLD))
    ingest(project, ("a", "one", 0.5), ("b", "two", 0.7))
    project.run()
    changed = facts(OLD, least=0.6)
    assert "recomputed at the next run: the task's own function, its ports or its variants" in detail(project, changed)
    project.apply(changed)
    project.run()
    assert rows(project, "facts") == [("b", 3, "t")]


def test_a_function_of_another_type_is_refused_and_the_output_stays(project: Project) -> None:
    project.apply(facts(OLD))
    ingest(project, ("a", "one", 0.5))
    project.run()
    project.apply(facts({"size": double, "letter": first}))
    with pytest.raises(SchemaMismatch, match="has type double instead of int"):
        project.run(["facts"])
    assert rows(project, "facts") == [("a", 3, "o")]


def test_a_task_with_column_functions_can_be_called(project: Project) -> None:
    wf = kn.Workflow("web")

    @wf.task(schema=SCHEMAS[3], key="url", columns=OLD)
    def facts(pages: kn.All) -> kn.Base:
        return pages.select("url", "text")

    wf.channel("pages", PAGES)
    project.apply(wf)
    pages = project.warehouse.spark.createDataFrame([("a", "one", 0.5)], PAGES)
    assert [tuple(row) for row in facts(pages).collect()] == [("a", 3, "o")]
    (change,) = project.plan(wf).tasks  # what the calls of functions leave in them is no change
    assert change.action is Action.KEEP


WAYS = {
    "new_of_upsert": ("docs", kn.New, kn.Delta, None),
    "changes_of_upsert": ("docs", kn.Changes, kn.Delta, "changes"),
    "all_of_upsert": ("docs", kn.All, kn.Base, None),
    "new_of_changes": ("facts", kn.New, kn.Delta, "changes"),
    "new_of_append": ("log", kn.New, kn.Delta, "upsert"),
    "inserts_of_append": ("log", kn.Inserts, kn.Delta, "changes"),
}
"""Tasks of the property: what they read and how, their production, and the encoding of their output."""


def named(name: str, mode: Any, production: Any) -> Callable[[Any], Any]:
    """Return the function of a task that passes rows on, with a column of its own."""

    def task(rows: Any) -> Any:
        return rows.where("url != 'k0'").withColumn("host", F.upper("url"))

    task.__name__ = name
    task.__annotations__ = {"rows": mode, "return": production}
    return task


def in_all_ways(columns: Mapping[str, Callable[..., Any]], conditions: list[str]) -> kn.Workflow:
    wf = kn.Workflow("ways")
    wf.channel("docs", PAGES, key="url")
    wf.channel("facts", PAGES, key="url", encoding="changes")
    wf.channel("log", PAGES)
    schema = f"{SCHEMAS[len(columns) + 1]}, host string"
    for (name, (channel, mode, production, encoding)), where in zip(WAYS.items(), conditions, strict=True):
        how = {"reads": {"rows": channel}, "schema": schema, "key": "url", "encoding": encoding, "columns": columns}
        wf.task(where=where or None, **how)(named(name, mode, production))
    return wf


CONDITIONS: dict[str, Callable[[str, int | None, float | None], bool]] = {
    "": lambda _url, _size, _q: True,
    "size > 1": lambda _url, size, _q: size is not None and size > 1,
    "size > 2 OR size IS NULL": lambda _url, size, _q: size is None or size > 2,
    "q >= 0": lambda _url, _size, q: q is not None and q >= 0,
    "q >= 0.25 OR host = 'K1'": lambda url, _size, q: url == "k1" or (q is not None and q >= 0.25),
    "url <> 'k1' AND size < 3": lambda url, size, _q: url != "k1" and size is not None and size < 3,
}
"""Conditions in SQL, about columns that the output has and others, and in Python."""
WHERE = st.lists(st.sampled_from(list(CONDITIONS)), min_size=len(WAYS), max_size=len(WAYS))

TEXT = st.one_of(st.none(), st.sampled_from(["", "a", "bc", "d e f"]))
PAGE = st.tuples(TEXT, st.one_of(st.none(), st.sampled_from([0.0, 0.25, -1.0])))
STEP = st.dictionaries(st.sampled_from([f"k{n}" for n in range(8)]), st.one_of(st.none(), PAGE), min_size=3, max_size=6)
"""Rows by key; None where the key is deleted."""


def expected(pages: Mapping[str, tuple[str | None, float | None]], where: str) -> list[tuple[Any, ...]]:
    made = [
        (
            url,
            None if text is None else len(text),
            text and text[-1],
            None if q is None else 2 * q,
            url.upper(),
        )
        for url, (text, q) in pages.items()
        if url != "k0" and CONDITIONS[where](url, None if text is None else len(text), q)
    ]
    return sorted(made, key=str)


@seed(SEED)
@settings(
    max_examples=2,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(steps=st.lists(STEP, min_size=3, max_size=3), old=WHERE, new=WHERE)
def test_migrated_outputs_are_those_of_a_recomputation(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, steps: list[dict[str, Any]], old: list[str], new: list[str]
) -> None:
    with open_project(tmp_path_factory.mktemp("project"), session=spark, retry={"wait": 0}) as project:
        project.create()
        project.apply(in_all_ways(OLD, old))
        there: dict[str, Any] = {}
        logged: dict[str, Any] = {}
        for number, step in enumerate(steps):
            if number == 2:
                plan = project.apply(in_all_ways(NEW, new))
                assert [item.detail for item in plan.tasks if "recomputed" in item.detail] == []
            upserts = [(url, *(page or (None, None)), page is None) for url, page in step.items()]
            project.ingest("docs", spark.createDataFrame(upserts, f"{PAGES}, _deleted boolean"))
            before = [(url, *page, -1) for url, page in there.items() if url in step]
            after = [(url, *page, 1) for url, page in step.items() if page is not None]
            project.ingest("facts", spark.createDataFrame([*before, *after], f"{PAGES}, _weight bigint"))
            appended = {url: page for url, page in step.items() if page is not None and url not in logged}
            project.ingest("log", spark.createDataFrame([(u, *p) for u, p in appended.items()], PAGES))
            logged |= appended
            there = {url: page for url, page in (there | step).items() if page is not None}
            project.run()
        for (name, (channel, *_)), where in zip(WAYS.items(), new, strict=True):
            assert rows(project, name) == expected(logged if channel == "log" else there, where), name


def judged(encoding: str | None, where: str | None, **how: Any) -> kn.Workflow:
    wf = kn.Workflow("web")
    wf.channel("pages", PAGES)
    key = {"key": "url"} if encoding == "upsert" else {}

    @wf.task(schema="url string, q double", encoding=encoding, where=where, **key, **how)
    def facts(pages: kn.New) -> kn.Delta:
        return pages.select("url", "q", "text")

    return wf


JUDGED = [("a", "x", 0.9), ("b", "y", 0.6), ("c", "x", 0.3), ("d", None, None)]
CHANGED = {
    "stricter": ("changes", "q > 0.2", "q > 0.5", {}, "deletes the rows with q > 0.2 AND q <= 0.5; reads facts"),
    "stricter by key": ("upsert", None, "q > 0.5", {"per_row": True}, "q IS NULL; reads facts"),
    "looser": ("append", "q > 0.5", "q > 0.2", {"per_row": True}, "adds the rows with q > 0.2 AND"),
    "looser by key": ("upsert", "q>0.5", None, {"per_row": True}, "reads pages"),
    "both": ("changes", "q > 0.2", "q > 0.5 OR url = 'd'", {"per_row": True}, "; reads facts, pages"),
    "of other columns": ("changes", "q > 0.2", "text = 'x'", {"per_row": True}, "; reads pages"),
    "looser, unsaid": ("upsert", "q > 0.5", "q > 0.2", {}, "recomputed at the next run: the condition admits more"),
    "of other columns, unsaid": (
        "upsert",
        "q > 0",
        "text = 'x'",
        {},
        "recomputed at the next run: the output lacks",
    ),
    "stricter append": ("append", "q > 0.2", "q > 0.5", {}, "the encoding append cannot remove"),
}


@pytest.mark.parametrize("change", some(CHANGED, 4))
def test_a_changed_condition_touches_only_some_rows(project: Project, change: str) -> None:
    encoding, old, new, how, text = CHANGED[change]
    project.apply(judged(encoding, old, **how))
    ingest(project, *JUDGED)
    project.run()
    assert text in detail(project, judged(encoding, new, **how))
    project.apply(judged(encoding, new, **how))
    ingest(project, ("e", "x", 0.55), ("f", "y", 0.25))
    project.run()
    frame = project.read("pages").where(new) if new is not None else project.read("pages")
    assert rows(project, "facts") == sorted(map(tuple, frame.select("url", "q").collect()), key=str)
    assert ("migration" in methods(project, "facts")) == ("unsaid" not in change and change != "stricter append")


def test_a_condition_is_written_in_any_way(project: Project) -> None:
    project.apply(judged("upsert", "q>0.5   AND url <> 'x'"))
    assert project.plan(judged("upsert", "q > 0.5 and url <> 'x'")).empty


def test_a_threshold_above_groups_is_raised_on_the_output(project: Project) -> None:
    def counted(least: int) -> kn.Workflow:
        wf = kn.Workflow("web")
        wf.channel("pages", PAGES)
        wf.channel("names", "text string, name string", key="text")

        @wf.task(schema="text string, name string, n bigint", key="text", where=f"n >= {least}")
        def facts(pages: kn.All, names: kn.All) -> kn.Base:
            return pages.groupBy("text").count().withColumnRenamed("count", "n").join(names, "text")

        return wf

    project.apply(counted(1))
    ingest(project, *JUDGED)
    project.ingest(
        "names", project.warehouse.spark.createDataFrame([("x", "X"), ("y", "Y")], "text string, name string")
    )
    project.run()
    assert rows(project, "facts") == [("x", "X", 2), ("y", "Y", 1)]
    assert "deletes the rows with n = 1; reads facts" in detail(project, counted(2))
    project.apply(counted(2))
    project.run()
    assert rows(project, "facts") == [("x", "X", 2)]
    assert methods(project, "facts")[-1] == "migration"


def test_a_condition_on_a_column_that_changes_recomputes_the_output(project: Project) -> None:
    def short(column: Callable[..., Any]) -> kn.Workflow:
        wf = kn.Workflow("web")
        wf.channel("pages", PAGES, key="url")

        @wf.task(schema="url string, size int", key="url", columns={"size": column}, where="size < 4")
        def facts(pages: kn.New) -> kn.Delta:
            return pages

        return wf

    project.apply(short(size))
    ingest(project, ("a", "one two", 0.5), ("b", "one", None))
    project.run()
    assert rows(project, "facts") == [("b", 3)]
    assert "the condition is about size, which is computed differently" in detail(project, short(size_by_words))
    project.apply(short(size_by_words))
    project.run()
    assert rows(project, "facts") == [("a", 2), ("b", 1)]
