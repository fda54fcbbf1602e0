"""Calling what a variant does, and checking what it gives back before anything is written."""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException

from kilonova.engine.seam import Frame, Warehouse
from kilonova.errors import (
    BrokenInvariant,
    EncodingError,
    KeyViolation,
    KilonovaError,
    QueryError,
    SchemaMismatch,
    TaskFailed,
)
from kilonova.model.channel import Channel
from kilonova.model.encoding import delta_schema, optional_columns
from kilonova.model.schema import RESERVED, Schema, check_names
from kilonova.model.task import Function, Logic, Production, Query, Sql, Task
from kilonova.warehouse.jobs import is_of_data, translated


@functools.lru_cache(maxsize=256)
def unpickled(pickled: bytes) -> Any:
    """The object kept by value in the catalog.

    Raises:
        TaskFailed: it cannot be brought back, for example because a module that it needs is not installed.
    """
    try:
        return pickle.loads(pickled)
    except Exception as error:
        raise TaskFailed(
            f"its definition cannot be loaded: {error!r}",
            hint="Install what it imports, or apply the workflow again",
        ) from error


def invoke(warehouse: Warehouse[Frame], task: Task, logic: Logic, frames: Mapping[str, Frame]) -> tuple[Frame, ...]:
    """Call what a variant does with what its ports are fed.

    Args:
        warehouse: executes SQL, and knows what a DataFrame is.
        task: the task.
        logic: what its variant does.
        frames: a DataFrame per port.

    Returns:
        A DataFrame per channel that the task writes, in that order.

    Raises:
        TaskFailed: the code raised, or did not return the DataFrames that it declares.
    """
    try:
        with translated(None):
            match logic:
                case Sql(text=text):
                    result: Any = warehouse.sql(text, frames)
                case Query():
                    raise BrokenInvariant("the change of a query was not derived before it was asked for")
                case Function(pickled=pickled):
                    result = unpickled(pickled)(**frames)
    except KilonovaError as error:
        raise error.within(task=task.name) from error.__cause__
    except PySparkException as error:
        raise TaskFailed(f"Spark refused it: {reason(error)}", task=task.name) from error
    except Exception as error:
        raise TaskFailed(f"it raised {type(error).__name__}: {error}", task=task.name) from error
    results = result if isinstance(result, tuple | list) else (result,)
    if len(results) != len(task.writes) or not all(map(warehouse.is_frame, results)):
        got = ", ".join(type(item).__name__ for item in results)
        raise TaskFailed(
            f"it returned {got or 'nothing'} instead of {len(task.writes)} DataFrame(s)",
            task=task.name,
            hint=f"Return one DataFrame for each of: {', '.join(task.writes)}",
        )
    return tuple(results)


@contextmanager
def blamed(task: str) -> Iterator[None]:
    """What Spark raises while it executes what a task returned is the task's failure.

    Raises:
        TaskFailed: Spark raised something that is not one of Kilonova's own errors.
    """
    try:
        yield
    except PySparkException as error:
        raise TaskFailed(f"it failed while Spark executed it: {reason(error)}", task=task) from error


def reason(error: PySparkException) -> str:
    """Sentence that says why, out of what Spark says, and the expression that it is about.

    Python's own last line is what an error within a Python function says.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception): ", line)]
    sentence = (python[-1] if python else lines[0] if lines else type(error).__name__)[:400]
    fragments = (context.fragment() for context in error.getQueryContext() or ())
    expression = " ".join(next(fragments, "").split())
    return f"{sentence}, in {_shortened(expression)}" if expression else sentence


def _shortened(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else f"{text[:longest]} …"


def in_full_instead(error: Exception) -> bool:
    """Return whether making a view anew may do what following its change could not.

    That is so for failures of the derived query and of its execution: Spark refuses it or lacks memory for it, or
    its result breaks a law. It is not so where rows cannot be computed or violate a check, nor where the run was ended,
    or trying again may help.
    """
    cause = error.__cause__ if isinstance(error, TaskFailed) else error
    if isinstance(cause, PySparkException):
        return not is_of_data(cause)
    if isinstance(error, KilonovaError):
        return isinstance(error, BrokenInvariant | EncodingError | KeyViolation | QueryError | SchemaMismatch)
    return True


def checked(given: Schema, channel: Channel, production: Production, task: str | None) -> Schema:
    """Check that rows fit a channel.

    Args:
        given: the columns of what a task returned, or an ingest read.
        channel: the channel that it goes to.
        production: whether it is the whole relation or a delta.
        task: the task, for messages.

    Returns:
        The relation's schema: the channel's, or the visible columns given where the channel has none yet. A channel
        whose columns were not declared gets those that come to the ones that it has.

    Raises:
        SchemaMismatch: a column is missing, is not wanted or has another type.
    """
    try:
        actual = given.visible
        if channel.schema is None:
            relation = actual if production is Production.BASE else actual.without(*RESERVED)
            check_names(relation)
            return Channel(name=channel.name, schema=relation, encoding=channel.encoding).schema or relation
        relation = channel.schema
        if channel.adopts:
            relation = Schema((*relation.columns, *actual.without(*relation.names, *RESERVED).columns))
            check_names(relation)
        if production is Production.BASE:
            relation.require(actual)
        else:
            wanted = delta_schema(channel.encoding, relation)
            wanted.require(actual, optional=optional_columns(channel.encoding, channel.schema))
        return relation
    except SchemaMismatch as error:
        where = {"channel": channel.name} | ({"task": task} if task else {})
        raise error.within(**where) from None
