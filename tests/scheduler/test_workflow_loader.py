"""Code that is sent, loaded in processes of its own."""

from __future__ import annotations

import io
import threading
import zipfile
from pathlib import Path

import pytest

from kilonova.declare.workflow import Declared
from kilonova.errors import DeclarationError, InputError, KilonovaError
from kilonova.scheduler.workers import Worker
from kilonova.scheduler.workflow_loader import load_workflows
from kilonova.service.project import Project, open_project

HELPED = """
import kilonova as kn
from helper import FACTOR, doubled

helped = kn.Workflow("helped")
helped.channel("amounts", "n bigint")
helped.channel("twice", "n bigint")

@helped.task
def twice(amounts: kn.New) -> kn.Delta:
    return doubled(amounts, FACTOR)
"""
HELPER = "FACTOR = {}\ndef doubled(frame, factor): return frame.selectExpr(f'n * {{factor}} AS n')"


def sent(shop: Project, files: dict[str, str] | str, *places: str) -> tuple[Declared, ...]:
    """What is declared by a Python file, or a zip of several files."""
    if isinstance(files, str):
        content, format = files.encode(), "python"
    else:
        made, format = io.BytesIO(), "zip"
        with zipfile.ZipFile(made, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        content = made.getvalue()
    place = shop.directory / "sending"
    place.mkdir(exist_ok=True)
    file = place / "file"
    file.write_bytes(content)
    try:
        return load_workflows(shop, str(file), format, places)
    finally:
        assert list(place.iterdir()) == [file]


def test_a_folder_of_sql_in_a_zip_is_a_workflow_of_its_name(shop: Project) -> None:
    [found] = sent(shop, {"models/latest.sql": "SELECT user FROM clicks", "models/sub/all.sql": "SELECT * FROM latest"})
    assert found.workflow.name == "models"
    assert {task.name for task in found.workflow.tasks} == {"latest", "all"}


def test_modules_are_loaded_with_their_imports_each_time(shop: Project) -> None:
    fingerprints = set()
    for factor in (2, 3):
        files = {"flow.py": HELPED, "helper.py": HELPER.format(factor)}
        [found] = sent(shop, files, "flow.py")
        [task] = found.workflow.tasks
        fingerprints.add(task.fingerprint)
    assert len(fingerprints) == 2
    shop.apply(found)
    assert shop.plan(found).empty


def test_code_that_exits_or_fails_is_an_error(shop: Project) -> None:
    for code, problem in (
        ("import os; os._exit(9)", "ended the process that loaded it, with 9"),
        ("import pickle; pickle.dumps = None; nonsense((", "was never closed"),
        ("print('x' * 1_000_000); import kilonova as kn; kn.Workflow", "defines no workflow"),
    ):
        with pytest.raises(DeclarationError, match=problem):
            sent(shop, code)


def test_code_that_hangs_is_killed_with_an_error(shop: Project, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    code = f"import time; time.sleep(60); open({str(alive)!r}, 'w')"
    with (
        open_project(shop.directory, serve={"load_timeout": 1}) as hasty,
        pytest.raises(DeclarationError, match="longer than 1 s"),
    ):
        sent(hasty, code)
    assert not alive.exists()


def test_errors_name_files_as_they_were_sent(shop: Project) -> None:
    for files, place, path in (
        ({"models/bad.sql": "SELECT FROM WHERE"}, (), "models/bad.sql"),
        ({"a/flow.py": "1 / 0"}, ("a/flow.py",), "a/flow.py"),
        ({"a.py": "", "b.py": ""}, ("../a.py",), "../a.py"),
    ):
        with pytest.raises(KilonovaError) as told:
            sent(shop, files, *place)
        assert told.value.path == path
    with pytest.raises(DeclarationError, match=r"contains a\.py, b\.py"):
        sent(shop, {"a.py": "", "b.py": ""})
    with pytest.raises(InputError, match="leads out of it"):
        sent(shop, {"../evil.py": ""})


def test_modules_of_the_server_are_not_those_that_were_sent(shop: Project) -> None:
    files = {
        "json.py": "raise SystemExit(5)",
        "kilonova/__init__.py": "raise SystemExit(6)",
        "m/a.sql": "SELECT user FROM clicks",
    }
    [found] = sent(shop, files, "m")
    assert found.workflow.name == "m"


def test_settings_are_on_no_command_line(shop: Project) -> None:
    code = """
import pathlib
import kilonova as kn

line = pathlib.Path("/proc/self/cmdline").read_text()
found = kn.Workflow("leaked" if "hunter2" in line else "kept")
found.channel("amounts", "n bigint")
"""
    with open_project(shop.directory, spark={"conf": {"spark.hadoop.fs.s3a.secret.key": "hunter2"}}) as secretive:
        [found] = sent(secretive, code)
    assert found.workflow.name == "kept"


def test_a_worker_is_given_its_settings_where_others_do_not_read_them(shop: Project) -> None:
    ended = threading.Event()
    worker = Worker(shop.directory, {"catalog": "mysql://me:hunter2@host"}, lambda _, said: said or ended.set())
    try:
        line = Path(f"/proc/{worker.owner.split(':')[1]}/cmdline").read_bytes()
        assert b"hunter2" not in line
        assert ended.wait(120)  # it cannot begin with such a catalog
    finally:
        worker.kill("the test is over")


def test_a_file_of_the_project_is_loaded_where_it_is(shop: Project) -> None:
    (shop.directory / "helper.py").write_text(HELPER.format(3))
    file = shop.directory.resolve() / "flow.py"
    file.write_text(HELPED)
    [found] = load_workflows(shop, str(file), "path", workflow="helped")
    assert (found.workflow.name, found.file) == ("helped", file)
    shop.apply(found)
    assert shop.reader.workflow("helped").file == "flow.py"
    with pytest.raises(DeclarationError, match="does not declare the workflow other any more"):
        load_workflows(shop, str(file), "path", workflow="other")
    file.unlink()
    with pytest.raises(DeclarationError, match="there is no such file") as error:
        load_workflows(shop, str(file), "path")
    assert error.value.path == "flow.py"


def test_the_place_of_an_upload_is_not_recorded(shop: Project) -> None:
    [found] = sent(shop, {"models/latest.sql": "SELECT user FROM clicks"})
    assert found.file is None
    shop.apply(found)
    assert shop.reader.workflow("models").file is None
