"""Upserts of a hundredth of a table: publishing them, reading the result, and compacting it.

Reading and compacting are measured against copying the same rows from one Parquet directory to another,
publishing against MERGE as `deltalake` does it.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame

import kilonova as kn
from bench.measure import Spent, Timings, interleaved, spent
from bench.report import Draw, Goal, Report, Scale
from bench.sandbox import COLUMNS, noop, rows, sandbox, touching, write
from kilonova.catalog import channel_store
from kilonova.catalog.compaction_stats import delta_stacks
from kilonova.model.block import BlockName
from kilonova.schedule.compaction import channels_to_merge, select_for_compaction
from kilonova.service.project import Project

STEADY = (1, 2, 5, 8, 10, 15, 20, 25, 30, 40, 50, 60)
"""After how many deltas a channel is read that is maintained as servers do."""

WAYS = {"read and write": "copy", "compact": "copy", "scan": "plain scan"}
"""What is measured, and against what."""


def measure(scale: Scale) -> list[Report]:
    """Tables of several sizes, and chains of several lengths."""
    quick = scale is Scale.QUICK
    sizes = {200_000: 2} if quick else {5_000_000: 3}
    if scale is Scale.LARGE:
        sizes[20_000_000] = 2
    lengths = (1, 10) if quick else (1, 10, 50)
    publishing, reading, steady = [], [], []
    goals: list[Goal] = []
    timings: dict[str, dict[str, list[float]]] = {}
    curves: dict[int, list[float]] = {}
    for size, rounds in sizes.items():
        with sandbox(upserting()) as (project, place):
            upserts = Upserts(project, place, size)
            taken = upserts.published(rounds)
            timings[f"publish, {size} rows"] = taken.rounded()
            ratio, work = taken.ratio("merge", "publish"), taken.cpu_ratio("merge", "publish")
            publishing.append((size, taken.median("publish"), taken.median("merge"), ratio, work))
            goals.append(Goal(f"{size:,} rows: publishing, times faster than MERGE", ratio, 3, at_least=True))
            for length in lengths:
                upserts.grow(length)
                taken = upserts.read(rounds)
                timings[f"read {length} deltas, {size} rows"] = taken.rounded()
                ratios = {method: taken.ratio(method, against) for method, against in WAYS.items()}
                works = {method: taken.cpu_ratio(method, against) for method, against in WAYS.items()}
                label = f"{size:,} rows, {length} deltas".replace(",", " ", f"{size:,}".count(","))
                reading.append((label, taken.median("copy"), *ratios.values(), *works.values()))
                curves.setdefault(size, []).append(ratios["read and write"])
                goals.append(Goal(f"{size:,} rows, {length} deltas: compact, times a copy", ratios["compact"], 0.9))
            maintained, spending = upserts.maintained((1, 3, 6) if quick else STEADY, rounds)
            found = {
                length: (taken.ratio("read and write", "copy"), taken.cpu_ratio("read and write", "copy"))
                for length, taken in maintained.items()
            }
            timings |= {f"steady, {length} deltas, {size} rows": each.rounded() for length, each in maintained.items()}
            steady += [(size, length, *both) for length, both in found.items()]
            for name, of in (("median", statistics.median), ("worst", max)):
                steady.append((size, name, *map(of, zip(*found.values(), strict=True))))
            worst = max(ratio for ratio, _ in found.values())
            goals.append(Goal(f"{size:,} rows: worst read under the default policy, times a copy", worst, 1.3))
            steady.append((size, "maintenance per delta", *spending))
    return [
        Report(
            name="publishing",
            title="Publishing an upsert of 1%, against MERGE in deltalake",
            columns=("rows", "publish, s", "MERGE, s", "MERGE / publish", "the same of CPU"),
            rows=publishing,
            goals=[goal for goal in goals if goal.at_least],
            timings={name: each for name, each in timings.items() if name.startswith("publish")},
            note="Both read the same Parquet file. MERGE rewrites the files that hold matching rows; a delta block"
            " leaves that to the next compaction. Before it is published, a few of its keys are looked up, to see"
            " whether it changes anything.",
        ),
        Report(
            name="upserts",
            title="Reading and compacting a base with deltas of 1% each, in times a plain copy of the same rows",
            columns=("", "copy, s", *WAYS, *(f"{method}, CPU" for method in WAYS)),
            rows=reading,
            goals=[goal for goal in goals if goal.limit == 0.9],
            timings={name: each for name, each in timings.items() if name.startswith("read")},
            note="The copy reads and writes plain Parquet with Spark; *scan* reads only, and is compared with a scan of"
            " plain Parquet.",
            draw=_drawn(lengths, curves),
        ),
        Report(
            name="steady",
            title="Reading a channel to which deltas of 1% are published, under the default compaction policy",
            columns=("rows", "deltas so far", "read and write, times a copy", "the same of CPU"),
            rows=steady,
            goals=[goal for goal in goals if goal.limit == 1.3],
            timings={name: each for name, each in timings.items() if name.startswith("steady")},
            note="After each delta the channel is maintained as by a server that has nothing else to do: deltas are"
            " merged, or it is compacted, if the policy says so. *Maintenance per delta* is what that takes on average,"
            " in copies of the channel.",
        ),
    ]


def _drawn(lengths: tuple[int, ...], curves: dict[int, list[float]]) -> Draw:
    def draw(axes: Any) -> None:
        (axis,) = axes
        for size, ratios in curves.items():
            axis.plot(lengths, ratios, marker="o", markersize=4, label=f"{size / 1e6:g} M rows")
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(xlabel="deltas of 1%", ylabel="times a plain copy", title="read and write")
        axis.set_ylim(bottom=0)
        axis.legend()

    return draw


class Upserts:
    """A keyed channel and a Delta table with the same rows, to which the same upserts go."""

    def __init__(self, project: Project, place: Path, size: int) -> None:
        self._project, self._place, self._size = project, place, size
        self._spark = project.warehouse.spark
        self._deltas = 0
        self._seeds = itertools.count(1)
        self._scratch = itertools.count(1 << 40)
        write(rows(self._spark.range(0, size, 1, 4), 0), place / "whole")
        project.ingest("keyed", str(place / "whole"))

    def published(self, rounds: int) -> Timings:
        """Publish some deltas, and merge each into the Delta table as well."""
        table = self._place / "delta_table"
        write_deltalake(table, parquet.ParquetFile(self._file("whole")).schema_arrow.empty_table())
        for file in sorted((self._place / "whole").glob("*.parquet")):
            write_deltalake(table, parquet.read_table(file), mode="append")
        taken = interleaved(
            {"publish": self._publish, "merge": self._merge}, 2 * rounds, warm=True, before=self._arrive
        )
        self._project.compact("keyed")
        self._deltas = 0
        return taken

    def grow(self, deltas: int) -> None:
        """Publish deltas until there are so many on top of the base."""
        while self._deltas < deltas:
            self._arrive()
            self._publish()

    def read(self, rounds: int) -> Timings:
        """Read, scan and compact, against copying and scanning the same rows."""
        project, place = self._project, self._place
        write(project.read("keyed"), place / "plain")
        return interleaved(
            {
                "copy": lambda: write(self.plain(), place / "out"),
                "read and write": lambda: write(project.read("keyed"), place / "out"),
                "plain scan": lambda: noop(self.plain()),
                "scan": lambda: noop(project.read("keyed")),
                "compact": self.compact,
            },
            rounds,
        )

    def maintained(self, lengths: tuple[int, ...], rounds: int) -> tuple[dict[int, Timings], tuple[float, float]]:
        """Publish deltas, each followed by maintenance, and read after some of them, against copying the same rows.

        Returns:
            What reading took after so many deltas; what maintenance took per delta, in copies: of time and of CPU.
        """
        self._project.compact("keyed")
        found: dict[int, Timings] = {}
        spending: list[Spent] = []
        for number in range(1, lengths[-1] + 1):
            self._arrive()
            self._publish()
            spending.append(spent(self._maintain))
            if number in lengths:
                write(self._project.read("keyed"), self._place / "plain")
                found[number] = interleaved(
                    {
                        "copy": lambda: write(self.plain(), self._place / "out"),
                        "read and write": lambda: write(self._project.read("keyed"), self._place / "out"),
                    },
                    rounds,
                    warm=True,
                )
        copies = [
            statistics.median(statistics.median(each["copy"]) for each in measured)
            for measured in ([one.seconds for one in found.values()], [one.cpu for one in found.values()])
        ]
        totals = (sum(each.seconds for each in spending), sum(each.cpu for each in spending))
        return found, (totals[0] / lengths[-1] / copies[0], totals[1] / lengths[-1] / copies[1])

    def _maintain(self) -> None:
        with self._project.catalog.reading() as tx:
            stacks = delta_stacks(tx)
        for channel in select_for_compaction(stacks):
            self._project.maintenance.maintain(channel)
        for channel in channels_to_merge(stacks):
            self._project.maintenance.maintain(channel, deltas=True)

    def _arrive(self) -> None:
        seed = next(self._seeds)
        keys = touching(self._spark, self._size // 100, self._size, seed)
        write(rows(keys, seed).coalesce(1), self._place / "new")

    def _publish(self) -> None:
        self._project.ingest("keyed", str(self._place / "new"))
        self._deltas += 1

    def _merge(self) -> None:
        new = parquet.read_table(self._file("new"))
        merging = DeltaTable(self._place / "delta_table").merge(
            new, "target.k = source.k", source_alias="source", target_alias="target"
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def compact(self) -> None:
        """Compact, without telling the catalog, so that it can be done again."""
        with self._project.catalog.reading() as tx:
            state = channel_store.channel_state(tx, "keyed")
        name = BlockName(next(self._scratch), "")
        self._project.warehouse.compact(state.snapshot(state.latest_readable), name)
        self._project.warehouse.delete([name])

    def plain(self) -> DataFrame:
        return self._spark.read.schema(COLUMNS).parquet(str(self._place / "plain"))

    def _file(self, of: str) -> str:
        return str(next((self._place / of).glob("*.parquet")))


def upserting() -> kn.Workflow:
    workflow = kn.Workflow("upserting")
    workflow.channel("keyed", COLUMNS, key="k")
    return workflow
