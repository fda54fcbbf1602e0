"""Workflow from a folder of SQL files: one view or source channel per file, with the name of the file.

A file with a query is a view; one with a CREATE TABLE is a source channel, whose key is the primary key. Further
properties are in front matter above it. The folder with its subfolders is one workflow of the folder's name; views may
read each other in any order, and the registered channels of other workflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from sqlglot import exp

from kilonova.declare.checks import checks_of
from kilonova.declare.ddl import parse_requirements, table_of
from kilonova.declare.directories import watched_directory
from kilonova.declare.frontmatter import FrontMatterField, split_front_matter
from kilonova.declare.schedules import schedule_of, seconds_of
from kilonova.declare.source import Source
from kilonova.declare.views import Refresh, ViewDraft
from kilonova.declare.workflow import Workflow
from kilonova.declare.workflowette import NewColumn
from kilonova.errors import DeclarationError, KilonovaError, QueryError, closest_name
from kilonova.model.channel import BlockType
from kilonova.model.check import Check, NotNull
from kilonova.model.schedule import Schedule
from kilonova.model.watched_directory import WatchedDirectory

_VIEW = (
    *("key", "refresh", "description", "checks", "schedule", "materialized", "retention"),
    *("bound_staleness", "bound_inconsistency", "accept_blocks", "requires"),
)
_TABLE = ("description", "checks", "watch", "sequence_by", "retention", "on_new_column", "rename", "defaults")
_WATCH = ("path", "pattern", "format", "options", "poll_interval", "settle_time", "in_order")


def workflow_from_folder(path: Path) -> Workflow:
    """Return the workflow defined by a folder of SQL files.

    Args:
        path: the folder; paths in errors start with it as given.

    Raises:
        DeclarationError: it contains no SQL file, two of one name, or one with an invalid declaration.
        QueryError: a file cannot be parsed.
    """
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() == ".sql" and file.is_file())
    if not files:
        raise DeclarationError("the folder contains no .sql file", path=str(path), hint="Write one view per file")
    workflow = Workflow(path.resolve().name)
    taken: dict[str, Path] = {}
    for file in files:
        other = taken.setdefault(file.stem.lower(), file)
        if other is not file:
            raise DeclarationError(
                f"{other} has the same name: both would declare {file.stem}",
                path=str(file),
                hint="Rename one of them",
            )
        try:
            _declare(workflow, file)
        except KilonovaError as error:
            raise error.with_context(path=str(file)) from error.__cause__
    return workflow


def _declare(workflow: Workflow, file: Path) -> None:
    """Declare the view or source channel of a file."""
    name = file.stem
    if not name.isidentifier():
        raise DeclarationError(
            f"{name!r} is not a valid channel name", hint="Use letters, digits and underscores, starting with a letter"
        )
    parts = split_front_matter(_text(file))
    statement, source = Source(str(file), parts.body, parts.line).statement()
    match statement:
        case exp.Query():
            _known(parts.fields, _VIEW, "a view")
            workflow.add(
                ViewDraft(
                    name=name,
                    query=source.text,
                    key=_names(parts.fields, "key"),
                    refresh=cast(Refresh, _word(parts.fields, "refresh") or "auto"),
                    description=_word(parts.fields, "description"),
                    checks=_checks(parts.fields),
                    schedule=_schedule(parts.fields),
                    materialized=_materialized(parts.fields),
                    retention=seconds_of(kept) if (kept := _word(parts.fields, "retention")) else None,
                    requires=parse_requirements(_words(parts.fields, "requires")),
                    source=source,
                )
            )
            _bound(workflow, name, parts.fields)
        case exp.Create(kind="TABLE"):
            _known(parts.fields, _TABLE, "a table")
            table = table_of(statement)
            if table.name != name:
                raise DeclarationError(
                    f"the file declares the table {table.name}", hint=f"Rename it to {table.name}.sql"
                )
            filled = tuple(NotNull(column) for column in table.filled)
            workflow.channel(
                name,
                table.schema.ddl,
                key=table.key or None,
                description=_word(parts.fields, "description"),
                checks=(*filled, *_checks(parts.fields)),
                watch=_watch(parts.fields),
                sequence_by=_word(parts.fields, "sequence_by") or None,
                retention=_word(parts.fields, "retention") or None,
                on_new_column=cast(NewColumn, _word(parts.fields, "on_new_column") or "quarantine"),
                rename=_words(parts.fields, "rename"),
                defaults=_words(parts.fields, "defaults"),
            )
        case _:
            raise QueryError("this is neither a query nor a CREATE TABLE", hint="Write a SELECT")


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DeclarationError(
            f"the file is not UTF-8: {error.reason} at byte {error.start}", hint="Save it as UTF-8"
        ) from None
    except OSError as error:
        raise DeclarationError(
            f"the file cannot be read: {error.strerror or error}", hint="Check that it exists, and its permissions"
        ) from None


def _known(fields: Mapping[str, FrontMatterField], names: Iterable[str], what: str) -> None:
    allowed = list(names)
    for name, field in fields.items():
        if name not in allowed:
            raise DeclarationError(f"line {field.line}: {what} has no field {name!r}", hint=closest_name(name, allowed))


def _word(fields: Mapping[str, FrontMatterField], name: str) -> str:
    """Return the value of a text field; empty if the field is missing."""
    field = fields.get(name)
    if field is None:
        return ""
    if not isinstance(field.value, str):
        raise DeclarationError(f"line {field.line}: {name} must be a string", hint=f"Write {name}: …")
    return field.value.strip()


def _words(fields: Mapping[str, FrontMatterField], name: str) -> Mapping[str, str]:
    """Return the value of a field with a string per name; empty if the field is missing."""
    field = fields.get(name)
    value = {} if field is None else field.value
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        line = "" if field is None else f"line {field.line}: "
        key = "path" if name.startswith("bound") else "column"
        raise DeclarationError(f"{line}{name} must be a mapping of strings", hint=f"Write {name}: {{{key}: …}}")
    return cast(Mapping[str, str], value)


def _checks(fields: Mapping[str, FrontMatterField]) -> tuple[Check, ...]:
    field = fields.get("checks")
    if field is None:
        return ()
    if not isinstance(field.value, dict):
        raise DeclarationError(f"line {field.line}: checks must be a mapping", hint="Write checks: {not_null: [a]}")
    with _at(field):
        return checks_of(field.value)


def _watch(fields: Mapping[str, FrontMatterField]) -> WatchedDirectory | None:
    """Return the watched directory of a file: a path, or a mapping with the parameters of `watched_directory`."""
    field = fields.get("watch")
    if field is None:
        return None
    given = {"path": field.value} if isinstance(field.value, str) else field.value
    with _at(field):
        if not isinstance(given, dict) or "path" not in given:
            raise DeclarationError(
                "the field watch must be a path, or a mapping with a path", hint="Write watch: inbox"
            )
        for name, value in given.items():
            if name not in _WATCH:
                raise DeclarationError(
                    f"the field watch has no parameter {name!r}", hint=closest_name(name, list(_WATCH))
                )
            if not isinstance(value, dict if name == "options" else str):
                kind, example = ("a mapping", "{header: true}") if name == "options" else ("a string", "…")
                raise DeclarationError(f"the parameter {name} must be {kind}", hint=f"Write {name}: {example}")
        return watched_directory(**cast(dict[str, Any], given | {"in_order": _true("in_order", given.get("in_order"))}))


def _materialized(fields: Mapping[str, FrontMatterField]) -> bool:
    field = fields.get("materialized")
    if field is None:
        return True
    with _at(field):
        return _true("materialized", _word(fields, "materialized") or "true")


def _bound(workflow: Workflow, view: str, fields: Mapping[str, FrontMatterField]) -> None:
    """Declare the bounds of a view, and the type of blocks that its readers accept.

    The bounds are a limit per path on its staleness, and a limit on its inconsistency.
    """
    if (kind := _word(fields, "accept_blocks")) != "":
        with _at(fields["accept_blocks"]):
            workflow.accept_blocks(view, cast(BlockType, kind))
    for path, limit in _words(fields, "bound_staleness").items():
        with _at(fields["bound_staleness"]):
            workflow.bound_staleness(view, path, limit)
    if (limit := _word(fields, "bound_inconsistency")) != "":
        with _at(fields["bound_inconsistency"]):
            workflow.bound_inconsistency(view, limit)


def _true(name: str, value: object) -> bool:
    """Return the value of a field that is true or false; false if there is none."""
    text = str(value or "false").lower()
    if text not in ("true", "false"):
        raise DeclarationError(f"{name} must be true or false", hint=f"Write {name}: true")
    return text == "true"


def _schedule(fields: Mapping[str, FrontMatterField]) -> Schedule | None:
    text = _word(fields, "schedule")
    if not text:
        return None
    with _at(fields["schedule"]):
        return schedule_of(text)


@contextmanager
def _at(field: FrontMatterField) -> Iterator[None]:
    """Add the line of a field to errors raised within the block."""
    try:
        yield
    except KilonovaError as error:
        error.problem = f"line {field.line}: {error.problem}"
        raise


def _names(fields: Mapping[str, FrontMatterField], name: str) -> tuple[str, ...]:
    """Return the value of a field that is a column or a list of columns."""
    field = fields.get(name)
    match field.value if field is not None else []:
        case str(value):
            return (value,)
        case list(values) if all(isinstance(value, str) for value in values):
            return tuple(str(value) for value in values)
    assert field is not None
    raise DeclarationError(
        f"line {field.line}: {name} must be a column or a list of columns", hint=f"Write {name}: [a, b]"
    )
