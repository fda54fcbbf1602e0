"""The `bound` commands, which change bounds at run time, and the list of all bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from kilonova.catalog.bound_status import BoundStatus
from kilonova.catalog.bounds import RegisteredBound
from kilonova.cli import render
from kilonova.cli.options import ChannelName, JsonFlag, common, project, reader
from kilonova.model.bound_phase import BoundPhase
from kilonova.model.schedule import duration
from kilonova.model.version import Path
from kilonova.model.workflow_path import describe_path
from kilonova.service.formatting import seconds

commands = typer.Typer()
bound_app = typer.Typer(help="Set, remove and reset bounds on staleness and inconsistency.", no_args_is_help=True)
commands.add_typer(bound_app, name="bound")

LimitText = Annotated[str, typer.Argument(metavar="LIMIT", help="The limit, such as '1 day', or 0.")]
PathText = Annotated[
    str, typer.Argument(metavar="PATH", help="The source channel, or orders/daily: it, and tasks on the way.")
]
OptionalPath = Annotated[
    str | None, typer.Argument(metavar="[PATH]", help="The path of a bound on staleness; omitted for inconsistency.")
]

_STYLES = {BoundPhase.KEPT: "green", BoundPhase.AT_RISK: "yellow", BoundPhase.VIOLATED: "bold red"}


@commands.command()
def bounds(
    channels: Annotated[list[str] | None, typer.Argument(help="The channels; all if omitted.")] = None,
    json: JsonFlag = False,
) -> None:
    """Show the bounds of channels, with the slack that is left."""
    with reader() as opened:
        for name in channels or ():
            opened.require_channel(name)
        found = opened.bounds(channels or None)
        removed = [each for each in opened.registered_bounds(channels or None) if each.limit is None]
    if json or common.json:
        render.as_json([as_record(each) for each in found])
        return
    if not found and not removed:
        render.out.print("There are no bounds yet. A workflow declares them, or: kilonova bound staleness CHANNEL PATH")
        return
    show_bounds(found, removed)


def as_record(status: BoundStatus) -> dict[str, object]:
    """Return the status of a bound as a record for JSON, with times in seconds."""
    declared, changed = status.registered.declared, status.registered.changed
    return {
        "channel": status.registered.channel,
        "path": list(status.registered.path),
        "limit": status.bound.limit.total_seconds(),
        "declared": None if declared is None else declared.total_seconds(),
        "changed": changed,
        "changed_by": status.registered.changed_by,
        "point": status.point,
        "start": status.start,
        "end": status.end,
        "amount": status.amount.total_seconds(),
        "slack": status.slack.total_seconds(),
        "phase": status.phase,
        "kept": status.kept,
    }


def show_bounds(found: Sequence[BoundStatus], removed: Sequence[RegisteredBound] = (), title: str = "") -> None:
    """Print a table of bounds, coloured by their phases."""
    rows: list[tuple[object, ...]] = [
        (
            each.registered.channel,
            bounded(each.registered.path),
            _limit(each.registered),
            seconds(each.amount.total_seconds()),
            Text(("-" if each.slack.days < 0 else "") + seconds(abs(each.slack.total_seconds())), _STYLES[each.phase]),
            Text(each.phase.value + _kept(each), _STYLES[each.phase]),
        )
        for each in found
    ]
    rows += [(each.channel, bounded(each.path), _limit(each), "", "", Text("removed", "dim")) for each in removed]
    columns = ("channel", "bound on", "limit", "now", "slack", "state")
    render.table(title, columns, rows, right=("now", "slack"))


def bounded(path: Path) -> str:
    """Return what a bound limits, as text."""
    return f"staleness along {describe_path(path)}" if path else "inconsistency"


def _limit(each: RegisteredBound) -> str:
    """Return the limit of a bound, and the declared one if it was changed at run time."""
    limit = "" if each.limit is None else duration(round(each.limit.total_seconds()))
    if each.changed is None:
        return limit
    declared = "not declared" if each.declared is None else f"declared {duration(round(each.declared.total_seconds()))}"
    return f"{limit} ({declared})".strip()


def _kept(each: BoundStatus) -> str:
    if each.kept is None:
        return ""
    return f": readers get point {each.kept}" if each.kept else ": no point can be read"


@bound_app.command("staleness")
def bound_staleness(channel: ChannelName, path: PathText, limit: LimitText) -> None:
    """Bound how long newer data of a source channel may be missing from a channel, until the workflow changes it."""
    with project() as opened:
        opened.set_bound(channel, limit, path)
        _show(opened.bounds([channel]))


@bound_app.command("inconsistency")
def bound_inconsistency(channel: ChannelName, limit: LimitText) -> None:
    """Bound how far apart in time the source data of a channel may be, until the workflow changes it."""
    with project() as opened:
        opened.set_bound(channel, limit)
        _show(opened.bounds([channel]))


@bound_app.command("remove")
def remove_bound(channel: ChannelName, path: OptionalPath = None) -> None:
    """Remove a bound; a declared one stays removed until the workflow declares another limit."""
    with project() as opened:
        opened.remove_bound(channel, path)
    render.out.print(f"The bound on the {'inconsistency' if path is None else 'staleness'} of {channel} is removed.")


@bound_app.command("reset")
def reset_bound(channel: ChannelName, path: OptionalPath = None) -> None:
    """Set the limit of a bound back to the one that the workflow declares."""
    with project() as opened:
        opened.reset_bound(channel, path)
        _show(opened.bounds([channel]))


def _show(found: Sequence[BoundStatus]) -> None:
    if common.json:
        render.as_json([as_record(each) for each in found])
    else:
        show_bounds(found)
