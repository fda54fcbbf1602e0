"""Executable definition of *correct*: encodings, channels and whole workflows in plain Python.

A relation is a bag of rows: a `Counter` of tuples in schema order. A delta is a mapping; the value of a row or a key
depends on the encoding, and every entry of a delta has a meaning:

    append      row → how often to add it, > 0
    upsert      key → the new row, or None: a tombstone
    changes     row → its weight, ≠ 0
    increment   key → the amounts to add, not all 0
    columns     key → {column: new value}, without key columns, or None: the key is deleted
    custom      row → how often the user's function receives it, > 0

*A base is the delta that leads there from the empty relation*, and for all encodings but `custom` that makes
chain the only function to define:

    from_base(B) = D(∅, B)      to_base(Δ) = M(∅, Δ)      M(B, Δ) = to_base(C(from_base(B), Δ))

The laws are those of `kilonova.model.encoding`. The conversions of asynchronous scheduling, Figure 2, among
base B, strong delta Δ (`changes`) and weak delta δ (any encoding) follow from merge and diff:

    B → Δ  diff(Changes(), …)      B → δ  diff(encoding, …)      Δ → δ  weak(encoding, …)
    Δ → B  merge(Changes(), …)     δ → B  merge(encoding, …)     δ → Δ  strong(encoding, …)

Values must be hashable, and measures not null. Everything is deliberately slow; nothing here is ever mutated
except `ReferenceChannel` and `ReferenceWorkflow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, assert_never

from kilonova.errors import DeclarationError, EncodingError, KeyViolation, NotFound, SchemaMismatch, closest_name
from kilonova.model.channel import PointState
from kilonova.model.column_rules import ColumnRules, OnNewColumn
from kilonova.model.encoding import (
    DELETED,
    SET,
    WEIGHT,
    Append,
    Changes,
    Columns,
    Custom,
    Encoding,
    Increment,
    Upsert,
    delta_schema,
    key_of,
)
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production

Row = tuple[Hashable, ...]
Record = dict[str, Any]
Bag = Counter[Row]
Delta = Mapping[Row, Any]


class ReferencePerKey(Protocol):
    """User functions of a custom encoding: each takes and returns the rows of one key, in any order.

    There may also be `diff(old_rows, new_rows)`; without it, the encoding has no diff.
    """

    def merge(self, base_rows: list[Record], delta_rows: list[Record]) -> list[Record]:
        """Return the key's rows after the delta; `base_rows` is empty if the key is new."""

    def chain(self, first_rows: list[Record], second_rows: list[Record]) -> list[Record]:
        """Return one delta equivalent to `first_rows` followed by `second_rows`."""


def relation_of(encoding: Encoding, schema: Schema, rows: Iterable[Record]) -> Bag:
    """Return the relation with these rows, as a channel of this encoding can store it.

    A null amount is zero, and a key without any amount is absent.

    Raises:
        KeyViolation: a key is null, or duplicate where keys are unique.
    """
    bag: Bag = Counter(_row(schema, record) for record in rows)
    match encoding:
        case Increment(_, measures):
            zeros = dict.fromkeys(measures, 0)
            given = (_named(schema.names, row) for row in bag.elements())
            filled = ({name: zeros.get(name) if v is None else v for name, v in record.items()} for record in given)
            kept = (_row(schema, record) for record in filled if any(record[name] for name in measures))
            return _checked(encoding, schema, Counter(kept))
        case _:
            return _checked(encoding, schema, bag)


def records(schema: Schema, bag: Mapping[Row, int]) -> list[Record]:
    """Return the rows of a bag by column name, each as often as it occurs."""
    return [_named(schema.names, row) for row, n in bag.items() for _ in range(n)]


def empty(encoding: Encoding) -> Delta:
    """Return the delta that changes nothing."""
    return Counter() if isinstance(encoding, Append | Custom) else {}


def is_empty(delta: Delta) -> bool:
    """Return whether a delta has no entries. One that has entries may still change nothing: see `effective`."""
    return not delta


def from_base(encoding: Encoding, schema: Schema, base: Bag) -> Delta:
    """D(∅, base): the delta that creates this relation from the empty one."""
    match encoding:
        case Append():
            return base
        case Changes():
            return dict(base)
        case Upsert():
            return _keyed(encoding, schema, base.elements())
        case Increment(_, measures):
            rows = _keyed(encoding, schema, base.elements())
            return {key: _pick(schema, row, measures) for key, row in rows.items()}
        case Columns():
            rest = _rest(encoding, schema)
            rows = _keyed(encoding, schema, base.elements())
            return {key: _named(rest, _pick(schema, row, rest)) for key, row in rows.items()}
        case Custom():
            raise EncodingError("only the user's diff makes a custom delta of a base")
        case _:
            assert_never(encoding)


