"""Previews of changed workflows: what the rows would be, compared with those that the present definitions give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kilonova.catalog import channel_store, registry
from kilonova.model.schema import Schema
from kilonova.service.branch import branch
from kilonova.service.queries import ProjectReader
from kilonova.service.registration import Registration
from kilonova.service.resources import ProjectResources
from kilonova.service.row_reader import RowReader
from kilonova.service.runner import Runner
from kilonova.service.workflow_plan import WorkflowPlan
from kilonova.warehouse.blocks import column
from kilonova.warehouse.jobs import fetch

if TYPE_CHECKING:
    from kilonova.declare.workflow import Declared, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPreview:
    """Difference that a change of workflows makes to the rows of a channel.

    Attributes:
        channel: the channel.
        before: the number of rows that the present definitions give; None if the channel is new.
        after: the number of rows that the changed ones give; None if no task wrote it.
        added: the number of rows that are added, of those columns that both have.
        removed: the number of rows that are removed.
        columns: the columns that are added, removed or get another type, as text for users.
        examples: some of the rows that are added or removed, each with `+` or `-`.
    """

    channel: str
    before: int | None
    after: int | None
    added: int
    removed: int
    columns: tuple[str, ...]
    examples: tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Preview of a change of workflows.

    Attributes:
        plans: what registering them would change.
        channels: the channels whose tasks have changed, and those downstream that differ, in the order of the tasks.
        wrong: of a verification, the migrated channels whose rows differ from recomputed ones, with the number of rows.
    """

    plans: tuple[WorkflowPlan, ...]
    channels: tuple[ChannelPreview, ...]
    wrong: tuple[tuple[str, int], ...] = ()


def preview(
    resources: ProjectResources, workflows: Sequence[Workflow | Declared], *, examples: int = 5, verify: bool = False
) -> Preview:
    """Run changed workflows on a branch of a project, and compare the rows with those of the present definitions.

    Args:
        resources: the project, which is not changed.
        workflows: the workflows, or their values.
        examples: the maximum number of rows to show of each channel.
        verify: whether to recompute migrated outputs as well, and compare the two.

    Raises:
        KilonovaError: any error that `apply` or `run` raises.
    """
    with branch(resources) as present:
        _run(present)
        with branch(present) as changed:
            plans = _apply(changed, workflows)
            _run(changed)
            tasks = [item.task for plan in plans for item in plan.tasks if item.anew]
            names = [name for task in tasks for name in task.writes]
            names += [name for plan in plans for item in plan.tasks for name in item.task.writes if not item.anew]
            found = (_compared(name, present, changed, examples) for name in dict.fromkeys(names))
            anew = {name for task in tasks for name in task.writes}
            shown = tuple(each for each in found if each.channel in anew or each.added or each.removed)
            migrated = [task.name for task in tasks if task.migrations]
            wrong = tuple(_wrong(present, changed, workflows, migrated)) if verify and migrated else ()
    return Preview(plans=plans, channels=shown, wrong=wrong)


def _apply(resources: ProjectResources, workflows: Sequence[Workflow | Declared]) -> tuple[WorkflowPlan, ...]:
    return Registration(resources, RowReader(resources)).apply_all(workflows)


def _run(resources: ProjectResources) -> None:
    Runner(resources, ProjectReader(resources.catalog)).run()


def _wrong(
    present: ProjectResources,
    changed: ProjectResources,
    workflows: Sequence[Workflow | Declared],
    migrated: Sequence[str],
) -> Iterable[tuple[str, int]]:
    """Yield the channels of migrated tasks whose rows differ from recomputed ones, and in how many rows they do."""
    with branch(present) as recomputed:
        _apply(recomputed, workflows)
        with recomputed.catalog.writing() as tx:
            for task in migrated:
                registry.reset_cursors(tx, task)
            written = [name for task in registry.tasks(tx, migrated).values() for name in task.task.writes]
        _run(recomputed)
        for name in written:
            differences = _differences(RowReader(recomputed).read(name), RowReader(changed).read(name))
            (count,) = fetch(differences.agg(F.coalesce(F.sum(F.abs("_weight")), F.lit(0))))[0]
            if count:
                yield name, int(count)


def _compared(name: str, present: ProjectResources, changed: ProjectResources, examples: int) -> ChannelPreview:
    before, after = (_rows(side, name) for side in (present, changed))
    if before is None or after is None:
        one = before if after is None else after
        count = None if one is None else int(one.count())
        return ChannelPreview(
            channel=name,
            before=None if before is None else count,
            after=None if after is None else count,
            added=0,
            removed=0,
            columns=(),
            examples=(),
        )
    old, new = (Schema.of(*frame.dtypes) for frame in (before, after))
    common = [each.name for each in new.columns if (each.name, each.type) in before.dtypes]
    differences = _differences(before.select(*map(column, common)), after.select(*map(column, common)))
    added, removed = fetch(
        differences.agg(
            F.coalesce(F.sum(F.greatest("_weight", F.lit(0))), F.lit(0)),
            F.coalesce(F.sum(F.greatest(-F.col("_weight"), F.lit(0))), F.lit(0)),
        )
    )[0]
    some = fetch(differences.orderBy(F.abs(F.hash(*map(column, common)))).limit(examples)) if added or removed else []
    return ChannelPreview(
        channel=name,
        before=before.count(),
        after=after.count(),
        added=int(added),
        removed=int(removed),
        columns=tuple(_column_changes(old, new)),
        examples=tuple(
            ("+" if row[-1] > 0 else "-", dict(zip(common, row[:-1], strict=True))) for row in map(tuple, some)
        ),
    )


def _rows(resources: ProjectResources, name: str) -> DataFrame | None:
    """Return the rows of a channel; None if it does not exist, or nothing was written to it."""
    with resources.catalog.reading() as tx:
        state = channel_store.channel_states(tx).get(name)
    return None if state is None or state.stored_schema is None else RowReader(resources).read(name)


def _differences(old: DataFrame, new: DataFrame) -> DataFrame:
    """Return the rows in which two bags differ, with a weight: positive for those of the second only."""
    names = new.columns
    both = new.withColumn("_weight", F.lit(1)).unionByName(old.withColumn("_weight", F.lit(-1)))
    return both.groupBy(*map(column, names)).agg(F.sum("_weight").alias("_weight")).where("_weight <> 0")


def _column_changes(old: Schema, new: Schema) -> Iterable[str]:
    before, after = ({each.name: each.type for each in schema.columns} for schema in (old, new))
    yield from (f"adds {name} {kind}" for name, kind in after.items() if name not in before)
    yield from (f"removes {name}" for name in before if name not in after)
    for name, kind in after.items():
        if name in before and before[name] != kind:
            yield f"{name}: {kind} instead of {before[name]}"
