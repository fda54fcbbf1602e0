"""`kilonova shell`: several commands in one process and one Spark session."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

WORKFLOW = """
import kilonova as kn
from numbers_of import COLUMNS

shop = kn.Workflow("shop")
shop.channel("orders", COLUMNS, key="id")
shop.view("total", "SELECT count(*) AS orders, sum(amount) AS amount FROM {orders}")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a workflow, a module that it imports, and rows."""
    (tmp_path / "shop.py").write_text(WORKFLOW)
    (tmp_path / "numbers_of.py").write_text('COLUMNS = "id bigint, amount bigint"\n')
    (tmp_path / "orders.csv").write_text("id,amount\n1,20\n2,22\n")
    return tmp_path


def kilonova(place: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kilonova", "--quiet", *options, "shell"]
    return subprocess.run(command, input=script, cwd=place, capture_output=True, text=True, timeout=300, check=False)


def test_a_script_runs_in_one_session_and_ends_at_the_first_failure(place: Path) -> None:
    (place / "project").mkdir()
    script = """
    init  # makes the project that the option names
    apply shop.py
    ingest orders orders.csv
    run
    run
    show total
    show 'no such'
    status
    """
    ended = kilonova(place, script, "--project", "project")
    assert ended.returncode == 1, ended
    assert "2        42" in ended.stdout
    assert "Nothing to do" in ended.stdout + ended.stderr
    assert "no such" in ended.stderr
    assert "Last runs" not in ended.stdout
    assert (place / "project" / "kilonova.toml").is_file()


def test_what_is_no_command_ends_a_script(place: Path) -> None:
    for line, code in (("nonsense", 2), ("show 'unclosed", 2)):
        assert kilonova(place, f"init\n{line}\nstatus\n").returncode == code
    assert kilonova(place, "\n# nothing\n\nexit\nnonsense\n").returncode == 0


def test_on_a_terminal_it_goes_on_after_an_error_and_reads_changed_modules_again(place: Path) -> None:
    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-m", "kilonova", "--quiet", "shell"]
    process = subprocess.Popen(command, cwd=place, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = ""

    def types(text: str, until: str) -> None:
        nonlocal shown
        os.write(keyboard, f"{text}\n".encode())
        deadline = time.monotonic() + 120
        while until not in shown and time.monotonic() < deadline:
            shown += os.read(keyboard, 4096).decode()
        assert until in shown, shown
        shown = ""

    try:
        types("init", "ready")
        types("show orders", "Error")
        types("apply shop.py", "2 columns")
        (place / "numbers_of.py").write_text('COLUMNS = "id bigint, amount bigint, note string"\n')
        types("apply shop.py", "note")
        os.write(keyboard, b"exit\n")
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(keyboard)
