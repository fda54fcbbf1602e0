"""Declaration of workflowettes (`DESIGN.md`, section 3): channels, and functions for tasks.

A task's function name is its output channel and its parameters are its ports, by default bound to the channels of the
same names; the annotations are the modes.

A workflowette is not attached to channels of a catalog (Nova, section 2.3): its channels are ports, which `bind`
attaches.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Generic, Literal, ParamSpec, TypeVar

from kilonova.declare.checks import Given, check_known_columns, checks_of
from kilonova.declare.composition import ColumnFunctions, Parts
from kilonova.declare.ddl import parse_requirements, parse_schema
from kilonova.declare.drafts import BoundDraft, Drafts, DraftTask, DraftVariant, custom_name
from kilonova.declare.encodings import CustomOf, Encodes, IncrementOf
from kilonova.declare.fingerprint import fingerprint
from kilonova.declare.normal_form import normal_sql
from kilonova.declare.schedules import schedule_of, seconds_of
from kilonova.declare.views import Refresh, ViewDraft
from kilonova.errors import DeclarationError, KilonovaError, closest_name
from kilonova.model.channel import Channel
from kilonova.model.column_rules import rules_of
from kilonova.model.encoding import Append, Changes, Columns, Custom, Encoding, Increment, Upsert
from kilonova.model.ingest_columns import check_ingest_columns
from kilonova.model.logic import Sql
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production
from kilonova.model.version import START
from kilonova.model.watched_directory import WatchedDirectory

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Names = str | tuple[str, ...] | list[str]
"""One name, or several."""

NewColumn = Literal["add", "ignore", "quarantine"]
"""What an ingest does about a column that its channel does not have."""


class DeclaredTask(Generic[Arguments, Result]):
    """Declared task: call it with DataFrames in a unit test, or add another `variant` to it.

    Args:
        workflowette: the workflowette that it belongs to.
        name: its name.
        function: its first variant.
    """

    def __init__(self, workflowette: Workflowette, name: str, function: Callable[Arguments, Result]) -> None:
        self._workflowette = workflowette
        self.name = name
        self.function = function
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Return what the task writes: the result of the function, with `columns` and `where` applied to it."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plain function only."""
        return _itself, (self.function,)

    def variant(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Add another variant of the task; it must give the same result.

        Args:
            function: as for `Workflowette.task`; its name is the variant's.
        """
        self._workflowette._add_variant(self.name, function, {})
        return function

    def migration(
        self, *, from_version: int, reads: Mapping[str, str] | None = None
    ) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
        """Add a migration: it changes the output of an earlier logic version to that of the present one; a decorator.

        It runs once, instead of recomputing the output, when the definition of the task has changed since that version
        (logic evolution, 2.6). It may read the task's own output and any channel, as the earlier version has read it,
        and must give what recomputing from the same input would. `kilonova status` and `kilonova plan` show the number
        of a task's logic version.

        Args:
            from_version: the number of the earlier logic version; `kn.START` for the rows of its input, with which the
                output of a task begins that is inserted.
            reads: the channel of each parameter whose name is not the channel's.

        Raises:
            DeclarationError: the number is lower, or an annotation is missing or is not `kn.All`.
        """
        if from_version < START:
            raise DeclarationError(
                f"a migration cannot start from the logic version {from_version}",
                task=self.name,
                hint="The first logic version of a task is 0",
            )

        def declared(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
            self._workflowette._add_variant(self.name, function, reads or {}, from_version)
            return function

        return declared


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class Workflowette:
    """Channels and tasks under one name, to be bound in a workflow, once or several times.

    Its channels are its ports: those that none of its tasks writes must be attached when it is bound, the others may.

    Args:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._drafts = Drafts()

    def channel(
        self,
        name: str,
        schema: str | None = None,
        *,
        key: Names | None = None,
        encoding: Encodes = None,
        description: str = "",
        checks: Given = (),
        watch: WatchedDirectory | None = None,
        several_writers: bool = False,
        sequence_by: str | None = None,
        retention: str | None = None,
        on_new_column: NewColumn = "quarantine",
        rename: Mapping[str, str] | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> None:
        """Declare a channel.

        Args:
            name: its name.
            schema: its columns as DDL, `"id string, n bigint"`; None infers them from the first rows written. Ingests
                fill the columns `_file string`, `_file_time timestamp` and `_ingested timestamp`.
            key: the columns that identify its rows.
            encoding: the encoding of its deltas: `"append"`, `"upsert"`, `"changes"`, `"columns"`, `increment(…)` or
                `custom(…)`; by default append, or upsert where a key is given.
            description: description for users.
            checks: checks of its rows; see `view`.
            watch: the directory whose files are ingested into it, each once: `watched_directory(…)`.
            several_writers: whether several tasks and ingests may write it: deltas, never a base.
            sequence_by: the column that tells which of two ingested rows of a key is newer, such as a version, a time,
                or `_file`: a row never replaces one with a higher value, whenever it is ingested. Only for the encoding
                upsert, without deletions.
            retention: how long its points stay readable after newer ones, such as `"7 days"`, whatever is compacted and
                collected meanwhile; None for as long as their blocks are needed.
            on_new_column: what an ingest does about a column that the channel does not have (logic evolution, 3.1.2):
                `"add"` it to the channel, with null in the rows before; `"ignore"` it; or `"quarantine"` the file, or
                reject the ingest.
            rename: former names of columns, each with the present one: `{"headline": "title"}`. Files may have either.
                A column that the channel has by a former name is renamed, and existing rows keep its values.
            defaults: values of columns that files may lack: `{"site": "unknown"}`; None for null.

        Raises:
            DeclarationError: the name is taken, the schema cannot be parsed, or the encoding, a check or a rule for
                columns does not fit.
        """
        if name in self._drafts.channels:
            raise DeclarationError("the channel is declared twice", channel=name, hint="Rename or remove one of them")
        try:
            columns = None if schema is None else parse_schema(schema)
            own = checks_of(checks)
            if columns is not None:
                check_known_columns(own, columns.names)
                check_ingest_columns(columns)
            self._drafts.channels[name] = Channel(
                name=name,
                schema=columns,
                encoding=self._encoding(_names(key), encoding, columns),
                description=description,
                checks=own,
                watch=watch,
                several_writers=several_writers,
                sequence_by=sequence_by,
                retention=None if retention is None else seconds_of(retention),
                rules=rules_of(on_new_column, rename or {}, defaults or {}, columns),
            )
        except KilonovaError as error:
            raise error.with_context(channel=name) from error.__cause__

    def task(
        self,
        function: Callable[..., Any] | None = None,
        *,
        reads: Mapping[str, str] | None = None,
        writes: Names | None = None,
        schema: str | None = None,
        key: Names | None = None,
        encoding: Encodes = None,
        columns: ColumnFunctions | None = None,
        where: str | None = None,
        per_row: bool = False,
        requires: Mapping[str, str] | None = None,
    ) -> Any:
        """Declare a task; a decorator, with or without arguments.

        Args:
            function: takes a DataFrame per port and returns one per channel written.
            reads: the channel of each parameter whose name is not the channel's.
            writes: the channels written, if not the one of the function's name.
            schema: declares the written channel inline; so do `key` and `encoding`.
            key: see `channel`.
            encoding: see `channel`.
            columns: column functions: each computes one column of the rows that the function returns. Its parameters
                are columns of these rows; those that the channel does not have are there for column functions, and are
                not written. If a column function changes, and the task's own function has not, the next run computes
                only its column again (logic evolution, 2.7). For tasks with one parameter, each row of whose result
                depends on one row of it; and a column on its row only, always in the same way.
            where: a condition in Spark SQL on the rows that the function returns, with the columns of column functions.
                The task writes those for which it is true; in an upsert the others are deleted. If only the condition
                changes, the next run removes and adds the rows that it touches.
            per_row: whether each row of the result depends on one row of the only parameter; so rows can be added if
                the condition becomes looser. With `columns` this is so anyway.
            requires: the columns of each parameter on which the function relies, `{"orders": "id bigint, note string"}`
                (logic evolution, 3.3.1): it is only called with data that was written with them. If there is none yet,
                the logic version that runs at present goes on until there is; if there is no longer any, the task
                stops before it.

        Returns:
            The task, which can be called like the function: the result is what it writes.

        Raises:
            DeclarationError: an annotation is missing or invalid, or the name is taken; or column functions are given
                for a task with several parameters or outputs, or for a channel without such a column, or a key.
            QueryError: the condition cannot be parsed, is not about one row, or is not deterministic.
        """

        def declared(body: Callable[..., Any]) -> DeclaredTask[..., Any]:
            name = body.__name__
            if name in self._drafts.tasks:
                raise DeclarationError("the task is declared twice", task=name, hint="Rename or remove one of them")
            outputs = _names(writes) or (name,)
            in_place = schema is not None or key is not None or encoding is not None
            if in_place and len(outputs) > 1:
                raise DeclarationError(
                    "the arguments schema, key and encoding are for tasks that write one channel",
                    task=name,
                    hint="Declare each channel with channel(…)",
                )
            if in_place or (len(outputs) == 1 and outputs[0] not in self._drafts.channels):
                self.channel(outputs[0], schema, key=key, encoding=encoding)
            composed = columns or where is not None or per_row
            if composed and len(outputs) > 1:
                raise DeclarationError(
                    "the arguments columns, where and per_row are for tasks that write one channel",
                    task=name,
                    hint="Compute the columns and rows in the function itself",
                )
            try:
                channel = self._drafts.channels.get(outputs[0])
                parts = None
                if composed and channel is not None:
                    parts = Parts(columns=columns or {}, where=where, per_row=per_row, channel=channel)
                self._drafts.tasks[name] = DraftTask(outputs, [], parts)
                whole = self._add_variant(name, body, reads or {})
                self._require(name, requires or {})
            except KilonovaError as error:
                self._drafts.tasks.pop(name, None)
                raise error.with_context(task=name) from None
            return DeclaredTask(self, name, whole)

        return declared if function is None else declared(function)

    def sql(
        self,
        name: str,
        query: str,
        *,
        reads: Mapping[str, Any],
        produces: Any,
        schema: str | None = None,
        key: Names | None = None,
        encoding: Encodes = None,
        requires: Mapping[str, str] | None = None,
    ) -> None:
        """Declare a task that is one Spark SQL query.

        Args:
            name: the task and the channel that it writes.
            query: the query, with its ports in braces: `SELECT * FROM {articles}`.
            reads: the mode of each port: `{"articles": kn.New}`; ports are named as their channels.
            produces: `kn.Base` or `kn.Delta`.
            schema: declares the written channel inline; so do `key` and `encoding`.
            key: see `channel`.
            encoding: see `channel`.
            requires: see `task`.

        Raises:
            DeclarationError: a mode is invalid, or the name is taken.
        """
        if name in self._drafts.tasks:
            raise DeclarationError("the task is declared twice", task=name, hint="Rename or remove one of them")
        if name not in self._drafts.channels:
            self.channel(name, schema, key=key, encoding=encoding)
        ports = tuple(Port(port, port, _mark(mode, Mode, name, f"the port {port}")) for port, mode in reads.items())
        production = _mark(produces, Production, name, "the result")
        variant = DraftVariant(
            name=name,
            ports=ports,
            productions=(production,),
            logic=Sql(text=query),
            fingerprint=normal_sql(query),
        )
        self._drafts.tasks[name] = DraftTask((name,), [variant])
        self._require(name, requires or {})

    def view(
        self,
        name: str,
        query: str,
        *,
        key: Names | None = None,
        refresh: Refresh = "auto",
        description: str = "",
        checks: Given = (),
        schedule: str | None = None,
        materialized: bool = True,
        retention: str | None = None,
        requires: Mapping[str, str] | None = None,
    ) -> None:
        """Declare a view: one Spark SQL query over channels and other views, kept up to date.

        Its incremental maintenance is derived from the query; intermediate relations stored for it are separate
        channels, `<name>__1` and so on (Nova, section 6; asynchronous scheduling, section 3).

        Args:
            name: the view and the channel that holds it.
            query: the query; its tables are channels, also those of other workflows once they are registered.
            key: the columns that identify its rows, if they do not follow from the query.
            refresh: `"incremental"` rejects a query that cannot be refreshed incrementally, `"full"` recomputes it in
                each run, `"auto"` is incremental where possible.
            description: description for users.
            checks: checks of its rows; if one fails, the run fails and publishes nothing: `not_null`, columns;
                `unique`, the columns of a combination, or a list of such; `accepted_values`, the values of each
                column; `expressions`, conditions in Spark SQL.
            schedule: the schedule on which it runs automatically: `"every 1 hour"` after its last run, or a cron
                expression.
            materialized: whether its rows are stored. Otherwise they are computed where other views of the workflow
                read it, and it has no channel: changes pass through it in memory (pipelining; Nova, sections 1 and 4).
            retention: see `channel`.
            requires: columns of channels that the query reads, with their types, which the channels do not have yet:
                see `task`. Those that they have are inferred from the query.

        Raises:
            DeclarationError: the name is taken, there is no such refresh method, check or schedule, or a view that is
                not materialized has one of them or a key.
            QueryError: a condition cannot be parsed.
        """
        try:
            draft = ViewDraft(
                name=name,
                query=query,
                key=_names(key),
                refresh=refresh,
                description=description,
                checks=checks_of(checks),
                schedule=None if schedule is None else schedule_of(schedule),
                materialized=materialized,
                retention=None if retention is None else seconds_of(retention),
                requires=parse_requirements(requires or {}),
            )
        except KilonovaError as error:
            raise error.with_context(task=name) from None
        self.add(draft)

    def add(self, view: ViewDraft) -> None:
        """Declare a view from its draft; see `view`.

        Args:
            view: the draft.

        Raises:
            DeclarationError: the name is taken.
        """
        if view.name in self._drafts.tasks or view.name in self._drafts.views:
            raise DeclarationError("the task is declared twice", task=view.name, hint="Rename or remove one of them")
        if view.name in self._drafts.channels:
            raise DeclarationError(
                "the channel is declared twice", channel=view.name, hint="Rename or remove one of them"
            )
        self._drafts.views[view.name] = view

    def bind(self, name: str, workflowette: Workflowette, ports: Mapping[str, str] | None = None) -> None:
        """Bind another workflowette within this one, attached to channels of this one (Nova, section 2.3).

        Args:
            name: the binding's name: its tasks, and those of its channels that are not attached, are called
                `<name>__<task>` and `<name>__<channel>`.
            workflowette: the workflowette.
            ports: the channel for each port; optional for ports that its tasks write.

        Raises:
            DeclarationError: the name is taken, it has no such port, or a required port is not attached.
        """
        self._drafts.bind(
            BoundDraft(name=name, workflowette=workflowette.name, drafts=workflowette._drafts, ports=ports or {})
        )

    def _encoding(self, key: tuple[str, ...], encoding: Encodes, schema: Schema | None) -> Encoding:
        match encoding:
            case None:
                return Upsert(key) if key else Append()
            case "append" if not key:
                return Append()
            case "append":
                raise DeclarationError("the encoding append has no key", hint="Leave out the key, or use upsert")
            case "upsert":
                return Upsert(key)
            case "changes":
                return Changes(key)
            case "columns":
                return Columns(key)
            case IncrementOf(measures):
                return Increment(key, measures)
            case CustomOf(functions, delta):
                if delta is not None and schema is None:
                    raise DeclarationError(
                        "deltas with columns of their own need a channel with declared columns",
                        hint="Declare the channel's schema too",
                    )
                name = custom_name(functions, fingerprint(functions).digest)
                self._drafts.encodings[name] = functions
                own = None if delta is None else parse_schema(delta)
                return Custom(key, name, own, has_diff=hasattr(functions, "diff"))
            case _:
                raise DeclarationError(
                    f"there is no encoding {encoding!r}",
                    hint="Use append, upsert, changes, columns, increment(…) or custom(…)",
                )

    def _require(self, task: str, requires: Mapping[str, str]) -> None:
        """Add the columns that a task requires of its ports."""
        draft = self._drafts.tasks[task]
        channels = {port.name: port.channel for variant in draft.variants for port in variant.ports}
        for port in requires:
            if port not in channels or channels[port] in draft.writes:
                inputs = [name for name, channel in channels.items() if channel not in draft.writes]
                problem = f"the argument requires names {port}, which is not an input of the task"
                raise DeclarationError(problem, task=task, hint=closest_name(port, inputs))
        found = parse_requirements({channels[port]: ddl for port, ddl in requires.items()})
        self._drafts.tasks[task] = replace(draft, requires=found)

    def _add_variant(
        self, task: str, function: Callable[..., Any], reads: Mapping[str, str], from_version: int | None = None
    ) -> Callable[..., Any]:
        """Add a variant or a migration to a task, and return the function that it calls."""
        draft = self._drafts.tasks[task]
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
        for name in reads:
            if name not in parameters:
                problem = f"the argument reads names {name}, which is not a parameter of the function"
                raise DeclarationError(problem, task=task, hint=closest_name(name, list(parameters)))
        if not reads and draft.variants:
            reads = {port.name: port.channel for port in draft.variants[0].ports if port.name in parameters}
        ports = tuple(
            Port(name, reads.get(name, name), _mark(hints.get(name), Mode, task, f"the parameter {name}"))
            for name in parameters
        )
        productions = _productions(hints.get("return"), task, len(draft.writes))
        whole = function
        if draft.parts is not None and from_version is None:
            whole = draft.parts.composed(function, ports, draft.writes, productions[0])
        draft.variants.append(
            DraftVariant(
                name=function.__name__,
                ports=ports,
                productions=productions,
                logic=whole,
                from_version=from_version,
            )
        )
        return whole


def _names(names: Names | None) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)


Mark = TypeVar("Mark", Mode, Production)


def _mark(hint: Any, kind: type[Mark], task: str, what: str) -> Mark:
    """Return the mode or production in an annotation."""
    if typing.get_origin(hint) is Annotated:
        for item in hint.__metadata__:
            if isinstance(item, kind):
                return item
    choices = "kn.All, kn.New, kn.Old, kn.Changes or kn.Inserts" if kind is Mode else "kn.Base or kn.Delta"
    example = "orders: kn.New" if kind is Mode else "-> kn.Delta"
    raise DeclarationError(f"{what} is not annotated with {choices}", task=task, hint=f"Annotate it, such as {example}")


def _productions(hint: Any, task: str, outputs: int) -> tuple[Production, ...]:
    """Return the production of each output: the annotation gives one for all, or one for each."""
    items = typing.get_args(hint) if typing.get_origin(hint) is tuple else (hint,)
    found = tuple(_mark(item, Production, task, "the result") for item in items if item is not ...)
    return found * outputs if len(found) == 1 else found
