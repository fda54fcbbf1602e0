"""Samples for previews: on a branch, source channels get a sample of their rows, and tasks start from scratch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from kilonova.catalog import channel_store, registry
from kilonova.errors import DeclarationError
from kilonova.model.channel import ChannelState
from kilonova.model.encoding import key_of
from kilonova.model.row_count import RowCount
from kilonova.model.sample import RowSample
from kilonova.model.task import Task
from kilonova.service.ingests import Ingests
from kilonova.service.resources import ProjectResources
from kilonova.service.row_reader import RowReader
from kilonova.service.workflow_plan import WorkflowPlan
from kilonova.warehouse.blocks import column

_BUCKETS = 1_000_000
"""Number of values of the hash by which rows are chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledChannel:
    """Source channel of a preview on a sample.

    Attributes:
        channel: the channel.
        by: the columns by whose values its rows were chosen; empty if all rows were.
        rows: the number of its rows in the sample.
        of: the number of rows that it has, or an upper bound; None if it is not known.
    """

    channel: str
    by: tuple[str, ...]
    rows: int
    of: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleScope:
    """Scope of a preview on a sample: tasks by name, and source channels.

    Attributes:
        sources: the source channels from which the changed tasks, and those downstream, are computed.
        present: the registered tasks that compute them: they are run on the sample by their present definitions.
        changed: the changed tasks and those downstream: they are run again after the change.
    """

    sources: tuple[str, ...]
    present: tuple[str, ...]
    changed: tuple[str, ...]


def sample_scope(plans: Sequence[WorkflowPlan], registered: Mapping[str, Task]) -> SampleScope:
    """Return what a preview of plans on a sample concerns.

    Args:
        plans: the plans.
        registered: the registered tasks.
    """
    declared = {item.task.name: item.task for plan in plans for item in plan.tasks}
    tasks = {**registered, **declared}
    changed = {item.task.name for plan in plans for item in plan.tasks if item.anew}
    while more := {
        task.name
        for task in tasks.values()
        if task.name not in changed and any({*tasks[each].writes} & {*task.reads} for each in changed)
    }:
        changed |= more
    writers: dict[str, list[str]] = {}
    for task in (*registered.values(), *declared.values()):
        for name in task.writes:
            writers.setdefault(name, []).append(task.name)
    needed, sources = dict.fromkeys(changed), dict[str, None]()
    for each in (left := list(needed)):
        for version in (known[each] for known in (registered, declared) if each in known):
            for name in (*version.reads, *version.sources):
                if name not in writers:
                    sources[name] = None
                found = [task for task in writers.get(name, ()) if task not in needed]
                needed |= dict.fromkeys(found)
                left += found
    return SampleScope(
        sources=tuple(sorted(sources)),
        present=tuple(name for name in registered if name in needed),
        changed=tuple(name for name in tasks if name in changed),
    )


def take_sample(branch: ProjectResources, sample: RowSample, scope: SampleScope) -> tuple[SampledChannel, ...]:
    """Replace the rows of source channels on a branch by a sample, and let the tasks of a scope start from scratch.

    Raises:
        DeclarationError: no source channel has a column by which rows are to be chosen, or a task cannot start from
            scratch, because its channel has several writers.
    """
    with branch.catalog.writing() as tx:
        states = channel_store.channel_states(tx)
        for task in registry.tasks(tx, scope.present).values():
            for name in task.task.writes:
                if states[name].channel.several_writers:
                    raise DeclarationError(
                        "a preview on a sample is not possible: the channel has several writers",
                        channel=name,
                        hint="Preview the change on all rows",
                    )
            registry.reset_cursors(tx, task.task.name)
    written = {
        name: states[name] for name in scope.sources if name in states and states[name].stored_schema is not None
    }
    known = {name: RowCount.of(state.snapshot(state.latest_readable).blocks).most for name, state in written.items()}
    fraction = sample.fraction_of(max((count or 0 for count in known.values()), default=0))
    chosen = {name: _columns(state, sample) for name, state in written.items()}
    if sample.by and written and not any(chosen.values()):
        raise DeclarationError(
            f"no source channel has the column {', '.join(sample.by)}, by which rows are to be chosen",
            column=sample.by[0],
            hint=f"Name columns of {', '.join(written)}",
        )
    rows, ingests = RowReader(branch), Ingests(branch)
    for name, columns in chosen.items():
        if columns:
            ingests.ingest(name, rows.read(name).where(_is_sampled(columns, fraction)), replace=True)
    with branch.catalog.reading() as tx:
        after = channel_store.channel_states(tx, written)
    return tuple(
        SampledChannel(channel=name, by=columns, rows=_rows(after[name]), of=known[name])
        for name, columns in chosen.items()
    )


def _columns(state: ChannelState, sample: RowSample) -> tuple[str, ...]:
    """Return the columns by which the rows of a source channel are chosen; none if it is read as a whole."""
    schema = state.stored_schema
    assert schema is not None
    names = schema.user_columns.names
    if sample.by:
        return sample.by if {*sample.by} <= {*names} else ()
    return key_of(state.channel.encoding) or tuple(names)


def _is_sampled(columns: Collection[str], fraction: float) -> Column:
    """Return whether a row belongs to a sample, by a hash of its values that is the same for all types of a number."""
    texts: Iterable[Column] = (F.coalesce(column(name).cast("string"), F.lit("\0")) for name in columns)
    return F.pmod(F.xxhash64(*texts), F.lit(_BUCKETS)) < F.lit(round(fraction * _BUCKETS))


def _rows(state: ChannelState) -> int:
    return sum(block.statistics.rows for block in state.snapshot(state.latest_readable).blocks)
