"""Registration of workflows: plans, checks of existing rows, application, and dropping of channels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kilonova.catalog import bindings, channel_store, registry
from kilonova.engine.run_recovery import delete_doomed_blocks
from kilonova.errors import Conflict, DeclarationError, KilonovaError, SparkUnavailable
from kilonova.model.read_plan import SnapshotRead
from kilonova.service import workflow_plan
from kilonova.service.logic_overrides import LogicOverrides
from kilonova.service.resources import ProjectResources
from kilonova.service.row_reader import RowReader

if TYPE_CHECKING:
    from kilonova.declare.workflow import Declared, Workflow
    from kilonova.model.channel import ChannelState


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
        self, declared: Sequence[Declared], overrides: LogicOverrides
    ) -> tuple[list[workflow_plan.WorkflowPlan], list[Mapping[str, str]]]:
        """Plan the registration of workflows one after another, without committing it.

        Returns:
            The plans, and notes on the tasks of each, by their names.

        Raises:
            QueryError: Spark rejects a view.
        """
        plans: list[workflow_plan.WorkflowPlan] = []
        with self._catalog.rehearsing() if len(declared) > 1 else self._catalog.reading() as tx:
            for each in declared:
                if plans:
                    workflow_plan.apply_plan(tx, plans[-1])
                plans.append(workflow_plan.plan_changes(tx, each.workflow, each.functions, overrides))
            known = channel_store.channel_states(tx)
        return plans, [self._analyse(each, plan, known) for each, plan in zip(declared, plans, strict=True)]

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
        try:
            warehouse = self._resources.warehouse
        except SparkUnavailable as error:
            return dict.fromkeys(anew, f"not analysed: {error.problem}")
        problems = analyse_views(warehouse, declared.workflow.order(), channels, complete | schemas, anew)
        return {name: f"fully recomputed in each run: {problem}" for name, problem in problems.items()}

    def apply(
        self, workflow: Workflow | Declared, *, same_logic: Collection[str] = (), new_version: Collection[str] = ()
    ) -> workflow_plan.WorkflowPlan:
        """Register a workflow; tasks whose definition changed get a new logic version.

        Added checks are first run on existing rows that are retained.

        Args:
            workflow: the workflow, or its value.
            same_logic: tasks and views whose changed definition does the same: their output stays.
            new_version: tasks and views that get a new logic version, although nothing may have changed.

        Returns:
            The changes.

        Raises:
            DeclarationError: the workflow is invalid, or conflicts with what is registered; nothing has changed.
            QueryError: Spark rejects the query of a view; nothing has changed.
            CheckFailed: existing rows violate an added check; nothing has changed.
            Conflict: a run is writing to a channel to which a check is added.
        """
        return self.apply_all([workflow], same_logic=same_logic, new_version=new_version)[0]

    def apply_all(
        self,
        workflows: Iterable[Workflow | Declared],
        *,
        same_logic: Collection[str] = (),
        new_version: Collection[str] = (),
    ) -> tuple[workflow_plan.WorkflowPlan, ...]:
        """Register workflows as `apply` does, all or none; each may read what earlier ones declare.

        Args:
            workflows: the workflows, or their values.
            same_logic: tasks and views whose changed definition does the same: their output stays.
            new_version: tasks and views that get a new logic version, although nothing may have changed.

        Returns:
            The changes of each.

        Raises:
            KilonovaError: any error that `apply` raises; nothing has changed.
        """
        declared = self.declared(workflows)
        overrides = _overrides(declared, same_logic, new_version)
        plans, notes = self._rehearse(declared, overrides)
        seen = {item.channel.name: self._verify(item) for plan in plans for item in plan.channels if item.unseen}
        done = []
        with self._catalog.writing() as tx:
            for each in declared:
                plan = workflow_plan.plan_changes(tx, each.workflow, each.functions, overrides)
                workflow_plan.check_all_seen(tx, plan, seen)
                workflow_plan.apply_plan(tx, plan)
                done.append(plan)
        return tuple(map(workflow_plan.with_notes, done, notes))

    def _verify(self, change: workflow_plan.ChannelChange) -> int:
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
            readers = dict.fromkeys(version.task.name for version in registry.readers(tx, channel))
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