def to_base(encoding: Encoding, schema: Schema, delta: Delta) -> Bag:
    """M(∅, delta): the relation that the delta creates from the empty one.

    Raises:
        EncodingError: the delta removes more than there is.
        KeyViolation: a key of a changes channel is null or duplicate.
    """
    match encoding:
        case Append():
            return Counter(delta)
        case Changes():
            if any(weight < 0 for weight in delta.values()):
                raise EncodingError("the delta removes more rows than there are")
            return _checked(encoding, schema, Counter(delta))
        case Upsert():
            return Counter(row for row in delta.values() if row is not None)
        case Increment(key_names, measures):
            names = (*key_names, *measures)
            sums = (_named(names, key + amounts) for key, amounts in delta.items())
            return Counter(_row(schema, record) for record in sums)
        case Columns(key_names):
            patches = ((key, patch) for key, patch in delta.items() if patch is not None)
            return Counter(_row(schema, _named(key_names, key) | p) for key, p in patches)
        case Custom():
            raise EncodingError("only the user's merge makes a base of a custom delta")
        case _:
            assert_never(encoding)


def merge(
    encoding: Encoding, schema: Schema, base: Bag, delta: Delta, *, function: ReferencePerKey | None = None
) -> Bag:
    """M(base, delta): the relation after the delta.

    Raises:
        EncodingError: the delta does not apply to this relation.
        KeyViolation: the result would have a duplicate key.
    """
    if isinstance(encoding, Custom):
        own = delta_schema(encoding, schema)
        old, new = _by_key(encoding, schema, base), _by_key(encoding, own, delta)
        asked = _asked(encoding, (schema, own, schema), function, "merge", old, new, list(new))
        return sum((old | asked).values(), Counter())
    return to_base(encoding, schema, chain(encoding, schema, from_base(encoding, schema, base), delta))


def chain(
    encoding: Encoding, schema: Schema, first: Delta, second: Delta, *, function: ReferencePerKey | None = None
) -> Delta:
    """C(first, second): one delta equivalent to `first` followed by `second`."""
    match encoding:
        case Append():
            return Counter(first) + Counter(second)
        case Changes():
            return {row: n for row in {**first, **second} if (n := first.get(row, 0) + second.get(row, 0))}
        case Upsert():
            return {**first, **second}
        case Increment(_, measures):
            none = (0,) * len(measures)
            sums = {
                key: tuple(a + b for a, b in zip(first.get(key, none), second.get(key, none), strict=True))
                for key in {**first, **second}
            }
            return {key: amounts for key, amounts in sums.items() if any(amounts)}
        case Columns():
            nulls = dict.fromkeys(_rest(encoding, schema))
            chained = dict(first)
            for key, patch in second.items():
                before = first.get(key, {})
                chained[key] = None if patch is None else (nulls if before is None else before) | patch
            return chained
        case Custom():
            own = delta_schema(encoding, schema)
            one, two = _by_key(encoding, own, first), _by_key(encoding, own, second)
            both = [key for key in one if key in two]
            asked = _asked(encoding, (own, own, own), function, "chain", one, two, both)
            return sum((one | two | asked).values(), Counter())
        case _:
            assert_never(encoding)


def diff(encoding: Encoding, schema: Schema, old: Bag, new: Bag, *, function: ReferencePerKey | None = None) -> Delta:
    """D(old, new): a delta that leads from one relation to the other.

    Raises:
        EncodingError: the encoding cannot express it: rows are removed from an append channel, or the user's
            functions have no diff.
    """
    match encoding:
        case Append():
            if old - new:
                raise EncodingError("a delta of an append channel cannot remove rows")
            return new - old
        case Changes():
            return {row: n for row in old | new if (n := new[row] - old[row])}
        case Increment():
            before = from_base(encoding, schema, old)
            minus = {key: tuple(-amount for amount in amounts) for key, amounts in before.items()}
            return chain(encoding, schema, from_base(encoding, schema, new), minus)
        case Upsert() | Columns():
            before, after = from_base(encoding, schema, old), from_base(encoding, schema, new)
            gone = {key: None for key in before if key not in after}
            put = {key: row for key, row in after.items() if before.get(key) != row}
            if isinstance(encoding, Columns):
                put = {key: dict(row.items() - before.get(key, {}).items()) for key, row in put.items()}
            return put | gone
        case Custom():
            one, two = _by_key(encoding, schema, old), _by_key(encoding, schema, new)
            differing = [key for key in one | two if one.get(key) != two.get(key)]
            schemas = (schema, schema, delta_schema(encoding, schema))
            return sum(_asked(encoding, schemas, function, "diff", one, two, differing).values(), Counter())
        case _:
            assert_never(encoding)


