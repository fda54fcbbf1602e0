"""Derivation of migrations of the output of a Python task that is composed of parts: only what has changed runs again.

Let the old and the new function of a task be of one body; C are the columns that are computed differently, and W and
W' the conditions. If W and W' do not depend on C, the new output is the old one without the rows for which W is true
and W' is not, with those for which W' is true and W is not, and with new values in C (logic evolution, 2.7).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kilonova.model.channel import Channel, ChannelState
from kilonova.model.composed_function import ComposedFunction
from kilonova.model.encoding import Append, Changes, Columns, Custom, Encoding, Increment, Upsert, key_of
from kilonova.model.logic import Function, Logic
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.query.containment import difference, is_constant
from kilonova.query.expression import Scalar
from kilonova.query.expression_syntax import condition_of
from kilonova.query.function_migration import FunctionMigration
from kilonova.query.migration.migration import NoMigration
from kilonova.query.view_migration import MIGRATION


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One migration: of columns, or of rows that it deletes or adds; `constant` says whether the condition is."""

    text: str
    columns: tuple[str, ...] = ()
    where: Scalar | None = None
    deletes: bool = False
    adds: bool = False
    reads_output: bool = False
    constant: bool = False


def derive_function_migration(
    old: Task, new: Task, from_version: int, own: ChannelState, declared: Channel, inputs: Mapping[str, ChannelState]
) -> tuple[Variant, ...] | NoMigration | None:
    """Return the migrations of the output of a task that is composed of parts.

    Args:
        old: the task that has written the output.
        new: the task as declared.
        from_version: the logic version of `old`.
        own: the channel that it writes, as it is.
        declared: that channel as declared.
        inputs: the channels that it reads.

    Returns:
        The migrations, in the order in which they run; None if neither task is composed of parts.
    """
    before, after = _parts(old), _parts(new)
    if before is None or after is None or not any(isinstance(each, ComposedFunction) for each in _logics(old, new)):
        return None
    if (obstacle := _obstacle(old, new, own, declared, inputs)) is not None:
        return NoMigration(reason=obstacle)
    steps = _steps(before, after, own, declared)
    if isinstance(steps, NoMigration):
        return steps
    return tuple(
        _variant(step, f"{MIGRATION} {number}" if number > 1 else MIGRATION, from_version, new, after)
        for number, step in enumerate(steps, 1)
    )


def _logics(*tasks: Task) -> list[Logic]:
    return [variant.logic for task in tasks for variant in task.variants]


def _parts(task: Task) -> ComposedFunction | None:
    """Return the parts of a task's function, which may be the body alone; None if it is not a Python task."""
    variant = task.variants[0]
    match variant.logic:
        case ComposedFunction() as found:
            return found
        case Function(pickled=pickled, source=source):
            return ComposedFunction(pickled=pickled, source=source, body=variant.fingerprint)
        case _:
            return None


def _obstacle(
    old: Task, new: Task, own: ChannelState, declared: Channel, inputs: Mapping[str, ChannelState]
) -> str | None:
    """Return why the rows and columns that have not changed may not be those of before; None if they are."""
    if _shape(old) != _shape(new):
        return "the task's own function, its ports or its variants have changed"
    if any(port.channel in new.writes for variant in new.variants for port in variant.ports):
        return "it reads its own output"
    blocks = own.snapshot(own.latest_readable).blocks
    if declared.encoding != own.channel.encoding or any(key_of(each.encoding) != declared.key for each in blocks):
        return "the key or the encoding of its output changes"
    for variant in new.variants:
        for port in variant.ports:
            if port.mode is Mode.NEW and not _has_rows(inputs[port.channel].channel.encoding):
                return f"the deltas of {port.channel} are not rows"
    return None


def _shape(task: Task) -> list[object]:
    return [
        (
            each.name,
            each.ports,
            each.productions,
            each.logic.body if isinstance(each.logic, ComposedFunction) else each.fingerprint,
        )
        for each in task.variants
    ]


def _has_rows(encoding: Encoding) -> bool:
    return not isinstance(encoding, Columns | Increment | Custom)


