"""Invocation of a variant's logic, and validation of its result before anything is written."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import PySparkException

from kilonova.engine.interfaces import Frame, WarehouseInterface
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
from kilonova.model.encoding import delta_schema, key_of, optional_columns
from kilonova.model.logic import Executable
from kilonova.model.schema import RESERVED, Schema, check_names
from kilonova.model.task import Production, Task
from kilonova.model.widening import is_wider
from kilonova.warehouse.spark_errors import is_of_data, summarize_error, translate_errors


@functools.lru_cache(maxsize=256)
def load_function(pickled: bytes) -> Any:
    """Return an object that the catalog stores by value.

    Raises:
        TaskFailed: it cannot be unpickled, for example because a module that it needs is not installed.
    """
    try:
        return pickle.loads(pickled)
    except Exception as error:
        raise TaskFailed(
            f"the definition of the task cannot be loaded: {error!r}",
            hint="Install what it imports, or apply the workflow again",
        ) from error


@dataclass(frozen=True, slots=True)
class _Runtime:
    sql: Callable[[str, Mapping[str, Any]], Any]
    function: Callable[[bytes], Callable[..., Any]]


def invoke(
    warehouse: WarehouseInterface[Frame], task: Task, logic: Executable, frames: Mapping[str, Frame]
) -> tuple[Frame, ...]:
    """Call the compiled logic of a variant with its inputs.

    Args:
        warehouse: executes SQL, and recognises DataFrames.
        task: the task.
        logic: the compiled logic of its variant.
        frames: a DataFrame per input.

    Returns:
        A DataFrame per channel that the task writes, in that order.

    Raises:
        TaskFailed: the code raised, or did not return the DataFrames that it declares.
    """
    try:
        with translate_errors(None):
            result = logic.call(_Runtime(warehouse.sql, load_function), frames)
    except KilonovaError as error:
        raise error.with_context(task=task.name) from error.__cause__
    except PySparkException as error:
        raise TaskFailed(f"Spark rejected the query: {summarize_error(error)}", task=task.name) from error
    except Exception as error:
        raise TaskFailed(f"the task raised {type(error).__name__}: {error}", task=task.name) from error
    results = result if isinstance(result, tuple | list) else (result,)
    if len(results) != len(task.writes) or not all(map(warehouse.is_frame, results)):
        got = ", ".join(type(item).__name__ for item in results)
        raise TaskFailed(
            f"the task returned {got or 'nothing'} instead of {len(task.writes)} DataFrame(s)",
            task=task.name,
            hint=f"Return one DataFrame for each of: {', '.join(task.writes)}",
        )
    return tuple(results)


@contextmanager
def attribute_errors(task: str) -> Iterator[None]:
    """Attribute errors that Spark raises within the block, while it executes a task's result, to the task.

    Raises:
        TaskFailed: Spark raised an error that is not one of Kilonova's own.
    """
    try:
        yield
    except PySparkException as error:
        raise TaskFailed(f"the task failed in Spark: {summarize_error(error)}", task=task) from error


def may_succeed_in_full(error: Exception) -> bool:
    """Return whether recomputing a view may succeed after incremental maintenance failed.

    It may after failures of the derived query and of its execution: Spark rejects it or lacks memory for it, or its
    result violates an invariant. It cannot where rows cannot be computed or violate a check, where the run was ended,
    or where a retry may succeed.
    """
    cause = error.__cause__ if isinstance(error, TaskFailed) else error
    if isinstance(cause, PySparkException):
        return not is_of_data(cause)
    if isinstance(error, KilonovaError):
        return isinstance(error, BrokenInvariant | EncodingError | KeyViolation | QueryError | SchemaMismatch)
    return True


def validate_output(given: Schema, channel: Channel, production: Production, task: str | None) -> Schema:
    """Check that rows fit a channel.

    Args:
        given: the columns of a task's result, or of an ingest's rows.
        channel: the channel to which the rows are written.
        production: whether they are the whole relation or a delta.
        task: the task, for messages.

    Returns:
        The relation's schema: the channel's, or the user columns given where the channel has none yet. A channel whose
        columns were not declared gets new columns in addition to those that it has, and wider types.

    Raises:
        SchemaMismatch: a column is missing, is not part of the schema or has another type.
    """
    try:
        actual = given.user_columns
        if channel.schema is None:
            relation = actual if production is Production.BASE else actual.without(*RESERVED)
            check_names(relation)
            return Channel(name=channel.name, schema=relation, encoding=channel.encoding).schema or relation
        relation = channel.schema
        if channel.adopts:
            relation = _widened(relation, actual, key_of(channel.encoding))
            relation = Schema((*relation.columns, *actual.without(*relation.names, *RESERVED).columns))
            check_names(relation)
        if production is Production.BASE:
            relation.validate(actual)
        else:
            wanted = delta_schema(channel.encoding, relation)
            wanted.validate(actual, optional=optional_columns(channel.encoding, channel.schema))
        return relation
    except SchemaMismatch as error:
        where = {"channel": channel.name} | ({"task": task} if task else {})
        raise error.with_context(**where) from None


def _widened(relation: Schema, given: Schema, key: tuple[str, ...]) -> Schema:
    """Return a relation whose columns other than the key have the types of given rows that are wider."""
    types = {column.name: column.type for column in given.columns if column.name not in key}
    return Schema(
        tuple(
            replace(column, type=types[column.name]) if is_wider(types.get(column.name, ""), column.type) else column
            for column in relation.columns
        )
    )
