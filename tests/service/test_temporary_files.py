"""Temporary directories of servers that live, and of those that were killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kilonova.service.temporary_files import remove_abandoned

CODE = """
from kilonova.service.temporary_files import temporary_directory
place = temporary_directory()
print(place.name, flush=True)
input()
"""


def test_what_killed_servers_left_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "kilonova-other").mkdir()
    servers = [
        subprocess.Popen([sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    places = []
    for server in servers:
        assert server.stdout is not None
        places.append(Path(server.stdout.readline().strip()))
        (places[-1] / "upload.csv").write_text("id")
    killed, ended, alive = servers
    killed.kill()
    killed.wait()
    ended.communicate("\n")
    assert [place.exists() for place in places] == [True, False, True]
    remove_abandoned()
    assert [place.exists() for place in places] == [False, False, True]
    alive.communicate("\n")
    assert [place.name for place in tmp_path.iterdir()] == ["kilonova-other"]