def strong(
    encoding: Encoding, schema: Schema, delta: Delta, old: Bag, *, function: ReferencePerKey | None = None
) -> Delta:
    """δ → Δ: convert a weak delta to `old` into a strong one."""
    return diff(Changes(), schema, old, merge(encoding, schema, old, delta, function=function))


def weak(
    encoding: Encoding, schema: Schema, strong_delta: Delta, old: Bag, *, function: ReferencePerKey | None = None
) -> Delta:
    """Δ → δ: convert a strong delta to `old` into another encoding."""
    return diff(encoding, schema, old, merge(Changes(), schema, old, strong_delta), function=function)


def effective(
    encoding: Encoding, schema: Schema, delta: Delta, old: Bag, *, function: ReferencePerKey | None = None
) -> Delta:
    """Return the part of a delta that changes `old`: whole keys are kept or dropped.

    Drops upserts of equal rows, tombstones of absent keys, patches that change no column, and rows for which a custom
    function returns nothing new. Deltas of the other encodings have no ineffective entries.
    """

    def changes(part: Delta) -> bool:
        return merge(encoding, schema, old, part, function=function) != old

    match encoding:
        case Append() | Changes() | Increment():
            return delta
        case Upsert() | Columns():
            return {key: entry for key, entry in delta.items() if changes({key: entry})}
        case Custom():
            groups = _by_key(encoding, delta_schema(encoding, schema), delta)
            return sum((group for group in groups.values() if changes(group)), Counter())
        case _:
            assert_never(encoding)


def rows_of(encoding: Encoding, schema: Schema, delta: Delta) -> list[Record]:
    """Return the rows of a block that stores this delta, control columns included."""
    nulls = dict.fromkeys(schema.names)
    key_names, rest = key_of(encoding), _rest(encoding, schema)
    match encoding:
        case Append() | Custom():
            return records(delta_schema(encoding, schema), delta)
        case Changes():
            return [_named(schema.names, row) | {WEIGHT[0]: n} for row, n in delta.items()]
        case Increment(_, measures):
            names = (*key_names, *measures)
            return [_named(names, key + amounts) for key, amounts in delta.items()]
        case Upsert():
            return [
                nulls | _named(key_names, key) | (_named(schema.names, row) if row else {}) | {DELETED[0]: row is None}
                for key, row in delta.items()
            ]
        case Columns():
            return [
                nulls
                | _named(key_names, key)
                | (patch or {})
                | {
                    DELETED[0]: patch is None,
                    SET[0]: None if patch is None else [name for name in rest if name in patch],
                }
                for key, patch in delta.items()
            ]
        case _:
            assert_never(encoding)


def newest(key: Sequence[str], sequence_by: str, rows: Iterable[Record], old: Iterable[Record] = ()) -> list[Record]:
    """Return the rows that an ingest writes to a channel whose rows a column orders.

    They are those with the highest value per key, unless the old row has a higher one. Null is lower than any value.

    Raises:
        KeyViolation: two rows have the same key and the same value.
    """

    def place(record: Record) -> tuple[bool, Any]:
        return record[sequence_by] is not None, record[sequence_by]

    last: dict[Row, Record] = {}
    seen: set[Row] = set()
    for record in rows:
        at = tuple(record[name] for name in key)
        if (*at, record[sequence_by]) in seen:
            raise KeyViolation(f"the key {at} occurs twice with the same {sequence_by}")
        seen.add((*at, record[sequence_by]))
        if at not in last or place(last[at]) < place(record):
            last[at] = record
    there = {tuple(record[name] for name in key): record for record in old}
    return [record for at, record in last.items() if at not in there or place(there[at]) <= place(record)]


