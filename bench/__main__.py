"""`python -m bench [--quick] [--only 1,3]`: run the benchmarks, each in a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from bench.measure import PeakMemory
from bench.report import RESULTS, publish, save

MODULES = {1: "merging", 2: "joins", 3: "overhead", 4: "upserts", 5: "startup"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; leaves the kept results alone")
    parser.add_argument("--only", default="1,2,3,4,5", help="which ones, such as 1,3")
    parser.add_argument("--here", metavar="DIRECTORY", help=argparse.SUPPRESS)
    given = parser.parse_args()
    numbers = [int(number) for number in given.only.split(",")]
    if given.here:
        _one(numbers[0], given.quick, Path(given.here))
        return
    with tempfile.TemporaryDirectory() as drafts:
        directory = drafts if given.quick else str(RESULTS)
        for number in numbers:
            command = [sys.executable, "-m", "bench", "--only", str(number), "--here", directory]
            subprocess.run([*command, *(["--quick"] if given.quick else [])], check=True)


def _one(number: int, quick: bool, directory: Path) -> None:
    measure = import_module(f"bench.{MODULES[number]}").measure
    began = time.monotonic()
    with PeakMemory() as peak:
        reports = measure(quick)
    took = time.monotonic() - began
    for report in reports:
        text = save(report, quick=quick, java=peak.java, python=peak.python, took=took, directory=directory)
        print(text, flush=True)
        if not quick:
            publish(report.name)
    print(f"({MODULES[number]}: {took:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()
