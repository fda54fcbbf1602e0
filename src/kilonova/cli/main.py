"""The commands.

Exit codes: 0 done; 1 an error; 2 the command line is wrong; 3 nothing to do (`run`) or changes are pending
(`plan --check`); 75 somebody else is at it, try again later.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from kilonova.cli import render
from kilonova.cli.progress import Watch
from kilonova.errors import Busy, KilonovaError, SettingsError
from kilonova.model.block import Base
from kilonova.model.encoding import described, name_of
from kilonova.model.event import Event
from kilonova.model.trigger import described as described_trigger
from kilonova.service.changes import Action, Plan
from kilonova.service.project import Project, RunReport, open_project
from kilonova.service.settings import FILE

NOTHING_TO_DO = 3
TRY_LATER = 75

app = typer.Typer(
    help="Keep derived data sets up to date on Spark while data and logic change.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=True,
)


@dataclass(slots=True)
class Common:
    """What holds for every command."""

    directory: Path
    json: bool
    quiet: bool
    given: dict[str, Any]


common = Common(Path(), False, False, {})


@app.callback()
def options(
    directory: Annotated[Path, typer.Option("--project", "-C", help="The project's directory.")] = Path(),
    catalog: Annotated[str | None, typer.Option(help="The catalog's URL, or a path for SQLite.")] = None,
    warehouse: Annotated[str | None, typer.Option(help="The warehouse's path or URL.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master, such as local[4].")] = None,
    remote: Annotated[str | None, typer.Option(help="A Spark Connect server, such as sc://host.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Options that go before the command."""
    given: dict[str, Any] = {"catalog": catalog, "warehouse": warehouse}
    if master is not None or remote is not None:
        given["spark"] = {"master": master, "remote": remote}
    global common
    common = Common(directory, json, quiet, given)


JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Workflows = Annotated[list[Path], typer.Argument(help="Python files that define workflows, or folders of SQL files.")]
ChannelName = Annotated[str, typer.Argument(help="The channel.")]


@contextmanager
def project(watched: bool = False) -> Iterator[Project]:
    """The project, with progress on the terminal if asked for."""
    if not watched:
        with open_project(common.directory, **common.given) as opened:
            yield opened
        return
    with (
        Watch(common.quiet or common.json) as watch,
        open_project(common.directory, listener=watch, **common.given) as opened,
    ):
        yield opened
        opened.prepare_next_start()


@app.command()
def init(
    directory: Annotated[Path | None, typer.Argument(help="Where; the project's directory if left out.")] = None,
) -> None:
    """Make a project: kilonova.toml, an empty catalog and a warehouse. Also brings an older catalog up."""
    place = directory or common.directory
    place.mkdir(parents=True, exist_ok=True)
    file = place / FILE
    if not file.exists():
        file.write_text(_SETTINGS)
    with open_project(place, **common.given) as opened:
        opened.create()
        render.out.print(f"The project in {place.resolve()} is ready.", soft_wrap=True)


_SETTINGS = """\
# Settings of this Kilonova project; paths are relative to this file.
# Every one can also be given in the environment, such as KILONOVA_CATALOG or KILONOVA_SPARK__MASTER.

catalog = ".kilonova/catalog.db"      # or "postgresql://user:password@host/database"
warehouse = ".kilonova/warehouse"     # or "s3://bucket/path", wherever Spark and fsspec can both go

# [spark]
# master = "local[*]"
"""


def _load(files: list[Path]) -> list[Any]:
    from kilonova.declare.load import load

    return [workflow for file in files for workflow in load(file)]


@app.command()
def plan(
    files: Workflows,
    check: Annotated[bool, typer.Option("--check", help="Exit with 3 if anything would change.")] = False,
    json: JsonFlag = False,
) -> None:
    """Show what registering workflows would change, and what it would cost."""
    with project() as opened:
        plans = [opened.plan(workflow) for workflow in _load(files)]
    _show_plans(plans, json, "would")
    if check and not all(item.empty for item in plans):
        raise typer.Exit(NOTHING_TO_DO)


@app.command()
def apply(files: Workflows, json: JsonFlag = False) -> None:
    """Register workflows. Tasks whose definition changed are recomputed at the next run."""
    with project() as opened:
        plans = [opened.apply(workflow) for workflow in _load(files)]
    _show_plans(plans, json, "did")


