"""Registration of workflows: plans, checks of existing rows, application, and dropping of channels."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.catalog import (
    bindings,
    channel_store,
    deferred,
    events,
    registry,
    stored_blocks,
    task_graph,
    workflow_files,
)
from kilonova.catalog.database import Transaction
from kilonova.catalog.deferred import DeferredWorkflow
from kilonova.catalog.manifest import digest, manifest_to_text
from kilonova.engine.run_recovery import delete_doomed_blocks
from kilonova.errors import CatalogError, Conflict, DeclarationError, KilonovaError, SparkUnavailable, is_transient
from kilonova.model.event import EventKind
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.schema import Schema
from kilonova.service import channel_plan, plan_application, workflow_plan
from kilonova.service.logic_overrides import NO_OVERRIDES, LogicOverrides
from kilonova.service.resources import ProjectResources
from kilonova.service.rollback import earlier_definition
from kilonova.service.row_reader import RowReader
from kilonova.service.structure import change_structure, changes_structure

if TYPE_CHECKING:
    from kilonova.declare.workflow import Declared, Workflow
    from kilonova.model.channel import ChannelState


_Change = Callable[[Transaction], object]
"""Change of the catalog in a transaction."""


class Registration:
    """Registration of workflows in the catalog.

    Args:
        resources: the catalog, warehouse and settings of the project.
        rows: reads the existing rows on which added checks are run.
    """

    def __init__(self, resources: ProjectResources, rows: RowReader) -> None:
        self._resources = resources
        self._catalog = resources.catalog
        self._rows = rows

    def declared(self, workflows: Iterable[Workflow | Declared]) -> tuple[Declared, ...]:
        """Return workflows as values: each may read registered channels, and those that earlier workflows declare.

        Raises:
            DeclarationError: a workflow is invalid.
        """
        from kilonova.declare.workflow import Declared

        found: list[Declared] = []
        for workflow in workflows:
            if isinstance(workflow, Declared):
                found.append(workflow)
                continue
            with self._catalog.reading() as tx:
                others = {channel.name: channel for channel in workflow_plan.others(tx, workflow.name)}
            others |= {channel.name: channel for earlier in found for channel in earlier.workflow.channels}
            found.append(workflow.declared(others.values()))
        return tuple(found)

    def plan(
        self, workflow: Workflow | Declared, *, same_logic: Collection[str] = (), new_version: Collection[str] = ()
    ) -> workflow_plan.WorkflowPlan:
        """Return the changes that registering a workflow would make.

        Spark is started to analyse views that are new or changed.

        Args:
            workflow: the workflow, or its value.
            same_logic: tasks and views whose changed definition does the same: their output stays.
            new_version: tasks and views that get a new logic version, although nothing may have changed.

        Raises:
            DeclarationError: the workflow is invalid, or conflicts with what is registered.
            QueryError: Spark rejects the query of a view.
        """
        return self.plan_all([workflow], same_logic=same_logic, new_version=new_version)[0]

    def plan_all(
        self,
        workflows: Iterable[Workflow | Declared],
        *,
        same_logic: Collection[str] = (),
        new_version: Collection[str] = (),
    ) -> tuple[workflow_plan.WorkflowPlan, ...]:
        """Return the changes that registering workflows would make; each may read what earlier ones declare.

        Args:
            workflows: the workflows, or their values.
            same_logic: tasks and views whose changed definition does the same: their output stays.
            new_version: tasks and views that get a new logic version, although nothing may have changed.

        Raises:
            DeclarationError: a workflow is invalid, or conflicts with what is registered.
            QueryError: Spark rejects the query of a view.
        """
        declared = self.declared(workflows)
        overrides = _overrides(declared, same_logic, new_version)
        return tuple(map(workflow_plan.with_notes, *self._rehearse(declared, overrides)))

    def _rehearse(
        self, declared: Sequence[Declared], overrides: LogicOverrides, first: _Change | None = None
    ) -> tuple[list[workflow_plan.WorkflowPlan], list[Mapping[str, str]]]:
        """Plan the registration of workflows one after another, without committing it.

        Returns:
            The plans, and notes on the tasks of each, by their names.

        Raises:
            QueryError: Spark rejects a view.
        """
        plans, known = self._planned(declared, overrides, first)
        return plans, [self._analyse(each, plan, known) for each, plan in zip(declared, plans, strict=True)]

    def _planned(
        self, declared: Sequence[Declared], overrides: LogicOverrides, first: _Change | None = None
    ) -> tuple[list[workflow_plan.WorkflowPlan], Mapping[str, ChannelState]]:
        """Return the plans of registering workflows one after another, and the present channels."""
        plans: list[workflow_plan.WorkflowPlan] = []
        with self._catalog.reading() as tx:
            changing = len(declared) > 1 or any(changes_structure(tx, each.workflow) for each in declared)
        with self._catalog.rehearsing() if changing or first is not None else self._catalog.reading() as tx:
            if first is not None:
                first(tx)
            for each in declared:
                if plans:
                    plan_application.apply_plan(tx, plans[-1])
                notes = change_structure(tx, each.workflow, overrides, rehearsed=True).notes if changing else {}
                plan = workflow_plan.plan_changes(tx, each.workflow, each.functions, overrides)
                plans.append(workflow_plan.with_structure(plan, notes))
            return plans, channel_store.channel_states(tx)

    def _analyse(
        self, declared: Declared, plan: workflow_plan.WorkflowPlan, known: Mapping[str, ChannelState]
    ) -> Mapping[str, str]:
        """Return notes on new and changed views, by the names of their tasks, after Spark has analysed them.

        Raises:
            QueryError: Spark rejects a view.
        """
        from kilonova.engine.view_analysis import analyse_views

        changed = (item.task for item in plan.tasks if item.anew or item.methods)
        anew = {task.name for task in changed if task.view is not None}
        if not anew or not self._resources.settings.spark.analyse:
            return {}
        channels = {name: each.channel for name, each in known.items()}
        channels |= {channel.name: channel for channel in declared.workflow.channels}
        complete = {name: schema for name, each in known.items() if (schema := each.stored_schema) is not None}
        schemas = {name: channel.schema for name, channel in channels.items() if channel.schema is not None}
        required = [each for item in plan.tasks if item.anew for each in item.task.requires if each.type is not None]
        for each in required:  # which the channel may not have yet
            columns = schemas.get(each.channel) or complete.get(each.channel) or Schema(())
            if each.name.lower() not in map(str.lower, columns.names):
                schemas[each.channel] = columns.plus((each.name, str(each.type)))
        try:
            warehouse = self._resources.warehouse
        except SparkUnavailable as error:
            return dict.fromkeys(anew, f"not analysed: {error.problem}")
        problems = analyse_views(warehouse, declared.workflow.order(), channels, complete | schemas, anew)
        return {name: f"fully recomputed in each run: {problem}" for name, problem in problems.items()}

    def apply(
        self,
        workflow: Workflow | Declared,
        *,
        defer: datetime | None = None,
        same_logic: Collection[str] = (),
        new_version: Collection[str] = (),
        refuse_incompatible: bool = False,
    ) -> workflow_plan.WorkflowPlan:
        """Register a workflow; tasks whose definition changed get a new logic version.

        Added checks are first run on existing rows that are retained.

        Args:
            workflow: the workflow, or its value.
            defer: the time at which the changes take effect, if the output of a task is to be migrated or recomputed.
            same_logic: tasks and views whose changed definition does the same: their output stays.
            new_version: tasks and views that get a new logic version, although nothing may have changed.
            refuse_incompatible: refuse changes after which a channel lacks columns that each logic version of a task
                requires, as the setting `incompatible_schemas = "refuse"` does; otherwise there is an event.

        Returns:
            The changes.

        Raises:
            DeclarationError: the workflow is invalid, conflicts with what is registered, or has changes that are
                refused; nothing has changed.
            QueryError: Spark rejects the query of a view; nothing has changed.
            CheckFailed: existing rows violate an added check; nothing has changed.
            Conflict: a run is writing to a channel to which a check is added.
        """
        return self.apply_all(
            [workflow],
            defer=defer,
            same_logic=same_logic,
            new_version=new_version,
            refuse_incompatible=refuse_incompatible,
        )[0]

    def apply_all(
        self,
        workflows: Iterable[Workflow | Declared],
        *,
        defer: datetime | None = None,
        same_logic: Collection[str] = (),
        new_version: Collection[str] = (),
        expected: Sequence[str] | None = None,
        refuse_incompatible: bool = False,
        dry_run: bool = False,
    ) -> tuple[workflow_plan.WorkflowPlan, ...]:
        """Register workflows as `apply` does, all or none; each may read what earlier ones declare.

        Args:
            workflows: the workflows, or their values.
            defer: the time at which the changes of all of them take effect, if the output of a task is to be migrated
                or recomputed; None for now. The present definitions run until then.
            same_logic: tasks and views whose changed definition does the same: their output stays.
            new_version: tasks and views that get a new logic version, although nothing may have changed.
            expected: the digests of the plans that somebody has looked at; None to apply whatever the plans are.
            refuse_incompatible: see `apply`.
            dry_run: check the changes as otherwise, existing rows included, and only return them.

        Returns:
            The changes of each.

        Raises:
            Conflict: the plans are not the expected ones, because a definition or the project has changed since.
            KilonovaError: any error that `apply` raises; nothing has changed.
        """
        declared = self.declared(workflows)
        overrides = _overrides(declared, same_logic, new_version)
        return self._apply_declared(
            declared,
            overrides,
            defer=defer,
            expected=expected,
            refuse_incompatible=refuse_incompatible,
            dry_run=dry_run,
        )

    def _apply_declared(
        self,
        declared: Sequence[Declared],
        overrides: LogicOverrides = NO_OVERRIDES,
        *,
        defer: datetime | None = None,
        expected: Sequence[str] | None = None,
        refuse_incompatible: bool = False,
        dry_run: bool = False,
        first: _Change | None = None,
    ) -> tuple[workflow_plan.WorkflowPlan, ...]:
        """Register workflows; `first` is called before that in the same transaction."""
        plans, notes = self._rehearse(declared, overrides, first)
        workflow_plan.check_expected(plans, expected)
        if refuse_incompatible or self._resources.settings.incompatible_schemas == "refuse":
            _refuse_incompatible(plans)
        seen = self._verify_all(plans)
        if dry_run:
            return tuple(map(workflow_plan.with_notes, plans, notes))
        renewed = any(item.migration is not None for plan in plans for item in plan.tasks)
        with self._catalog.writing() as tx:
            if first is not None:
                first(tx)
            if defer is not None and renewed:
                done = [_defer(tx, each, overrides, plan, defer) for each, plan in zip(declared, plans, strict=True)]
            else:
                done = _apply(tx, declared, overrides, seen)
                workflow_plan.check_expected(done, expected)
            for each in declared:
                if each.file is not None:
                    workflow_files.put_file(tx, each.workflow.name, self._relative(each.file))
        self._seal_placed(done)
        return tuple(map(workflow_plan.with_notes, done, notes))

    def _relative(self, file: Path) -> str:
        """Return the path of a workflow's file: relative to the project's directory, if it is in it."""
        root = self._resources.directory.resolve()
        return str(file.relative_to(root) if file.is_relative_to(root) else file)

    def _seal_placed(self, plans: Iterable[workflow_plan.WorkflowPlan]) -> None:
        """Write the manifests of blocks that inserted tasks have by reference; `fsck` writes those that fail."""
        for channel, blocks in (item for plan in plans for item in plan.placed.items()):
            for number in blocks:
                with suppress(KilonovaError):
                    with self._catalog.writing() as tx:
                        manifest = stored_blocks.manifest_of(tx, channel, number)
                        text = manifest_to_text(manifest)
                        self._resources.block_store().seal(manifest.block.name, text)
                        stored_blocks.set_manifest(tx, channel, number, digest(text))
                    self._resources.block_store().mark_committed([(manifest.block.name, digest(text))])

    def rollback(
        self,
        task: str,
        *,
        version: int | None = None,
        dry_run: bool = False,
        defer: datetime | None = None,
        expected: str | None = None,
    ) -> workflow_plan.WorkflowPlan:
        """Register an earlier definition of a task again, as a new logic version.

        Its output is migrated from the present one, or recomputed. The workflow's file still has the other definition.

        Args:
            task: the task; or a view, for all of its materialized relations.
            version: the logic version; None for the one before the present one.
            dry_run: only return the plan.
            defer: the time at which the changes take effect; None for now.
            expected: the digest of the plan that somebody has looked at; None to apply whatever the plan is.

        Returns:
            The changes.

        Raises:
            NotFound: there is no such task or version.
            DeclarationError: the earlier definition cannot be restored; nothing has changed.
            KilonovaError: any error that `apply` raises; nothing has changed.
        """
        earlier = self.earlier(task, version)
        if dry_run:
            return self.plan(earlier)
        return self.apply_all([earlier], defer=defer, expected=None if expected is None else [expected])[0]

    def replace_retracted(
        self, task: str, version: int, retract: _Change, *, dry_run: bool = False
    ) -> workflow_plan.WorkflowPlan:
        """Register an earlier definition of a task whose present version is retracted in the same transaction.

        Args:
            task: the task.
            version: the logic version that has the definition.
            retract: records the retraction.
            dry_run: only return the plan.

        Raises:
            KilonovaError: any error that `rollback` raises; nothing has changed.
        """
        return self._apply_declared(self.declared([self.earlier(task, version)]), first=retract, dry_run=dry_run)[0]

    def earlier(self, task: str, version: int | None = None) -> Declared:
        """Return the workflow of a task with an earlier definition of it, as `rollback` registers it.

        Raises:
            NotFound: there is no such task or version.
            DeclarationError: the earlier definition cannot be restored.
        """
        with self._catalog.reading() as tx:
            return earlier_definition(tx, task, version)

    def apply_deferred(self, tasks: Collection[str] = ()) -> None:
        """Apply the deferred workflows that take effect now, or that change one of the given tasks.

        What was deferred together is applied together. If it cannot be applied any more, it is discarded, with an
        event, and the present tasks go on. If the obstacle may pass, such as a run that is writing a channel to which a
        check is added, it is tried again a minute later.

        Raises:
            KilonovaError: what changes a given task cannot be applied; it stays deferred.
        """
        with self._catalog.reading() as tx:
            found = groupby(deferred.deferred_workflows(tx), lambda each: each.registered)
            groups = [tuple(group) for _, group in found]
            given = {*tasks}
            due = [group for group in groups if group[0].until <= tx.now]
        asked = [group for group in groups if not given.isdisjoint(name for each in group for name in each.tasks)]
        for group in asked:
            self._apply_deferred(group)
        for group in due:
            numbers = [each.number for each in group]
            try:
                if group not in asked:
                    self._apply_deferred(group)
            except KilonovaError as error:
                names = ", ".join(each.workflow for each in group)
                with self._catalog.writing() as tx:
                    if is_transient(error):
                        deferred.postpone(tx, numbers, tx.now + timedelta(minutes=1))
                    elif deferred.take(tx, numbers):
                        events.record(tx, EventKind.DEFERRAL_FAILED, text=f"{names}: {error}")

    def _apply_deferred(self, group: Sequence[DeferredWorkflow]) -> None:
        numbers = [each.number for each in group]
        with self._catalog.reading() as tx:
            stored = [deferred.definition(tx, number) for number in numbers]
        try:
            read = [pickle.loads(each) for each in stored if each is not None]
        except Exception as error:
            problem = f"this release cannot read the deferred definition: {error}"
            raise CatalogError(problem, hint="Apply the workflow again") from error
        if not read:
            return
        declared, overrides = [workflow for workflow, _ in read], read[0][1]
        seen = self._verify_all(self._planned(declared, overrides)[0])
        with self._catalog.writing() as tx:
            taken = deferred.take(tx, numbers)  # else another process has applied them, or they were replaced
            done = _apply(tx, declared, overrides, seen) if taken else []
        self._seal_placed(done)

    def _verify_all(self, plans: Iterable[workflow_plan.WorkflowPlan]) -> Mapping[str, int]:
        """Run the checks that plans add on existing rows, and return the point of each channel that was checked."""
        return {item.channel.name: self._verify(item) for plan in plans for item in plan.channels if item.unseen}

    def _verify(self, change: channel_plan.ChannelChange) -> int:
        """Run the checks added to a channel on its existing rows, and return the point that was checked."""
        name = change.channel.name
        with self._catalog.reading() as tx:
            if not channel_store.channel_state(tx, name).latest_distinct:
                return 0
        with self._rows.pinned_plan(name, None, None) as reading:
            assert isinstance(reading, SnapshotRead)
            try:
                required = replace(reading, schema=change.channel.schema or reading.schema)
                self._resources.warehouse.verify(required, change.unseen)
            except KilonovaError as error:
                raise error.with_context(channel=name) from error.__cause__
            return reading.at

    def drop(self, channel: str) -> tuple[str, ...]:
        """Drop a channel with its data, and the task that writes it.

        Args:
            channel: the channel.

        Returns:
            The tasks that were dropped with it.

        Raises:
            NotFound: there is no such channel.
            DeclarationError: a task reads the channel, or its writer writes others too.
            Conflict: a run is writing it.
        """
        self._resources.recover_expired_runs()
        with self._catalog.writing() as tx:
            state = channel_store.channel_state(tx, channel)
            tasks = registry.tasks(tx)
            readers = dict.fromkeys(version.task.name for version in task_graph.readers(tx, channel))
            if readers:
                problem = f"the channel is read by {', '.join(readers)}"
                raise DeclarationError(problem, channel=channel, hint="Drop those first")
            if state.latest_readable < state.latest:
                raise Conflict("a run is writing the channel", channel=channel, hint="Wait until it has ended")
            writers = [known.task for known in tasks.values() if channel in known.task.writes]
            for task in writers:
                if len(task.writes) > 1:
                    problem, hint = "its task writes other channels too", "Apply the workflow without that task first"
                    raise DeclarationError(problem, channel=channel, task=task.name, hint=hint)
                registry.drop_task(tx, task.name)
            kept = channel_store.drop_channel(tx, channel)
            bindings.forget(tx, channel)
        with suppress(KilonovaError):
            self._resources.block_store().unseal(kept)
        delete_doomed_blocks(self._catalog, self._resources.block_store())
        return tuple(task.name for task in writers)


def _overrides(
    declared: Sequence[Declared], same_logic: Collection[str], new_version: Collection[str]
) -> LogicOverrides:
    overrides = LogicOverrides(same_logic=frozenset(same_logic), new_version=frozenset(new_version))
    overrides.check_declared(task for each in declared for task in each.workflow.tasks)
    return overrides


def _refuse_incompatible(plans: Iterable[workflow_plan.WorkflowPlan]) -> None:
    for each in (each for plan in plans for each in plan.incompatible):
        raise DeclarationError(
            f"the upgrade is refused: {each}",
            channel=each.channel,
            task=each.task,
            hint="Apply a version of the task that does not require the column first, or allow incompatible schemas",
        )


def _apply(
    tx: Transaction, declared: Iterable[Declared], overrides: LogicOverrides, seen: Mapping[str, int]
) -> list[workflow_plan.WorkflowPlan]:
    """Register workflows one after another, and return the changes of each."""
    done = []
    for each in declared:
        structure = change_structure(tx, each.workflow, overrides, rehearsed=False)
        plan = workflow_plan.plan_changes(tx, each.workflow, each.functions, overrides)
        plan_application.check_all_seen(tx, plan, seen)
        plan_application.apply_plan(tx, plan)
        done.append(replace(workflow_plan.with_structure(plan, structure.notes), placed=structure.placed))
    return done


def _defer(
    tx: Transaction,
    declared: Declared,
    overrides: LogicOverrides,
    plan: workflow_plan.WorkflowPlan,
    until: datetime,
) -> workflow_plan.WorkflowPlan:
    """Register a workflow that takes effect later, and return its plan."""
    tasks = {item.task.name: item.logic for item in plan.tasks if item.anew}
    deferred.defer(tx, plan.workflow, until, tasks, pickle.dumps((declared, overrides)))
    events.record(tx, EventKind.DEFERRED, text=f"{plan.workflow} until {until.isoformat(timespec='seconds')}")
    return replace(plan, until=until)
