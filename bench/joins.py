"""Nova's Figure 5: joining what is new with what is old, against joining everything again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import kilonova as kn
from bench.measure import Timings, interleaved
from bench.report import Draw, Report, Scale
from bench.sandbox import sandbox, write
from kilonova.service.project import Project

FRACTIONS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5)


def measure(scale: Scale) -> list[Report]:
    """By how much is new, in parts of what is there."""
    quick = scale is Scale.QUICK
    old, rounds = (100_000, 1) if quick else (1_000_000, 3)
    fractions = (0.001, 0.05, 0.5) if quick else FRACTIONS
    timings, ratios = {}, []
    for fraction in fractions:
        with sandbox(_workflow()) as (project, place):
            taken = _joined(project, place, old, fraction, rounds)
        timings[f"{fraction:.2%}"] = taken
        ratios.append(taken.ratio("incremental", "full"))
    cross = crossing(fractions, ratios)
    where = "nowhere up to the largest" if cross is None else f"at {cross:.0%}"
    return [
        Report(
            name="joins",
            title=f"Nova, Figure 5: A ⋈ B, two append channels of {old:,} rows, by how much of both is new",
            columns=("new", "incremental, s", "full, s", "ratio", "ratio of CPU"),
            rows=[
                (
                    share,
                    taken.median("incremental"),
                    taken.median("full"),
                    ratio,
                    taken.cpu_ratio("incremental", "full"),
                )
                for (share, taken), ratio in zip(timings.items(), ratios, strict=True)
            ],
            timings={share: taken.rounded() for share, taken in timings.items()},
            note="*Incremental* publishes (OLD A ⋈ NEW B) ∪ (NEW A ⋈ ALL B) as a delta, *full* publishes ALL A ⋈ ALL B"
            f" as a base. Both cost the same {where}; Nova found 20% with its sorted and indexed files.",
            draw=_drawn(fractions, timings, cross),
        )
    ]


def crossing(fractions: tuple[float, ...], ratios: list[float]) -> float | None:
    """Where the ratio grows beyond 1 for good, between the measured points on a logarithmic scale.

    >>> round(crossing((0.1, 0.2, 0.4), [0.5, 0.75, 1.25]), 3)
    0.283
    """
    for low, high in reversed(list(zip(range(len(ratios)), range(1, len(ratios)), strict=False))):
        if ratios[low] <= 1 < ratios[high]:
            part = (1 - ratios[low]) / (ratios[high] - ratios[low])
            return math.exp(math.log(fractions[low]) * (1 - part) + math.log(fractions[high]) * part)
    return None


def _drawn(fractions: tuple[float, ...], timings: dict[str, Timings], cross: float | None) -> Draw:
    def draw(axes: Any) -> None:
        (axis,) = axes
        shares = [100 * fraction for fraction in fractions]
        for method, marker in (("full", "s"), ("incremental", "o")):
            axis.plot(
                shares, [taken.median(method) for taken in timings.values()], marker=marker, markersize=4, label=method
            )
        if cross is not None:
            axis.axvline(100 * cross, color="black", linewidth=0.8, linestyle=":")
            axis.text(100 * cross, axis.get_ylim()[1], f"{cross:.0%}", ha="center", va="bottom")
        axis.set(xscale="log", xlabel="new rows, % of the old", ylabel="seconds")
        axis.set_ylim(bottom=0)
        axis.legend()

    return draw


def _joined(project: Project, place: Path, old: int, fraction: float, rounds: int) -> Timings:
    spark = project.warehouse.spark
    have = 0

    def arrive(more: int) -> None:
        nonlocal have
        keys = spark.range(have, have + more, 1, 2)
        for channel, value, seed in (("a", "x", 1), ("b", "y", 2)):
            # A fifth of the rows on each side meets no other; new rows meet old ones as often as new ones.
            spread = keys.selectExpr(
                f"cast(pmod(xxhash64(id, {seed}), {have + more} * 5L / 4) AS bigint) AS k",
                f"concat('{value}-', id) AS {value}",
                f"rand({seed}) AS {value}2",
            )
            write(spread, place / channel)
            project.ingest(channel, str(place / channel))
        have += more

    arrive(old)
    project.run()
    methods = {"incremental": lambda: project.run(["incremental"]), "full": lambda: project.run(["full"])}
    return interleaved(methods, rounds, before=lambda: arrive(max(1, int(fraction * have))))


def _workflow() -> kn.Workflow:
    workflow = kn.Workflow("joining")
    workflow.channel("a", "k bigint, x string, x2 double")
    workflow.channel("b", "k bigint, y string, y2 double")

    @workflow.task(reads={"new_a": "a", "old_a": "a", "new_b": "b", "all_b": "b"})
    def incremental(new_a: kn.New, old_a: kn.Old, new_b: kn.New, all_b: kn.All) -> kn.Delta:
        return old_a.join(new_b, "k").unionByName(new_a.join(all_b, "k"))

    @workflow.task
    def full(a: kn.All, b: kn.All) -> kn.Base:
        return a.join(b, "k")

    return workflow
