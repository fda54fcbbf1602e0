"""Relations that a changed view stores apart: they take over its rows, and nothing is computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.errors import DeclarationError
from kilonova.service.project import Project
from tests.engine.test_migration_histories import History, follow
from tests.engine.test_migrations import ingest, methods, rows
from tests.engine.test_structure import PAGES, ROWS, blocks, details, versions
from tests.seeds import SEED, some
from tests.service.test_preview import files

GROUPS = "SELECT site, count(*) AS n, count(q) AS m FROM pages WHERE url <> 'z' GROUP BY site"


def counting(query: str, **how: Any) -> kn.Workflow:
    wf = kn.Workflow("web")
    wf.channel("pages", PAGES, key="url")
    wf.view("sites", query, **{"refresh": "incremental", **how})
    wf.view("large", "SELECT site FROM sites WHERE n > 1", refresh="incremental")
    return wf


def begun(project: Project, query: str = GROUPS) -> None:
    """Counts with three points, and pages that nobody has processed."""
    project.apply(counting(query))
    ingest(project, *ROWS, ("h", None, "x"), ("i", None, "y"))
    project.run()
    ingest(project, ("e", 0.8, "z"), ("a", 0.1, "y"))
    project.run()
    ingest(project, ("f", 0.2, "x"), ("z", 0.2, "z"))


def test_groups_below_a_new_condition_are_those_of_the_view_by_reference(project: Project) -> None:
    begun(project)
    before = blocks(project, "sites")
    new = counting(f"{GROUPS} HAVING count(*) > 1")
    plan = details(project.plan(new))
    assert "migrated at the next run: changes no row; reads nothing" in plan["sites__1"]
    assert "the rows of sites are there by reference" in plan["sites__1"]
    assert "migrated at the next run: removes the rows for which n <= 1" in plan["sites"]
    there = files(project)
    previewed = {each.channel: each for each in project.preview([new], verify=True).channels}
    assert (previewed["sites"].added, previewed["sites"].removed) == (0, 1)
    assert files(project) == there
    project.apply(new)
    assert blocks(project, "sites__1") == before
    assert versions(project, "sites__1") == ["pages›sites__1 1[s]", "pages›sites__1 2[s]"]
    assert versions(project, "sites") == ["pages›sites__1›sites 1[s,0]", "pages›sites__1›sites 2[s,0]"]
    assert versions(project, "large")[0] == "pages›sites__1›sites›large 1[s,0,0]"
    project.run()
    assert rows(project, "sites") == [("x", 3, 2), ("y", 4, 3)]
    assert rows(project, "large") == [("x",), ("y",)]
    assert methods(project, "sites__1")[2:] == ["migration", "incremental"]
    assert versions(project, "sites")[-1] == "pages›sites__1›sites 3[0,1]"
    assert project.plan(new).empty
    ingest(project, ("g", 0.2, "z"), ("a", 0.1, "x"))
    project.run()
    assert rows(project, "sites") == [("x", 4, 3), ("y", 3, 2), ("z", 2, 2)]
    project.collect_garbage()
    assert not project.fsck().damaged


def test_a_rollback_after_it_gives_all_groups_again(project: Project) -> None:
    begun(project)
    project.apply(counting(f"{GROUPS} HAVING count(*) > 1"))
    project.run()
    project.rollback("sites")
    project.run()
    every = [("x", 3, 2), ("y", 4, 3), ("z", 1, 1)]
    assert rows(project, "sites") == every
    project.apply(counting(f"{GROUPS} HAVING count(*) > 3"))
    project.run()
    assert rows(project, "sites") == every[1:2]
    project.collect_garbage()
    assert not project.fsck().damaged


ABOVE = [
    f"SELECT site, n FROM ({GROUPS}) WHERE n > 1",
    f"SELECT site, m AS n FROM ({GROUPS}) WHERE m > 1",
    f"SELECT * FROM ({GROUPS}) ORDER BY n DESC LIMIT 2",
    f"SELECT site, n, m, n * 2 AS twice FROM ({GROUPS}) WHERE m < 5",
    f"SELECT m AS site, count(*) AS n FROM ({GROUPS}) GROUP BY m",
    f"SELECT g.site, g.n, p.url FROM ({GROUPS}) g JOIN pages p ON p.site = g.site",
    GROUPS.replace("count(q) AS m", "sum(1) AS m, max(q) AS best") + " HAVING count(*) > 1",
]


@pytest.mark.parametrize("query", some(ABOVE, 2))
def test_any_query_above_the_same_groups_can_have_them(project: Project, query: str) -> None:
    begun(project)
    plan = details(project.plan(counting(query)))
    taken = "by reference" in plan.get("sites__1", "")
    assert taken == ("best" not in query)
    project.apply(counting(query))
    project.run()
    project.read("pages").createOrReplaceTempView("pages")
    expected = project.warehouse.spark.sql(query)
    assert rows(project, "sites") == sorted(map(tuple, expected.collect()))
    assert (methods(project, "sites__1")[-1:] == ["incremental"]) == taken


def test_a_key_that_gets_another_name_is_recomputed(project: Project) -> None:
    """Blocks are merged by the names of the key."""
    named = GROUPS.replace("SELECT site", "SELECT site AS host")

    def keyed(query: str) -> kn.Workflow:
        wf = kn.Workflow("web")
        wf.channel("pages", PAGES, key="url")
        wf.view("sites", query, key="host", refresh="incremental")
        return wf

    project.apply(keyed(named))
    ingest(project, *ROWS)
    project.run()
    new = keyed(f"{named} HAVING count(*) > 2")
    assert "by reference" not in details(project.plan(new))["sites__1"]
    project.apply(new)
    ingest(project, ("e", 0.1, "x"))
    project.run()
    assert rows(project, "sites") == [("x", 3, 3)]


def test_columns_of_the_same_values_are_taken_once(project: Project) -> None:
    twice = GROUPS.replace("count(q) AS m", "count(*) AS again")
    begun(project, twice)
    new = counting(f"{twice} HAVING count(*) > 1")
    assert "by reference" in details(project.plan(new))["sites__1"]
    project.apply(new)
    project.run()
    assert rows(project, "sites") == [("x", 3, 3), ("y", 4, 4)]


def test_a_view_that_is_said_to_have_the_same_logic_gives_no_rows_away(project: Project) -> None:
    begun(project)
    project.run()
    before = rows(project, "sites")
    with pytest.raises(DeclarationError, match="cannot have the same logic"):
        project.apply(counting(f"{GROUPS} HAVING count(*) > 1"), same_logic=["sites"])
    assert rows(project, "sites") == before
    assert project.plan(counting(GROUPS)).empty


class GroupHistory(History):
    """History of a view of groups, above which something comes and goes."""

    def __init__(self, project: Project, seed: str) -> None:
        super().__init__(project, seed)
        self.edits = self  # type: ignore[assignment]
        self.groups = self.random_groups()
        self.queries = [self.groups]
        self.applied = self.groups

    def random_groups(self) -> str:
        table, key, columns = self.draw.choice([("r", "a", "bd"), ("t", "a", "kv"), ("u", "b", "kx"), ("g", "a", "n")])
        calls = [f"{call}({self.draw.choice(columns)})" for call in ("count", "sum", "avg", "max")]
        chosen = ["count(*)", *self.draw.sample(calls[: self.draw.choice([2, 3, 3, 4])], 2)]
        shown = ", ".join(f"{call} AS c{number}" for number, call in enumerate(chosen))
        condition = f" WHERE {key} > 0" if self.draw.random() < 0.3 else ""
        name = self.draw.choice([key, key, "e"])
        return f"SELECT {key} AS {name}, {shown} FROM {table}{condition} GROUP BY {key}"

    def edited(self, query: str, count: int) -> tuple[str, list[str]]:
        """Put something else above the groups, which rarely change themselves."""
        if self.draw.random() < 0.2:
            self.groups = self.random_groups()
        name = self.groups.split()[3].rstrip(",")
        number = self.draw.randrange(3)
        above = {
            "nothing": self.groups,
            "a threshold": f"SELECT * FROM ({self.groups}) WHERE c0 > {number}",
            "another threshold": f"SELECT {name}, c1 FROM ({self.groups}) WHERE c1 < {number} OR c1 IS NULL",
            "groups": f"SELECT c0 AS a, count(*) AS n FROM ({self.groups}) GROUP BY c0",
            "a join": f"SELECT f.c0, f.c2, u.k, u.x FROM ({self.groups}) f JOIN u ON u.k = f.{name}",
            "columns": f"SELECT {name}, c0 + 1 AS d, c2 FROM ({self.groups}) WHERE {name} IS NOT NULL",
        }
        kind = self.draw.choice(list(above))
        return above[kind], [kind]


@pytest.mark.parametrize("number", some(range(6), 1))
def test_random_queries_above_groups_give_their_rows(spark: SparkSession, tmp_path: Path, number: int) -> None:
    follow(spark, tmp_path, f"{SEED}/{number}", 10, GroupHistory)