_MARKS = {Action.ADD: "+", Action.CHANGE: "~", Action.KEEP: " ", Action.DROP: "-"}


def _show_plans(plans: list[Plan], json: bool, _tense: str) -> None:
    if json or common.json:
        render.as_json(
            [
                {
                    "workflow": item.workflow,
                    "channels": [
                        {"channel": c.channel.name, "action": c.action, "detail": c.detail} for c in item.channels
                    ],
                    "tasks": [
                        {
                            "task": t.task.name,
                            "action": t.action,
                            "logic": t.logic,
                            "detail": t.detail,
                            "rows": t.rows,
                            "bytes": t.bytes,
                            "downstream": t.downstream,
                        }
                        for t in item.tasks
                    ],
                }
                for item in plans
            ]
        )
        return
    for item in plans:
        if item.empty:
            render.out.print(f"{item.workflow}: nothing changes.")
            continue
        rows: list[tuple[object, ...]] = [
            (_MARKS[c.action], "channel", c.channel.name, c.detail, "")
            for c in item.channels
            if c.action is not Action.KEEP
        ]
        changing = {t.task.name for t in item.tasks if t.action is not Action.KEEP}
        rows += [
            (_MARKS[b.action], "binding", b.binding.name, b.detail, "")
            for b in item.bindings
            if b.action is not Action.KEEP and not (b.binding.alone and b.binding.name in changing)
        ]
        for t in item.tasks:
            if t.action is Action.KEEP:
                continue
            cost = f"reads {render.number(t.rows)} rows, {render.size(t.bytes)}" if t.rows else ""
            after = f"; then {', '.join(t.downstream)}" if t.downstream and t.action is Action.CHANGE else ""
            rows.append((_MARKS[t.action], "task", t.task.name, t.detail, cost + after))
        render.table(item.workflow, ("", "", "name", "change", "cost of the first run"), rows)


@app.command()
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


