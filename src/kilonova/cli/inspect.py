"""Commands that show the state of a project."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from kilonova.cli import render
from kilonova.cli.bound_schedule import explain_bounds
from kilonova.cli.bounds import as_record, show_bounds
from kilonova.cli.options import ChannelName, JsonFlag, common, project, reader
from kilonova.errors import SettingsError
from kilonova.model.block import Base
from kilonova.model.encoding import describe_encoding, name_of
from kilonova.model.row_count import RowCount
from kilonova.model.run import Run, RunState
from kilonova.service.channel_versions import PointVersion
from kilonova.service.formatting import plain, row_count, size
from kilonova.service.reports import RunSummary, Status

commands = typer.Typer()


@commands.command()
def explain(
    view: Annotated[str | None, typer.Argument(help="The view.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Also show the queries and the delta queries.")] = False,
    bounds: Annotated[bool, typer.Option("--bounds", help="Show the plan of runs that keep bounds instead.")] = False,
    json: JsonFlag = False,
) -> None:
    """Show the materialized relations and refresh methods of a view, and its last runs; or why runs keep bounds."""
    if bounds:
        explain_bounds(view, as_json=json or common.json)
        return
    if view is None:
        raise SettingsError("no view is named", hint="Name one, or use --bounds")
    with reader() as opened:
        kept = opened.explain(view)
    if json or common.json:
        render.as_json([asdict(item) for item in kept])
        return
    if kept[-1].description:
        render.out.print(f"{kept[-1].description}\n", markup=False)
    if kept[-1].checks:
        render.out.print(f"checked: {', '.join(kept[-1].checks)}\n", markup=False)
    if kept[-1].schedule:
        render.out.print(f"schedule: {kept[-1].schedule}\n", markup=False)
    rows = [(item.channel, item.encoding, ", ".join(item.reads), item.method) for item in kept]
    render.table(view, ("relation", "encoding", "inputs", "refreshed"), rows)
    for item in kept:
        if item.outlook is not None:
            render.out.print(f"{item.channel}: next refresh {item.outlook}", highlight=False, markup=False)
        if item.crossover is not None:
            share = f"{item.crossover:.0%}" if item.crossover >= 0.01 else f"{item.crossover:.2%}"
            line = f"{item.channel} is fully recomputed if more than about {share} of its input is new"
            render.out.print(line, highlight=False, markup=False)
    taken = [
        (made.run, made.channel, made.reason, render.number(made.rows), f"{made.seconds:.1f}")
        for item in kept
        for made in item.runs
    ]
    if taken:
        ordered = sorted(taken, key=lambda row: -row[0])
        render.table(
            "last runs", ("run", "channel", "method and reason", "rows", "seconds"), ordered, right=("rows", "seconds")
        )
    if not sql:
        render.out.print("--sql shows the queries.")
        return
    for item in kept:
        render.out.print(f"\n-- {item.channel}", highlight=False)
        render.out.print(item.query, highlight=False, markup=False)
        if item.change is not None:
            render.out.print(f"\n-- {item.channel}: delta query", highlight=False)
            render.out.print(item.change, highlight=False, markup=False)


class Format(StrEnum):
    """Output format of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@commands.command()
