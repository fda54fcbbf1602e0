"""Views that take the rows of a relation that they have stored apart, as nothing is above it any more."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kilonova.catalog import runs
from kilonova.errors import Conflict, DeclarationError
from kilonova.model.run import RunKind
from kilonova.service.project import Project
from tests.engine.test_extracted_relations import ABOVE, GROUPS, begun, counting
from tests.engine.test_migrations import ingest, methods, rows
from tests.engine.test_structure import details, versions
from tests.seeds import some

ABOVE_ONE = f"{GROUPS} HAVING count(*) > 2"


def expected(project: Project, query: str) -> list[tuple[object, ...]]:
    project.read("pages").createOrReplaceTempView("pages")
    return sorted(map(tuple, project.warehouse.spark.sql(query).collect()))


def check(project: Project, query: str = GROUPS) -> None:
    assert rows(project, "sites") == expected(project, query)
    assert rows(project, "large") == expected(project, f"SELECT site FROM ({query}) WHERE n > 1")


def test_groups_that_had_a_condition_above_them_are_taken_from_where_they_are(project: Project) -> None:
    begun(project, ABOVE_ONE)
    new = counting(GROUPS)
    plan = details(project.plan(new))
    assert plan["sites"].endswith("takes the rows of sites__1, which it has stored apart; reads sites__1")
    assert plan["sites__1"] == "no longer declared; its output is kept"
    previewed = {each.channel: each for each in project.preview([new], verify=True).channels}
    assert (previewed["sites"].added, previewed["sites"].removed) == (1, 0)
    project.apply(new)
    assert project.plan(new).empty
    project.collect_garbage()
    ingest(project, ("g", 0.2, "x"))
    project.run()
    check(project)
    assert methods(project, "sites")[-2:] == ["migration", "incremental"]
    assert versions(project, "sites")[-1].startswith("pages›sites 4[1]")
    ingest(project, ("h", 0.2, "z"), ("a", 0.1, "x"))
    project.run()
    check(project)
    assert methods(project, "sites")[-1] == "incremental"
    project.drop("sites__1")
    project.rollback("sites")
    project.run()
    check(project, ABOVE_ONE)
    project.collect_garbage()
    assert not project.fsck().damaged


CHANGED = [
    GROUPS.replace("AS m", "AS others"),
    f"SELECT n, site, n - m AS k FROM ({GROUPS})",
    f"{GROUPS} HAVING site = 'x'",
]


@pytest.mark.parametrize("query", some(CHANGED, 2))
@pytest.mark.parametrize("above", some(ABOVE[2:6], 1))
def test_what_follows_from_the_groups_is_computed_from_them(project: Project, above: str, query: str) -> None:
    begun(project, above)
    project.apply(counting(query))
    project.run()
    check(project, query)
    if "HAVING" not in query:
        assert ("migration" in methods(project, "sites")[2:]) == ("JOIN" not in above)


def test_groups_with_other_rows_are_computed(project: Project) -> None:
    begun(project, ABOVE_ONE)
    query = GROUPS.replace("url <> 'z'", "url <> 'y'")
    plan = details(project.plan(counting(query)))
    assert "which it has stored apart" not in plan["sites"]
    project.apply(counting(query))
    project.run()
    check(project, query)
    assert methods(project, "sites")[-1] == "full"


def test_the_relation_cannot_be_dropped_before_its_rows_are_taken(project: Project) -> None:
    begun(project, ABOVE_ONE)
    project.apply(counting(GROUPS))
    with pytest.raises(DeclarationError, match="read by sites"):
        project.drop("sites__1")
    project.run()
    check(project)
    project.drop("sites__1")
    check(project)


def test_another_change_before_the_next_run_leaves_the_relation_alone(project: Project) -> None:
    begun(project, ABOVE_ONE)
    project.apply(counting(GROUPS))
    query = GROUPS.replace("url <> 'z'", "url <> 'y'")
    project.apply(counting(query))
    project.run()
    check(project, query)


def test_a_view_whose_relation_is_ahead_of_it_is_computed(project: Project) -> None:
    begun(project, ABOVE_ONE)
    project.run(["sites__1"])
    project.apply(counting(GROUPS))
    project.run()
    check(project)


def test_a_view_that_is_running_does_not_take_rows(project: Project) -> None:
    begun(project, ABOVE_ONE)
    with project.catalog.writing() as tx:
        run, _ = runs.start(
            tx, kind=RunKind.TASKS, tasks=["sites"], writes=["sites"], owner="another", lease=timedelta(minutes=1)
        )
    with pytest.raises(Conflict, match="stored apart, and is running"):
        project.apply(counting(GROUPS))
    project.cancel(run)
    project.apply(counting(GROUPS))
    project.run()
    check(project)
