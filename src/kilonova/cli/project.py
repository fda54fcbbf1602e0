"""Commands that create and change projects, workflows and channels."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kilonova.cli import render
from kilonova.cli.options import NOTHING_TO_DO, ChannelName, JsonFlag, common, project
from kilonova.model.point_ranges import describe_points, ranges_of
from kilonova.service.affected_channels import DownstreamEffect
from kilonova.service.formatting import size
from kilonova.service.plan_action import Action
from kilonova.service.settings import FILE
from kilonova.service.workflow_plan import WorkflowPlan

if TYPE_CHECKING:
    from kilonova.service.preview import Preview
    from kilonova.service.recovery import Recovery

Workflows = Annotated[list[Path], typer.Argument(help="Python files that define workflows, or folders of SQL files.")]

SameLogic = Annotated[
    list[str] | None,
    typer.Option("--same-logic", metavar="TASK", help="A task or view whose changed definition does the same."),
]
NewVersion = Annotated[
    list[str] | None,
    typer.Option("--new-version", metavar="TASK", help="A task or view to recompute although nothing has changed."),
]

commands = typer.Typer()


@commands.command()
def init(
    directory: Annotated[Path | None, typer.Argument(help="The directory; the project's directory if omitted.")] = None,
) -> None:
    """Create a project: kilonova.toml, an empty catalog and a warehouse. Also upgrades an older catalog."""
    from kilonova.service.project import open_project

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
warehouse = ".kilonova/warehouse"     # or "s3://bucket/path", any URL that both Spark and fsspec can reach

# [spark]
# master = "local[*]"
"""


@commands.command()
def recover(json: JsonFlag = False) -> None:
    """Rebuild a catalog that was lost, or restored from an old backup, from the blocks of its warehouse.

    Stop all servers and runs before. Nothing in the warehouse is deleted. Apply the workflows again afterwards: their
    tasks are recomputed at the next run.
    """
    from kilonova.cli.progress import CountDisplay

    with (
        CountDisplay("reading manifests", quiet=common.quiet or json or common.json) as counter,
        project() as opened,
    ):
        done = opened.recover(counter)
    if json or common.json:
        render.as_json(
            {
                "run": done.run,
                "blocks": done.blocks,
                "added": done.added,
                "lost": done.lost,
                "channels": [
                    {
                        "channel": each.name,
                        "points": len(each.points),
                        "newest": each.newest,
                        "rows": each.rows,
                        "doubts": [{"what": doubt.what, "why": doubt.why} for doubt in each.doubts],
                    }
                    for each in done.channels
                ],
                "doubts": [{"what": doubt.what, "why": doubt.why} for doubt in done.doubts],
            }
        )
        return
    _show_recovery(done)


def _show_recovery(done: Recovery) -> None:
    rows = [(each.name, len(each.points), each.newest, render.number(each.rows)) for each in done.channels]
    render.table("", ("channel", "points", "latest", "rows in blocks"), rows)
    doubts = [(each.name, doubt.what, doubt.why) for each in done.channels for doubt in each.doubts]
    doubts += [("", doubt.what, doubt.why) for doubt in done.doubts]
    if doubts:
        render.table("missing or not used", ("channel", "what", "why"), doubts)
    if done.run is None:
        render.out.print("The catalog has all usable blocks; nothing was changed.")
        return
    render.out.print(
        f"Recovered {done.added} of {done.blocks} blocks, in run {done.run}; {done.lost} known ones are missing."
    )
    render.out.print("Apply the workflows now: kilonova apply FILES. Files of watched directories are ingested again.")


def load_all(files: list[Path]) -> list[Any]:
    """Load the workflows that files and folders define."""
    from kilonova.declare.load import load

    return [workflow for file in files for workflow in load(file)]


@commands.command()
def plan(
    files: Workflows,
    check: Annotated[bool, typer.Option("--check", help="Exit with 3 if anything would change.")] = False,
    same_logic: SameLogic = None,
    new_version: NewVersion = None,
    json: JsonFlag = False,
) -> None:
    """Show the changes that registering workflows would make, and their cost."""
    with project() as opened:
        plans = opened.plan_all(load_all(files), same_logic=same_logic or (), new_version=new_version or ())
    show_plans(plans, json)
    if check and not all(item.empty for item in plans):
        raise typer.Exit(NOTHING_TO_DO)


