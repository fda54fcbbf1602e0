"""Views that get another key, whose rows are written again from what is stored."""

from __future__ import annotations

import random
from typing import Any

import pytest

import kilonova as kn
from kilonova.service.project import Project
from tests.engine.test_migrations import methods
from tests.engine.test_renames import PAGES, bag, expected, ingest
from tests.engine.test_structure import details
from tests.seeds import SEED, some

ROWS = "SELECT url, site, q, n FROM pages"
GROUPS = "SELECT site, count(*) AS c, sum(n) AS total FROM pages GROUP BY site"
BOTH = f"{ROWS} WHERE q > 0.5 UNION ALL {ROWS} WHERE q <= 0.7"

CHANGES: list[tuple[tuple[str, Any], tuple[str, Any], bool]] = [
    ((GROUPS, "site"), (GROUPS.replace("site,", "site AS host,"), "host"), True),
    ((GROUPS, "site"), (GROUPS, None), True),
    ((GROUPS, None), (GROUPS, "site"), True),
    ((GROUPS, "site"), (f"{GROUPS.replace('site,', 'site AS host,')} HAVING count(*) > 7", "host"), True),
    ((ROWS, "url"), ("SELECT url AS address, site, q FROM pages WHERE q > 0.3", "address"), True),
    ((ROWS, "url"), ("SELECT site, q, n FROM pages WHERE q < 0.8", None), True),
    ((ROWS, "url"), ("SELECT url AS site, site AS url, n FROM pages", "site"), True),
    ((GROUPS, "site"), (GROUPS.replace("site, ", "site AS host, avg(n) AS mean, "), "host"), True),
    ((ROWS, "url"), (BOTH, None), False),
    ((BOTH, None), (ROWS, "url"), False),
    ((ROWS, "url"), (GROUPS, "site"), False),
]
"""Two definitions of a view, each a query with the declared key, and whether the second is computed from the output."""

READER = "SELECT count(*) AS rows, sum(length({key})) AS letters FROM result"


def web(query: str, key: str | None, reader: str | None = None) -> kn.Workflow:
    made = kn.Workflow("web")
    made.channel("pages", PAGES, key="url")
    made.view("result", query, refresh="incremental", **({} if key is None else {"key": key}))
    if reader is not None:
        made.view("above", READER.replace("{key}", reader), refresh="incremental")
    return made


def check(project: Project, query: str, reader: str | None = None) -> None:
    columns, rows = expected(project, query)
    found = project.read("result")
    assert (found.columns, bag(found)) == (columns, rows)
    if reader is not None:
        position = columns.index(reader)
        (row,) = project.read("above").collect()
        assert (row.rows, row.letters) == (rows.total(), sum(len(each[position]) for each in rows.elements()))


@pytest.mark.parametrize("change", some(CHANGES, 2))
@pytest.mark.parametrize("pending", some([False, True], 1))
def test_a_view_gets_another_key(
    project: Project, change: tuple[tuple[str, Any], tuple[str, Any], bool], pending: bool
) -> None:
    old, new, migrated = change
    first, last = ("url" if "url," in each[0] else "site" for each in (old, new))
    first, last = old[1] or first, new[1] or last
    project.apply(web(*old, first))
    ingest(project, 0, 50)
    project.run()
    ingest(project, 40, 60)
    project.run()
    check(project, old[0], first)
    if pending:
        ingest(project, 55, 80)
    plan = details(project.plan(web(*new, last)))["result"]
    assert ("writes its rows again" in plan) == migrated, plan
    project.apply(web(*new, last))
    project.run()
    check(project, new[0], last)
    assert ("migration" in methods(project, "result")) == migrated
    ingest(project, 30, 70)
    project.run()
    check(project, new[0], last)
    project.compact("result")
    project.collect_garbage()
    check(project, new[0], last)
    project.apply(web(*old, first))
    project.run()
    check(project, old[0], first)
    ingest(project, 0, 20)
    project.run()
    check(project, old[0], first)
    assert not project.fsck().damaged


def test_columns_of_a_new_key_keep_their_identity(project: Project) -> None:
    project.apply(web(GROUPS, "site"))
    ingest(project, 0, 50)
    project.run()
    renamed = GROUPS.replace("site,", "site AS host,")
    plan = project.apply(web(renamed, "host"))
    assert "writes its rows again and renames site to host; reads result" in details(plan)["result"]
    project.run()
    (changed, _) = project.reader.schemas("result")
    assert [(old.name, new.name) for old, new in changed.changed] == [("site", "host")]