@app.command()
def ingest(
    channel: ChannelName,
    source: Annotated[str, typer.Argument(help="A file, a directory or a URL.")],
    format: Annotated[
        str | None,
        typer.Option(help="parquet, csv, json (lines), or any that Spark reads; told from the names."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="An option for Spark's reader, as name=value.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="The rows are the whole relation, not what is new.")] = False,
    json: JsonFlag = False,
) -> None:
    """Insert a block into a channel: all files or, if anything is wrong with one, none."""
    pairs = [item.partition("=") for item in option or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise SettingsError(f"the option {name!r} is not of the form name=value")
    with project(watched=True) as opened:
        report = opened.ingest(
            channel, source, format=format, options={name: value for name, _, value in pairs}, replace=replace
        )
    _show_report(report, json)


@app.command()
def run(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            help="The tasks; all with new input if left out. Python files and folders (models/) are applied first."
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until interrupted, running what has news.")] = False,
    every: Annotated[float, typer.Option(help="With --watch: seconds between looks.")] = 2.0,
    json: JsonFlag = False,
) -> None:
    """Run the tasks that have new input, as one run. Exit code 3 says that there was nothing to do."""
    with project(watched=True) as opened:
        places = [word for word in tasks or () if _is_place(word, opened)]
        tasks = [word for word in tasks or () if word not in places]
        plans = [opened.apply(workflow) for workflow in _load([Path(place) for place in places])]
        if not (json or common.json):
            _show_plans([item for item in plans if not item.empty], json, "did")
        report = opened.run(tasks or None)
        if watch:
            _watch(opened, report, tasks or None, every, json)
            return
    if report is None:
        if json or common.json:
            render.as_json(None)
        else:
            render.out.print("Nothing to do: no task has new input.")
        raise typer.Exit(NOTHING_TO_DO)
    _show_report(report, json)


def _is_place(word: str, opened: Project) -> bool:
    """Whether a word names files to apply rather than a task; a task goes before a folder of its name."""
    if "/" in word or word == "." or word.endswith(".py"):
        return True
    return Path(word).is_dir() and word not in opened.status(0).tasks


def _watch(opened: Project, report: RunReport | None, tasks: list[str] | None, every: float, json: bool) -> None:
    try:
        while True:
            if report is not None:
                _show_report(report, json)
            time.sleep(every)
            due = opened.due()
            try:
                report = opened.run(tasks) if (set(due) & set(tasks) if tasks else due) else None
            except Busy:
                report = None
    except KeyboardInterrupt:
        render.err.print("Stopped.", style="dim")


def _show_report(report: RunReport, json: bool) -> None:
    if json or common.json:
        render.as_json(report)
        return
    rows = [
        (
            made.channel,
            made.point if made.block is not None else "",
            render.number(made.rows) if made.block is not None else "no change",
            render.size(made.bytes),
            f"{made.seconds:.1f} s",
            made.reason,
        )
        for made in report.made
    ]
    render.table(
        f"Run {report.run}",
        ("channel", "point", "rows written", "size", "time", "how"),
        rows,
        right=("point", "rows written", "size", "time"),
    )


class Format(StrEnum):
    """How rows are shown."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@app.command()
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


@app.command()
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
                        "reserved": len(item.points) - item.readable,
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


@app.command()
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


@app.command()
def compact(
    channels: Annotated[list[str], typer.Argument(help="The channels.")],
    json: JsonFlag = False,
) -> None:
    """Write down the newest snapshot of channels as a base, so that reading need not merge."""
    with project(watched=True) as opened:
        for name in channels:
            report = opened.compact(name)
            if report is not None:
                _show_report(report, json)
            elif not (json or common.json):
                render.out.print(f"{name}: nothing to merge.")


@app.command()
def gc(
    channels: Annotated[list[str] | None, typer.Argument(help="The channels; all if left out.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and why the rest stays.")] = False,
    provenance: Annotated[
        str | None, typer.Option(help="Which references hold blocks back: logical or physical.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Delete the blocks that no cursor, reader, pin or provenance needs any more."""
    if provenance not in (None, "logical", "physical"):
        raise SettingsError(f"there is no provenance {provenance!r}", hint="Use logical or physical")
    with project() as opened:
        done = opened.collect_garbage(channels or None, dry_run=dry_run, provenance=provenance)
    if json or common.json:
        render.as_json(
            {
                "blocks": [
                    {
                        "channel": v.channel,
                        "block": v.block.number,
                        "kind": str(v.block.kind),
                        "rows": v.block.statistics.rows,
                        "bytes": v.block.statistics.bytes,
                        "held_by": v.held_by,
                    }
                    for v in done.verdicts
                ],
                "deleted": done.swept,
                "strangers": done.strangers,
            }
        )
        return
    going = [v for v in done.verdicts if v.goes]
    if dry_run:
        render.table(
            "",
            ("channel", "block", "", "rows", "size", "why it stays"),
            [
                (
                    v.channel,
                    v.block.number,
                    str(v.block.kind),
                    render.number(v.block.statistics.rows),
                    render.size(v.block.statistics.bytes),
                    v.held_by or "would go",
                )
                for v in done.verdicts
            ],
            right=("block", "rows", "size"),
        )
    freed = render.size(sum(v.block.statistics.bytes for v in going))
    verb = "would go" if dry_run else "went"
    render.out.print(f"{len(going)} of {len(done.verdicts)} blocks {verb}, {freed}.")
    if done.strangers:
        render.out.print(f"{len(done.strangers)} directories in the warehouse are not this catalog's; left alone.")


@app.command()
def serve(
    workers: Annotated[int | None, typer.Option(help="How many runs it carries out at once.")] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop once nothing is due and nothing runs.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Log JSON, an object per line.")] = False,
) -> None:
    """Fire triggers and start what is due, until interrupted. Any number of servers can share a catalog."""
    from kilonova.server.listening import listening
    from kilonova.server.loop import Server

    given = common.given | ({"serve": {"workers": workers}} if workers is not None else {})

    def log(text: str, event: Event | None) -> None:
        if json or common.json:
            render.as_json_lines(("time", "event", "kind", "run", "binding", "text"), [_logged(text, event)])
            sys.stdout.flush()
        else:
            when = datetime.now(UTC) if event is None else event.time
            render.out.print(f"{when:%Y-%m-%dT%H:%M:%SZ} {text}", highlight=False, markup=False, soft_wrap=True)

    server = Server(common.directory, given, log, until_idle=until_idle)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())
    server.attend()
    with project() as opened, listening(server, opened) as address:
        log(f"the API is at {address}/api/docs", None)
        server.run()


def _logged(text: str, event: Event | None) -> tuple[object, ...]:
    if event is None:
        return datetime.now(UTC).isoformat(), None, None, None, None, text
    return event.time.isoformat(), event.number, event.kind.value, event.run, event.binding, event.text


BindingName = Annotated[str, typer.Argument(help="The binding: a workflowette, or a task or view that is in none.")]


@app.command()
def fire(binding: BindingName) -> None:
    """Let a server start a binding now."""
    with project() as opened:
        opened.fire(binding)
    render.out.print(f"{binding} is due; a server will start it.")


@app.command()
def pause(binding: BindingName) -> None:
    """Hold the triggers of a binding back."""
    with project() as opened:
        opened.pause(binding)
    render.out.print(f"The triggers of {binding} are held back until: kilonova resume {binding}")


@app.command()
def resume(binding: BindingName) -> None:
    """Let the triggers of a binding go again."""
    with project() as opened:
        opened.resume(binding)
    render.out.print(f"The triggers of {binding} are let go.")


@app.command()
def triggers(
    binding: Annotated[str | None, typer.Argument(help="A binding; all if left out.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most this many firings and servers.")] = 10,
    json: JsonFlag = False,
) -> None:
    """Show what starts each binding, what has fired lately, and the servers."""
    with project() as opened:
        found = opened.operation(limit, binding)
    bound = [item for name, item in sorted(found.bindings.items()) if binding in (None, name)]
    if json or common.json:
        render.as_json({"bindings": bound, "firings": found.firings, "servers": found.servers})
        return
    render.table(
        "",
        ("binding", "tasks", "is started when", ""),
        [
            (
                item.binding.name,
                ", ".join(item.binding.tasks),
                "; or ".join(map(described_trigger, item.binding.triggers)) or "somebody starts it",
                "paused" if item.paused else "",
            )
            for item in bound
        ],
    )
    if found.firings:
        render.table(
            "last firings",
            ("binding", "for", "at", "is", "run"),
            [
                (item.binding, item.occurrence, f"{item.time:%Y-%m-%d %H:%M:%S}", item.state.value, item.run or "")
                for item in found.firings
            ],
            right=("run",),
        )
    if found.servers and binding is None:
        render.table(
            "servers",
            ("server", "release", "is", "since"),
            [(item.name, item.release, item.state, f"{item.started:%Y-%m-%d %H:%M:%S}") for item in found.servers],
        )


token_app = typer.Typer(help="Tokens for the HTTP API.", no_args_is_help=True)
app.add_typer(token_app, name="token")
TokenName = Annotated[str, typer.Argument(help="Whose token it is.")]


@token_app.command("create")
def create_token(
    name: TokenName,
    role: Annotated[str, typer.Option(help="What it is good for: read, operate or admin.")] = "read",
) -> None:
    """Make a token and print it, once."""
    with project() as opened:
        secret = opened.create_token(name, role)
    sys.stdout.write(secret + "\n")
    render.err.print("Keep it; it is not shown again.", style="dim")


@token_app.command("revoke")
def revoke_token(name: TokenName) -> None:
    """Make a token good for nothing."""
    with project() as opened:
        opened.revoke_token(name)
    render.out.print(f"The token {name} is good for nothing now.")


@token_app.command("list")
def list_tokens(json: JsonFlag = False) -> None:
    """Show whose tokens there are."""
    with project() as opened:
        found = opened.tokens()
    if json or common.json:
        render.as_json(found)
        return
    rows = [(item.name, item.role.value, f"{item.created:%Y-%m-%d %H:%M:%S}") for item in found]
    render.table("", ("token", "role", "made"), rows)


@app.command()
def drop(
    channel: ChannelName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Take a channel and its data away, with the task that writes it."""
    if not yes:
        typer.confirm(f"Delete the channel {channel} and all of its data?", abort=True)
    with project() as opened:
        tasks = opened.drop(channel)
    with_it = f", and the task {', '.join(tasks)}" if tasks else ""
    render.out.print(f"Dropped the channel {channel}{with_it}.")


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line, telling errors as one line and as an exit code.

    Args:
        words: the words after `kilonova`; those of this process if left out.
    """
    given = list(sys.argv[1:] if words is None else words)
    try:
        app(given, prog_name="kilonova")
    except KilonovaError as error:
        if "--json" in given:
            render.as_json(error.told)
        else:
            render.err.print(f"Error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(TRY_LATER if error.code == "busy" else 1)
    except KeyboardInterrupt:
        render.err.print("Interrupted; nothing of the run is left behind.", style="red")
        sys.exit(130)