def show(
    channel: ChannelName,
    at: Annotated[int | None, typer.Option(help="The point; the latest if omitted.")] = None,
    since: Annotated[int | None, typer.Option(help="Show the changes since this point, with weights.")] = None,
    format: Annotated[Format, typer.Option(help="table, csv, json (lines) or parquet.")] = Format.TABLE,
    output: Annotated[str | None, typer.Option("--output", "-o", help="Directory to write to.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of rows in a table; 0 for all.")] = 20,
    versions: Annotated[
        bool, typer.Option("--versions", help="Show the version vectors of its points instead.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Show the rows of a channel, at any point that can still be read."""
    if versions:
        _show_versions(channel, limit, json or common.json)
        return
    if json or common.json:
        format = Format.JSON
    if format is Format.PARQUET and output is None:
        raise SettingsError("parquet is written to a directory", hint="Give it with --output")
    with project(watched=True) as opened:
        if output is not None:
            kind = "json" if format is Format.TABLE else format.value
            opened.export(channel, output, kind, at=at, since=since)
            render.err.print(f"Written to {output}", style="dim")
            return
        most = limit + 1 if format is Format.TABLE and limit else None
        columns, rows = opened.rows(channel, at=at, since=since, limit=most)
        bounds = opened.bounds([channel]) if format is Format.TABLE else ()
    match format:
        case Format.CSV:
            render.as_csv(columns, rows)
        case Format.JSON:
            render.as_json_lines(columns, rows)
        case _:
            cut = most is not None and len(rows) == most
            render.table("", columns, [[plain(cell) for cell in row] for row in rows[: limit or None]])
            render.out.print(
                f"the first {limit} rows; --limit 0 shows all" if cut else f"{len(rows)} rows", style="dim"
            )
            if bounds:
                render.out.print()
                show_bounds(bounds, title="Bounds")


def _show_versions(channel: str, limit: int, json: bool) -> None:
    with reader() as opened:
        found = opened.versions(channel, limit=limit or sys.maxsize)
    if json:
        render.as_json(found)
        return
    names = [each.name for each in found.ancestors]
    derived = any(not each.is_source for each in found.ancestors)
    rows = [
        (
            *(each.point, render.moment(each.time), *each.components, ", ".join(each.blocks)),
            "retracted" if each.retracted else "✓" if each.frontier else "",
            *((render.moment(each.start), render.moment(each.end) or "now", _consistency(each)) if derived else ()),
        )
        for each in found.points
    ]
    times = ("T⁺", "T⁻", "consistent") if derived else ()
    render.table("", ("point", "time", *names, "blocks", "frontier", *times), rows)


def _consistency(each: PointVersion) -> Text:
    """Return whether a point is consistent, and whether readers are not given it, as text."""
    if each.withheld:
        return Text("withheld", "bold red")
    return Text("✓", "green") if each.consistent else Text("no", "yellow")


@commands.command()
def status(json: JsonFlag = False) -> None:
    """Show channels, cursors, lags and the last runs."""
    with reader() as opened:
        found = opened.status()
    if json or common.json:
        render.as_json(_status_json(found))
        return
    writers = {
        name: [task for task, item in found.tasks.items() if name in item.task.writes] for name in found.channels
    }
    render.table(
        "Channels",
        ("channel", "point", "encoding", "bases", "deltas", "rows", "size", "written by"),
        [
            (
                name,
                item.latest_distinct,
                name_of(item.channel.encoding) + (f" by {', '.join(item.channel.key)}" if item.channel.key else ""),
                sum(isinstance(block.kind, Base) for block in item.blocks),
                sum(not isinstance(block.kind, Base) for block in item.blocks),
                row_count(RowCount.of(item.snapshot(item.latest_readable).blocks)),
                size(item.size),
                ", ".join(writers[name]) or "ingest",
            )
            for name, item in found.channels.items()
        ],
        right=("point", "bases", "deltas", "rows", "size"),
    )
    render.out.print()
    render.table(
        "Tasks",
        ("task", "logic", "reads", "due"),
        [
            (
                name,
                item.logic,
                ", ".join(f"{lag.channel} {lag.cursor}/{lag.newest}" for lag in found.lags if lag.task == name),
                f"not before {render.moment(wait)}" if (wait := found.waits.get(name)) else found.due.get(name, "no"),
            )
            for name, item in found.tasks.items()
        ],
        right=("logic",),
    )
    render.out.print()
    if found.bounds:
        show_bounds(found.bounds, title="Bounds")
        render.out.print()
    for name, alert in found.alerts.items():
        render.out.print(f"Alert: {name}: {alert}.", style="yellow", soft_wrap=True)
    if found.alerts:
        render.out.print()
    if found.deferred:
        rows = (
            (
                each.workflow,
                render.moment(each.until),
                ", ".join(f"{name} {logic}" for name, logic in each.tasks.items()),
            )
            for each in found.deferred
        )
        render.table("Deferred", ("workflow", "takes effect", "logic versions"), rows)
        render.out.print()
    _show_runs(found.runs, "Last runs")


def _status_json(found: Status) -> dict[str, object]:
    counts = {name: RowCount.of(item.snapshot(item.latest_readable).blocks) for name, item in found.channels.items()}
    return {
        "channels": [
            {
                "channel": name,
                "point": item.latest_distinct,
                "reserved": item.latest - item.latest_readable,
                "encoding": describe_encoding(item.channel.encoding),
                "bases": sum(isinstance(block.kind, Base) for block in item.blocks),
                "deltas": sum(not isinstance(block.kind, Base) for block in item.blocks),
                "rows": counts[name].exact,
                "max_rows": counts[name].most,
                "bytes": item.size,
                "stored_bytes": sum(block.statistics.bytes for block in item.blocks),
                "version": str(item.version(item.latest_readable)),
            }
            for name, item in found.channels.items()
        ],
        "tasks": [
            {
                "task": name,
                "workflow": item.workflow,
                "logic": item.logic,
                "due": found.due.get(name),
                "waits_until": found.waits.get(name),
                "alert": found.alerts.get(name),
            }
            for name, item in found.tasks.items()
        ],
        "lags": found.lags,
        "bounds": [as_record(each) for each in found.bounds],
        "runs": [each.run for each in found.runs],
        "deferred": [{"workflow": each.workflow, "until": each.until, "tasks": each.tasks} for each in found.deferred],
    }


def _show_runs(runs: Iterable[RunSummary], title: str) -> None:
    rows = []
    for each in runs:
        item = each.run
        changed = [f"{made.channel} +{render.number(made.rows)}" for made in each.made if made.block is not None]
        seconds = (item.ended - item.started).total_seconds() if item.ended else None
        rows.append(
            (
                item.number,
                item.kind.value,
                item.state.value,
                render.moment(item.started),
                "" if seconds is None else f"{seconds:.1f} s",
                item.error or ", ".join(changed) or _nothing_made(item),
            )
        )
    render.table(
        title,
        ("run", "kind", "state", "started (UTC)", "duration", "output"),
        rows,
        right=("run", "duration"),
    )


def _nothing_made(run: Run) -> str:
    """Describe a run that has written nothing: its progress, if it is running."""
    if run.state is not RunState.RUNNING:
        return "no change"
    return "" if run.progress is None else str(run.progress)


@commands.command()
def runs(
    limit: Annotated[int, typer.Option(help="Maximum number of runs.")] = 20,
    json: JsonFlag = False,
) -> None:
    """Show the last runs and their output."""
    with reader() as opened:
        found = opened.runs(limit)
    if json or common.json:
        render.as_json(found)
        return
    _show_runs(found, "Runs")


_LOOK = 1.0
"""Seconds between polls of a log that is followed."""


@commands.command()
def log(
    run: Annotated[int | None, typer.Argument(help="The run; the last one if omitted.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the run has ended.")] = False,
    json: JsonFlag = False,
) -> None:
    """Show the log of a run: its steps, the output of its code, and the error that ended it."""
    with project() as opened:
        found = opened.log(run)
        if json or common.json:
            render.as_json(found)
            return
        sys.stdout.write(found.text)
        while follow and found.run.state is RunState.RUNNING:
            sys.stdout.flush()
            if found.run.lease_until < datetime.now(UTC):
                render.err.print(
                    "Its process has stopped sending heartbeats; the next run will recover it.",
                    style="yellow",
                )
                return
            time.sleep(_LOOK)
            before, found = found.text, opened.log(found.run.number)
            sys.stdout.write(continued(before, found.text))


def continued(before: str, after: str) -> str:
    r"""Return the text added to a log since it was last read, even if entries in the middle have been left out since.

    >>> continued("a\nb\n", "a\nb\nc\n"), continued("a\nb\n", "a\n… 1 entries are left out …\nb\nc\n")
    ('c\n', 'c\n')
    """
    if after.startswith(before):
        return after[len(before) :]
    last = before.splitlines(keepends=True)[-1]
    _, found, rest = after.rpartition(last)
    return rest if found else after
