"""Explanation of how a view is maintained: its relations, their queries, and the costs of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kilonova.catalog import registry, run_records
from kilonova.catalog.database import Transaction
from kilonova.catalog.planner_input import load_planner_input, parts
from kilonova.errors import NotFound, closest_name
from kilonova.model.channel import ChannelState
from kilonova.model.check import describe_check
from kilonova.model.encoding import describe_encoding
from kilonova.model.schedule import describe_schedule
from kilonova.model.schema import quoted
from kilonova.model.task import Task
from kilonova.query.maintenance import refresh_method_of_tree
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.syntax import render_pretty
from kilonova.query.view_tasks import change_of, delta_of, has_at_most_one_row, known_of, relation_of
from kilonova.schedule.costs import fit
from kilonova.schedule.due import PlannerInput, TaskState, due_reason
from kilonova.schedule.from_sources import choose_from_sources
from kilonova.schedule.planning import choose, input_size
from kilonova.schedule.query_shape import shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainedRelation:
    """Relation that is maintained for a view.

    Attributes:
        channel: the channel that holds it.
        encoding: the encoding of its changes, as text.
        reads: the channels that it reads.
        method: the refresh method, as text.
        query: its query, as SQL.
        change: its delta query if all its inputs change, as SQL over `<channel>__new`, `__old` and `__change`; None if
            it is recomputed, or has not run yet.
        runs: the outputs of its last runs, newest first.
        outlook: the method of a run now, with its estimates; None if there is no new input.
        crossover: the share of new data from which recomputing it is estimated to be cheaper; None if it never is, or
            if there is no choice.
        description: the description of the channel.
        checks: the checks of its rows, as text.
        schedule: its schedule, as text; None if it runs whenever there is new input.
    """

    channel: str
    encoding: str
    reads: tuple[str, ...]
    method: str
    query: str
    change: str | None
    runs: tuple[run_records.OutputRecord, ...]
    outlook: str | None = None
    crossover: float | None = None
    description: str = ""
    checks: tuple[str, ...] = ()
    schedule: str | None = None


def explain(tx: Transaction, view: str, runs: int = 5) -> tuple[MaintainedRelation, ...]:
    """Return the relations that are maintained for a view, in the order of their computation; the view itself is last.

    Args:
        tx: an open transaction.
        view: the name of the view.
        runs: how many of the last runs to include.

    Raises:
        NotFound: there is no such view.
    """
    names = registry.task_names(tx)
    if view not in names:
        raise NotFound("there is no such view", task=view, hint=closest_name(view, names))
    tasks = parts(tx, view)
    if tasks[view].task.view is None:
        raise NotFound("the task is not a view", task=view, hint="Only views can be explained")
    observed = load_planner_input(tx, tasks)
    return tuple(
        _kept(known.task, observed, tuple(run_records.last_outputs(tx, each, runs))) for each, known in tasks.items()
    )


def _kept(task: Task, observed: PlannerInput, made: tuple[run_records.OutputRecord, ...]) -> MaintainedRelation:
    logic, state, states = change_of(task), observed.newest[task.name], observed.channels
    channels = {each: states[each].current for each in (*task.reads, task.name)}
    channel = channels[task.name]
    single = [each for each in task.reads if has_at_most_one_row([states[each].snapshot(states[each].latest_readable)])]
    facts = known_of(channels, single)
    change = None
    complete = states[task.name].stored_schema
    if logic is not None and complete is not None:
        sizes = {each: states[each].size for each in task.reads}
        context = MaintenanceContext(moved=frozenset(task.reads), sizes=sizes)
        delta = delta_of(logic.tree, channel, complete, facts, context)
        change = render_pretty(delta.sql.replace("{", "").replace("}", "")) if delta is not None else None
    due, chosen = due_reason(state, states), choose(state, states)
    if due is not None:
        chosen = choose_from_sources(state, [part.task.name for part in state.parts], states) or chosen
    choice = logic is not None and not task.variants[0].logic.derived
    return MaintainedRelation(
        channel=task.name,
        encoding=describe_encoding(channel.encoding),
        reads=task.reads,
        method=_FULL if logic is None else refresh_method_of_tree(relation_of(logic.tree, channel)),
        query=render_pretty(_query(task) if logic is None else logic.text),
        change=change,
        runs=made,
        outlook=None if due is None else f"{chosen.method.value}: {due}; {chosen.reason}",
        crossover=_crossover(state, states) if choice else None,
        description=channel.description,
        checks=tuple(map(describe_check, channel.checks)),
        schedule=None if task.schedule is None else describe_schedule(task.schedule),
    )


_FULL = "fully recomputed in each run"


def _query(task: Task) -> str:
    """Return the query of a task that can only be recomputed, over channels."""
    variant = task.variants[0]
    return variant.logic.text.format(**{port.name: quoted(port.channel) for port in variant.ports})


def _crossover(state: TaskState, states: Mapping[str, ChannelState]) -> float | None:
    """Return the share of new data, in as many relations as have some now (at least one), to recompute it instead."""
    size = input_size(state, states)
    return fit(state.samples, shape_of(state.task)).crossover(replace(size, moved=max(1, size.moved)))
