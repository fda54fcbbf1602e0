"""Declaration of workflows: channels, tasks, bound workflowettes, and the triggers that start them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from kilonova.declare.drafts import DraftTask
from kilonova.declare.limits import Limit, limit_of
from kilonova.declare.schedules import seconds_of
from kilonova.declare.views import derived
from kilonova.declare.workflowette import DeclaredTask, Names, Workflowette
from kilonova.errors import DeclarationError, KilonovaError, closest_name
from kilonova.model.binding import Binding
from kilonova.model.bound import Bound, InconsistencyBound, StalenessBound
from kilonova.model.channel import BlockType, Channel
from kilonova.model.logic import Function
from kilonova.model.schedule import Schedule
from kilonova.model.task import Task
from kilonova.model.trigger import ArrivalTrigger, TimeTrigger, Trigger
from kilonova.model.workflow import WorkflowDefinition as WorkflowValue
from kilonova.model.workflow_path import path_of
from kilonova.schedule.due import triggering_inputs
from kilonova.schedule.planning import whole_variant

Starts = Trigger | Iterable[Trigger]
"""One trigger, or several, any of which starts a binding."""


@dataclass(frozen=True, slots=True)
class Declared:
    """Declared workflow: its value, the functions of its custom encodings by name, and the file that declares it."""

    workflow: WorkflowValue
    functions: Mapping[str, Function]
    file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Declared binding: its members are tasks and views; if empty, all those of a bound workflowette."""

    members: tuple[str, ...]
    workflowette: str
    triggers: tuple[Trigger, ...]
    priority: int
    merge_window: float | None