@pytest.mark.parametrize("chained", [False, True])
def test_the_difference_to_rows_with_another_key(project: Project, chained: bool) -> None:
    def copying(query: str, key: str) -> kn.Workflow:
        made = web(query, key)

        @made.task(schema="c bigint, total bigint", encoding="changes")
        def copied(result: kn.Changes) -> kn.Delta:
            return result.selectExpr("c", "CAST(total AS bigint) AS total", "_weight")

        return made

    project.apply(copying(GROUPS, "site"))
    ingest(project, 0, 50)
    project.run()
    if chained:
        ingest(project, 40, 55)
        project.run()
    point = project.status().channels["result"].latest_readable
    before = bag(project.read("result"))
    renamed = GROUPS.replace("site,", "site AS host,")
    project.apply(copying(renamed, "host"))
    ingest(project, 50, 60)
    project.run()
    check(project, renamed)
    assert bag(project.read("copied")) == bag(project.read("result").selectExpr("c", "CAST(total AS bigint)"))
    difference = project.read("result", since=point)
    assert difference.columns == ["host", "c", "total", "_weight"]
    for *row, weight in difference.collect():
        before[tuple(row)] += weight
    assert +before == bag(project.read("result"))
    assert project.rows("result", since=point)[0] == ("host", "c", "total", "_weight")


def test_the_difference_to_rows_whose_key_and_another_column_have_exchanged_names(project: Project) -> None:
    project.apply(web(ROWS, "url"))
    for first in (0, 20):
        ingest(project, first, first + 25)
        project.run()
    point = project.status().channels["result"].latest_readable
    before = bag(project.read("result").selectExpr("site AS url", "url AS site", "q", "n"))
    project.apply(web("SELECT url AS site, site AS url, q, n FROM pages", "site"))
    project.run()
    for *row, weight in project.read("result", since=point).select("url", "site", "q", "n", "_weight").collect():
        before[tuple(row)] += weight
    assert +before == bag(project.read("result").select("url", "site", "q", "n"))


def test_a_key_that_changes_twice_before_the_next_run(project: Project) -> None:
    project.apply(web(GROUPS, "site"))
    ingest(project, 0, 50)
    project.run()
    host = GROUPS.replace("site,", "site AS host,")
    project.apply(web(host, "host"))
    again = host.replace("sum(n) AS total", "max(q) AS best")
    project.apply(web(again, "host"))
    project.run()
    check(project, again)
    project.apply(web(GROUPS, "site"))
    project.apply(web(again, "host"))
    project.run()
    check(project, again)
    ingest(project, 10, 90)
    project.run()
    check(project, again)


def follow(project: Project, seed: str, steps: int) -> None:
    """Follow a random history of definitions with other keys and conditions, and of input."""
    chance = random.Random(seed)
    definitions: list[tuple[str, str | None]] = [
        *((f"SELECT {each}, site, q, n FROM pages", key) for each, key in (("url", "url"), ("url AS u", "u"))),
        ("SELECT site, q FROM pages", None),
        ("SELECT site AS s, url AS u, n FROM pages", "u"),
    ]
    grouped = [("site", "site"), ("site AS s", "s"), ("site AS s, max(q) AS best", "s"), ("site", None)]
    query, key, reader = "", None, ""
    for step in range(steps):
        if step and chance.random() < 0.4:
            first = chance.randrange(100)
            ingest(project, first, first + chance.randrange(1, 40))
        else:
            where = f" WHERE q > 0.{chance.randrange(1, 9)}" if chance.random() < 0.6 else ""
            if chance.random() < 0.5:
                query, key = chance.choice(definitions)
                query += where
            else:
                columns, key = chance.choice(grouped)
                query = f"SELECT {columns}, sum(n) AS total FROM pages{where} GROUP BY site"
            reader = key or "site"
            if step and chance.random() < 0.2:
                assert project.preview([web(query, key, reader)], verify=True).wrong == ()
            project.apply(web(query, key, reader))
            if not step:
                ingest(project, 0, 30)
        if not step or chance.random() < 0.7:
            project.run()
            check(project, query, reader)
        if chance.random() < 0.2:
            project.compact("result")
            project.collect_garbage()


def test_random_histories_of_keys(project: Project) -> None:
    follow(project, f"{SEED}/keys", 8)
