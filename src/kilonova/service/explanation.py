"""How a view is kept up to date: what it keeps, by which queries, and what its runs took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from kilonova.catalog import bindings, registry
from kilonova.catalog import runs as records
from kilonova.catalog.database import Transaction
from kilonova.catalog.observation import observe
from kilonova.catalog.registry import Registered
from kilonova.engine.spelling import is_single, present
from kilonova.errors import UnknownName, closest
from kilonova.model.channel import Channel, Chronicle
from kilonova.model.check import described as check_described
from kilonova.model.encoding import described
from kilonova.model.schedule import described as schedule_described
from kilonova.model.task import Query, Sql
from kilonova.query.maintaining import Situation
from kilonova.query.properties import Known
from kilonova.query.rendering import pretty
from kilonova.query.syntax import Beyond
from kilonova.query.tasks import delta_of, known_of, way_of
from kilonova.schedule.costs import learned
from kilonova.schedule.planning import Progress, choose, extent, why_due
from kilonova.schedule.shapes import shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A relation that a view keeps.

    Attributes:
        channel: the channel that holds it.
        encoding: how its changes are written, in words.
        reads: the channels that it is made of.
        way: how it is brought up to date.
        query: what it is, as SQL.
        change: its change if all that it reads changes, as SQL over `<channel>__new`, `__old` and `__change`; None
            where it is made anew, or has not run yet.
        runs: what its last runs made of it, newest first.
        outlook: what a run would do now, with its estimates; None if there is nothing new to read.
        crossover: the share of new data from which making it anew is estimated to be cheaper; None where it never is,
            or there is no choice.
        description: what the channel holds, for people.
        checks: what its rows satisfy, in words.
        schedule: when it runs by itself, in words; None for whenever something is new.
    """

    channel: str
    encoding: str
    reads: tuple[str, ...]
    way: str
    query: str
    change: str | None
    runs: tuple[records.Made, ...]
    outlook: str | None = None
    crossover: float | None = None
    description: str = ""
    checks: tuple[str, ...] = ()
    schedule: str | None = None


def explain(tx: Transaction, name: str, runs: int = 5) -> tuple[Kept, ...]:
    """What a view keeps, in the order in which it is made; the last is the view itself.

    Args:
        tx: an open transaction.
        name: the view's.
        runs: how many of the last runs to tell of.

    Raises:
        UnknownName: there is no such view.
    """
    names = registry.task_names(tx)
    if name not in names:
        raise UnknownName("there is no such view", task=name, hint=closest(name, names))
    tasks = parts(tx, name)
    if _text(tasks[name]) is None:
        raise UnknownName("the task is not a view", task=name, hint="What views do can be explained, because it is SQL")
    _, progress, chronicles = observe(tx, tasks)
    channels = {each: present(chronicle) for each, chronicle in chronicles.items()}
    return tuple(
        _kept(
            tasks[each],
            progress[each],
            channels,
            chronicles,
            tuple(records.last_outputs(tx, each, runs)),
        )
        for each in tasks
    )


def parts(tx: Transaction, name: str) -> dict[str, Registered]:
    """A task after the tasks that keep what it needs, if it is a view; by name.

    Raises:
        UnknownName: there is no such task.
    """
    found = registry.tasks(tx, [name])
    active = set(registry.task_names(tx)) if found[name].task.written else set()
    wanted = [name]
    while wanted:
        read = {each for one in wanted for each in found[one].task.reads} & active - found.keys()
        kept = {each: known for each, known in registry.tasks(tx, read).items() if _keeps(known, name)}
        found |= kept
        wanted = list(kept)
    order = TopologicalSorter({each: (set(known.task.reads) & found.keys()) - {each} for each, known in found.items()})
    return {each: found[each] for each in order.static_order()}


def tasks_named(tx: Transaction, names: Iterable[str]) -> tuple[str, ...]:
    """The tasks that names of tasks, bindings and views stand for: of a view also those that keep what it needs.

    Raises:
        UnknownName: there is no such task.
    """
    found = [task for name in names for task in bindings.tasks_of(tx, name) or parts(tx, name)]
    return tuple(dict.fromkeys(found))


def _keeps(known: Registered, view: str) -> bool:
    """Whether a task keeps a relation for a view that reads it: nobody wrote its query, and the view gave the name."""
    return _text(known) is not None and not known.task.written and known.task.name.startswith(f"{view}__")


def _text(known: Registered) -> str | None:
    """The query of a view's relation; None for other tasks."""
    for variant in known.task.variants:
        if isinstance(variant.logic, Query):
            return variant.logic.text
    only = known.task.variants[0]
    return only.fingerprint if isinstance(only.logic, Sql) and only.name == "full" else None


def _kept(
    known: Registered,
    progress: Progress,
    channels: dict[str, Channel],
    chronicles: Mapping[str, Chronicle],
    made: tuple[records.Made, ...],
) -> Kept:
    task, text = known.task, _text(known)
    assert text is not None
    channel = channels[task.name]
    derived = any(isinstance(variant.logic, Query) for variant in task.variants)
    single = [each for each in task.reads if is_single([chronicles[each].snapshot(chronicles[each].readable)])]
    facts = known_of({each: channels[each] for each in (*task.reads, task.name)}, single)
    change = None
    complete = chronicles[task.name].complete
    if derived and complete is not None:
        sizes = {each: chronicles[each].size for each in task.reads}
        delta = delta_of(text, channel, complete, facts, Situation(moved=frozenset(task.reads), sizes=sizes))
        change = pretty(delta.sql.replace("{", "").replace("}", "")) if delta is not None else None
    due, chosen = why_due(progress, chronicles), choose(progress, chronicles)
    choice = derived and isinstance(task.variants[0].logic, Sql)
    return Kept(
        channel=task.name,
        encoding=described(channel.encoding),
        reads=task.reads,
        way=_way(text, channel, facts) if derived else "made anew at each run",
        query=pretty(text),
        change=change,
        runs=made,
        outlook=None if due is None else f"{chosen.way.value}: {due}; {chosen.reason}",
        crossover=_crossover(progress, chronicles) if choice else None,
        description=channel.description,
        checks=tuple(map(check_described, channel.checks)),
        schedule=None if task.schedule is None else schedule_described(task.schedule),
    )


def _crossover(progress: Progress, chronicles: Mapping[str, Chronicle]) -> float | None:
    """From which share of new data in as many relations as have some now, at least one, making it anew is cheaper."""
    size = extent(progress, chronicles)
    return learned(progress.taken, shape_of(progress.task)).crossover(replace(size, moved=max(1, size.moved)))


def _way(text: str, channel: Channel, facts: Known) -> str:
    """How a relation is brought up to date, as far as that is known while what it reads has not run."""
    try:
        return way_of(text, channel, facts)
    except Beyond as error:
        return f"not known yet: it reads {error}"