def by_rules(
    given: Sequence[Record],
    columns: Sequence[str],
    rules: ColumnRules,
    values: Mapping[str, Any],
    added: Collection[str] = (),
) -> tuple[list[str], list[Record]]:
    """Return the columns of a channel after an ingest of rows of one shape, and the rows with them.

    Args:
        given: the rows, by the names of their columns.
        columns: the columns of the channel.
        rules: its rules for other columns.
        values: the defaults of the rules as values.
        added: those of the columns that earlier rows have added, which may be lacking.

    Raises:
        SchemaMismatch: a column is there twice, is lacking, or is not one of the channel's.
    """
    after, rows = list(columns), []
    for record in given:
        row: Record = {}
        for name, value in record.items():
            target = dict(rules.rename).get(name, name)
            if target in row:
                raise SchemaMismatch("the column is there twice", column=target)
            if target in after or rules.on_new_column is OnNewColumn.ADD:
                row[target] = value
                after += [target] if target not in after else []
            elif rules.on_new_column is OnNewColumn.QUARANTINE:
                raise SchemaMismatch("the channel does not have the column", column=name)
        for name in columns:
            if name not in row and name not in values and name not in added:
                raise SchemaMismatch("the column is lacking", column=name)
        rows.append({**values, **row})
    return after, [{name: row.get(name) for name in after} for row in rows]


def delta_of(encoding: Encoding, schema: Schema, rows: Iterable[Record]) -> Delta:
    """Return the delta that the rows of a block store; control columns are optional.

    Weights of one row and amounts of one key add up, and rows whose weights add up to zero are none; a null amount adds
    nothing.

    Raises:
        KeyViolation: a key is null, or duplicate in an upsert or columns delta.
        EncodingError: `_set` names an unknown column, or a key column.
    """
    delta: dict[Row, Any] = dict(empty(encoding))
    schema = delta_schema(encoding, schema) if isinstance(encoding, Custom) else schema
    for record in rows:
        row = _row(schema, record)
        key = _pick(schema, row, key_of(encoding))
        if not isinstance(encoding, Changes):
            _not_null(key)
        match encoding:
            case Append() | Custom():
                delta[row] = delta.get(row, 0) + 1
            case Changes():
                weight = record.get(WEIGHT[0])
                delta = dict(chain(encoding, schema, delta, {row: 1 if weight is None else weight}))
            case Increment(_, measures):
                delta = dict(chain(encoding, schema, delta, {key: tuple(record.get(m) or 0 for m in measures)}))
            case Upsert() | Columns():
                if key in delta:
                    raise KeyViolation(f"the key {key} occurs twice in the delta")
                if record.get(DELETED[0]):
                    delta[key] = None
                elif isinstance(encoding, Upsert):
                    delta[key] = row
                else:
                    named = record.get(SET[0])
                    rest = _rest(encoding, schema)
                    for name in named or ():
                        if name not in rest:
                            raise EncodingError("_set names a column that it cannot set", column=name)
                    columns = [name for name in rest if name in (record if named is None else named)]
                    delta[key] = {name: record.get(name) for name in columns}
            case _:
                assert_never(encoding)
    if isinstance(encoding, Changes):
        for row in delta:
            _not_null(_pick(schema, row, encoding.key))
    return Counter(delta) if isinstance(encoding, Append | Custom) else delta


@dataclass(frozen=True)
class Written:
    """Content of a point: a whole relation, or a delta to the point before; neither if cancelled."""

    state: PointState
    whole: Bag | None = None
    part: Delta | None = None


