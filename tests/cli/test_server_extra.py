"""An installation without the extra `server`: no web library can be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kilonova.service.project import open_project

WEB = (
    "fast_sugiyama", "fastapi", "fastapi_offline", "h11", "jinja2", "limits", "prometheus_client", "starlette",
    "uvicorn",
)  # fmt: skip

WITHOUT = f"""
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {WEB}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""

COMMAND = "from kilonova.cli import main; main()"


def without_web(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own that has no web libraries."""
    return subprocess.run([sys.executable, "-c", WITHOUT + code, *arguments], capture_output=True, text=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with open_project(tmp_path) as project:
        project.create()
    return tmp_path


def test_packages_below_the_api_import_no_web_library() -> None:
    packages = ("kilonova.cli", "kilonova.service", "kilonova.engine", "kilonova.scheduler")
    found = without_web(
        f"""
import importlib, pkgutil
for package in {packages}:
    module = importlib.import_module(package)
    for each in pkgutil.walk_packages(module.__path__, package + "."):
        if each.name != "kilonova.scheduler.openlineage":  # has an extra of its own
            importlib.import_module(each.name)
"""
    )
    assert found.returncode == 0, found.stderr


def test_commands_work_without_web_libraries(place: Path) -> None:
    for arguments in (["--help"], ["-C", str(place), "status"], ["-C", str(place), "triggers"]):
        found = without_web(COMMAND, *arguments)
        assert found.returncode == 0, found.stderr


def test_serve_says_which_extra_to_install(place: Path) -> None:
    found = without_web(COMMAND, "-C", str(place), "serve")
    assert found.returncode == 1
    assert "pip install 'kilonova[server]'" in found.stderr
    assert "Traceback" not in found.stderr
