"""The `simulate` command."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kilonova.cli import render
from kilonova.cli.options import JsonFlag, common, reader
from kilonova.cli.project import Workflows, load_all
from kilonova.model.bound import describe_bound
from kilonova.model.schedule import duration
from kilonova.service.formatting import seconds

if TYPE_CHECKING:
    from kilonova.service.simulated_workflow import WorkflowSimulation

commands = typer.Typer()

_BARS = " ▁▂▃▄▅▆▇█"

_PARTS = 40
"""Number of parts of the simulated time for which amounts are shown, at most: a narrow terminal has room for fewer."""

_REASONS = 5
"""Number of reasons shown why there was no plan."""


@commands.command()
def simulate(
    files: Workflows,
    length: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, such as '10 weeks'.")] = "1 week",
    arrive: Annotated[
        list[str] | None,
        typer.Option("--arrive", help="Arrivals on a source channel: 'pages 1000 rows every 30 minutes'."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="A bound to try: 'labelled staleness pages 1 hour' or 'labelled inconsistency 0'."),
    ] = None,
    ratio: Annotated[
        list[str] | None, typer.Option("--ratio", help="Rows of a channel per row of its inputs: 'scores=0.01'.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="The number of tasks that run at a time; by default, that of workers of a server."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the random durations and sizes.")] = 1,
    json: JsonFlag = False,
) -> None:
    """Simulate workflows under their bounds: how often tasks would run, at which cost, and how stale data would be."""
    from kilonova.declare.schedules import seconds_of
    from kilonova.service.settings import load_settings
    from kilonova.service.simulated_workflow import simulate_workflows

    workflows = load_all(files)
    with reader() as history:
        found = simulate_workflows(
            workflows,
            timedelta(seconds=seconds_of(length)),
            arrivals=arrive or (),
            bounds=change or (),
            ratios=ratio or (),
            seed=seed,
            parts=_PARTS if json or common.json else min(_PARTS, render.out.width // 4),
            workers=workers or load_settings(common.directory, **common.given).serve.workers,
            history=history,
        )
    if json or common.json:
        render.as_json(_record(found))
    else:
        _show(found)


def _record(found: WorkflowSimulation) -> dict[str, object]:
    """Return a simulation as a record for JSON, with times in seconds."""
    from kilonova.service.simulated_workflow import describe_place

    return {
        "bounds": [
            {
                "channel": each.bound.channel,
                "bound": describe_place(each.bound),
                "limit": each.bound.limit.total_seconds(),
                "violations": each.violations,
                "median_lag": each.median_lag.total_seconds(),
                "worst": each.worst.total_seconds(),
                "amounts": each.amounts,
            }
            for each in found.bounds
        ],
        "invocations": [
            {"task": step.task, "variant": step.variant, "count": count, "seconds": 3600 * hours}
            for step, (count, hours) in found.invocations.items()
        ],
        "learned": found.learned,
        "runs": len(found.result.runs),
        "seconds": 3600 * found.result.cost,
        "unmet": found.result.unmet,
        "reasons": [f"{each.channel}: {each.reason}" for each in found.result.reasons],
        "infeasible": [f"{describe_bound(each.bound)}: {each.reason}" for each in found.infeasible],
    }


def _show(found: WorkflowSimulation) -> None:
    """Print a simulation: its arrivals, a table of bounds and one of tasks."""
    from kilonova.service.simulated_workflow import describe_place

    arrivals = ", ".join(
        f"{render.number(round(feed.rows))} rows of {feed.channel} every {duration(round(feed.every.total_seconds()))}"
        for feed in found.feeds
    )
    render.out.print(f"Simulated {duration(round(found.duration.total_seconds()))}: {arrivals}", soft_wrap=True)
    if found.learned:
        render.out.print(f"Costs are those of past runs of {', '.join(found.learned)}.", soft_wrap=True)
    bounds = [
        (
            each.bound.channel,
            describe_place(each.bound),
            duration(round(each.bound.limit.total_seconds())),
            each.violations,
            seconds(each.median_lag.total_seconds()),
            seconds(each.worst.total_seconds()),
            _plot(each.amounts),
        )
        for each in found.bounds
    ]
    columns = ("channel", "bound on", "limit", "violated", "median lag", "worst", "over time")
    render.table("", columns, bounds, right=("violated", "median lag", "worst"))
    rows = [
        (step.task, step.variant, count, seconds(3600 * hours), seconds(3600 * hours * count))
        for step, (count, hours) in found.invocations.items()
    ]
    render.table("", ("task", "variant", "runs", "each", "in all"), rows, right=("runs", "each", "in all"))
    if found.result.unmet:
        render.out.print(f"{found.result.unmet} times no plan kept the bounds of some channel:", style="yellow")
        for reason in found.result.reasons[:_REASONS]:
            render.out.print(f"  {reason.channel}: {reason.reason}", soft_wrap=True)
    for each in found.infeasible:
        text = f"Cannot be kept: {describe_bound(each.bound)} ({each.reason})."
        render.out.print(text, style="yellow", soft_wrap=True)


def _plot(amounts: tuple[float, ...]) -> Text:
    """Return amounts as bars, those above the limit in red."""
    text = Text()
    for amount in amounts:
        text.append(_BARS[min(8, round(8 * amount))], "red" if amount > 1 else "green")
    return text
