"""What a run is for, and which tasks that makes it run: decided in the transaction that starts it."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from kilonova.catalog import bindings, firings, registry
from kilonova.catalog.bindings import tasks_of
from kilonova.catalog.database import Transaction
from kilonova.catalog.firings import Claimed
from kilonova.catalog.observation import observe
from kilonova.engine.joint import Joint
from kilonova.engine.undertaking import Prepared
from kilonova.model.channel import Chronicle
from kilonova.model.reading import Reading
from kilonova.model.run import RunKind
from kilonova.model.task import Query
from kilonova.model.workflow import Workflow
from kilonova.schedule.planning import Progress, choose, feeds, selected


@dataclass(frozen=True, slots=True)
class Due:
    """The tasks that have something to do and are not held back by their schedules.

    Attributes:
        among: the tasks among which they are; None for all.
    """

    among: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """These tasks, whether they have something to do or not, and whatever their schedules."""

    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fired:
    """The tasks of a binding that a server has claimed, with or without something to do, whatever their schedules.

    What merely makes due, the arrivals that start a task in no workflowette, runs it only if it has something to do.

    Attributes:
        claimed: the binding and its firings.
        joint: what it has in common with others that go on in the same process; None if it goes alone.
    """

    claimed: Claimed
    joint: Joint | None = None


Occasion = Due | Asked | Fired
"""What a run is for."""


class Need(enum.Enum):
    """Why a task is run: because of news, if there are any; as it is asked for; or to tell the columns of nothing."""

    NEWS = "news"
    ASKED = "asked"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks to run, in order, the channels around them as the run found them, and those whose changes are read."""

    steps: tuple[tuple[Progress, Need], ...]
    chronicles: Mapping[str, Chronicle]
    followed: frozenset[str]


def prepared(tx: Transaction, occasion: Occasion) -> Prepared[Plan] | None:
    """What a run is going to do.

    Args:
        tx: the transaction that starts it.
        occasion: what it is for.

    Returns:
        Its tasks, with what they read and write; None if there is nothing to do.

    Raises:
        UnknownName: there is no such task.
    """
    need, claimed, binding = Need.NEWS, None, None
    match occasion:
        case Due(among):
            workflow, progress, chronicles = observe(tx, among)
            chosen = selected(workflow, progress, chronicles)
            binding = bindings.made_of(tx, chosen, whole=False)
        case Asked(tasks):
            workflow, progress, chronicles = observe(tx, tasks)
            chosen, need = tasks, Need.ASKED
            binding = bindings.made_of(tx, chosen, whole=True)
        case Fired():
            claimed = occasion.claimed
            workflow, progress, chronicles = observe(tx, tasks_of(tx, claimed.binding))
            progress = _let_go(progress)
            chosen, need = _started(tx, claimed, workflow, progress, chronicles)
            if not chosen:
                firings.idle(tx, claimed)
        case _:
            assert_never(occasion)
    if not chosen:
        return None
    needs = dict.fromkeys(chosen, need)
    while missing := _tellers(tx, needs, progress, chronicles):
        needs |= dict.fromkeys(missing, Need.COLUMNS)
        workflow, progress, chronicles = observe(tx, needs)
        progress = _let_go(progress)
    order = [task.name for task in workflow.order() if task.name in needs]
    pins = {
        block.number
        for name in order
        for feed in feeds(choose(progress[name], chronicles), progress[name], chronicles)
        for block in feed.reading.blocks
    }
    writes = tuple(channel for name in order for channel in progress[name].task.writes)
    read = {channel for name in order for channel in progress[name].task.reads}  # whichever variant comes to run
    for channel in (*writes, *sorted(read)):
        pins |= {block.number for block in chronicles[channel].snapshot(chronicles[channel].readable).blocks}
    for name in order:
        for channel in driven(progress[name], set(writes)):
            pins |= {block.number for block in chronicles[channel].blocks}
    plan = Plan(tuple((progress[name], needs[name]) for name in order), chronicles, registry.followed(tx, writes))
    return Prepared(
        kind=RunKind.TASKS,
        tasks=tuple(order),
        writes=writes,
        pins=tuple(sorted(pins)),
        plan=plan,
        claimed=claimed,
        binding=binding,
        merged=isinstance(occasion, Fired) and occasion.joint is not None,
    )


def common(tx: Transaction, parts: Iterable[Claimed]) -> tuple[Reading, ...]:
    """What several claimed bindings would read now that others of them would read too (Nova, section 4.2).

    What views read is left out: they read columns and rows of their own choice, straight from the files. So is what one
    definition alone reads, however often: that is executed once (`kilonova.engine.joint`).
    """
    counts: Counter[Reading] = Counter()
    readers: dict[Reading, set[str]] = {}
    for part in parts:
        workflow, progress, chronicles = observe(tx, tasks_of(tx, part.binding))
        progress = _let_go(progress)
        found: set[Reading] = set()
        for name in _started(tx, part, workflow, progress, chronicles)[0]:
            choice = choose(progress[name], chronicles)
            if not isinstance(choice.variant.logic, Query):
                for feed in feeds(choice, progress[name], chronicles):
                    if feed.port.channel not in progress[name].task.writes:
                        found.add(feed.reading)
                        readers.setdefault(feed.reading, set()).add(choice.variant.fingerprint)
        counts.update(found)
    return tuple(
        reading
        for reading, count in counts.items()
        if count > 1 and len(readers[reading]) > 1 and reading.blocks and reading.schema is not None
    )


def _started(
    tx: Transaction,
    claimed: Claimed,
    workflow: Workflow,
    progress: Mapping[str, Progress],
    chronicles: Mapping[str, Chronicle],
) -> tuple[tuple[str, ...], Need]:
    """Return the tasks of a binding that its firings run, and why: all of them if a trigger or a person starts it."""
    if firings.explicit(tx, claimed):
        return tuple(progress), Need.ASKED
    return selected(workflow, progress, chronicles), Need.NEWS


def _let_go(progress: Mapping[str, Progress]) -> dict[str, Progress]:
    """The same without schedules that hold back."""
    return {name: replace(item, waits_until=None) for name, item in progress.items()}


def _tellers(
    tx: Transaction,
    needs: Mapping[str, Need],
    progress: Mapping[str, Progress],
    chronicles: Mapping[str, Chronicle],
) -> list[str]:
    """The tasks that would tell the columns of what chosen tasks read, because nothing has come to them yet."""
    read = dict.fromkeys(channel for name in needs for channel in progress[name].task.reads)
    unknown = [name for name in read if chronicles[name].schema_at(chronicles[name].readable) is None]
    writers = registry.writers(tx, unknown)
    return [name for channel in unknown for name in writers[channel] if needs.get(name) is not Need.COLUMNS]


def driven(progress: Progress, written: set[str]) -> set[str]:
    """The channels written in this run that the task reads."""
    return {channel for channel in progress.task.reads if channel in written}
