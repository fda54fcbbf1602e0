"""The main job: a year of flights arrives month by month, and every derived channel is kept up to date.

After each month this shows what bringing everything up to date cost, beside what recomputing everything from
all the input would have cost; at the end it checks that both give the same rows.
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import kilonova as kn
from examples.flights import feed
from examples.flights.workflow import wf
from kilonova.engine.run_events import RunNotification, StepStarted
from kilonova.testing import count_differences, recompute

console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--by", choices=("month", "day"), default="month", help="how the flights arrive")
    parser.add_argument("--batches", type=int, help="stop after so many batches")
    parser.add_argument("--format", choices=("parquet", "csv", "json"), default="parquet", help="of the files")
    parser.add_argument("--project", type=Path, help="keep the project here (default: a temporary directory)")
    parser.add_argument("--master", help="Spark's master, such as local[2] or spark://host:7077")
    parser.add_argument("--remote", help="a Spark Connect server, such as sc://host:15002")
    parser.add_argument("--recompute", type=int, default=3, help="the batch after which to recompute, too")
    args = parser.parse_args()
    batches = list(feed.batches(args.by))[: args.batches]
    spark = {name: value for name in ("master", "remote") if (value := getattr(args, name))}
    with ExitStack() as stack:
        place = args.project or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-")))
        bar = stack.enter_context(
            Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
        )
        step = bar.add_task("starting Spark", total=len(batches))

        def hear(notification: RunNotification) -> None:
            if isinstance(notification, StepStarted):
                bar.update(step, description=f"{notification.step:16}")

        project = stack.enter_context(kn.open_project(place, listener=hear, **({"spark": spark} if spark else {})))
        project.create()
        project.apply(wf)
        console.print(f"{len(batches)} batches by {args.by}, into {len(wf.declared().workflow.tasks)} tasks\n")
        console.print(f"{'batch':10} {'new rows':>9} {'all rows':>9}   {'arrive':>7} {'update':>7}   recompute")
        total = 0
        for number, batch in enumerate(batches, 1):
            paths = batch.write(place / "incoming", args.format)
            began = time.monotonic()
            with ThreadPoolExecutor() as pool:  # channels are filled side by side
                list(pool.map(project.ingest, paths.keys(), paths.values()))
            arrived = time.monotonic() - began
            began = time.monotonic()
            project.run()
            updated = time.monotonic() - began
            new = sum(table.num_rows for table in batch.tables.values())
            total += new
            line = f"{batch.name:10} {new:9,} {total:9,}   {arrived:6.1f}s {updated:6.1f}s"
            if number == args.recompute:
                bar.update(step, description="recomputing, to compare")
                began = time.monotonic()
                for _ in recompute(project):
                    pass
                again = time.monotonic() - began
                line += f"   {again:6.1f}s  ({again / updated:.1f} times as long)"
            console.print(line)
            bar.update(step, completed=number)
        bar.update(step, description="checking")
        right, again = check(project)
        console.print(f"Recomputing everything once took {again:.1f}s, {again / updated:.1f} times the last update.")
    if not right:
        sys.exit(1)


def check(project: kn.Project) -> tuple[bool, float]:
    """Compare every derived channel with its recomputation from all the input; also how long that took."""
    table = Table("channel", "rows", "recomputed", "differing rows", box=None, header_style="dim")
    right, seconds, began = True, 0.0, time.monotonic()
    for made in recompute(project):
        seconds += time.monotonic() - began
        count = count_differences(project.read(made.channel), made.rows)
        right = right and count == 0
        how = "replayed batch by batch" if made.replayed else "from all the input"
        rows = f"{made.rows.count():,}"
        table.add_row(made.channel, rows, how, "[green]none[/]" if not count else f"[red]{count:,}[/]")
        began = time.monotonic()
    console.print()
    console.print(table)
    console.print(
        "\nEvery derived channel equals its recomputation." if right else "\n[red]Some channels are wrong.[/]"
    )
    return right, seconds


if __name__ == "__main__":
    main()
