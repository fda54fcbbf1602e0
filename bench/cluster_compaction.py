"""Compaction on a cluster: by Python workers, bucket by bucket, and by Spark's joins, against a plain copy of the rows.

The cluster is on this machine: two workers with a core each, in processes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bench.measure import interleaved
from bench.report import Goal, Report, Scale
from bench.sandbox import sandbox, write
from bench.upserts import Upserts, upserting


def measure(scale: Scale) -> Iterable[Report]:
    """Bases with chains of several lengths."""
    size, lengths, rounds = (200_000, (1, 10), 1) if scale is Scale.QUICK else (5_000_000, (1, 10, 50), 5)
    rows: list[tuple[object, ...]] = []
    timings: dict[str, dict[str, list[float]]] = {}
    goals: list[Goal] = []
    spark = {"master": "local-cluster[2,1,2048]", "conf": {"spark.executor.memory": "2g"}}
    with sandbox(upserting(), spark=spark) as (project, place):
        upserts, warehouse = Upserts(project, place, size), project.warehouse

        def compact(local_check_max: int) -> None:
            warehouse.sizes = replace(warehouse.sizes, local_check_max=local_check_max)
            upserts.compact()

        for length in lengths:
            upserts.grow(length)
            write(project.read("keyed"), place / "plain")
            usual = warehouse.sizes
            ways = {
                "copy": lambda: write(upserts.plain(), place / "out"),
                "by workers": lambda: compact(1),
                "by joins": lambda: compact(0),
            }
            taken = interleaved(ways, rounds, warm=2)
            warehouse.sizes = usual
            ratios = [taken.ratio(name, "copy") for name in ("by workers", "by joins")]
            works = [taken.cpu_ratio(name, "copy") for name in ("by workers", "by joins")]
            rows.append((f"{length} deltas", taken.median("copy"), *ratios, *works))
            timings[f"{length} deltas"] = taken.rounded()
            goals.append(Goal(f"{length} deltas: by workers, times a copy", ratios[0], 0.9))
    yield Report(
        name="cluster_compaction",
        title="Compacting 5 M rows with deltas of 1% each on a cluster, in times a plain copy of the same rows",
        columns=("", "copy, s", "by workers", "by joins", "by workers, CPU", "by joins, CPU"),
        rows=rows,
        goals=goals,
        timings=timings,
        note="Two workers with a core each, on this machine. *By joins* is what Spark does where its Python workers"
        " cannot read the warehouse.",
    )