@dataclass
class ReferenceChannel:
    """Channel: the content of points 1, 2, and so on."""

    name: str
    schema: Schema
    encoding: Encoding
    function: ReferencePerKey | None = None
    points: list[Written] = field(default_factory=list)

    def reserve(self) -> int:
        """Reserve the next point, to be written or cancelled later."""
        self.points.append(Written(PointState.RESERVED))
        return len(self.points)

    def write(self, point: int, *, whole: Bag | None = None, part: Delta | None = None) -> None:
        """Fill a reserved point, or cancel it if neither a relation nor a delta is given."""
        state = PointState.CANCELLED if whole is None and part is None else PointState.FILLED
        self.points[point - 1] = Written(state, whole, part)

    @property
    def readable(self) -> int:
        """Return the latest point below all reserved ones."""
        states = [written.state for written in self.points]
        return states.index(PointState.RESERVED) if PointState.RESERVED in states else len(states)

    def at(self, point: int) -> Bag:
        """Return the relation at a point."""
        bag: Bag = Counter()
        for written in self.points[:point]:
            if written.whole is not None:
                bag = written.whole
            elif written.part is not None:
                bag = merge(self.encoding, self.schema, bag, written.part, function=self.function)
        return bag

    def same(self, one: int, other: int) -> bool:
        """Return whether only cancelled points lie between two points."""
        between = self.points[min(one, other) : max(one, other)]
        return all(written.state is PointState.CANCELLED for written in between)

    def delta(self, start: int, end: int) -> Delta:
        """Return the change between two points: the chain of deltas, or the diff where a relation was written."""
        between = self.points[start:end]
        if any(written.whole is not None for written in between):
            return diff(self.encoding, self.schema, self.at(start), self.at(end), function=self.function)
        change = empty(self.encoding)
        for written in between:
            if written.part is not None:
                change = chain(self.encoding, self.schema, change, written.part, function=self.function)
        return change

    def read(self, mode: Mode, start: int, end: int) -> Bag | Delta:
        """Return the input of a port with this mode, between a cursor and a point.

        Raises:
            EncodingError: the mode is INSERTS, and a row is removed.
        """
        match mode:
            case Mode.ALL:
                return self.at(end)
            case Mode.OLD:
                return self.at(start)
            case Mode.NEW:
                return self.delta(start, end)
            case Mode.CHANGES | Mode.INSERTS:
                change = diff(Changes(), self.schema, self.at(start), self.at(end))
                if mode is Mode.CHANGES:
                    return change
                if any(weight < 0 for weight in change.values()):
                    raise EncodingError("rows are removed, which the mode INSERTS cannot express", channel=self.name)
                return Counter(change)
            case _:
                assert_never(mode)


@dataclass(frozen=True, kw_only=True)
class ReferenceTask:
    """Task with one variant: a function of its ports, by name.

    It returns a bag (BASE) or a delta in the channel's encoding (DELTA); with several outputs, a mapping from
    channel to those. Its productions are those of its outputs, in the order of `writes`.
    """

    name: str
    ports: tuple[Port, ...]
    writes: tuple[str, ...]
    productions: tuple[Production, ...]
    function: Callable[..., Any]

    def outputs(self, result: Any) -> dict[str, Any]:
        """Return the function's results, by channel."""
        return {self.writes[0]: result} if len(self.writes) == 1 else dict(result)


class ReferenceWorkflow:
    """Channels and tasks with their cursors; tasks are given in execution order.

    Args:
        channels: the channels.
        tasks: the tasks, each after those whose output it reads.
    """

    def __init__(self, channels: Sequence[ReferenceChannel], tasks: Sequence[ReferenceTask] = ()) -> None:
        self.channels = {channel.name: channel for channel in channels}
        self.tasks = {task.name: task for task in tasks}
        self.cursors: dict[tuple[str, str], int] = {}

    def snapshot(self, channel: str) -> Bag:
        """Return the relation at the latest readable point."""
        return self.channels[channel].at(self.channels[channel].readable)

    def ingest(self, channel: str, delta: Delta) -> bool:
        """Insert a delta into a source channel; return whether it changed anything."""
        if any(channel in task.writes for task in self.tasks.values()):
            raise DeclarationError("a task writes this channel", channel=channel)
        return self._publish(channel, Production.DELTA, delta)

    def due(self, task: ReferenceTask) -> bool:
        """Return whether an advancing port has new input; without such ports, whether any input has changed."""
        inputs = [port for port in task.ports if port.channel not in task.writes]
        advancing = [port for port in inputs if port.mode.advances]
        return any(
            not channel.same(self.cursors.get((task.name, channel.name), 0), channel.readable)
            for channel in (self.channels[port.channel] for port in advancing or inputs)
        )

    def run(self, tasks: Iterable[str] | None = None) -> list[str]:
        """Run those of the tasks (all if None) that are due, as one atomic run; return the ones that ran.

        A later task sees the output of an earlier one. If one raises, nothing is changed.
        """
        wanted = list(self.tasks) if tasks is None else list(tasks)
        for name in wanted:
            if name not in self.tasks:
                raise NotFound("there is no such task", task=name, hint=closest_name(name, list(self.tasks)))
        cursors = dict(self.cursors)
        points = {name: list(channel.points) for name, channel in self.channels.items()}
        done: list[str] = []
        try:
            for task in self.tasks.values():
                if task.name in wanted and self.due(task):
                    self._execute(task)
                    done.append(task.name)
        except BaseException:
            self.cursors = cursors
            for name, channel in self.channels.items():
                channel.points = points[name]
            raise
        return done

    def recomputed(self, task: str) -> dict[str, Bag]:
        """Return the task's output from the current inputs in one step from nothing, by channel written."""
        step = self.tasks[task]
        fresh = ReferenceWorkflow(
            [
                ReferenceChannel(c.name, c.schema, c.encoding, c.function, [] if c.name in step.writes else c.points)
                for c in self.channels.values()
            ],
            [step],
        )
        fresh._execute(step)
        return {name: fresh.snapshot(name) for name in step.writes}

    def rerun(self, task: str) -> None:
        """Recompute a task's outputs from nothing; if the task reads them, they are all new input to it."""
        step = self.tasks[task]
        for name, bag in self.recomputed(task).items():
            self._publish(name, Production.BASE, bag)
        for port in step.ports:
            own = port.channel in step.writes
            self.cursors[task, port.channel] = 0 if own else self.channels[port.channel].readable

    def _execute(self, task: ReferenceTask) -> None:
        ends = {port.channel: self.channels[port.channel].readable for port in task.ports}
        fed = {
            port.name: self.channels[port.channel].read(
                port.mode, self.cursors.get((task.name, port.channel), 0), ends[port.channel]
            )
            for port in task.ports
        }
        for channel, value in task.outputs(task.function(**fed)).items():
            self._publish(channel, task.productions[task.writes.index(channel)], value)
        self.cursors |= {(task.name, channel): end for channel, end in ends.items()}

    def _publish(self, name: str, production: Production, value: Any) -> bool:
        """Write the next point; cancel it if nothing changes."""
        channel = self.channels[name]
        encoding, schema, function = channel.encoding, channel.schema, channel.function
        old = channel.at(channel.readable)
        if production is Production.BASE:
            new = relation_of(encoding, schema, records(schema, value))
            written: dict[str, Any] = {"whole": new}
        else:
            part = effective(encoding, schema, value, old, function=function)
            new = merge(encoding, schema, old, part, function=function)
            written = {"part": part}
        changed: bool = new != old
        channel.write(channel.reserve(), **(written if changed else {}))
        return changed


