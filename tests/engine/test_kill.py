"""A handful of real kills; `make soak` does hundreds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.seeds import SEED

ROOT = Path(__file__).parent.parent.parent


def test_nothing_is_lost_or_done_twice_when_processes_are_killed() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        "--kills",
        "4",
        "--seed",
        str(SEED % (1 << 20)),
        "--database",
        "sqlite",
        "--longest",
        "3",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
