"""Imports of short commands: importing a library that a command does not need would take most of its time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kilonova.service.project import open_project

HEAVY = {"alembic", "fastapi", "fsspec", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "sqlglot", "uvicorn", "yaml"}
"""Libraries for data, parsers and the web."""

OWN = {"kilonova.declare", "kilonova.engine.executor", "kilonova.service.project", "kilonova.warehouse", "kilonova.web"}

PRINT = """
import sys
from kilonova.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "status",
        "status --json",
        "show orders --versions",
        "runs",
        "bounds",
        "triggers",
        "files list orders",
        "compaction-policy",
        "token list",
        "webhook list",
    ],
)
def test_a_command_that_shows_the_catalog_imports_no_heavy_library(command: str, tmp_path: Path) -> None:
    from kilonova import Workflow

    shop = Workflow("shop")
    shop.channel("orders", "id bigint")
    shop.view("total", "SELECT count(*) AS orders FROM orders")
    with open_project(tmp_path) as project:
        project.create()
        project.apply(shop)
    script = [sys.executable, "-c", PRINT, *command.split()]
    ended = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    loaded = set(ended.stderr.split())
    assert "kilonova.cli.inspect" in loaded
    assert loaded.isdisjoint(HEAVY | OWN)
