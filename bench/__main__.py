"""`python -m bench [--quick | --large] [--only 1,3]`: run the benchmarks, each in a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from bench.measure import PeakMemory
from bench.report import RESULTS, Scale, publish, save

MODULES = {
    1: "merging",
    2: "joins",
    3: "overhead",
    4: "upserts",
    5: "startup",
    6: "tpch",
    7: "peers",
    8: "choices",
    9: "scheduling",
    10: "sharing",
    11: "page",
    12: "scale",
    13: "small_workflow",
    14: "evolution",
    15: "asynchrony",
    16: "evolution_peers",
    17: "bounds",
    18: "search_preprocessing",
    19: "memory",
    20: "cluster_compaction",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    scales = parser.add_mutually_exclusive_group()
    scales.add_argument("--quick", action="store_true", help="small sizes; leaves the kept results alone")
    scales.add_argument(
        "--large", action="store_true", help="upserts into a table of 20 M rows, and TPC-H at four scales, too"
    )
    parser.add_argument(
        "--only", default="1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20", help="which ones, such as 1,3"
    )
    parser.add_argument("--here", metavar="DIRECTORY", help=argparse.SUPPRESS)
    given = parser.parse_args()
    numbers = [int(number) for number in given.only.split(",")]
    scale = Scale.QUICK if given.quick else Scale.LARGE if given.large else Scale.FULL
    if given.here:
        _one(numbers[0], scale, Path(given.here))
        return
    with tempfile.TemporaryDirectory() as drafts:
        directory = drafts if scale is Scale.QUICK else str(RESULTS)
        for number in numbers:
            command = [sys.executable, "-m", "bench", "--only", str(number), "--here", directory]
            subprocess.run([*command, *([] if scale is Scale.FULL else [f"--{scale.value}"])], check=True)


def _one(number: int, scale: Scale, directory: Path) -> None:
    measure = import_module(f"bench.{MODULES[number]}").measure
    began = start = time.monotonic()
    with PeakMemory() as peak:
        for report in measure(scale):
            took, start = time.monotonic() - start, time.monotonic()
            print(save(report, scale=scale, java=peak.java, python=peak.python, took=took, directory=directory))
            if scale is not Scale.QUICK:
                publish(report.name)
    print(f"({MODULES[number]}: {time.monotonic() - began:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()
