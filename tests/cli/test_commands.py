"""The command as a person or a script uses it: what it prints, what it exits with, and what is left."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from typer.main import get_command

from kilonova.catalog import runs
from kilonova.cli import render
from kilonova.cli.inspect import continued
from kilonova.cli.main import app, main
from kilonova.model.run import RunKind
from kilonova.service.formatting import size
from kilonova.service.project import open_project
from kilonova.service.queries import ProjectReader
from tests.receiver import receiving

WORKFLOW = """
import kilonova as kn

shop = kn.Workflow("shop")
shop.channel("orders", "id bigint, customer string")
shop.channel("customers", "customer string, town string", key="customer")


@shop.task(schema="id bigint, customer string")
def known(orders: kn.New) -> kn.Delta:
    return orders.where("customer IS NOT NULL")
"""


@dataclass(frozen=True)
class Result:
    """What a command printed."""

    stdout: str
    stderr: str


Command = Callable[..., Result]


@pytest.fixture
def kilonova(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs the command in a new project's directory, on the session of the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(render.out, "width", 140)
    (tmp_path / "shop.py").write_text(WORKFLOW)

    def command(*words: str, code: int = 0) -> Result:
        with pytest.raises(SystemExit) as ended:
            main(words)
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == code, f"{words}: {printed}"
        return Result(printed.out, printed.err)

    command("init")
    return command


@pytest.fixture
def shop(kilonova: Command, tmp_path: Path) -> Command:
    """As `kilonova`, with the workflow applied and one batch of orders in."""
    kilonova("apply", "shop.py")
    (tmp_path / "orders.csv").write_text("id,customer\n1,ada\n2,\n3,ben\n")
    kilonova("ingest", "orders", "orders.csv")
    return kilonova


def test_plan_says_what_apply_would_do_and_apply_does_it_once(kilonova: Command) -> None:
    kilonova("plan", "shop.py", "--check", code=3)
    planned = json.loads(kilonova("plan", "shop.py", "--json").stdout)
    assert [item["action"] for item in planned[0]["tasks"]] == ["add"]
    assert json.loads(kilonova("apply", "shop.py", "--dry-run", "--json").stdout) == planned
    applied = json.loads(kilonova("apply", "shop.py", "--json").stdout)
    assert applied == planned
    assert "nothing changes" in kilonova("plan", "shop.py", "--check").stdout


def test_a_changed_definition_is_noticed_and_recomputed(shop: Command, tmp_path: Path) -> None:
    shop("run")
    (tmp_path / "shop.py").write_text(WORKFLOW.replace("IS NOT NULL", "= 'ben'"))
    text = shop("plan", "shop.py").stdout
    assert "logic version 0 → 1" in text
    assert "recomputed at the next run" in text
    assert [line[0] for line in text.splitlines() if "IS NOT NULL" in line or "= 'ben'" in line] == ["-", "+"]
    shop("apply", "shop.py")
    assert "due" in shop("status").stdout
    shop("run")
    assert shop("show", "known", "--format", "csv").stdout == "id,customer\n3,ben\n"
    assert shop("show", "known", "--format", "csv", "--at", "1").stdout == "id,customer\n1,ada\n3,ben\n"


def test_a_comment_is_no_change(shop: Command, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(WORKFLOW.replace("    return", "    # all but the nameless\n    return"))
    assert "nothing changes; known: same logic, written differently." in shop("plan", "shop.py", "--check").stdout


def test_the_user_says_which_logic_is_the_same_and_which_is_new(shop: Command, tmp_path: Path) -> None:
    assert "a new version, as requested" in shop("plan", "shop.py", "--new-version", "known", "--check", code=3).stdout
    (tmp_path / "shop.py").write_text(WORKFLOW.replace("IS NOT NULL", "= 'ben'"))
    applied = json.loads(shop("apply", "shop.py", "--same-logic", "known", "--json").stdout)
    assert [(task["logic"], task["overruled"]) for task in applied[0]["tasks"]] == [(0, "same logic, as requested")]
    assert "nothing changes" in shop("plan", "shop.py", "--check").stdout
    assert "declares no such task" in shop("apply", "shop.py", "--same-logic", "knwon", code=1).stderr


def test_run_says_when_there_is_nothing_to_do(shop: Command) -> None:
    done = json.loads(shop("run", "--json").stdout)
    assert [(made["channel"], made["rows"]) for run in done["runs"] for made in run["made"]] == [("known", 2)]
    assert done["failed"] == {}
    assert "Nothing to do" in shop("run", code=3).stdout


def test_files_are_planned_and_applied_together(kilonova: Command, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        'import kilonova as kn\none = kn.Workflow("one")\none.channel("orders", "id bigint, customer string")\n'
        'one.view("known", "SELECT id, customer FROM orders WHERE customer IS NOT NULL")\n'
    )
    two = 'import kilonova as kn\ntwo = kn.Workflow("two")\ntwo.view("per", "SELECT {} AS who FROM orders")\n'
    (tmp_path / "two.py").write_text(two.format("missing"))
    for command in ("plan", "apply", "run"):
        assert "missing" in kilonova(command, "one.py", "two.py", code=1).stderr
    assert json.loads(kilonova("status", "--json").stdout)["channels"] == []
    (tmp_path / "two.py").write_text(two.format("customer"))
    planned = kilonova("plan", "one.py", "two.py").stdout
    assert "known" in planned
    assert "per" in planned
    assert json.loads(kilonova("status", "--json").stdout)["channels"] == []
    kilonova("apply", "one.py", "two.py")
    assert "nothing changes" in kilonova("plan", "two.py", "--check").stdout


def test_a_binding_that_fails_or_is_busy_holds_back_no_other(kilonova: Command, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name, query in {
        "orders": "CREATE TABLE orders (id BIGINT, customer STRING)",
        "counts": "SELECT customer, count(*) AS n FROM orders GROUP BY 1",
        "odd": "SELECT customer, assert_true(id < 0) AS n FROM orders",
        "total": "SELECT count(*) AS n FROM orders",
    }.items():
        (tmp_path / "models" / f"{name}.sql").write_text(query)
    (tmp_path / "orders.csv").write_text("id,customer\n1,ada\n2,ben\n")
    kilonova("apply", "models")
    kilonova("ingest", "orders", "orders.csv")
    with open_project(tmp_path) as opened, opened.catalog.writing() as tx:
        lease = timedelta(seconds=60)
        number, _ = runs.start(tx, kind=RunKind.TASKS, tasks=["total"], writes=["total"], owner="me", lease=lease)
    told = kilonova("run", "--all-or-nothing", code=75).stderr
    assert "another run has" in told
    done = kilonova("run", code=1)
    assert "counts" in done.stdout
    assert set(re.findall(r"^Error: .*\[binding (\w+)", done.stderr, re.MULTILINE)) == {"odd", "total"}
    kilonova("run", "total", code=75)
    kilonova("cancel", str(number))
    kilonova("run", "total")
    assert kilonova("show", "total", "--format", "csv").stdout.split() == ["n", "2"]


def test_show_writes_every_format(shop: Command, tmp_path: Path) -> None:
    assert "ada" in shop("show", "orders").stdout
    lines = shop("show", "orders", "--format", "json").stdout.splitlines()
    assert json.loads(lines[0]) == {"id": 1, "customer": "ada"}
    shop("show", "orders", "--format", "parquet", "-o", str(tmp_path / "out"))
    assert list((tmp_path / "out").glob("*.parquet"))
    shop("show", "orders", "--format", "parquet", "-o", str(tmp_path / "out"), code=1)


def test_show_gives_changes_between_points(shop: Command, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"customer": "ada", "town": "Rome"}\n')
    (tmp_path / "b.jsonl").write_text('{"customer": "ada", "town": "Oslo"}\n')
    shop("ingest", "customers", "a.jsonl")
    shop("ingest", "customers", "b.jsonl")
    changed = shop("show", "customers", "--since", "1", "--format", "csv").stdout.splitlines()
    assert sorted(changed[1:]) == ["ada,Oslo,1", "ada,Rome,-1"]
    found = next(
        each for each in json.loads(shop("status", "--json").stdout)["channels"] if each["channel"] == "customers"
    )
    assert (found["deltas"], found["rows"], found["max_rows"]) == (1, 1, 1)
    assert 0 < found["bytes"] == found["stored_bytes"]
    (line,) = (line for line in shop("status").stdout.splitlines() if line.lstrip().startswith("customers"))
    assert f" 1 {size(found['bytes'])} ingest" in " ".join(line.split())


def test_status_and_runs_speak_json(shop: Command) -> None:
    status = json.loads(shop("status", "--json").stdout)
    assert {item["channel"]: item["point"] for item in status["channels"]} == {
        "orders": 1,
        "customers": 0,
        "known": 0,
    }
    assert [item["due"] is not None for item in status["tasks"]] == [True]
    runs = json.loads(shop("runs", "--json").stdout)
    assert [item["run"]["kind"] for item in runs] == ["ingest"]


def test_the_log_of_a_run_is_shown(shop: Command) -> None:
    shop("run")
    assert "known: ended, 2 rows in " in shop("log", "--follow").stdout
    assert "orders: begins, from orders.csv" in shop("log", "1").stdout
    found = json.loads(shop("log", "1", "--json").stdout)
    assert (found["run"]["number"], found["run"]["progress"]) == (1, None)
    assert found["text"] == shop("log", "1").stdout


@given(st.lists(st.integers(), min_size=1, unique=True).map(lambda all: [f"line {one}\n" for one in all]), st.data())
def test_what_has_come_to_a_log_is_shown_once(lines: list[str], data: st.DataObject) -> None:
    seen = data.draw(st.integers(1, len(lines)))
    head = data.draw(st.integers(0, seen - 1))
    tail = data.draw(st.integers(head, seen - 1))
    after = "".join([*lines[:head], "… 9 entries are left out …\n", *lines[tail:]]) if tail > head else "".join(lines)
    assert continued("".join(lines[:seen]), after) == "".join(lines[seen:])


def test_gc_explains_what_stays(shop: Command, tmp_path: Path) -> None:
    shop("run")
    (tmp_path / "more.csv").write_text("id,customer\n4,cy\n")
    shop("ingest", "orders", "more.csv")
    shop("compact", "orders")
    assert "known has read up to point 1 only" in shop("gc", "--dry-run").stdout
    shop("run")
    before = len(list((tmp_path / ".kilonova" / "warehouse").glob("block_*")))
    gone = json.loads(shop("gc", "orders", "--json").stdout)["deleted"]
    assert gone == 2
    assert len(list((tmp_path / ".kilonova" / "warehouse").glob("block_*"))) == before - 2
    assert len(shop("show", "orders", "--format", "csv").stdout.splitlines()) == 5


def test_drop_asks_and_refuses_what_is_read(shop: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    shop("drop-channel", "orders", "--yes", code=1)
    shop("drop-channel", "known", "--yes")
    shop("show", "known", code=1)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    shop("drop-channel", "customers", code=1)
    shop("show", "customers")


def test_checks_and_schedules_are_shown(kilonova: Command, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "orders.sql").write_text("CREATE TABLE orders (id BIGINT, customer STRING)")
    view = tmp_path / "models" / "counts.sql"
    said = "---\nschedule: every 1 hour\nchecks: {expressions: n < 2}\n---\n"
    view.write_text(f"{said}SELECT customer, count(*) AS n FROM orders GROUP BY 1")
    kilonova("apply", "models/")
    (tmp_path / "orders.csv").write_text("id,customer\n1,ada\n2,ben\n")
    kilonova("ingest", "orders", "orders.csv")
    kilonova("run")
    kilonova("ingest", "orders", "orders.csv")
    assert "Nothing to do" in kilonova("run", code=3).stdout
    assert "not before" in kilonova("status").stdout
    found = json.loads(kilonova("run", "counts", "--json", code=1).stdout)["failed"]["counts"]
    assert (found["error"], found["check"], found["channel"]) == ("check", "expression(n < 2)", "counts")
    shown = kilonova("explain", "counts").stdout
    assert "checked: expression(n < 2)" in shown
    assert "schedule: every 1 hour" in shown


def test_a_folder_of_sql_files_is_planned_applied_and_run(kilonova: Command, tmp_path: Path) -> None:
    (tmp_path / "models" / "sources").mkdir(parents=True)
    (tmp_path / "models" / "sources" / "orders.sql").write_text("CREATE TABLE orders (id BIGINT, customer STRING)")
    view = tmp_path / "models" / "counts.sql"
    view.write_text("---\ndescription: Orders per customer\n---\nSELECT customer, count(*) AS n FROM orders GROUP BY 1")
    assert "Orders per customer" in kilonova("plan", "models/").stdout
    assert "Nothing to do" in kilonova("run", "models/", code=3).stdout
    kilonova("plan", "models", "--check")
    (tmp_path / "orders.csv").write_text("id,customer\n1,ada\n2,ben\n3,ada\n")
    kilonova("ingest", "orders", "orders.csv")
    kilonova("run", "models")
    assert kilonova("explain", "counts").stdout.startswith("Orders per customer\n")
    view.write_text("SELECT customer, count(*) + 1 AS n FROM orders GROUP BY customer")
    text = kilonova("run", "models/").stdout
    assert "logic version 0 → 1" in text
    rows = kilonova("show", "counts", "--format", "csv").stdout.splitlines()
    assert sorted(rows[1:]) == ["ada,3", "ben,2"]
    before = kilonova("status", "--json").stdout
    (tmp_path / "models" / "more.sql").write_text("SELECT id FROM orders")
    view.write_text("---\n---\nSELECT customer,\n  count(* AS n FROM orders")
    for command in ("plan", "apply", "run"):
        told = " ".join(kilonova(command, "models/", code=1).stderr.split())
        assert told.startswith("Error: line 4, column 11: ")
        assert told.endswith("[path models/counts.sql]")
    assert kilonova("status", "--json").stdout == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "ordres"), "Did you mean orders?"),
        (("show", "orders", "--at", "7"), "points are 0 to 1"),
        (("show", "orders", "--since", "9"), "after point 1"),
        (("run", "unknown"), "no such task"),
        (("log", "9"), "The runs are 1 to 1"),
        (("ingest", "orders", "nowhere.csv"), "no such file"),
        (("ingest", "known", "orders.csv"), "only the task known"),
        (("ingest", "orders", "orders.csv", "-o", "sep"), "name=value"),
        (("plan", "nowhere.py"), "no such file"),
        (("run", "nowhere/"), "no such file"),
        (("plan", ".kilonova"), "no .sql file"),
        (("gc", "nothing"), "no such channel"),
        (("gc", "--provenance", "none"), "logical, physical or all"),
    ],
)
def test_mistakes_get_one_clear_error(shop: Command, words: tuple[str, ...], says: str) -> None:
    before = shop("status", "--json").stdout
    result = shop(*words, code=1)
    assert says in " ".join(result.stderr.split())
    assert "Traceback" not in result.stdout + result.stderr
    assert shop("status", "--json").stdout == before or words[0] == "ingest"


def test_errors_are_json_where_json_is_asked_for(shop: Command) -> None:
    found = json.loads(shop("show", "ordres", "--json", code=1).stdout)
    assert found["error"] == "unknown"
    assert found["channel"] == "ordres"


def test_a_project_without_a_catalog_says_how_to_make_one(kilonova: Command, tmp_path: Path) -> None:
    assert "kilonova init" in kilonova("-C", str(tmp_path / "elsewhere"), "status", code=1).stderr


def test_when_a_channel_is_compacted_can_be_said(kilonova: Command, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(WORKFLOW)
    kilonova("init")
    kilonova("apply", "shop.py")
    assert "after 5 deltas" in kilonova("compaction-policy", "orders", "--max-deltas", "5").stdout
    assert "only on request" in kilonova("compaction-policy", "orders", "--manual").stdout
    assert kilonova("compaction-policy").stdout.count("\n") <= 3
    for wrong in (
        ("orders",),
        ("orders", "--manual", "--cost-based"),
        ("--manual",),
        ("orders", "--max-deltas", "0"),
        ("x", "--manual"),
    ):
        assert "Error" in kilonova("compaction-policy", *wrong, code=1).stderr


def test_a_binding_is_fired_by_either_name_of_the_command(kilonova: Command, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(WORKFLOW)
    kilonova("init")
    kilonova("apply", "shop.py")
    for name in ("fire", "trigger"):
        assert "known is due" in kilonova(name, "known").stdout
        assert "Error" in kilonova(name, "x", code=1).stderr


def test_settings_that_cannot_be_are_named(kilonova: Command, tmp_path: Path) -> None:
    (tmp_path / "kilonova.toml").write_text("run_leese = 3\n")
    assert "no setting run_leese. Did you mean run_lease?" in kilonova("status", code=1).stderr
    (tmp_path / "kilonova.toml").write_text("[serve]\nmax_upload = 3\n")
    assert "no setting serve.max_upload. Did you mean max_upload_mb?" in kilonova("status", code=1).stderr
    (tmp_path / "kilonova.toml").write_text("run_lease = \n")
    assert "not TOML" in kilonova("status", code=1).stderr


def test_a_server_listens_at_the_given_address_or_fails_with_an_error(kilonova: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1", str(taken.getsockname()[1])
        words = [sys.executable, "-m", "kilonova", "serve", "--host", address[0], "--port", address[1]]
        found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 1
    assert f"cannot listen on {':'.join(address)}" in found.stderr
    assert "65535" in kilonova("serve", "--port", "65536", code=2).stderr


def test_every_command_explains_itself(kilonova: Command) -> None:
    commands = get_command(app).commands
    assert {"init", "run", "serve", "token"} <= commands.keys()
    for name in commands:
        assert "Usage" in kilonova(name, "--help").stdout


def test_webhooks_are_added_listed_tried_and_removed(kilonova: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILONOVA_SERVE__WEBHOOKS", '["127.0.0.1"]')
    kilonova("apply", "shop.py")
    with receiving() as receiver:
        words = (
            "webhook",
            "add",
            "pager",
            receiver.url,
            "--on",
            "failed",
            "--on",
            "server-silent",
            "--binding",
            "known",
        )
        assert "webhook test pager" in kilonova(*words).stdout
        [shown] = json.loads(kilonova("webhook", "list", "--json").stdout)
        assert (shown["name"], shown["url"], shown["on"]) == ("pager", receiver.url, ["failed", "server-silent"])
        assert (shown["binding"], shown["secret_env"], shown["attempts"]) == ("known", None, 0)
        assert "pager" in kilonova("webhook", "list").stdout
        kilonova("webhook", "test", "pager")
        assert receiver.taken[0]["type"] == "kilonova.test"
        receiver.answers = lambda count: 503
        assert "HTTP status 503" in kilonova("webhook", "test", "pager", code=1).stderr
    assert "Remove it first" in kilonova(*words, code=1).stderr
    assert "Did you mean failed?" in kilonova("webhook", "add", "x", "http://a", "--on", "fialed", code=1).stderr
    assert (
        "no such binding"
        in kilonova("webhook", "add", "x", "http://a", "--on", "failed", "--binding", "b", code=1).stderr
    )
    assert "http:// or https://" in kilonova("webhook", "add", "x", "ftp://a", "--on", "failed", code=1).stderr
    assert "Did you mean pager?" in kilonova("webhook", "remove", "pagr", code=1).stderr
    kilonova("webhook", "remove", "pager")
    assert json.loads(kilonova("webhook", "list", "--json").stdout) == []


def test_files_that_are_dropped_are_gathered_shown_and_tried_again(kilonova: Command, tmp_path: Path) -> None:
    watch = ', watch=kn.watched_directory("inbox", settle_time="1 second"))'
    (tmp_path / "shop.py").write_text(WORKFLOW.replace('customer string")\nshop', f'customer string"{watch}\nshop', 1))
    assert "ingests the files of inbox/*" in kilonova("apply", "shop.py").stdout
    nothing = kilonova("scan", code=3)
    assert "no directory inbox" in nothing.stderr
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.csv").write_text("id,customer\n1,ada\n")
    (tmp_path / "inbox" / "b.csv").write_text("id,customer\ntwo,bob\n")
    scanned = kilonova("scan", "orders", code=4)
    assert "orders: 1 file was quarantined" in scanned.stderr
    assert "1 file quarantined" in scanned.stdout
    shown = json.loads(kilonova("files", "list", "orders", "--json").stdout)
    assert [(file["path"], file["state"]) for file in shown["files"]] == [
        ("inbox/b.csv", "quarantined"),
        ("inbox/a.csv", "ingested"),
    ]
    found = json.loads(kilonova("files", "list", "orders", "--state", "quarantined", "--json").stdout)
    assert found["files"][0]["error"].startswith("line 2: 'two' is not of type bigint.")
    assert "1 file will" in kilonova("files", "retry", "orders").stdout
    ran = kilonova("run", code=4)
    assert "1 file was quarantined" in ran.stderr
    kilonova("files", "retry", "orders")
    assert json.loads(kilonova("run", "--json", code=4).stdout)["quarantined"] == {"orders": 1}
    assert "was ingested by run" in kilonova("files", "retry", "orders", "inbox/a.csv", code=1).stderr
    assert "has no watched directory" in kilonova("scan", "customers", code=1).stderr
    assert "has no watched directory" in kilonova("files", "list", "customers").stdout
    kilonova("scan", "order", code=1)


def test_a_run_is_cancelled_and_retried(shop: Command, tmp_path: Path) -> None:
    with open_project(tmp_path) as project, project.catalog.writing() as tx:
        runs.start(tx, kind=RunKind.TASKS, tasks=["known"], writes=["known"], owner="me", lease=timedelta(seconds=60))
    assert "the run is still running" in shop("retry", "2", code=1).stderr
    assert "Run 2 is cancelled" in shop("cancel", "2").stdout
    assert "has already ended, as cancelled" in shop("cancel", "2", code=1).stderr
    assert "cancelled by" in shop("runs").stdout
    assert "known is due" in shop("retry", "2").stdout
    assert "run 2 again" in shop("triggers", "known").stdout
    refused = json.loads(shop("--json", "retry", "1", code=1).stdout)
    assert (refused["error"], refused["run"], "succeeded" in refused["problem"]) == ("state", 1, True)
    assert "no such run" in shop("cancel", "3", code=1).stderr
    shop("retry", "orders", code=2)


def test_run_takes_the_files_that_are_there_first(kilonova: Command, tmp_path: Path) -> None:
    watch = ', watch=kn.watched_directory("inbox", settle_time="0 seconds"))'
    (tmp_path / "shop.py").write_text(WORKFLOW.replace('customer string")\nshop', f'customer string"{watch}\nshop', 1))
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.csv").write_text("id,customer\n1,ada\n")
    shown = kilonova("run", "shop.py").stdout
    assert "inbox/a.csv" in shown
    assert kilonova("show", "known", "--format", "csv").stdout == "id,customer\n1,ada\n"


def test_a_defect_is_explained(kilonova: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no number")

    monkeypatch.setattr(ProjectReader, "status", broken)
    shown = kilonova("status", code=1)
    assert "Error: an unexpected ValueError: no number. This is a defect of Kilonova" in shown.stderr
    assert "Traceback" in shown.stderr
    told = json.loads(kilonova("status", "--json", code=1).stdout)
    assert (told["error"], told["problem"]) == ("defect", "an unexpected ValueError: no number")
