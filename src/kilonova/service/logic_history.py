"""History of a task's logic: its versions, how each output was brought to the next one, and how two versions differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from kilonova.catalog import registry
from kilonova.catalog.database import Transaction
from kilonova.catalog.read_models.task_runs import FirstRun, first_run
from kilonova.catalog.registry import VersionRecord
from kilonova.errors import NotFound
from kilonova.model.task import Task
from kilonova.service.plan_descriptions import shape_changes, text_diff


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicVersion:
    """Logic version of a task.

    Attributes:
        task: the task.
        logic: the number of the version.
        registered: the time at which it was registered.
        ended: the time at which the next one was registered; None for the newest.
        migration: how the output of the version before becomes that of this one, as text for users; empty if it is
            recomputed, or for the first version.
        retracted: whether it was declared faulty.
        first_run: the first run that wrote output by it; None if there was none.
        known: whether its definition is known: not, if the catalog was recovered from the warehouse since.
    """

    task: str
    logic: int
    registered: datetime
    ended: datetime | None
    migration: str
    first_run: FirstRun | None
    retracted: bool
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicDifference:
    """Difference between two logic versions of a task.

    Attributes:
        task: the task.
        since: the number of the version that is compared with.
        logic: the number of the version.
        diff: the lines of its queries and functions that differ, in unified format.
        columns: the changes of the declared encoding and columns of its channels, as text for users.
    """

    task: str
    since: int
    logic: int
    diff: str
    columns: tuple[str, ...]


def logic_history(tx: Transaction, task: str) -> tuple[LogicVersion, ...]:
    """Return the logic versions of a task, newest first.

    Raises:
        NotFound: there is no such task.
    """
    registry.task_id(tx, task)
    records = _records(tx, task)
    ends = [later.registered for _, later in pairwise(records)]
    faulty = registry.retracted(tx).get(task, frozenset())
    found = []
    for record, ended in zip(records, [*ends, None], strict=True):
        known = bool(record.writes)
        migrations = registry.logic_version(tx, task, record.logic).migrations if known else ()
        texts = [each.logic.text if each.logic.derived else f"by {each.name}" for each in migrations]
        found.append(
            LogicVersion(
                task=task,
                logic=record.logic,
                registered=record.registered,
                ended=ended,
                migration=", then ".join(texts),
                first_run=first_run(tx, task, record.registered, ended),
                retracted=record.logic in faulty,
                known=known,
            )
        )
    return tuple(reversed(found))


def logic_difference(tx: Transaction, task: str, logic: int, since: int | None = None) -> LogicDifference:
    """Return how a logic version of a task differs from another, by default from the one before.

    Raises:
        NotFound: there is no such task or version, or its definition is not known.
    """
    records = {record.logic: record for record in _records(tx, task)}
    since = logic - 1 if since is None else since
    old, new = (_definition(tx, task, each, records) for each in (since, logic))
    channels = {channel.name: channel for channel in records[since].outputs}
    changes = [
        f"{channel.name}: {each}"
        for channel in records[logic].outputs
        if channel.name in channels and channels[channel.name] != channel
        for each in shape_changes(channels[channel.name], channel)
    ]
    return LogicDifference(
        task=task,
        since=since,
        logic=logic,
        diff=text_diff(old, new, f"version {since}", f"version {logic}"),
        columns=tuple(changes),
    )


def workflow_history(tx: Transaction, workflow: str, limit: int = 20) -> tuple[LogicVersion, ...]:
    """Return the newest logic versions of the active tasks of a workflow, the last registered first.

    Args:
        tx: an open transaction.
        workflow: the workflow.
        limit: the maximum number of versions.
    """
    newest = registry.newest_versions_of(tx, workflow, limit)
    histories = {task: {each.logic: each for each in logic_history(tx, task)} for task in {task for task, _ in newest}}
    return tuple(histories[task][logic] for task, logic in newest)


def _records(tx: Transaction, task: str) -> list[VersionRecord]:
    found = [record for record in registry.versions(tx, task) if record.task == task]
    return sorted(found, key=lambda record: record.logic)


def _definition(tx: Transaction, task: str, logic: int, records: Mapping[int, VersionRecord]) -> Task:
    if logic not in records:
        registry.task_id(tx, task)
        numbers = ", ".join(map(str, records))
        raise NotFound(f"there is no logic version {logic}", task=task, hint=f"The versions are {numbers}")
    if not records[logic].writes:
        problem = f"the definition of the logic version {logic} is not known"
        raise NotFound(problem, task=task, hint="It was registered before the catalog was recovered")
    return registry.logic_version(tx, task, logic)
