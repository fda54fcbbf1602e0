"""Display of the runs that keep bounds: `kilonova explain --bounds`."""

from __future__ import annotations

from dataclasses import asdict

from kilonova.cli import render
from kilonova.cli.options import reader
from kilonova.service.formatting import seconds


def explain_bounds(channel: str | None, *, as_json: bool) -> None:
    """Show which runs keep bounds: the plan, when and why it starts, its alternatives, and what no plan keeps.

    Args:
        channel: the channel whose alternatives and obstacles are shown; None for all.
        as_json: whether to print JSON.
    """
    with reader() as opened:
        if channel is not None:
            opened.require_channel(channel)
        unbounded = channel is not None and not opened.bounds([channel])
        found = opened.bound_schedule(None if channel is None else [channel])
    if as_json:
        render.as_json(asdict(found))
        return
    if unbounded:
        render.out.print(f"{channel} has no bounds; the plan keeps those of other channels.", highlight=False)
    if found.steps:
        starts = "now" if found.due is None else f"at {found.due:%Y-%m-%d %H:%M:%S} UTC, if no data arrive before"
        render.out.print(f"The next plan starts {starts}, because of:", highlight=False)
        for bound in found.bounds:
            render.out.print(f"  {bound}", highlight=False, markup=False)
        rows = [(each.task, each.variant, each.writes, each.binding, seconds(each.seconds)) for each in found.steps]
        render.table("Plan", ("task", "variant", "writes", "binding", "estimate"), rows, right=("estimate",))
        if found.not_repeated:
            names = ", ".join(found.not_repeated)
            text = f"Not started again, after a run with the same input that failed or changed nothing: {names}"
            render.out.print(text, highlight=False, markup=False)
    else:
        render.out.print("No run is needed to keep the bounds.", highlight=False)
    if found.alternatives:
        others = [(each.channel, ", then ".join(each.steps), seconds(each.seconds)) for each in found.alternatives]
        render.table("Alternatives", ("channel", "steps", "estimate"), others, right=("estimate",))
    if found.obstacles:
        render.table("Not kept", ("channel", "reason"), [(each.channel, each.reason) for each in found.obstacles])
    if found.started_by_bounds:
        names = ", ".join(found.started_by_bounds)
        render.out.print(f"Servers start these tasks when bounds require it: {names}", highlight=False, markup=False)
