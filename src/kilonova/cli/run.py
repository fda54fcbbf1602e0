"""Commands that write, verify and delete blocks: ingests, runs, compaction, fsck and garbage collection."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kilonova.cli import render
from kilonova.cli.options import NOTHING_TO_DO, QUARANTINED, TRY_LATER, ChannelName, JsonFlag, common, project, reader
from kilonova.cli.project import load_all, show_plans
from kilonova.errors import Conflict, SettingsError
from kilonova.model.compaction_policy import CostBased, Manual, MaxDeltas, Policy, describe_policy
from kilonova.service.formatting import size
from kilonova.service.reports import DirectoryIngestReport, RunReport, RunsReport

if TYPE_CHECKING:
    from kilonova.service.fsck import FsckReport
    from kilonova.service.project import Project

commands = typer.Typer()


@commands.command()
def ingest(
    channel: ChannelName,
    source: Annotated[str, typer.Argument(help="A file, a directory or a URL.")],
    format: Annotated[
        str | None,
        typer.Option(help="parquet, csv, json (lines), or any that Spark reads; inferred from the names by default."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="An option for Spark's reader, as name=value.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace the relation by the rows, instead of adding them.")] = False,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Read the files in place until the channel is compacted, instead of copying them.",
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            help="Name of this ingest: a repeated ingest with the same name, files and options inserts nothing."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Insert a block into a channel: all files or, if anything is wrong with one, none."""
    pairs = [item.partition("=") for item in option or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise SettingsError(
                f"the option {name!r} is not of the form name=value", hint="Write, for example, -o header=true"
            )
    with project(watched=True) as opened:
        report = opened.ingest(
            channel,
            source,
            format=format,
            options={name: value for name, _, value in pairs},
            replace=replace,
            in_place=in_place,
            idempotency_key=key,
        )
    if report.repeated and not (json or common.json):
        render.err.print(
            f"Nothing was inserted: run {report.run} has already inserted the rows of this key.",
            style="dim",
        )
    _show_report(report, json)


@commands.command()
def scan(
    channels: Annotated[
        list[str] | None, typer.Argument(help="The channels; all with a watched directory if omitted.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Scan watched directories now, and ingest new files.

    Exit code 3 means that there were none, 4 that some were quarantined.
    """
    with project(watched=True) as opened:
        done = opened.directories.ingest(channels or None)
    _show_scanned(done, json)
    if done.quarantined:
        raise typer.Exit(QUARANTINED)
    if not done.runs:
        if not (json or common.json):
            render.out.print("There are no new files, or another run is ingesting them.")
        raise typer.Exit(NOTHING_TO_DO)


def _show_scanned(done: DirectoryIngestReport, json: bool) -> None:
    if json or common.json:
        render.as_json(done)
        return
    for report in done.runs:
        _show_report(report, json)
    for name, why in done.unseen.items():
        render.err.print(f"{name}: {why}", style="red", markup=False, soft_wrap=True)
    for name in done.settling:
        render.err.print(f"{name}: some files may be incomplete.", style="dim")
    for name, count in done.quarantined.items():
        files = "1 file was" if count == 1 else f"{count} files were"
        render.err.print(f"{name}: {files} quarantined; see kilonova files list {name}.", style="red")


@commands.command()
def run(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            help="The tasks; all with new input if omitted. Python files and folders (models/) are applied first."
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Run tasks with new input until interrupted.")] = False,
    every: Annotated[float, typer.Option(help="With --watch: seconds between polls.")] = 2.0,
    all_or_nothing: Annotated[
        bool, typer.Option("--all-or-nothing", help="Run all tasks in one run, which publishes everything or nothing.")
    ] = False,
    here: Annotated[bool, typer.Option("--here", help="Run in this process, even if a server is running.")] = False,
    json: JsonFlag = False,
) -> None:
    """Run the tasks that have new input: each binding as a run of its own, whose failure does not affect the others.

    New files of watched directories are ingested first, unless tasks are given. If a server is running, it executes the
    tasks, so that this command does not start Spark; not with --watch, --all-or-nothing, --master and --remote.

    Exit code 3 means that there was nothing to do, 4 that files were quarantined, 1 that a binding failed, 75 that all
    bindings which did not run are busy.
    """
    from kilonova.cli.server_runner import ServerRunner

    with project(watched=True) as opened:
        places = [word for word in tasks or () if _is_place(word, opened)]
        tasks = [word for word in tasks or () if word not in places]
        plans = opened.apply_all(load_all([Path(place) for place in places])) if places else ()
        if not (json or common.json):
            show_plans([item for item in plans if not item.empty], json)
        scanned = DirectoryIngestReport() if tasks else _scan(opened, json)
        if all_or_nothing:
            done = opened.run(tasks or None, all_or_nothing=True) or RunsReport()
        else:
            runner = opened.runner if here or watch or "spark" in common.given else ServerRunner(opened)
            done = runner.run_each(tasks or None)
        _show_runs(done, json, scanned.quarantined)
        if watch:
            _watch(opened, done, tasks or None, every, all_or_nothing, json)
            return
    if done.failed:
        raise typer.Exit(TRY_LATER if all(error.code == Conflict.code for error in done.failed.values()) else 1)
    if not done.runs and not (json or common.json):
        render.out.print("Nothing to do: no task has new input.")
    if scanned.quarantined:
        raise typer.Exit(QUARANTINED)
    if not done.runs:
        raise typer.Exit(0 if scanned.runs else NOTHING_TO_DO)


def _scan(opened: Project, json: bool) -> DirectoryIngestReport:
    """Ingest new files of the directories that are due for a scan, and return the report."""
    done = opened.directories.ingest(early=False)
    if done != DirectoryIngestReport() and not (json or common.json):
        _show_scanned(done, json)
    return done


def _is_place(word: str, opened: Project) -> bool:
    """Return whether a word names files to apply rather than a task; a task precedes a folder of its name."""
    if "/" in word or word == "." or word.endswith(".py"):
        return True
    return Path(word).is_dir() and word not in opened.status(0).tasks


def _watch(
    opened: Project, done: RunsReport, tasks: list[str] | None, every: float, all_or_nothing: bool, json: bool
) -> None:
    """Run the tasks that have new input until interrupted; failed bindings are retried once there is new input."""
    failed, seen = set(done.failed), opened.due(tasks)
    try:
        while True:
            time.sleep(every)
            if not tasks:
                _scan(opened, json)
            due = opened.due(tasks)
            failed, seen = failed if due == seen else set(), due
            names = [name for name in tasks if opened.due([name])] if tasks else None
            done = RunsReport()
            with suppress(Conflict):
                if due and all_or_nothing:
                    done = opened.run(names, all_or_nothing=True) or done
                elif due:
                    done = opened.run_each(names, excluding=failed)
            failed |= done.failed.keys()
            if done != RunsReport():
                _show_runs(done, json)
    except KeyboardInterrupt:
        render.err.print("Stopped.", style="dim")


def _show_runs(done: RunsReport, json: bool, quarantined: Mapping[str, int] | None = None) -> None:
    if json or common.json:
        failed = {name: error.to_dict() for name, error in done.failed.items()}
        render.as_json({"runs": done.runs, "failed": failed, "quarantined": quarantined or {}})
        return
    for report in done.runs:
        _show_report(report, json)
    for name, error in done.failed.items():
        render.err.print(f"Error: {error.with_context(binding=name)}", style="red", markup=False, soft_wrap=True)


def _show_report(report: RunReport, json: bool) -> None:
    if json or common.json:
        render.as_json(report)
        return
    rows = [
        (
            made.channel,
            made.point if made.block is not None else "",
            render.number(made.rows) if made.block is not None else "no change",
            size(made.bytes),
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


@commands.command()
def compact(
    channels: Annotated[list[str], typer.Argument(help="The channels.")],
    deltas: Annotated[
        bool, typer.Option("--deltas", help="Instead merge adjacent deltas: small appends, or upserts.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Write the latest snapshot of channels as a base, so that reads need not merge."""
    with project(watched=True) as opened:
        for name in channels:
            report = opened.compact(name, deltas=deltas)
            if report is not None:
                _show_report(report, json)
            elif not (json or common.json):
                render.out.print(f"{name}: nothing to merge.")


@commands.command()
def compaction_policy(
    channel: Annotated[str | None, typer.Argument(help="The channel; without one, all policies are shown.")] = None,
    cost_based: Annotated[
        bool, typer.Option("--cost-based", help="Compact it once merging has cost as much as compacting; the default.")
    ] = False,
    max_amplification: Annotated[
        float, typer.Option(help="With --cost-based: maximum size of the deltas, as a multiple of the base.")
    ] = 1.0,
    max_deltas: Annotated[int | None, typer.Option(help="Compact it once it has this many deltas.")] = None,
    manual: Annotated[bool, typer.Option("--manual", help="Compact it on request only.")] = False,
    json: JsonFlag = False,
) -> None:
    """Show or set the policies by which servers compact channels automatically."""
    chosen: list[Policy] = []
    chosen += [CostBased(max_amplification=max_amplification)] if cost_based else []
    chosen += [] if max_deltas is None else [MaxDeltas(deltas=max_deltas)]
    chosen += [Manual()] if manual else []
    if (channel is None) is not (not chosen) or len(chosen) > 1:
        hint = "Give a channel with one of --cost-based, --max-deltas, --manual"
        raise SettingsError("a policy is for one channel", hint=hint)
    if channel is not None:
        with project() as opened:
            opened.operator.set_policy(channel, chosen[0])
        render.out.print(f"{channel} is compacted {describe_policy(chosen[0])}.")
        return
    with reader() as state:
        found = state.delta_stacks()
    if json or common.json:
        render.as_json(found)
        return
    render.table(
        "",
        ("channel", "base", "deltas", "size", "reads", "read cost", "compaction cost", "is compacted"),
        [
            (
                item.channel,
                size(item.base),
                item.count,
                size(item.deltas),
                len(item.readings),
                size(round(item.read_cost)),
                size(round(item.compaction_cost)),
                describe_policy(item.policy),
            )
            for item in found
        ],
        right=("base", "deltas", "size", "reads", "read cost", "compaction cost"),
    )


@commands.command()
def fsck(
    channels: Annotated[list[str] | None, typer.Argument(help="The channels; all if omitted.")] = None,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Compare contents as well as names and sizes of files.")
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Repair damaged channels that can be recomputed.")] = False,
    json: JsonFlag = False,
) -> None:
    """Compare the blocks in the warehouse with what was written; exit with 1 if anything is damaged."""
    from kilonova.cli.progress import CountDisplay

    with (
        CountDisplay("verifying blocks", quiet=common.quiet or json or common.json) as counter,
        project() as opened,
    ):
        found = opened.fsck(channels or None, checksums=checksums, repair=repair, progress=counter)
    if json or common.json:
        render.as_json(
            {
                "blocks": found.blocks,
                "files": found.files,
                "bytes": found.bytes,
                "damaged": [
                    {
                        "channel": each.block.channel,
                        "block": each.block.written.name.directory,
                        "kind": str(each.block.kind),
                        "damages": [{"file": one.file, "damage": one.kind.value} for one in each.damages],
                    }
                    for each in found.damaged
                ],
                "remedies": [
                    {"channel": each.channel, "remedy": str(each), "mended": each.channel in found.mended}
                    for each in found.remedies
                ],
                "unreferenced": found.unreferenced,
            }
        )
    else:
        _show_verified(found)
    if not found.is_whole:
        raise typer.Exit(1)


def _show_verified(found: FsckReport) -> None:
    if found.damaged:
        render.table(
            "",
            ("channel", "block", "", "damage"),
            [
                (each.block.channel, each.block.written.name.directory, str(each.block.kind), str(damage))
                for each in found.damaged
                for damage in each.damages
            ],
        )
        render.table(
            "",
            ("channel", "remedy"),
            [(each.channel, "mended" if each.channel in found.mended else str(each)) for each in found.remedies],
        )
    render.out.print(
        f"{render.number(found.blocks)} blocks with {render.number(found.files)} files, {size(found.bytes)}:"
        f" {len(found.damaged) or 'none'} damaged."
    )
    if found.unreferenced:
        render.out.print(f"{len(found.unreferenced)} directories in the warehouse are not blocks of this catalog.")
    if any(each.is_automatic and each.channel not in found.mended for each in found.remedies):
        render.out.print("Repair what can be recomputed with: kilonova fsck --repair")


@commands.command()
def gc(
    channels: Annotated[list[str] | None, typer.Argument(help="The channels; all if omitted.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and why the rest is kept.")
    ] = False,
    provenance: Annotated[
        str | None, typer.Option(help="Provenance that retains blocks: logical, physical or all.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Delete the blocks that no cursor, reader, pin or provenance needs."""
    if provenance not in (None, "logical", "physical", "all"):
        raise SettingsError(f"there is no provenance {provenance!r}", hint="Use logical, physical or all")
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
                "branches": done.branches,
                "strangers": done.unknown_directories,
            }
        )
        return
    going = [v for v in done.verdicts if v.goes]
    if dry_run:
        render.table(
            "",
            ("channel", "block", "", "rows", "size", "kept because"),
            [
                (
                    v.channel,
                    v.block.number,
                    str(v.block.kind),
                    render.number(v.block.statistics.rows),
                    size(v.block.statistics.bytes),
                    v.held_by or "would go",
                )
                for v in done.verdicts
            ],
            right=("block", "rows", "size"),
        )
    freed = size(sum(v.block.statistics.bytes for v in going))
    verb = "would go" if dry_run else "went"
    render.out.print(f"{len(going)} of {len(done.verdicts)} blocks {verb}, {freed}.")
    if done.branches:
        render.out.print(f"Of previews that were killed, {done.branches} branches were deleted.")
    if done.unknown_directories:
        render.out.print(
            f"{len(done.unknown_directories)} directories in the warehouse do not belong to this catalog; kept."
        )
