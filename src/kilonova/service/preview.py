"""Previews of changed workflows: what the rows would be, compared with those that the present definitions give."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from kilonova.catalog import bindings, channel_store, registry
from kilonova.model.channel import ChannelState
from kilonova.model.encoding import key_of
from kilonova.model.sample import RowSample
from kilonova.model.schema import Schema
from kilonova.query.properties import unique
from kilonova.query.tree import scans
from kilonova.query.view_tasks import change_of, known_of
from kilonova.service.branch import branch
from kilonova.service.formatting import plain
from kilonova.service.queries import ProjectReader
from kilonova.service.registration import Registration
from kilonova.service.resources import ProjectResources
from kilonova.service.row_comparison import Example, compare_rows, difference_of_bags
from kilonova.service.row_reader import RowReader
from kilonova.service.runner import Runner
from kilonova.service.source_sample import SampledChannel, SampleScope, sample_scope, take_sample
from kilonova.service.workflow_plan import WorkflowPlan
from kilonova.warehouse.blocks import column

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
        examples: some of the rows that are added or removed, each with `+` or `-`; those of a key together.
        key: columns that identify its rows, before and after; empty if none are known.
        changed: the number of keys whose rows are both removed and added, with other values.
        differing: the columns in which these rows differ, each with the number of rows.
    """

    channel: str
    before: int | None
    after: int | None
    added: int
    removed: int
    columns: tuple[str, ...]
    examples: tuple[Example, ...]
    key: tuple[str, ...] = ()
    changed: int = 0
    differing: tuple[tuple[str, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dictionary, for serialization."""
        own: dict[str, Any] = plain(self)
        return own | {
            "examples": [{"sign": sign, "row": plain(row)} for sign, row in self.examples],
            "differing": dict(self.differing),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Preview of a change of workflows.

    Attributes:
        plans: what registering them would change.
        channels: the channels whose tasks have changed, and those downstream that differ, in the order of the tasks.
        wrong: of a verification, the migrated channels whose rows differ from recomputed ones, with the number of rows.
        verified: the migrated channels that were recomputed as well; empty without a verification.
        sample: the source channels of whose rows a sample was taken; empty if all rows were read.
        failed: the bindings downstream that cannot run after the change, with the error.
    """

    plans: tuple[WorkflowPlan, ...]
    channels: tuple[ChannelPreview, ...]
    wrong: tuple[tuple[str, int], ...] = ()
    verified: tuple[str, ...] = ()
    sample: tuple[SampledChannel, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as a dictionary, for serialization."""
        return {
            "plans": [item.to_dict() for item in self.plans],
            "channels": [item.to_dict() for item in self.channels],
            "wrong": [{"channel": name, "rows": count} for name, count in self.wrong],
            "verified": list(self.verified),
            "sample": plain(self.sample),
            "failed": [{"binding": name, "problem": problem} for name, problem in self.failed],
        }


Report = Callable[[str], None]
"""Callback for what a preview does now, as text for users."""


def _no_report(text: str) -> None:
    """Ignore what a preview does now."""


def preview(
    resources: ProjectResources,
    workflows: Sequence[Workflow | Declared],
    *,
    examples: int = 5,
    verify: bool = False,
    sample: RowSample | None = None,
    progress: Report = _no_report,
) -> Preview:
    """Run changed workflows on a branch of a project, and compare the rows with those of the present definitions.

    Args:
        resources: the project, which is not changed.
        workflows: the workflows, or their values.
        examples: the maximum number of rows to show of each channel.
        verify: whether to recompute migrated outputs as well, and compare the two.
        sample: the sample of source rows from which both definitions compute their outputs; None for all rows, and the
            outputs that exist.
        progress: called with what is done, as text for users.

    Raises:
        KilonovaError: any error that `apply` or `run` raises.
    """
    progress("copying the catalog")
    with branch(resources) as present:
        scope: SampleScope | None = None
        sampled: tuple[SampledChannel, ...] = ()
        if sample is not None:
            progress("taking a sample of the source rows")
            scope = _scope(present, workflows)
            sampled = take_sample(present, sample, scope)
        progress("running the present definitions")
        _run(present, None if scope is None else scope.present)
        with branch(present) as changed:
            plans = _apply(changed, workflows)
            progress("running the changed definitions")
            tasks = [item.task for plan in plans for item in plan.tasks if item.anew]
            failed = _run_changed(changed, None if scope is None else scope.changed, [task.name for task in tasks])
            channels = tuple(_differing(plans, present, changed, examples, progress))
            migrated = [task.name for task in tasks if task.migrations] if verify else []
            wrong: tuple[tuple[str, int], ...] = ()
            if migrated:
                progress("recomputing what was migrated")
                wrong = tuple(_wrong(present, changed, workflows, migrated, scope))
            verified = tuple(name for task in tasks if task.name in migrated for name in task.writes)
    return Preview(plans=plans, channels=channels, wrong=wrong, verified=verified, sample=sampled, failed=failed)


def _differing(
    plans: Sequence[WorkflowPlan],
    present: ProjectResources,
    changed: ProjectResources,
    examples: int,
    progress: Report,
) -> Iterable[ChannelPreview]:
    """Yield the differences of the channels whose tasks have changed, and of those downstream that differ."""
    items = [item for plan in plans for item in plan.tasks]
    anew = [name for item in items if item.anew for name in item.task.writes]
    others = [name for item in items if not item.anew for name in item.task.writes]
    elsewhere = [each.channel for plan in plans for each in plan.affected]
    for name in dict.fromkeys((*anew, *others, *elsewhere)):
        progress(f"comparing {name}")
        found = _compared(name, present, changed, examples)
        if name in anew or found.added or found.removed:
            yield found


def _scope(branch: ProjectResources, workflows: Sequence[Workflow | Declared]) -> SampleScope:
    plans = Registration(branch, RowReader(branch)).plan_all(workflows)
    with branch.catalog.reading() as tx:
        registered = {name: known.task for name, known in registry.tasks(tx).items()}
    return sample_scope(plans, registered)


def _apply(resources: ProjectResources, workflows: Sequence[Workflow | Declared]) -> tuple[WorkflowPlan, ...]:
    return Registration(resources, RowReader(resources)).apply_all(workflows)


def _run(resources: ProjectResources, tasks: Sequence[str] | None = None) -> None:
    """Run tasks, or all that are due; those that fail keep the output that they have."""
    if tasks is None or tasks:
        Runner(resources, ProjectReader(resources.catalog)).run_each(tasks)


def _run_changed(
    resources: ProjectResources, tasks: Sequence[str] | None, changed: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Run tasks, or all that are due, and return the bindings that failed, with the errors.

    Raises:
        KilonovaError: a binding of a changed task failed.
    """
    if tasks is not None and not tasks:
        return ()
    done = Runner(resources, ProjectReader(resources.catalog)).run_each(tasks)
    with resources.catalog.reading() as tx:
        known = bindings.bindings(tx)
    own = {name for name, each in known.items() if not {*each.binding.tasks}.isdisjoint(changed)}
    for name, error in done.failed.items():
        if name in own:
            raise error
    return tuple((name, error.problem) for name, error in done.failed.items())


def _wrong(
    present: ProjectResources,
    changed: ProjectResources,
    workflows: Sequence[Workflow | Declared],
    migrated: Sequence[str],
    scope: SampleScope | None,
) -> Iterable[tuple[str, int]]:
    """Yield the channels of migrated tasks whose rows differ from recomputed ones, and in how many rows they do."""
    with branch(present) as recomputed:
        _apply(recomputed, workflows)
        with recomputed.catalog.writing() as tx:
            for task in migrated:
                registry.reset_cursors(tx, task)
            written = [name for task in registry.tasks(tx, migrated).values() for name in task.task.writes]
        _run_changed(recomputed, None if scope is None else scope.changed, migrated)
        for name in written:
            count = difference_of_bags(RowReader(recomputed).read(name), RowReader(changed).read(name))
            if count:
                yield name, count


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
    names = _new_names(old.names, name, present, changed)
    before = before.select(*(column(here).alias(there) for here, there in names.items()))
    common = [each.name for each in new.columns if (each.name, each.type) in before.dtypes]
    key = _key(name, present, changed, common)
    shared = [*map(column, common)]
    found = compare_rows(before.select(*shared), after.select(*shared), key, examples)
    return ChannelPreview(
        channel=name,
        before=found.before,
        after=found.after,
        added=found.added,
        removed=found.removed,
        columns=tuple(_column_changes(old, new, names)),
        examples=found.examples,
        key=key,
        changed=found.changed,
        differing=found.differing,
    )


def _key(name: str, present: ProjectResources, changed: ProjectResources, common: Collection[str]) -> tuple[str, ...]:
    """Return columns that identify a channel's rows before and after the change; none if there are no such columns."""
    sides = []
    for side in (present, changed):
        with side.catalog.reading() as tx:
            sides.append(_unique(name, channel_store.channel_states(tx), registry.tasks(tx)))
    found = sorted(
        (key for key in sides[0] & sides[1] if key and key <= {*common}), key=lambda key: (len(key), sorted(key))
    )
    return tuple(each for each in common if each in found[0]) if found else ()


def _unique(
    name: str, states: Mapping[str, ChannelState], tasks: Mapping[str, registry.TaskVersion]
) -> set[frozenset[str]]:
    """Return the sets of columns that identify the rows of a channel: its key, or those that follow from its query."""
    if key := key_of(states[name].channel.encoding):
        return {frozenset(key)}
    known = tasks.get(name)
    change = None if known is None else change_of(known.task)
    if change is None:
        return set()
    read = {scan.channel: states[scan.channel].current for scan in scans(change.tree)}
    facts = dict(known_of(read))
    for channel in read:
        if not facts[channel].key and (inner := sorted(map(sorted, _unique(channel, states, tasks)), key=len)):
            facts[channel] = replace(facts[channel], key=tuple(inner[0]))
    return set(map(frozenset, unique(change.tree, facts)))


def _rows(resources: ProjectResources, name: str) -> DataFrame | None:
    """Return the rows of a channel; None if it does not exist, or nothing was written to it."""
    with resources.catalog.reading() as tx:
        state = channel_store.channel_states(tx).get(name)
    return None if state is None or state.stored_schema is None else RowReader(resources).read(name)


def _new_names(
    columns: Iterable[str], name: str, present: ProjectResources, changed: ProjectResources
) -> Mapping[str, str]:
    """Return the names of columns after the change, by those before, without those whose name another one gets."""
    schemas = []
    for side in (present, changed):
        with side.catalog.reading() as tx:
            schemas.append(channel_store.channel_state(tx, name).current.schema)
    old, new = schemas
    renamed = {} if old is None or new is None else old.new_names(new)
    return {each: renamed.get(each, each) for each in columns if each in renamed or each not in renamed.values()}


def _column_changes(old: Schema, new: Schema, names: Mapping[str, str]) -> Iterable[str]:
    """Yield the changes of columns, as text for users; `names` are those after the change, by those before."""
    before = {names[each.name]: each.type for each in old.columns if each.name in names}
    after = {each.name: each.type for each in new.columns}
    yield from (f"renames {here} to {there}" for here, there in names.items() if here != there)
    yield from (f"adds {name} {kind}" for name, kind in after.items() if name not in before)
    yield from (f"removes {name}" for name in old.names if names.get(name) not in after)
    for name, kind in after.items():
        if name in before and before[name] != kind:
            yield f"{name}: {kind} instead of {before[name]}"
