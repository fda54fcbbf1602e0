"""Waiting for changes of a catalog."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_INTERRUPTED = """
import signal, sys, time
from kilonova.catalog.change_notifier import ChangeNotifier
from kilonova.catalog.database import Catalog

notifier = ChangeNotifier(Catalog(f"sqlite:///{sys.argv[1]}/none/catalog.db"))
signal.signal(signal.SIGALRM, lambda *_: notifier.nudge())
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    notifier.wait(0.001)
print("ended")
"""


def test_a_signal_handler_may_nudge_at_any_moment(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _INTERRUPTED, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout == "ended\n", found.stderr