@commands.command()
def apply(
    files: Workflows,
    defer: Annotated[
        str | None,
        typer.Option(
            "--defer",
            metavar="UNTIL",
            help="Change tasks that have output later: a time in UTC such as 02:00, or a duration such as '6 hours'.",
        ),
    ] = None,
    same_logic: SameLogic = None,
    new_version: NewVersion = None,
    refuse_incompatible: Annotated[
        bool,
        typer.Option(
            "--refuse-incompatible",
            help="Refuse changes after which a channel lacks columns that a task requires, instead of an alert.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the plan, after the checks that precede the registration.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Register workflows. The output of tasks whose definition changed is migrated or recomputed at the next run."""
    from kilonova.declare.schedules import time_of

    until = None if defer is None else time_of(defer, datetime.now(UTC))
    with project() as opened:
        plans = opened.apply_all(
            load_all(files),
            defer=until,
            same_logic=same_logic or (),
            new_version=new_version or (),
            refuse_incompatible=refuse_incompatible,
            dry_run=dry_run,
        )
    show_plans(plans, json)


@commands.command()
def rollback(
    task: Annotated[str, typer.Argument(help="A task, or a view for all that is materialized for it.")],
    to: Annotated[
        int | None, typer.Option("--to", metavar="VERSION", help="The logic version; by default the one before.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    json: JsonFlag = False,
) -> None:
    """Register an earlier definition of a task again. Its output is migrated or recomputed at the next run."""
    with project() as opened:
        found = opened.rollback(task, version=to, dry_run=dry_run)
    show_plans([found], json)
    if not (dry_run or json or common.json):
        text = f"The file of the workflow {found.workflow} still has the other definition: correct it, too."
        render.out.print(text, soft_wrap=True)


@commands.command()
def retract(
    task: Annotated[str, typer.Argument(help="A task, or a view.")],
    version: Annotated[int, typer.Option("--version", help="The faulty logic version.")],
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="VERSION", help="The version that replaces it; by default the last good one."),
    ] = None,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Recompute the output of the task, even if it could be migrated.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it has touched, and the plan.")] = False,
    json: JsonFlag = False,
) -> None:
    """Retract a faulty logic version: all that it has touched is repaired at the next run.

    Older points that it has touched cannot be read any more. If it is the present version of the task, an earlier
    definition is registered again.
    """
    with project() as opened:
        found = opened.retract(task, version, to=to, recompute=recompute, dry_run=dry_run)
    if json or common.json:
        render.as_json(found.to_dict())
        return
    if not found.retraction.touched:
        render.out.print(f"no point reflects the logic version {version} of {task}")
    rows = [
        (each.channel, describe_points(ranges_of(each.points)), "the newest too" if each.newest else "")
        for each in found.retraction.touched
    ]
    if rows:
        render.table("points that reflect it", ("channel", "points", ""), rows)
    if found.retraction.steps:
        render.table("at the next run", ("task", "repair"), [(*item,) for item in found.retraction.steps.items()])
    if found.plan is not None:
        show_plans([found.plan], json)


@commands.command()
def preview(
    files: Workflows,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also recompute migrated outputs, and compare them with the migrated ones.")
    ] = False,
    rows: Annotated[int, typer.Option("--rows", min=0, help="How many rows to show of each channel.")] = 5,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="SIZE",
            help="Compute both definitions from a sample of the source rows: 1%, or a number of rows.",
        ),
    ] = None,
    sample_by: Annotated[
        list[str] | None,
        typer.Option(
            "--sample-by",
            metavar="COLUMN",
            help="Column by whose values rows are chosen; sources without it are read as a whole. By default the key.",
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show how registering workflows would change the rows, without changing anything.

    The workflows are applied and run on a branch of the project, which shares its blocks. Pending input is processed
    there by the present definitions first.
    """
    from kilonova.model.sample import sample_of

    chosen = None if sample is None else sample_of(sample, tuple(sample_by or ()))
    with project() as opened:
        found = opened.preview(load_all(files), examples=rows, verify=verify, sample=chosen)
    if json or common.json:
        render.as_json(found.to_dict())
    else:
        _show_preview(found, verify=verify)
    if found.wrong or found.failed:
        raise typer.Exit(1)


def _show_preview(found: Preview, *, verify: bool) -> None:
    show_plans(found.plans, json=False)
    for source in found.sample:
        by = f"by {', '.join(source.by)}" if source.by else "as a whole"
        render.out.print(f"{source.channel}: {render.number(source.rows)} of {render.number(source.of)} rows, {by}.")
    for binding, problem in found.failed:
        render.out.print(f"Breaks: {binding} cannot run after the change: {problem}.", soft_wrap=True)
    if not found.channels:
        render.out.print("No rows change.")
        return
    render.table(
        "",
        ("channel", "rows before", "after", "added", "removed", "columns"),
        [
            (
                each.channel,
                "" if each.before is None else render.number(each.before),
                "" if each.after is None else render.number(each.after),
                render.number(each.added),
                render.number(each.removed),
                ", ".join((*each.columns, *(f"{name} differs in {count:,}" for name, count in each.differing))),
            )
            for each in found.channels
        ],
        right=("rows before", "after", "added", "removed"),
    )
    for each in found.channels:
        if each.examples:
            names = tuple(each.examples[0][1])
            rows = [(sign, *row.values()) for sign, row in each.examples]
            render.out.print(f"\nSome rows of {each.channel}:")
            render.table("", ("", *names), rows)
    for name, count in found.wrong:
        render.out.print(
            f"Wrong: the migrated rows of {name} differ from recomputed ones in {render.number(count)} rows."
        )
    if verify and not found.wrong:
        render.out.print("All migrated rows equal recomputed ones.")


_MARKS = {Action.ADD: "+", Action.CHANGE: "~", Action.KEEP: " ", Action.DROP: "-"}


def show_plans(plans: Sequence[WorkflowPlan], json: bool) -> None:
    """Print the changes that registering workflows makes."""
    if json or common.json:
        render.as_json([item.to_dict() for item in plans])
        return
    for item in plans:
        _show_plan(item)
        for part in item.unseen:
            render.out.print(f"Changes are not detected in the {part.kind} {part.name}: {part.what}.")
        for each in item.incompatible:
            render.out.print(f"Alert: {each}.", style="yellow", soft_wrap=True)


def _show_plan(item: WorkflowPlan) -> None:
    if item.discards is not None:
        text = f"{item.workflow}: replaces the definition that was deferred until {render.moment(item.discards)}."
        render.out.print(text, soft_wrap=True)
    if item.empty:
        written = "".join(f"; {t.task.name}: {t.detail}" for t in item.tasks if t.detail)
        render.out.print(f"{item.workflow}: nothing changes{written}.", soft_wrap=True)
        return
    if item.until is not None:
        text = f"{item.workflow}: takes effect at {render.moment(item.until)}; until then the present tasks run."
        render.out.print(text, soft_wrap=True)
    rows: list[tuple[object, ...]] = [
        (_MARKS[c.action], "channel", c.channel.name, c.detail, "")
        for c in item.channels
        if c.action is not Action.KEEP
    ]
    changing = {t.task.name for t in item.tasks if t.action is not Action.KEEP}
    rows += [
        (_MARKS[b.action], "binding", b.binding.name, b.detail, "")
        for b in item.bindings
        if b.action is not Action.KEEP and not (b.binding.implicit and b.binding.name in changing)
    ]
    rows += [
        (_MARKS[p.action], "bound", p.bound.channel, p.detail, "") for p in item.bounds if p.action is not Action.KEEP
    ]
    for t in item.tasks:
        if t.action is Action.KEEP and not t.detail:
            continue
        cost = [f"reads {render.number(t.rows)} rows, {size(t.bytes)}"] if t.rows else []
        if t.migration is not None:
            cost += [f"{way}: {seconds:.1f} s" for way, seconds in t.migration.seconds.items()]
        if t.downstream and t.action is Action.CHANGE:
            cost.append(f"then {', '.join(t.downstream)}")
        rows.append((_MARKS[t.action], "task", t.task.name, t.detail, "; ".join(cost)))
    render.table(item.workflow, ("", "", "name", "change", "cost of the first run"), rows)
    for each in item.affected:
        if each.effect in (DownstreamEffect.MAY_BREAK, DownstreamEffect.BREAKS):
            where = "" if each.workflow == item.workflow else f" of the workflow {each.workflow}"
            render.out.print(f"The task {each.task}{where} {each.detail}.", soft_wrap=True)
    for t in item.tasks:
        if t.diff:
            render.out.print()
            render.diff(t.diff)


@commands.command()
def drop_channel(
    channel: ChannelName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Drop a channel with its data and the task that writes it."""
    if not yes:
        typer.confirm(f"Delete the channel {channel} and all of its data?", abort=True)
    with project() as opened:
        tasks = opened.drop(channel)
    with_it = f", and the task {', '.join(tasks)}" if tasks else ""
    render.out.print(f"Dropped the channel {channel}{with_it}.")
