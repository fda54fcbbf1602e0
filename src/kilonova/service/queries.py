"""Read-only queries of a project, which need only its catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from kilonova.catalog import (
    bindings,
    channel_store,
    events,
    files,
    firings,
    registry,
    run_records,
    servers,
    subscriptions,
    task_graph,
    tokens,
    workflow_files,
)
from kilonova.catalog import runs as records
from kilonova.catalog.bound_status import BoundStatus, bound_statuses
from kilonova.catalog.bounds import bounds as all_bounds
from kilonova.catalog.compaction_stats import delta_stacks
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.deferred import deferred_workflows
from kilonova.catalog.planner_input import load_planner_input, tasks_named
from kilonova.catalog.read_models import (
    binding_status,
    metrics,
    overview,
    point_history,
    run_queries,
    schema_history,
    task_runs,
)
from kilonova.catalog.read_models.binding_status import BindingStatus
from kilonova.catalog.read_models.run_inputs import port_reads
from kilonova.catalog.read_models.run_queries import RunFilters
from kilonova.errors import NotFound
from kilonova.model.channel import ChannelState
from kilonova.model.event import Event
from kilonova.model.run import Run, RunInput
from kilonova.model.task import Task
from kilonova.model.watched_file import FileState
from kilonova.model.workflow_path import declared_form
from kilonova.schedule.compaction import DeltaStack
from kilonova.schedule.due import PlannerInput, due_version, schema_alert
from kilonova.service import logic_history, size_history, snapshot_plan
from kilonova.service.bound_schedule import BoundSchedule, bound_schedule
from kilonova.service.channel_versions import ChannelVersions, channel_versions
from kilonova.service.reports import (
    ChannelAccess,
    ChannelHistory,
    ChannelStatus,
    DirectoryStatus,
    Lag,
    RunDetail,
    RunLineage,
    RunSummary,
    Status,
    Step,
    TaskStatus,
)
from kilonova.service.settings import catalog_url, load_settings

if TYPE_CHECKING:
    from kilonova.service.explain_view import MaintainedRelation
    from kilonova.service.next_run import TaskPreview

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _query(function: Callable[Concatenate[Transaction, _P], _R]) -> Callable[Concatenate[ProjectReader, _P], _R]:
    """Return a method that calls a function in a reading transaction of its own."""

    @wraps(function)
    def method(reader: ProjectReader, /, *arguments: _P.args, **named: _P.kwargs) -> _R:
        with reader.catalog.reading() as tx:
            return function(tx, *arguments, **named)

    return method


class ProjectReader:
    """Reader of a project's state, as recorded in the catalog.

    Its methods are queries of the catalog, each in a transaction of its own; those that consist of one function of
    the catalog are documented there.

    Args:
        catalog: the catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    registered_bounds = _query(all_bounds)
    events_before = _query(events.before)
    firing = _query(firings.firing)
    firings = _query(firings.firings)
    logic_difference = _query(logic_history.logic_difference)
    workflow_history = _query(logic_history.workflow_history)
    logic_history = _query(logic_history.logic_history)
    metrics = _query(metrics.catalog_metrics)
    newest_event = _query(events.newest)
    planner_input = _query(load_planner_input)
    running = _query(overview.progress_of_runs)
    overview = _query(overview.overview)
    policy = _query(channel_store.policy)
    require_channel = _query(channel_store.channel_id)
    runs_between = _query(run_queries.runs_between)
    schemas = _query(schema_history.schemas)
    servers = _query(servers.server_statuses)
    size_history = _query(size_history.size_history)
    snapshot_plan = _query(snapshot_plan.snapshot_plan)
    subscriptions = _query(subscriptions.subscriptions)
    task_runs = _query(task_runs.task_runs)
    tokens = _query(tokens.tokens)
    upcoming_triggers = _query(binding_status.upcoming_triggers)
    workflow = _query(workflow_files.workflow)
    workflows = _query(workflow_files.workflows)

    def due(self, among: Iterable[str] | None = None) -> dict[str, str]:
        """Return the tasks that are due, each with the reason.

        Args:
            among: names of tasks, views or bindings, to return only their tasks; None for all.

        Raises:
            NotFound: there is no such task.
        """
        with self.catalog.reading() as tx:
            return _due(load_planner_input(tx, None if among is None else tasks_named(tx, among)))

    def explain(self, view: str, runs: int = 5) -> tuple[MaintainedRelation, ...]:
        """Return the relations that are maintained for a view: see `kilonova.service.explain_view`.

        Args:
            view: the view.
            runs: the maximum number of runs of each relation.

        Raises:
            NotFound: there is no such view.
        """
        from kilonova.service.explain_view import explain

        with self.catalog.reading() as tx:
            return explain(tx, view, runs)

    def task_preview(self, task: str) -> TaskPreview:
        """Return a preview of the next run of a task: see `kilonova.service.next_run`."""
        from kilonova.service.next_run import task_preview

        with self.catalog.reading() as tx:
            return task_preview(tx, task)

    def status(self, limit: int = 5) -> Status:
        """Return channels, tasks, cursors, lags and the last runs.

        Args:
            limit: the maximum number of runs.
        """
        with self.catalog.reading() as tx:
            known = load_planner_input(tx)
            tasks, deferred = registry.tasks(tx), deferred_workflows(tx)
            runs = _summaries(tx, run_queries.runs(tx, limit))
            bounds = bound_statuses(tx)
        return Status(
            channels=known.channels,
            tasks=tasks,
            due=_due(known),
            lags=tuple(lag for name in known.versions for lag in _lags(known, name)),
            runs=tuple(runs),
            alerts=_alerts(known),
            waits={name: state.waits_until for name, state in known.newest.items() if state.waits_until is not None},
            deferred=deferred,
            bounds=bounds,
        )

    def channel(self, name: str) -> ChannelStatus:
        """Return the status of a channel.

        Raises:
            NotFound: there is no such channel.
        """
        with self.catalog.reading() as tx:
            return _channels(tx, [name])[0]

    def channels(self, after: str = "", limit: int | None = None) -> list[ChannelStatus]:
        """Return the status of channels, by name: those after a name, at most `limit`."""
        with self.catalog.reading() as tx:
            return _channels(tx, channel_store.channel_names(tx, after, limit))

    def task(self, name: str) -> TaskStatus:
        """Return the status of a task.

        Raises:
            NotFound: there is no such task.
        """
        with self.catalog.reading() as tx:
            return _tasks(tx, [name])[0]

    def tasks(self, after: str = "", limit: int | None = None) -> list[TaskStatus]:
        """Return the status of tasks, by name: those after a name, at most `limit`."""
        with self.catalog.reading() as tx:
            return _tasks(tx, registry.task_names(tx, after, limit))

    def channel_history(self, channel: str, before: int | None = None, limit: int = 100) -> ChannelHistory:
        """Return the points of a channel and their history, newest first.

        Args:
            channel: the channel.
            before: only those before this number; None for all.
            limit: the maximum number.

        Raises:
            NotFound: there is no such channel.
        """
        with self.catalog.reading() as tx:
            return ChannelHistory(
                points=point_history.point_records(tx, channel, before, limit),
                first=point_history.first_retained(tx, channel),
            )

    def versions(self, channel: str, before: int | None = None, limit: int = 100) -> ChannelVersions:
        """Return the version vectors of a channel's points, newest first (logic evolution, section 2).

        Args:
            channel: the channel.
            before: only points before this number; None for all.
            limit: the maximum number of points.

        Raises:
            NotFound: there is no such channel.
        """
        with self.catalog.reading() as tx:
            return channel_versions(tx, channel, before, limit)

    def bounds(self, channels: Collection[str] | None = None) -> tuple[BoundStatus, ...]:
        """Return the status of the bounds that apply, by channel and path, with the slack that is left.

        Args:
            channels: the channels; None for all.
        """
        with self.catalog.reading() as tx:
            return bound_statuses(tx, channels)

    def bound_schedule(self, channels: Collection[str] | None = None) -> BoundSchedule:
        """Return the runs that keep bounds: what starts now or next and when, alternatives, and what no plan keeps.

        Args:
            channels: the channels whose alternatives and obstacles are returned; None for all.
        """
        with self.catalog.reading() as tx:
            return bound_schedule(tx, channels)

    def paths(self, channel: str) -> tuple[tuple[str, ...], ...]:
        """Return the paths from source channels along which data have come to a channel, in their declared form.

        Raises:
            NotFound: there is no such channel.
        """
        with self.catalog.reading() as tx:
            state, views = channel_store.channel_state(tx, channel), registry.view_of_tasks(tx)
        found = {declared_form(path, views) for path, _ in state.reflected(state.latest_readable).entries}
        return tuple(sorted(path for path in found if len(path) > 1))

    def readers(self, channel: str) -> tuple[Lag, ...]:
        """Return the lags of the live logic versions that read a channel and do not write it, by task.

        Raises:
            NotFound: there is no such channel.
        """
        with self.catalog.reading() as tx:
            state = channel_store.channel_state(tx, channel)
            return tuple(
                _lag(each.task.name, each.logic, state, each.cursor(channel))
                for each in task_graph.readers(tx, channel)
            )

    def binding(self, name: str) -> bindings.RegisteredBinding:
        """Return a binding.

        Raises:
            NotFound: there is no such binding.
        """
        with self.catalog.reading() as tx:
            return bindings.bindings(tx, [name])[name]

    def bindings(self, after: str = "", limit: int | None = None) -> list[bindings.RegisteredBinding]:
        """Return the bindings by name: those after a name, at most `limit`."""
        with self.catalog.reading() as tx:
            return list(bindings.bindings(tx, bindings.binding_names(tx, after, limit)).values())

    def binding_statuses(
        self, after: str = "", limit: int | None = None, names: Iterable[str] | None = None
    ) -> list[BindingStatus]:
        """Return the status of the triggers of bindings, by name.

        Args:
            after: only bindings after this name.
            limit: the maximum number.
            names: these bindings, instead of a page of all.

        Raises:
            NotFound: a name is not that of a binding.
        """
        with self.catalog.reading() as tx:
            return binding_status.binding_statuses(
                tx, bindings.binding_names(tx, after, limit) if names is None else names
            )

    def events(self, since: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events after an event, in order.

        Args:
            since: the number of the event.
            limit: the maximum number of events; None for all.
        """
        with self.catalog.reading() as tx:
            return events.since(tx, since, limit)

    def runs(
        self, limit: int, before: int | None = None, *, after: int | None = None, **filters: Unpack[RunFilters]
    ) -> list[RunSummary]:
        """Return runs, newest first, with their outputs.

        Args:
            limit: the maximum number.
            before: only those before this number.
            after: only those after this number, the oldest of them if there are more than `limit`.
            filters: what else they must satisfy.

        Raises:
            NotFound: there is no such binding, task or channel.
        """
        with self.catalog.reading() as tx:
            return _summaries(tx, run_queries.runs(tx, limit, before, after=after, **filters))

    def run_detail(self, number: int) -> RunDetail:
        """Return a run with its inputs, outputs, holdings and firings.

        Args:
            number: its number.

        Raises:
            NotFound: there is no such run.
        """
        with self.catalog.reading() as tx:
            run = records.find_run(tx, number)
            earlier, later = run_queries.beside(tx, number)
            return RunDetail(
                run=run,
                inputs=tuple(port_reads(tx, run)),
                made=tuple(run_records.outputs(tx, [number])),
                holdings=run_records.run_holdings(tx, number),
                firings=tuple(firings.of_run(tx, number)),
                earlier=earlier,
                later=later,
                succeeded_since=run_queries.succeeded_since(tx, run),
            )

    def run_lineage(self, number: int) -> RunLineage:
        """Return a run with what its tasks read and wrote; as declared, for those that have published nothing.

        Raises:
            NotFound: there is no such run.
        """
        catalog = self.catalog.identity()
        with self.catalog.reading() as tx:
            run = records.find_run(tx, number)
            made = run_records.outputs(tx, [number])
            read = [item for _, item in run_records.inputs(tx, [number])]
            reserved = records.written_by(tx, number)
            try:
                declared = {name: known.task for name, known in registry.tasks(tx, run.tasks).items()}
            except NotFound:  # a task was dropped in the meantime
                declared = {}
            steps = tuple(_step(task, made, read, declared.get(task or ""), reserved) for task in run.tasks or (None,))
            named = {each.channel for step in steps for each in (*step.read, *step.written)}
            present = named & set(channel_store.channel_names(tx))
            schemas = {name: channel_store.channel(tx, name).schema for name in present}
        known = {name: schema for name, schema in schemas.items() if schema is not None}
        return RunLineage(catalog=catalog, run=run, steps=steps, schemas=known)

    def delta_stacks(self) -> list[DeltaStack]:
        """Return the channels that have deltas after their newest base, by name, with the cost of merging them."""
        with self.catalog.reading() as tx:
            return sorted(delta_stacks(tx), key=lambda each: each.channel)

    def files(self, channel: str, limit: int = 20, state: FileState | None = None) -> DirectoryStatus:
        """Return the files of a watched directory.

        Args:
            channel: the channel.
            limit: the maximum number.
            state: only those in this state.

        Raises:
            NotFound: there is no such channel.
        """
        order = (FileState.QUARANTINED, FileState.SETTLING, FileState.READY, FileState.INGESTED)
        with self.catalog.reading() as tx:
            watched = files.watched_directories(tx, channel)
            found = [file for each in order if state in (None, each) for file in files.files(tx, channel, each, limit)]
        return DirectoryStatus(watched=watched[0] if watched else None, files=tuple(found[:limit]))


def _summaries(tx: Transaction, runs: Sequence[Run]) -> list[RunSummary]:
    made: dict[int, list[run_records.OutputRecord]] = {run.number: [] for run in runs}
    for item in run_records.outputs(tx, made):
        made[item.run].append(item)
    return [RunSummary(run=run, made=tuple(made[run.number])) for run in runs]


def _channels(tx: Transaction, names: Sequence[str]) -> list[ChannelStatus]:
    found, writers = channel_store.channel_states(tx, names), task_graph.writers(tx, names)
    return [ChannelStatus(state=found[name], writers=writers[name]) for name in names]


def _tasks(tx: Transaction, names: Sequence[str]) -> list[TaskStatus]:
    known, tasks = load_planner_input(tx, names), registry.tasks(tx, names)
    due = _due(known)
    deferred = {name: each.until for each in deferred_workflows(tx) for name in each.tasks}
    return [
        TaskStatus(
            registered=tasks[name],
            due=due.get(name),
            lags=_lags(known, name),
            waits_until=known.versions[name][0].waits_until,
            alert=schema_alert(known.versions[name][0], known.channels),
            deferred_until=deferred.get(name),
        )
        for name in names
    ]


@contextmanager
def open_reader(directory: str | Path = ".", **settings: Any) -> Iterator[ProjectReader]:
    """Open the catalog of a project's directory for reading, which needs less than `service.project.open_project`.

    Args:
        directory: the directory of `kilonova.toml`, if there is one.
        settings: settings that override the file's and the environment's.

    Raises:
        SettingsError: a setting is unknown or has an invalid value.
    """
    place = Path(directory)
    with closing(Catalog(catalog_url(load_settings(place, **settings), place))) as catalog:
        yield ProjectReader(catalog)


def _due(known: PlannerInput) -> dict[str, str]:
    """Return the tasks of which a live logic version is due, each with the reason."""
    found = {name: due_version(versions, known.channels) for name, versions in known.versions.items()}
    return {name: due[1] for name, due in found.items() if due is not None}


def _alerts(known: PlannerInput) -> dict[str, str]:
    """Return why tasks wait or stop because columns that they require are missing, by task."""
    found = {name: schema_alert(state, known.channels) for name, state in known.newest.items()}
    return {name: alert for name, alert in found.items() if alert is not None}


def _lags(known: PlannerInput, task: str) -> tuple[Lag, ...]:
    """Return the lags of the live logic versions of a task."""
    return tuple(
        _lag(task, state.logic, known.channels[channel], state.cursor(channel))
        for state in known.versions[task]
        for channel in state.task.reads
    )


def _lag(task: str, logic: int, channel: ChannelState, cursor: int) -> Lag:
    """Return the lag of a logic version; a cancelled point counts as the one before it, to which it is equal."""
    settled = channel.settled(cursor)
    return Lag(task=task, logic=logic, channel=channel.channel.name, cursor=settled, newest=channel.latest_distinct)


def _step(
    task: str | None,
    made: Sequence[run_records.OutputRecord],
    read: Sequence[RunInput],
    declared: Task | None,
    reserved: Sequence[str],
) -> Step:
    """Return what a task of a run read and wrote, as recorded; as declared, where nothing is recorded."""
    points = {item.channel: item.end for item in read if item.task == task}
    accesses = {
        item.channel: ChannelAccess(channel=item.channel, point=item.point, rows=item.rows, bytes=item.bytes)
        for item in made
        if item.task == task and item.block is not None
    }
    written = [item.channel for item in made if item.task == task]
    reads = list(points) or list(declared.reads if declared else ())
    writes = written or (list(declared.writes if declared else ()) if task is not None else reserved)
    return Step(
        task=task,
        read=tuple(ChannelAccess(channel=name, point=points.get(name)) for name in reads),
        written=tuple(accesses.get(name, ChannelAccess(channel=name)) for name in writes),
    )
