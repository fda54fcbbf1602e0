"""Commands that show how things stand."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from kilonova.cli import render
from kilonova.cli.application import ChannelName, JsonFlag, common, project
from kilonova.errors import SettingsError
from kilonova.model.block import Base
from kilonova.model.encoding import described, name_of

commands = typer.Typer()


@commands.command()
def explain(
    view: Annotated[str, typer.Argument(help="The view.")],
    sql: Annotated[bool, typer.Option("--sql", help="Show the queries too: what is kept, and its change.")] = False,
    json: JsonFlag = False,
) -> None:
    """Show how a view is kept up to date, what it keeps for that, and what its last runs took."""
    with project() as opened:
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
    rows = [(item.channel, item.encoding, ", ".join(item.reads), item.way) for item in kept]
    render.table(view, ("keeps", "encoding", "made of", "brought up to date"), rows)
    for item in kept:
        if item.outlook is not None:
            render.out.print(f"{item.channel} would now be {item.outlook}", highlight=False, markup=False)
        if item.crossover is not None:
            share = f"{item.crossover:.0%}" if item.crossover >= 0.01 else f"{item.crossover:.2%}"
            line = f"{item.channel} is made anew where more than about {share} of what it reads is new"
            render.out.print(line, highlight=False, markup=False)
    taken = [
        (made.run, made.channel, made.reason, render.number(made.rows), f"{made.seconds:.1f}")
        for item in kept
        for made in item.runs
    ]
    if taken:
        ordered = sorted(taken, key=lambda row: -row[0])
        render.table(
            "last runs", ("run", "channel", "how, and why", "rows", "seconds"), ordered, right=("rows", "seconds")
        )
    if not sql:
        render.out.print("--sql shows the queries.")
        return
    for item in kept:
        render.out.print(f"\n-- {item.channel}", highlight=False)
        render.out.print(item.query, highlight=False, markup=False)
        if item.change is not None:
            render.out.print(f"\n-- {item.channel}: its change", highlight=False)
            render.out.print(item.change, highlight=False, markup=False)


class Format(StrEnum):
    """How rows are shown."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@commands.command()
def show(
    channel: ChannelName,
    at: Annotated[int | None, typer.Option(help="The point; the newest if left out.")] = None,
    since: Annotated[int | None, typer.Option(help="Show what changed after this point, with weights.")] = None,
    format: Annotated[Format, typer.Option(help="table, csv, json (lines) or parquet.")] = Format.TABLE,
    output: Annotated[str | None, typer.Option("--output", "-o", help="A directory to write to.")] = None,
    limit: Annotated[int, typer.Option(help="At most this many rows in a table; 0 for all.")] = 20,
    json: JsonFlag = False,
) -> None:
    """Show the rows of a channel, at any point that can still be read."""
    if json or common.json:
        format = Format.JSON
    if format is Format.PARQUET and output is None:
        raise SettingsError("parquet goes to a directory", hint="Name it with --output")
    with project(watched=True) as opened:
        if output is not None:
            kind = "json" if format is Format.TABLE else format.value
            opened.export(channel, output, kind, at=at, since=since)
            render.err.print(f"Written to {output}", style="dim")
            return
        most = limit + 1 if format is Format.TABLE and limit else None
        columns, rows = opened.rows(channel, at=at, since=since, limit=most)
    match format:
        case Format.CSV:
            render.as_csv(columns, rows)
        case Format.JSON:
            render.as_json_lines(columns, rows)
        case _:
            cut = most is not None and len(rows) == most
            render.table("", columns, [[render.plain(cell) for cell in row] for row in rows[: limit or None]])
            render.out.print(
                f"the first {limit} rows; --limit 0 shows all" if cut else f"{len(rows)} rows", style="dim"
            )


@commands.command()
def status(json: JsonFlag = False) -> None:
    """Show channels, cursors, lags and the last runs."""
    with project() as opened:
        found = opened.status()
    if json or common.json:
        render.as_json(
            {
                "channels": [
                    {
                        "channel": name,
                        "point": item.effective,
                        "reserved": item.newest - item.readable,
                        "encoding": described(item.channel.encoding),
                        "bases": sum(isinstance(block.kind, Base) for block in item.blocks),
                        "deltas": sum(not isinstance(block.kind, Base) for block in item.blocks),
                        "bytes": sum(block.statistics.bytes for block in item.blocks),
                        "version": str(item.version(item.readable)),
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
                    }
                    for name, item in found.tasks.items()
                ],
                "lags": found.lags,
                "runs": found.runs,
            }
        )
        return
    writers = {channel: name for name, item in found.tasks.items() for channel in item.task.writes}
    render.table(
        "Channels",
        ("channel", "point", "encoding", "bases", "deltas", "size", "written by"),
        [
            (
                name,
                item.effective,
                name_of(item.channel.encoding) + (f" by {', '.join(item.channel.key)}" if item.channel.key else ""),
                sum(isinstance(block.kind, Base) for block in item.blocks),
                sum(not isinstance(block.kind, Base) for block in item.blocks),
                render.size(sum(block.statistics.bytes for block in item.blocks)),
                writers.get(name, "ingest"),
            )
            for name, item in found.channels.items()
        ],
        right=("point", "bases", "deltas", "size"),
    )
    render.out.print()
    render.table(
        "Tasks",
        ("task", "logic", "reads", "has something to do"),
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
    _show_runs(list(found.runs), list(found.made), "Last runs")


def _show_runs(history: list[Any], made: list[Any], title: str) -> None:
    rows = []
    for item in history:
        outputs = [m for m in made if m.run == item.number]
        changed = [f"{m.channel} +{render.number(m.rows)}" for m in outputs if m.block is not None]
        seconds = (item.ended - item.started).total_seconds() if item.ended else None
        rows.append(
            (
                item.number,
                item.kind.value,
                item.state.value,
                render.moment(item.started),
                "" if seconds is None else f"{seconds:.1f} s",
                item.error or ", ".join(changed) or "no change",
            )
        )
    render.table(title, ("run", "kind", "state", "started (UTC)", "took", "made"), rows, right=("run", "took"))


@commands.command()
def runs(
    limit: Annotated[int, typer.Option(help="At most this many.")] = 20,
    json: JsonFlag = False,
) -> None:
    """Show the last runs and what they made."""
    with project() as opened:
        history, made = opened.history(limit)
    if json or common.json:
        render.as_json([{"run": item, "made": [m for m in made if m.run == item.number]} for item in history])
        return
    _show_runs(history, made, "Runs")
