"""Watched directories on real files and Spark: each file once, whatever is wrong with others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import kilonova as kn
from kilonova.engine.directory_scan import DirectoryListing
from kilonova.errors import DeclarationError, NotFound
from kilonova.model.event import EventKind
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.model.watched_file import FileState
from kilonova.schedule.file_selection import MAX_QUARANTINED
from kilonova.service.project import Project
from kilonova.service.reports import DirectoryIngestReport


def watching(project: Project, **given: object) -> None:
    shop = kn.Workflow("shop")
    options = {"pattern": "**/*", "settle_time": "0 seconds", **given}
    shop.channel("orders", "id bigint, customer string", watch=kn.watched_directory("inbox", **options))  # type: ignore[arg-type]
    shop.channel("clicks", "id bigint", watch=kn.watched_directory("clicks", settle_time="0 seconds", in_order=True))
    shop.channel(
        "people", "name string, town string", key="name", watch=kn.watched_directory("people", settle_time="0 seconds")
    )
    project.apply(shop)


@pytest.fixture
def drop(project: Project, tmp_path: Path) -> Callable[..., None]:
    """Drops a file, one second after the one before."""
    watching(project)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "people").mkdir()
    (tmp_path / "clicks").mkdir()
    moment = int(time.time()) - 100

    def drop(name: str, text: str) -> None:
        nonlocal moment
        moment += 1
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        os.utime(path, (moment, moment))

    return drop


def ids(project: Project) -> list[int]:
    return sorted(row[0] for row in project.rows("orders")[1])


def states(project: Project, channel: str = "orders") -> dict[str, str]:
    return {file.path: file.state.value for file in project.reader.files(channel).files}


def blocks(done: DirectoryIngestReport) -> list[int | None]:
    return [made.rows for report in done.runs for made in report.made]


def orders(*ids: int) -> str:
    return "id,customer\n" + "".join(f"{number},ann\n" for number in ids)


def test_each_file_is_taken_once_whatever_its_name_and_format(
    project: Project, drop: Callable[..., None], tmp_path: Path
) -> None:
    drop("inbox/a.csv", orders(1, 2))
    drop("inbox/day=1/b [1] {x} 100%20 é'\\*.csv", orders(3))
    drop("inbox/c.jsonl", json.dumps({"id": 4, "customer": "bob"}) + "\n")
    parquet.write_table(pa.table({"id": [5], "customer": ["cat"]}), tmp_path / "inbox" / "d.parquet")
    for name in ("_SUCCESS", ".a.csv.swp", "e.csv.part", "_tmp/f.csv"):
        drop(f"inbox/{name}", orders(99))
    os.symlink(tmp_path / "inbox", tmp_path / "inbox" / "loop")
    assert blocks(project.directories.ingest()) == [5]
    assert ids(project) == [1, 2, 3, 4, 5]
    assert project.directories.ingest() == DirectoryIngestReport()
    (tmp_path / "inbox" / "a.csv").unlink()
    project.directories.ingest()
    drop("inbox/a.csv", orders(7, 7, 7))
    drop("inbox/g.csv", orders(6))
    assert blocks(project.directories.ingest()) == [1]
    assert ids(project) == [1, 2, 3, 4, 5, 6]
    assert set(states(project).values()) == {"ingested"}
    late = [event.text for event in project.events() if event.kind is EventKind.FILE_CHANGED]
    assert late == ["orders: inbox/a.csv: changed after being ingested; the change is not ingested"]


def test_a_bad_file_holds_nothing_up_and_is_tried_again_once_it_is_mended(
    project: Project, drop: Callable[..., None], tmp_path: Path
) -> None:
    drop("inbox/1.csv", orders(1))
    drop("inbox/2.csv", "id\n2\n")
    drop("inbox/3.csv", orders(3))
    drop("inbox/4.csv", "id,customer\nfour,ann\n")
    drop("inbox/5.csv", orders(5))
    drop("inbox/6.what", "?")
    drop("inbox/7.csv", "")
    done = project.directories.ingest()
    assert blocks(done) == [3]
    assert done.quarantined == {"orders": 4}
    assert ids(project) == [1, 3, 5]
    aside = {file.path: file.error or "" for file in project.reader.files("orders", state=FileState.QUARANTINED).files}
    assert aside.keys() == {"inbox/2.csv", "inbox/4.csv", "inbox/6.what", "inbox/7.csv"}
    assert "customer" in aside["inbox/2.csv"]
    assert "format" in aside["inbox/6.what"]
    assert len([event for event in project.events() if event.kind is EventKind.FILE_QUARANTINED]) == 4
    assert project.directories.ingest() == DirectoryIngestReport()
    drop("inbox/2.csv", orders(2))
    (tmp_path / "inbox/6.what").unlink()
    assert blocks(project.directories.ingest()) == [1]
    assert project.operator.retry_files("orders", "inbox/4.csv") == 1
    assert project.directories.ingest().quarantined == {"orders": 1}
    assert states(project) == {
        "inbox/4.csv": "quarantined",
        "inbox/7.csv": "quarantined",
        **{f"inbox/{number}.csv": "ingested" for number in (1, 2, 3, 5)},
    }
    for path, said in (("inbox/1.csv", "ingested by run 1"), ("inbox/8.csv", "no such file")):
        with pytest.raises(NotFound, match=said):
            project.operator.retry_files("orders", path)


def test_a_quarantined_file_says_which_lines_do_not_fit(project: Project, drop: Callable[..., None]) -> None:
    drop("inbox/1.csv", orders(1))
    drop("inbox/2 é.csv", "id,customer\n2,ann\nthree,bob\n4,cat\nfive,dan\n")
    done = project.directories.ingest()
    (file,) = project.reader.files("orders", state=FileState.QUARANTINED).files
    problem = "line 3: 'three' is not of type bigint; 1 more line does not fit (line 5, column id: 'five' is not of"
    assert file.error is not None
    assert file.error.startswith(problem)
    (run,) = done.runs
    assert (run.quarantined, run.made[0].reason) == (1, "ingested from inbox/1.csv; 1 file quarantined")
    assert f"quarantined inbox/2 é.csv: {problem}" in project.row_reader.log(run.run).text


def test_a_run_that_ingests_none_of_its_files_says_so(project: Project, drop: Callable[..., None]) -> None:
    for number in range(3):
        drop(f"inbox/{number}.csv", "id,customer\nx,ann\n")
    done = project.directories.ingest()
    (made,) = done.runs[0].made
    assert (made.block, made.reason) == (None, "nothing was ingested; 3 files of inbox quarantined")


def test_lines_that_reader_options_allow_are_counted(project: Project, tmp_path: Path) -> None:
    watching(project, options={"mode": "DROPMALFORMED"})
    (tmp_path / "inbox").mkdir()
    for name, text in (("a.csv", "id,customer\nx,ann\n1,ann\n"), ("b.csv", "id,customer\n2\n"), ("c.jsonl", "x\n")):
        (tmp_path / "inbox" / name).write_text(text)
    done = project.directories.ingest()
    (run,) = done.runs
    assert (run.malformed, ids(project)) == (3, [1])
    assert run.made[0].reason == "ingested from 3 files of inbox; 3 lines did not fit, whose rows were dropped"
    assert "3 lines did not fit" in project.row_reader.log(run.run).text


def test_in_order_a_bad_file_stops_those_after_it_until_it_is_corrected(
    project: Project, drop: Callable[..., None]
) -> None:
    for number in range(5):
        drop(f"clicks/{9 - number}.csv", "id\nbad\n" if number == 2 else f"id\n{number}\n")
    done = project.directories.ingest(["clicks"])
    assert (blocks(done), done.quarantined) == ([2], {"clicks": 1})
    assert states(project, "clicks") == {
        "clicks/9.csv": "ingested",
        "clicks/8.csv": "ingested",
        "clicks/7.csv": "quarantined",
        "clicks/6.csv": "ready",
        "clicks/5.csv": "ready",
    }
    assert project.directories.ingest(["clicks"]) == DirectoryIngestReport()
    drop("clicks/7.csv", "id\n2\n")
    assert blocks(project.directories.ingest(["clicks"])) == [3]
    assert sorted(project.rows("clicks")[1]) == [(number,) for number in range(5)]


def test_of_several_files_with_a_key_the_last_counts_and_all_become_one_block(
    project: Project, drop: Callable[..., None]
) -> None:
    for number in range(4):
        drop(f"people/{9 - number}.csv", f"name,town\nann,T{number}\nbob{number},B\n")
    drop("people/0.csv", "name,town\nann,A\nann,B\n")
    drop("people/1.csv", "name,town\ncat,C\n")
    done = project.directories.ingest(["people"])
    assert (blocks(done), done.quarantined) == ([6], {"people": 1})
    assert states(project, "people")["people/0.csv"] == "quarantined"
    found = {tuple(row) for row in project.rows("people")[1]}
    assert found == {("ann", "T3"), ("cat", "C"), *((f"bob{number}", "B") for number in range(4))}


def test_a_key_twice_in_one_file_is_an_error_even_if_a_later_file_has_it(
    project: Project, drop: Callable[..., None]
) -> None:
    drop("people/a.jsonl", '{"name": "ann", "town": "A"}\n{"name": "ann", "town": "B"}\n{"name": "bob", "town": "C"}\n')
    drop("people/b.csv", "name,town\nann,D\n")
    drop("people/c.jsonl", '{"name": "cat", "town": "E"}\n')
    drop("people/d.jsonl", '{"name": "cat", "town": null, "_deleted": true}\n')
    drop("people/e.csv", "name,town\nbob,\n")
    assert project.directories.ingest(["people"]).quarantined == {"people": 1}
    assert states(project, "people")["people/a.jsonl"] == "quarantined"
    assert {tuple(row) for row in project.rows("people")[1]} == {("ann", "D"), ("bob", None)}
    drop("people/f.csv", "name,town\nann,F\nbob,F\n")
    drop("people/g.jsonl", '{"name": "ann", "town": "G", "_deleted": true}\n{"name": "dan", "town": "G"}\n')
    assert len(blocks(project.directories.ingest(["people"]))) == 1
    assert {tuple(row) for row in project.rows("people")[1]} == {("bob", "F"), ("dan", "G")}


def test_many_bad_files_do_not_make_the_blocks_of_others_small(project: Project, drop: Callable[..., None]) -> None:
    for number in range(2 * MAX_QUARANTINED):
        drop(f"people/good{number}.csv", f"name,town\nann{number},A\n")
        drop(f"people/bad{number}.csv", "surname\nann\n")
    done = project.directories.ingest(["people"])
    assert done.quarantined == {"people": 2 * MAX_QUARANTINED}
    assert [rows for rows in blocks(done) if rows is not None] == [2 * MAX_QUARANTINED]


def test_patches_of_one_key_become_successive_blocks(project: Project, drop: Callable[..., None]) -> None:
    shop = kn.Workflow("stock")
    shop.channel(
        "stock",
        "item string, price bigint, count bigint",
        key="item",
        encoding="columns",
        watch=kn.watched_directory("stock", settle_time="0 seconds"),
    )
    project.apply(shop)
    drop("stock/a.csv", "item,price,count\nnut,1,2\n")
    drop("stock/b.csv", "item,price\nnut,3\n")
    drop("stock/c.csv", "item,count\nnut,4\n")
    assert len(blocks(project.directories.ingest(["stock"]))) == 3
    assert [tuple(row) for row in project.rows("stock")[1]] == [("nut", 3, 4)]


def test_rows_say_from_which_file_they_come_if_their_channel_asks_for_it(
    project: Project, drop: Callable[..., None], tmp_path: Path
) -> None:
    asked = "id bigint, _file string, _file_time timestamp, _ingested timestamp"
    shop = kn.Workflow("traced")
    shop.channel("traced", asked, watch=kn.watched_directory("traced", "**/*", settle_time="0 seconds"))
    shop.channel("elsewhere", asked)
    project.apply(shop)
    names = {1: "a.csv", 2: "day=1/b [1] {x} 100%20+ é'*.csv", 3: "c.jsonl", 4: "d é%+.parquet", 5: "e.csv"}
    began = datetime.now(UTC)
    drop(f"traced/{names[1]}", "id\n1\n")
    drop(f"traced/{names[2]}", "id\n2\n")
    drop(f"traced/{names[3]}", '{"id": 3}\n')
    parquet.write_table(pa.table({"id": [4]}), tmp_path / "traced" / names[4])
    drop(f"traced/{names[5]}", "id,_file,_ingested\n5,original,2001-02-03T00:00:00Z\n")
    assert blocks(project.directories.ingest(["traced"])) == [5]
    rows = {row[0]: row[1:] for row in project.rows("traced")[1]}
    assert {number: row[0] for number, row in rows.items()} == names | {5: "original"}
    for number, name in names.items():
        modified = datetime.fromtimestamp((tmp_path / "traced" / name).stat().st_mtime, UTC)
        assert as_utc(rows[number][1]) == modified
        assert (as_utc(rows[number][2]) >= began) == (number != 5)
    project.ingest("elsewhere", tmp_path / "traced" / names[2])
    project.ingest("elsewhere", tmp_path / "traced" / "day=1")
    project.ingest("elsewhere", tmp_path / "traced" / names[3], name="upload.jsonl")
    project.ingest("elsewhere", project.warehouse.spark.range(1))
    found = project.read("elsewhere").orderBy("_ingested").collect()
    assert [(row["id"], row["_file"]) for row in found] == [
        *[(2, names[2].split("/")[1])] * 2,
        (3, "upload.jsonl"),
        (0, None),
    ]
    assert [row["_file_time"] is None for row in found] == [False, False, False, True]
    with pytest.raises(DeclarationError, match="must have the type timestamp"):
        shop.channel("wrong", "id bigint, _file_time string")


def as_utc(moment: object) -> datetime:
    assert isinstance(moment, datetime)
    return moment.astimezone(UTC)


def test_what_changes_while_it_is_read_is_not_taken(project: Project, drop: Callable[..., None]) -> None:
    drop("inbox/a.csv", orders(1))
    drop("inbox/b.csv", orders(2))
    project.directories.scan("orders", early=True)
    drop("inbox/b.csv", orders(2, 3))
    assert blocks(DirectoryIngestReport(runs=project.directories.ingest_ready("orders"))) == [1]
    assert ids(project) == [1]
    project.directories.ingest()
    assert ids(project) == [1, 2, 3]


def test_what_is_still_being_written_is_awaited(project: Project, tmp_path: Path) -> None:
    watching(project, settle_time="2 seconds")
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.csv").write_text(orders(1))
    looked = project.directories.scan("orders", early=True)
    assert looked is not None
    assert (looked.ready, looked.settles is not None) == (False, True)
    assert project.directories.ingest_ready("orders") == ()
    assert blocks(project.directories.ingest()) == [1]


def test_a_block_has_so_many_files_at_most(project: Project, drop: Callable[..., None]) -> None:
    for number in range(5):
        drop(f"inbox/{number}.csv", orders(number))
    project.resources.settings = project.settings.model_copy(
        update={"scan": project.settings.scan.model_copy(update={"max_files": 2, "max_bytes": 1 << 20})}
    )
    assert blocks(project.directories.ingest()) == [2, 2, 1]


def test_a_missing_directory_is_reported_once(project: Project, tmp_path: Path) -> None:
    watching(project)
    assert "no directory inbox" in project.directories.ingest(["orders"]).unseen["orders"]
    project.directories.ingest(["orders"])
    assert len([event for event in project.events() if event.kind is EventKind.DIRECTORY_UNREADABLE]) == 1
    (tmp_path / "inbox").mkdir()
    assert project.directories.ingest(["orders"]) == DirectoryIngestReport()
    inbox = project.reader.files("orders")
    assert inbox.watched is not None
    assert inbox.watched.error is None


def test_names_that_cannot_be_used_do_not_hold_others_up(tmp_path: Path) -> None:
    for name in (b"good.csv", b"bad\xff.csv", b"s3::x.csv"):
        (tmp_path / os.fsdecode(name)).write_text("")
    listing = DirectoryListing(WatchedDirectory(location=str(tmp_path), pattern="*.csv"), Path())
    assert [list(some) for some in listing.batches()] == [["good.csv"]]
    assert len(listing.problems) == 2


def test_object_stores_are_listed_as_directories_are(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for name in ("a.csv", "x/b.csv", "x/y/c.csv", "_x/d.csv", "e.txt"):
        memory.pipe(f"/inbox/{name}", b"id\n1\n")
    (tmp_path / "x/y").mkdir(parents=True)
    for name in ("a.csv", "x/b.csv", "x/y/c.csv"):
        (tmp_path / name).write_text("")
    for pattern, expected in (
        ("*.csv", {"a.csv"}),
        ("*/*.csv", {"x/b.csv"}),
        ("**/*.csv", {"a.csv", "x/b.csv", "x/y/c.csv"}),
    ):
        for place in ("memory://inbox", str(tmp_path), tmp_path.as_uri()):
            listing = DirectoryListing(WatchedDirectory(location=place, pattern=pattern), Path("/nowhere"))
            assert {name for some in listing.batches() for name in some} == expected
            assert listing.problems == []
    empty = DirectoryListing(WatchedDirectory(location="memory://nothing"), Path())
    assert list(empty.batches()) == []
    strange = DirectoryListing(WatchedDirectory(location="gopher://hole"), Path())
    assert list(strange.batches()) == []
    assert "gopher" in strange.problems[0]


def test_a_channel_without_a_directory_has_nothing_to_gather(project: Project) -> None:
    shop = kn.Workflow("shop")
    shop.channel("clicks", "id bigint")
    project.apply(shop)
    with pytest.raises(DeclarationError, match="has no watched directory"):
        project.directories.ingest(["clicks"])
    with pytest.raises(NotFound):
        project.directories.ingest(["click"])
    assert project.directories.ingest() == DirectoryIngestReport()