def _steps(
    before: ComposedFunction, after: ComposedFunction, own: ChannelState, declared: Channel
) -> list[_Step] | NoMigration:
    """Return the steps from the output of one function to that of another with the same body."""
    was, now = dict(before.columns), dict(after.columns)
    stored = own.as_written(own.latest_readable).schema or Schema(())
    relation = declared.schema or stored
    there = {(column.name, column.type) for column in stored.columns}
    known = {column.name: column.type for column in relation.columns if (column.name, column.type) in there}
    again = tuple(name for name in known if now.get(name) != was.get(name))
    added = tuple(name for name in relation.names if name not in known)
    dropped = tuple(sorted({*stored.names} - {*relation.names}))
    wanted, had = (None if each.where is None else condition_of(each.where) for each in (after, before))
    read = {name for each in (wanted, had) if each is not None for name in each.columns}
    changed = {name for name in was.keys() | now.keys() if now.get(name) != was.get(name)}
    if (wanted, had) != (None, None) and (common := sorted(read & changed)):
        return NoMigration(reason=f"the condition is about {_listed(common)}, which is computed differently")
    if (again or added or dropped) and not declared.key:
        return NoMigration(reason="the columns of rows without a key change")
    if (again or added) and not after.per_row:
        return NoMigration(reason=_unsaid("its columns change"))
    types = {name: known.get(name) for name in read}
    removal, addition = difference(had, wanted, types), difference(wanted, had, types)
    steps: list[_Step] = []
    if removal is not None:
        if isinstance(declared.encoding, Append):
            return NoMigration(reason="the condition excludes rows, which the encoding append cannot remove")
        if not (reads_output := removal.columns <= known.keys()) and not after.per_row:
            return NoMigration(reason=_unsaid(f"the output lacks {_listed(sorted(removal.columns - known.keys()))}"))
        columns = () if declared.key else relation.names
        text = f"deletes the rows with {_shown(removal)}"
        constant = isinstance(declared.encoding, Upsert | Changes | Columns) and is_constant(removal, types)
        step = _Step(text=text, columns=columns, where=removal, deletes=True, reads_output=reads_output)
        steps.append(replace(step, constant=constant))
    if addition is not None:
        if not after.per_row:
            return NoMigration(reason=_unsaid("the condition admits more rows"))
        text = f"adds the rows with {_shown(addition)}"
        steps.append(_Step(text=text, columns=relation.names, where=addition, adds=True))
    texts = ("computes {} again", again), ("adds {}", added), ("drops {}", dropped)
    if again or added or dropped or not steps:
        text = ", ".join(text.format(_listed(names)) for text, names in texts if names) or "changes no rows"
        columns = (*again, *added)
        steps.append(_Step(text=text, columns=columns, where=wanted, reads_output=not columns))
    return steps


def _unsaid(problem: str) -> str:
    return f"{problem}, and per_row=True does not say that they can be computed row by row"


def _variant(step: _Step, name: str, from_version: int, task: Task, parts: ComposedFunction) -> Variant:
    (output,) = task.writes
    port = task.variants[0].ports[0]
    read = Port(output, output, Mode.ALL) if step.reads_output else Port(port.name, port.channel, Mode.ALL)
    content = {
        "columns": step.columns,
        "where": None if step.where is None else step.where.sql,
        "deletes": step.deletes,
        "adds": step.adds,
        "removal": step.where.sql if step.where is not None and step.reads_output and step.constant else None,
        "mode": port.mode.value,
    }
    return Variant(
        name=name,
        ports=(read,),
        productions=(Production.DELTA,),
        logic=FunctionMigration(text=step.text, pickled=parts.pickled, stored=json.dumps(content)),
        fingerprint=step.text,
        from_version=from_version,
    )


def _shown(condition: Scalar) -> str:
    """Return a condition as text for users."""
    return re.sub(r"`(\w+)`", r"\1", condition.sql)


def _listed(names: Sequence[str]) -> str:
    """Return names as text.

    >>> _listed(("a",)), _listed(("a", "b", "c"))
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
