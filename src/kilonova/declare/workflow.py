"""A workflow: the channels and tasks of a catalog, the workflowettes that are bound in it, and what starts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kilonova.declare.drafts import DraftTask
from kilonova.declare.schedules import seconds_of
from kilonova.declare.views import derived
from kilonova.declare.workflowette import DeclaredTask, Workflowette
from kilonova.errors import DeclarationError, KilonovaError, closest
from kilonova.model.binding import Binding
from kilonova.model.channel import Channel
from kilonova.model.schedule import Schedule
from kilonova.model.task import Function, Task
from kilonova.model.trigger import Arrival, Clock, Trigger
from kilonova.model.workflow import Workflow as WorkflowValue
from kilonova.schedule.planning import driving

Starts = Trigger | Iterable[Trigger]


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared workflow: its value, and the functions of its custom encodings by name."""

    workflow: WorkflowValue
    functions: Mapping[str, Function]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A binding as declared: its members are tasks and views, or all that comes of a workflowette if there are none."""

    members: tuple[str, ...]
    workflowette: str
    triggers: tuple[Trigger, ...]
    priority: int
    queue: float | None


class Workflow(Workflowette):
    """Channels, tasks and bound workflowettes under one name.

    Args:
        name: the workflow's name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._groups: dict[str, _Group] = {}

    def workflowette(
        self,
        name: str,
        tasks: Iterable[DeclaredTask[..., object] | str],
        *,
        on: Starts = (),
        priority: int = 0,
        mergeable: str | None = None,
    ) -> None:
        """Put tasks of this workflow together, so that they run as one run, and say what starts them.

        Tasks that are put into none run by themselves, whenever something is new for them.

        Args:
            name: its name.
            tasks: the tasks and views, or their names.
            on: what starts it: a trigger, or several, any of which does; without one, only people do.
            priority: what is higher goes first where not everything can run at once.
            mergeable: for how long at most it may wait for others that read the same channels, which are then read
                once, such as `"30 seconds"` (Nova, section 4.2); None if it does not wait.

        Raises:
            DeclarationError: the name is taken, or there is no such task.
        """
        members = tuple(item if isinstance(item, str) else item.name for item in tasks)
        known = [*self._drafts.tasks, *self._drafts.views]
        for member in members:
            if member not in known:
                raise DeclarationError("there is no such task", binding=name, task=member, hint=closest(member, known))
        self._group(name, members, "", on, priority, mergeable)

    def bind(
        self,
        name: str,
        workflowette: Workflowette,
        ports: Mapping[str, str] | None = None,
        *,
        on: Starts = (),
        priority: int = 0,
        mergeable: str | None = None,
    ) -> None:
        """Attach a workflowette to channels of this workflow, and say what starts it (Nova, section 2.3).

        Args:
            name: the binding's: its tasks, and those of its channels that are not attached, are called
                `<name>__<task>` and `<name>__<channel>`.
            workflowette: the workflowette.
            ports: the channel for each port; of those that its tasks write, none need be attached.
            on: see `workflowette`.
            priority: see `workflowette`.
            mergeable: see `workflowette`.

        Raises:
            DeclarationError: the name is taken, there is no such port, or a port that has to be attached is not.
        """
        super().bind(name, workflowette, ports)
        self._group(name, (), workflowette.name, on, priority, mergeable)

    def _group(
        self,
        name: str,
        members: tuple[str, ...],
        workflowette: str,
        on: Starts,
        priority: int,
        mergeable: str | None,
    ) -> None:
        if name in self._groups:
            raise DeclarationError("there are two bindings of this name", binding=name)
        try:
            self._groups[name] = _Group(
                members=members,
                workflowette=workflowette,
                triggers=tuple(on) if isinstance(on, Iterable) else (on,),
                priority=priority,
                queue=None if mergeable is None else seconds_of(mergeable),
            )
        except KilonovaError as error:
            raise error.within(binding=name) from None

    def keep(self) -> None:
        """Keep by value the functions of all tasks, with what they refer to now; what that becomes later is not seen.

        Raises:
            DeclarationError: one cannot be kept, because it refers to what is open, or has no source.
        """
        self._drafts.keep()

    def declared(self, others: Iterable[Channel] = ()) -> Declared:
        """The workflow as a value.

        Args:
            others: channels of other workflows; those that are read become part of the value.

        Raises:
            DeclarationError: a port or output dangles, tasks form a cycle, a channel does not fit its port, or a
                function cannot be kept.
        """
        self.keep()
        flat = self._drafts.flat()
        for task, draft in flat.tasks.items():
            for channel in draft.writes:
                if channel not in flat.channels:
                    raise DeclarationError(
                        "there is no such channel",
                        channel=channel,
                        task=task,
                        hint=closest(channel, list(flat.channels)),
                    )
        foreign = {item.name: item for item in others if item.name not in flat.channels}
        channels, views = derived(flat.views.values(), {**foreign, **flat.channels})
        units = {name: (_task(name, draft),) for name, draft in flat.tasks.items()} | dict(views)
        tasks = tuple(task for unit in units.values() for task in unit)
        read = {name for task in tasks for name in task.reads} - {item.name for item in channels}
        value = WorkflowValue(
            name=self.name,
            channels=(
                *flat.channels.values(),
                *channels,
                *(item for name, item in foreign.items() if name in read),
            ),
            tasks=tasks,
            bindings=self._bindings(units),
        )
        return Declared(value, dict(flat.functions))

    def _bindings(self, units: Mapping[str, tuple[Task, ...]]) -> tuple[Binding, ...]:
        """What is bound, and each task or view that is not as a binding of its own."""
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
                    queue=group.queue,
                )
            )
        return (*found, *(_alone(name, unit) for name, unit in left.items()))

    def only(self, task: str) -> Workflow:
        """This workflow reduced to one task, with its inputs as source channels, for trying it out."""
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
    return Task(name=name, writes=draft.writes, variants=tuple(variant.variant() for variant in draft.variants))


def _alone(name: str, unit: tuple[Task, ...]) -> Binding:
    """A task or view that is put into no binding: its news start it, or its schedule does."""
    schedule: Schedule | None = unit[-1].schedule
    triggers: tuple[Trigger, ...]
    if schedule is not None:
        triggers = (Clock(schedule=schedule),)
    else:
        written = {channel for task in unit for channel in task.writes}
        news = dict.fromkeys(channel for task in unit for channel in driving(task) if channel not in written)
        triggers = tuple(Arrival(channel=channel) for channel in news)
    return Binding(name=name, tasks=tuple(task.name for task in unit), triggers=triggers, alone=True)