class Workflow(Workflowette):
    """Channels, tasks and bound workflowettes under one name.

    Args:
        name: the workflow's name.

    Attributes:
        file: the file, or folder of SQL files, that declares it, once it has been loaded from there; else None.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.file: Path | None = None
        self._groups: dict[str, _Group] = {}
        self._bounds: list[Bound] = []
        self._accepted: dict[str, BlockType] = {}

    def bound_staleness(self, channel: str, path: Names, limit: Limit) -> None:
        """Bound how long newer data of a source channel may be missing from a channel.

        Servers aim to keep the bound, and report when it is violated or is about to be (asynchronous scheduling,
        section 5).

        Args:
            channel: a channel that a task or view of this workflow writes.
            path: the source channel, if one path leads from it; else the source channel, and tasks, views or channels
                on the way, as many as tell the path from others: `("orders", "daily")` or `"orders/daily"`.
            limit: the longest time, such as `"1 day"`; 0 if the newest data are always to be reflected.

        Raises:
            DeclarationError: the limit is negative, or no time span.
        """
        try:
            self._bounds.append(StalenessBound(channel=channel, path=path_of(path), limit=limit_of(limit)))
        except KilonovaError as error:
            raise error.with_context(channel=channel) from None

    def bound_inconsistency(self, channel: str, limit: Limit) -> None:
        """Bound how far apart in time the source data may be that the rows of a channel reflect.

        Rows that are further apart are never given to a reader: the run that would write them fails (asynchronous
        scheduling, section 5).

        Args:
            channel: a channel that a task or view of this workflow writes.
            limit: the longest time, such as `"1 week"`; 0 if its rows are always to be consistent.

        Raises:
            DeclarationError: the limit is negative, or no time span.
        """
        try:
            self._bounds.append(InconsistencyBound(channel=channel, limit=limit_of(limit)))
        except KilonovaError as error:
            raise error.with_context(channel=channel) from None

    def accept_blocks(self, channel: str, kind: BlockType) -> None:
        """Declare that those who read a channel want only one type of blocks (asynchronous scheduling, section 5).

        Whichever there are, relations and changes can be read; this says which the task writes, so that reading is
        cheap: with `"base"` each run writes the whole relation; with `"delta"` none does, unless no delta can lead to
        it.

        Args:
            channel: a channel that a task or view of this workflow writes.
            kind: `"base"` or `"delta"`.

        Raises:
            DeclarationError: there is no such type of blocks.
        """
        if kind not in (kinds := get_args(BlockType)):
            hint = closest_name(str(kind), list(kinds))
            raise DeclarationError(f"there is no type of blocks {kind!r}", channel=channel, hint=hint)
        self._accepted[channel] = kind

    def workflowette(
        self,
        name: str,
        tasks: Iterable[DeclaredTask[..., object] | str],
        *,
        on: Starts = (),
        priority: int = 0,
        merge_window: str | None = None,
    ) -> None:
        """Group tasks of this workflow, so that they run as one run, and set the triggers that start it.

        Tasks in no workflowette run separately and automatically, whenever they have new input.

        Args:
            name: its name.
            tasks: the tasks and views, or their names.
            on: a trigger that starts it, or several, any of which does; without one, it is started manually only.
            priority: higher values run first where not everything can run at once.
            merge_window: maximum time to wait for others that read the same channels, which are then read
                once, such as `"30 seconds"` (Nova, section 4.2); None to start without waiting.

        Raises:
            DeclarationError: the name is taken, or there is no such task.
        """
        members = tuple(item if isinstance(item, str) else item.name for item in tasks)
        known = [*self._drafts.tasks, *self._drafts.views]
        for member in members:
            if member not in known:
                raise DeclarationError(
                    "there is no such task", binding=name, task=member, hint=closest_name(member, known)
                )
        self._group(name, members, "", on, priority, merge_window)

    def bind(
        self,
        name: str,
        workflowette: Workflowette,
        ports: Mapping[str, str] | None = None,
        *,
        on: Starts = (),
        priority: int = 0,
        merge_window: str | None = None,
    ) -> None:
        """Attach a workflowette to channels of this workflow, and set the triggers that start it (Nova, section 2.3).

        Args:
            name: the binding's name: its tasks, and those of its channels that are not attached, are called
                `<name>__<task>` and `<name>__<channel>`.
            workflowette: the workflowette.
            ports: the channel for each port; optional for ports that its tasks write.
            on: see `workflowette`.
            priority: see `workflowette`.
            merge_window: see `workflowette`.

        Raises:
            DeclarationError: the name is taken, there is no such port, or a required port is not attached.
        """
        super().bind(name, workflowette, ports)
        self._group(name, (), workflowette.name, on, priority, merge_window)

    def _group(
        self,
        name: str,
        members: tuple[str, ...],
        workflowette: str,
        on: Starts,
        priority: int,
        merge_window: str | None,
    ) -> None:
        if name in self._groups:
            raise DeclarationError("the binding is declared twice", binding=name, hint="Rename or remove one of them")
        try:
            self._groups[name] = _Group(
                members=members,
                workflowette=workflowette,
                triggers=tuple(on) if isinstance(on, Iterable) else (on,),
                priority=priority,
                merge_window=None if merge_window is None else seconds_of(merge_window),
            )
        except KilonovaError as error:
            raise error.with_context(binding=name) from None

    def pickle_functions(self) -> None:
        """Pickle by value the functions of all tasks, with their current references; later changes have no effect.

        Raises:
            DeclarationError: one cannot be pickled, because it refers to an open resource, or has no source.
        """
        self._drafts.pickle_functions()

    def declared(self, others: Iterable[Channel] = ()) -> Declared:
        """Return the workflow as a value.

        Args:
            others: channels of other workflows; those that are read become part of the value.

        Raises:
            DeclarationError: a port or output is unattached, tasks form a cycle, a channel does not fit its port, or
                a function cannot be pickled.
        """
        self.pickle_functions()
        flat = self._drafts.expanded()
        for task, draft in flat.tasks.items():
            for channel in draft.writes:
                if channel not in flat.channels:
                    raise DeclarationError(
                        "there is no such channel",
                        channel=channel,
                        task=task,
                        hint=closest_name(channel, list(flat.channels)),
                    )
        foreign = {item.name: item for item in others if item.name not in flat.channels}
        channels, views = derived(flat.views.values(), {**foreign, **flat.channels})
        units = {name: (_task(name, draft),) for name, draft in flat.tasks.items()} | dict(views)
        tasks = tuple(task for unit in units.values() for task in unit)
        own = [*flat.channels, *(item.name for item in channels)]
        for bound in self._bounds:
            if bound.channel not in own:
                hint = closest_name(bound.channel, own)
                if bound.channel in foreign:
                    hint = "Declare the bound in the workflow to which the channel belongs"
                raise DeclarationError("the workflow has no such channel to bound", channel=bound.channel, hint=hint)
        self._check_accepted(tasks, own)
        read = {name for task in tasks for name in task.reads} - {item.name for item in channels}
        value = WorkflowValue(
            name=self.name,
            channels=(
                *(self._accepting(each) for each in (*flat.channels.values(), *channels)),
                *(item for name, item in foreign.items() if name in read),
            ),
            tasks=tasks,
            bindings=self._bindings(units),
            bounds=tuple(self._bounds),
        )
        return Declared(value, dict(flat.functions), self.file)

    def _accepting(self, channel: Channel) -> Channel:
        """Return a channel with the type of blocks that its readers accept."""
        return replace(channel, accepts=self._accepted[channel.name]) if channel.name in self._accepted else channel

    def _check_accepted(self, tasks: Iterable[Task], channels: list[str]) -> None:
        """Check that each channel whose readers accept one type of blocks has a task that can write these.

        Raises:
            DeclarationError: there is no such channel, no task writes it, or none of its variants writes a base.
        """
        writers = {name: task for task in tasks for name in task.writes}
        for name, kind in self._accepted.items():
            if name not in channels:
                hint = closest_name(name, channels)
                raise DeclarationError("the workflow has no such channel", channel=name, hint=hint)
            if name not in writers:
                problem = "rows are ingested into the channel, as they are given"
                raise DeclarationError(problem, channel=name, hint="Declare it for a channel that a task writes")
            if kind == "base" and whole_variant(writers[name]) is None:
                raise DeclarationError(
                    "readers accept only bases, which no variant of the task writes from whole relations",
                    channel=name,
                    task=writers[name].name,
                    hint="Add a variant that reads kn.All and returns kn.Base",
                )

    def _bindings(self, units: Mapping[str, tuple[Task, ...]]) -> tuple[Binding, ...]:
        """Return the declared bindings, and an implicit binding for each other task or view."""
        found = []
        left = dict(units)
        for name, group in self._groups.items():
            members = group.members or self._drafts.tasks_of(name)
            for member in members:
                left.pop(member, None)
            found.append(
                Binding(
                    name=name,
                    tasks=tuple(task.name for member in members for task in units.get(member, ())),
                    triggers=group.triggers,
                    workflowette=group.workflowette,
                    priority=group.priority,
                    merge_window=group.merge_window,
                )
            )
        return (*found, *(implicit_binding(name, unit) for name, unit in left.items()))

    def only(self, task: str) -> Workflow:
        """Return this workflow reduced to one task, with its inputs as source channels, for a trial run.

        Args:
            task: the task.
        """
        part = Workflow(self.name)
        draft = self._drafts.tasks[task]
        read = {port.channel for variant in draft.variants for port in variant.ports}
        part._drafts.channels.update(
            {name: item for name, item in self._drafts.channels.items() if name in read | set(draft.writes)}
        )
        part._drafts.tasks[task] = draft
        part._drafts.functions.update(self._drafts.functions)
        part._drafts.encodings.update(self._drafts.encodings)
        return part


def _task(name: str, draft: DraftTask) -> Task:
    every = [variant.variant() for variant in draft.variants]
    return Task(
        name=name,
        writes=draft.writes,
        variants=tuple(each for each in every if each.from_version is None),
        migrations=tuple(each for each in every if each.from_version is not None),
        requires=draft.requires,
    )


def implicit_binding(name: str, unit: tuple[Task, ...]) -> Binding:
    """Return the implicit binding of a task or view in no other: new input starts it, or its schedule does."""
    schedule: Schedule | None = unit[-1].schedule
    triggers: tuple[Trigger, ...]
    if schedule is not None:
        triggers = (TimeTrigger(schedule=schedule),)
    else:
        written = {channel for task in unit for channel in task.writes}
        inputs = dict.fromkeys(
            channel for task in unit for channel in triggering_inputs(task) if channel not in written
        )
        triggers = tuple(ArrivalTrigger(channel=channel) for channel in inputs)
    return Binding(name=name, tasks=tuple(task.name for task in unit), triggers=triggers, implicit=True)