def _named(names: Sequence[str], values: Row) -> Record:
    return dict(zip(names, values, strict=True))


def _row(schema: Schema, record: Record) -> Row:
    return tuple(record.get(name) for name in schema.names)


def _pick(schema: Schema, row: Row, names: Sequence[str]) -> Row:
    return tuple(row[schema.names.index(name)] for name in names)


def _rest(encoding: Encoding, schema: Schema) -> tuple[str, ...]:
    return tuple(name for name in schema.names if name not in key_of(encoding))


def _not_null(key: Row) -> Row:
    if None in key:
        raise KeyViolation(f"the key {key} is null")
    return key


def _keyed(encoding: Encoding, schema: Schema, rows: Iterable[Row]) -> dict[Row, Row]:
    """Return the rows by their key."""
    found: dict[Row, Row] = {}
    for row in rows:
        key = _not_null(_pick(schema, row, key_of(encoding)))
        if key in found:
            raise KeyViolation(f"the key {key} occurs twice")
        found[key] = row
    return found


def _checked(encoding: Encoding, schema: Schema, bag: Bag) -> Bag:
    if isinstance(encoding, Custom):
        for row in bag:
            _not_null(_pick(schema, row, encoding.key))
    elif key_of(encoding):
        _keyed(encoding, schema, bag.elements())
    return bag


def _by_key(encoding: Custom, schema: Schema, bag: Mapping[Row, int]) -> dict[Row, Bag]:
    groups: dict[Row, Bag] = {}
    for row, n in bag.items():
        groups.setdefault(_not_null(_pick(schema, row, encoding.key)), Counter())[row] = n
    return groups


def _asked(
    encoding: Custom,
    schemas: tuple[Schema, Schema, Schema],
    function: ReferencePerKey | None,
    name: str,
    first: dict[Row, Bag],
    second: dict[Row, Bag],
    keys: list[Row],
) -> dict[Row, Bag]:
    """Return the result of the user's merge, chain or diff for these keys; schemas: both sides and result.

    Raises:
        EncodingError: there is no such function, or it returned rows of another key.
    """
    f = getattr(function, name, None)
    if f is None:
        raise EncodingError(f"the custom encoding {encoding.function} has no {name}")
    made: dict[Row, Bag] = {}
    for key in keys:
        left, right, wanted = schemas
        rows = f(records(left, first.get(key, {})), records(right, second.get(key, {})))
        made[key] = Counter(_row(wanted, record) for record in rows)
        if any(_pick(wanted, row, encoding.key) != key for row in made[key]):
            raise EncodingError(f"the {name} of {encoding.function} returned rows of another key than {key}")
    return made
