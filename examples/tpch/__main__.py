"""The 22 queries of TPC-H as views, through rounds of refresh.

After each round every view must equal what Spark makes of its query.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import kilonova as kn
from examples.tpch.refresh import Refresh, generate
from examples.tpch.workflow import QUERIES, TABLES, tpch
from kilonova.testing import count_differences

console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(prog="python -m examples.tpch", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01, help="1 is a gigabyte")
    parser.add_argument("--rounds", type=int, default=3, help="of refresh, at most 30")
    parser.add_argument("--queries", nargs="*", default=list(QUERIES), help="some of q01 to q22")
    parser.add_argument("--refresh", choices=("auto", "incremental", "full"), default="auto")
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()) / "tpch", help="where the data is kept"
    )
    args = parser.parse_args()
    args.data.mkdir(exist_ok=True)
    data = generate(args.data, args.scale)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="tpch-") as place, kn.open_project(place) as project:
        project.create()
        project.apply(tpch(tuple(args.queries), args.refresh))
        refresh = Refresh(project.warehouse.spark, data)
        for table in TABLES:
            project.ingest(table, refresh.first(table))
        for number in range(args.rounds + 1):
            for table, rows in (refresh.round(number) if number else {}).items():
                project.ingest(table, rows)
            began = time.monotonic()
            project.run()
            seconds = time.monotonic() - began
            wrong += _checked(project, args.queries, f"round {number}, {seconds:.1f} s" if number else "first run")
    sys.exit(1 if wrong else 0)


def _checked(project: kn.Project, queries: list[str], title: str) -> int:
    """Compare every view with its query, and show how each was brought up to date."""
    for name in TABLES:
        project.read(name).createOrReplaceTempView(name)
    made = project.runs(1)[0].made
    shown = Table(title=title, box=None, title_justify="left")
    for column in ("view", "rows", "differing", "seconds", "how"):
        shown.add_column(column, justify="right" if column in ("rows", "differing", "seconds") else "left")
    wrong = 0
    for name in queries:
        mine = [item for item in made if item.channel == name or item.channel.rpartition("__")[0] == name]
        expected = project.warehouse.spark.sql(QUERIES[name])
        rows = project.read(name).select(expected.columns)
        differences = count_differences(rows, expected)
        wrong += differences > 0
        methods = ", ".join(dict.fromkeys(item.reason.partition(":")[0] for item in mine))
        seconds = sum(item.seconds for item in mine)
        shown.add_row(name, str(rows.count()), str(differences), f"{seconds:.1f}", methods)
    console.print(shown)
    return wrong


if __name__ == "__main__":
    main()
