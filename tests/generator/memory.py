"""A warehouse in plain Python behind the engine's seam: blocks are lists in memory, frames are tuples of rows.

It says by itself what each reading means, block by block, in the order of their chain, and takes nothing from
`kilonova.testing.reference`, which it is compared with. What it cannot do is SQL.
"""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any, assert_never

from pyspark.sql import SparkSession
from sqlalchemy import event

from kilonova.catalog import registry
from kilonova.catalog.database import Catalog, Transaction
from kilonova.engine.interfaces import JobHandle, no_tracking
from kilonova.engine.run_events import no_listener
from kilonova.errors import CheckFailed, Conflict, EncodingError, KeyViolation, KilonovaError
from kilonova.model.block import Base, Block, BlockName, Delta, External, Kind, Statistics
from kilonova.model.check import AcceptedValues, Check, NotNull, Unique, check_columns_exist, describe_check
from kilonova.model.column_mapping import ColumnMapping
from kilonova.model.encoding import (
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
from kilonova.model.read_plan import ChangesRead, DeltaRead, DiffRead, KeyLookup, ReadPlan, SnapshotRead
from kilonova.model.schema import Column, Schema
from kilonova.model.write_plan import WritePlan
from kilonova.schedule.layout import LayoutThresholds
from kilonova.service.project import Project
from kilonova.service.resources import ProjectResources
from kilonova.service.settings import load_settings
from kilonova.warehouse.pickled_functions import pickled_functions
from tests.databases import Clock
from tests.generator.native import fetched
from tests.generator.rows import Record, Row, Rows


class Memory:
    """The blocks of one catalog.

    Args:
        functions: gives the per-key functions of custom encodings by name.

    Attributes:
        pause: called before a block is written.
        row_size: the size that each row is said to have, in bytes.
    """

    def __init__(self, functions: Callable[[str], Any]) -> None:
        self.sizes = LayoutThresholds()
        self.functions = functions
        self.stored: dict[BlockName, list[Record]] = {}
        self.pause: Callable[[], None] = lambda: None
        self.row_size = 16

    # Files

    def delete(self, blocks: Iterable[BlockName]) -> None:
        for name in blocks:
            self.stored.pop(name, None)

    def blocks(self) -> list[BlockName]:
        return list(self.stored)

    def seal(self, block: BlockName, manifest: str) -> None:
        pass

    def unseal(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        pass

    def mark_committed(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        pass

    def keep_log(self, run: int, day: date, text: str) -> None:
        pass

    def delete_logs(self, before: date) -> None:
        pass

    def branches(self) -> list[str]:
        return []

    def delete_branch(self, name: str) -> None:
        pass

    # Frames

    def counting(self, name: str) -> AbstractContextManager[JobHandle]:
        return no_tracking(name)

    def is_frame(self, item: object) -> bool:
        return isinstance(item, Rows)

    def schema_of(self, frame: Rows) -> Schema:
        return frame.schema

    def sql(self, text: str, frames: Mapping[str, Rows]) -> Rows:
        raise NotImplementedError(text)

    @contextmanager
    def evaluated_once(
        self, frames: Sequence[Rows], inputs: Iterable[Rows], name: Callable[[], BlockName]
    ) -> Iterator[tuple[Rows, ...]]:
        yield tuple(frames)

    @contextmanager
    def holding(self, readings: Iterable[ReadPlan]) -> Iterator[None]:
        yield

    # Reading

    @property
    def shared(self) -> Callable[[ReadPlan, bool, KeyLookup | None], Rows]:
        raise NotImplementedError

    def open(self, reading: ReadPlan) -> Rows:
        schema = reading.schema
        assert schema is not None
        match reading:
            case SnapshotRead():
                return Rows(schema, tuple(self._snapshot(reading, schema)))
            case DeltaRead(encoding=encoding, deltas=deltas):
                return self._delta(encoding, schema, self._chained(encoding, schema, deltas))
            case DiffRead(old=old, new=new, encoding=encoding):
                before, after = self._snapshot(old, schema), self._snapshot(new, schema)
                return self._delta(encoding, schema, self._differing(encoding, schema, before, after))
            case ChangesRead(old=old, delta=delta):
                before = self._snapshot(old, schema)
                after = self._applied(before, delta.deltas, schema)
                return self._delta(Changes(), schema, self._differing(Changes(), schema, before, after))
            case _:
                assert_never(reading)

    def inserts(self, changes: Rows, schema: Schema) -> Rows:
        records = changes.records
        assert all(record["_weight"] > 0 for record in records)
        return Rows.of(schema, (record for record in records for _ in range(record["_weight"])))

    def relation(self, delta: Rows, encoding: Encoding, schema: Schema) -> Rows:
        records = self._completed(delta, encoding, schema)
        return Rows(schema, tuple(self._merged(encoding, schema, [], records)))

    # Ingesting

    def mapped(self, frame: Rows, mapping: ColumnMapping, schema: Schema, others: Sequence[str]) -> Rows:
        assert not others
        kept = [(name, to) for name, to in zip(frame.schema.names, mapping.targets, strict=True) if to is not None]
        columns = [Column(to, frame.schema.type_of(name)) for name, to in kept]
        columns += [Column(name, schema.type_of(name)) for name, _ in mapping.filled]
        assert all(schema.type_of(name) == "string" for name, _ in mapping.filled)
        filled = dict(mapping.filled)
        return Rows.of(Schema(tuple(columns)), ({to: row[name] for name, to in kept} | filled for row in frame.records))

    def with_ingest_columns(self, frame: Rows, names: Sequence[str]) -> Rows:
        assert not names
        return frame

    def newest(self, rows: Rows, key: Sequence[str], order: Sequence[str], size: int | None) -> Rows:
        (by,) = order
        found = []
        for group in _grouped(tuple(key), rows.records).values():
            places = [_place(record[by]) for record in group]
            if len(set(places)) < len(places):
                raise KeyViolation("two rows of a key are equal in the order", column=", ".join(key))
            found.append(max(group, key=lambda record: _place(record[by])))
        return Rows.of(rows.schema, found)

    def without_older(
        self, rows: Rows, key: Sequence[str], sequence_by: str, old: SnapshotRead, schema: Schema, size: int | None
    ) -> Rows:
        before = (_named(schema, row) for row in self._snapshot(old, schema))
        there = {at: group[0][sequence_by] for at, group in _grouped(tuple(key), before).items()}
        newer = (
            record
            for record in rows.records
            if (at := tuple(record[name] for name in key)) not in there
            or _place(record[sequence_by]) >= _place(there[at])
        )
        return Rows.of(rows.schema, newer)

    def _snapshot(self, reading: SnapshotRead, schema: Schema) -> list[Row]:
        rows: list[Row] = []
        if (base := reading.base) is not None:
            measures = reading.encoding.measures if isinstance(reading.encoding, Increment) else ()
            for record in self._records(base, schema):
                values = (record.get(name) for name in schema.names)
                rows.append(
                    tuple(0 if v is None and n in measures else v for n, v in zip(schema.names, values, strict=True))
                )
        return self._applied(rows, reading.deltas, schema)

    def _applied(self, rows: list[Row], deltas: Sequence[Block], schema: Schema) -> list[Row]:
        for block in deltas:
            rows = self._merged(block.encoding, schema, rows, self._records(block, schema))
        return rows

    def _records(self, block: Block, schema: Schema) -> list[Record]:
        names = block.seen_as(schema).columns.names
        return [{name: record[name] for name in names} for record in self.stored[block.name]]

    def _merged(self, encoding: Encoding, schema: Schema, rows: list[Row], delta: list[Record]) -> list[Row]:
        """The rows after one delta."""
        match encoding:
            case Append():
                return [*rows, *(_row(schema, record) for record in delta)]
            case Upsert(key):
                latest = {_key(schema, key, row): row for row in rows}
                for record in delta:
                    at = tuple(record[name] for name in key)
                    latest.pop(at, None)
                    if not record["_deleted"]:
                        latest[at] = _row(schema, record)
                return list(latest.values())
            case Changes():
                weights = Counter(rows)
                for record in delta:
                    weights[_row(schema, record)] += record["_weight"]
                for row, weight in weights.items():
                    if weight < 0:
                        raise EncodingError(f"a row was retracted more often than it was there: {row}")
                return list(weights.elements())
            case Increment(key, measures):
                sums = {_key(schema, key, row): _named(schema, row) for row in rows}
                for record in delta:
                    at = tuple(record[name] for name in key)
                    before = sums.get(at, dict.fromkeys(measures, 0))
                    sums[at] = {n: record[n] for n in key} | {
                        n: (before[n] or 0) + (record.get(n) or 0) for n in measures
                    }
                return [_row(schema, record) for record in sums.values() if any(record[n] for n in measures)]
            case Columns(key):
                patched = {_key(schema, key, row): _named(schema, row) for row in rows}
                for record in delta:
                    at = tuple(record[name] for name in key)
                    if record["_deleted"]:
                        patched.pop(at, None)
                        continue
                    before = patched.get(at, dict.fromkeys(schema.names) | {n: record[n] for n in key})
                    patched[at] = before | {n: record.get(n) for n in record["_set"] if n in schema.names}
                return [_row(schema, record) for record in patched.values()]
            case Custom(key, name):
                function, by_key = self.functions(name), _grouped(key, (_named(schema, row) for row in rows))
                for at, group in _grouped(key, delta).items():
                    by_key[at] = function.merge(by_key.get(at, []), group)
                return [_row(schema, record) for group in by_key.values() for record in group]
            case _:
                assert_never(encoding)

    def _chained(self, encoding: Encoding, schema: Schema, deltas: Sequence[Block]) -> list[Record]:
        """The deltas as one in an encoding."""
        match encoding:
            case Append():
                return [record for block in deltas for record in self._records(block, schema)]
            case Upsert(key):
                latest: dict[Row, Record] = {}
                for block in deltas:
                    records = self._records(block, schema)
                    if isinstance(block.encoding, Changes):
                        records = sorted(records, key=lambda record: record["_weight"])
                        records = [record | {"_deleted": record["_weight"] < 0} for record in records]
                    latest |= {tuple(record[name] for name in key): record for record in records}
                return list(latest.values())
            case Changes():
                weights: Counter[Row] = Counter()
                for block in deltas:
                    for record in self._records(block, schema):
                        weights[_row(schema, record)] += record.get("_weight", 1)
                return [_named(schema, row) | {"_weight": weight} for row, weight in weights.items() if weight]
            case Increment(key, measures):
                sums: dict[Row, Counter[str]] = {}
                for block in deltas:
                    for record in self._records(block, schema):
                        amounts = sums.setdefault(tuple(record[name] for name in key), Counter())
                        for name in measures:
                            amounts[name] += record.get(name) or 0
                return [
                    dict(zip(key, at, strict=True)) | {name: amounts[name] for name in measures}
                    for at, amounts in sums.items()
                    if any(amounts.values())
                ]
            case Columns(key):
                others = [name for name in schema.names if name not in key]
                patches: dict[Row, Record | None] = {}
                for block in deltas:
                    for record in self._records(block, schema):
                        at = tuple(record[name] for name in key)
                        if record["_deleted"]:
                            patches[at] = None
                            continue
                        before = patches.get(at, {})
                        before = dict.fromkeys(others) if before is None else before
                        patches[at] = before | {n: record.get(n) for n in record["_set"] if n in others}
                return [_patch(key, at, patch) for at, patch in patches.items()]
            case Custom(key, name):
                function, folded = self.functions(name), dict[Row, list[Record]]()
                for block in deltas:
                    plain = [_named(schema, _row(schema, record)) for record in self._records(block, schema)]
                    for at, group in _grouped(key, plain).items():
                        folded[at] = function.chain(folded[at], group) if at in folded else group
                return [record for group in folded.values() for record in group]
            case _:
                assert_never(encoding)

    def _differing(self, encoding: Encoding, schema: Schema, old: list[Row], new: list[Row]) -> list[Record]:
        """A delta from one relation to another."""
        before, after = Counter(old), Counter(new)
        key = key_of(encoding)
        was, now = ({_key(schema, key, row): row for row in rows} for rows in (old, new))
        match encoding:
            case Append():
                if before - after:
                    raise EncodingError("rows disappeared, which the encoding append cannot express")
                return [_named(schema, row) for row in (after - before).elements()]
            case Changes():
                after.subtract(before)
                return [_named(schema, row) | {"_weight": weight} for row, weight in after.items() if weight]
            case Upsert():
                gone = [dict(zip(key, at, strict=True)) | {"_deleted": True} for at in was if at not in now]
                put = [_named(schema, row) | {"_deleted": False} for at, row in now.items() if was.get(at) != row]
                return [*gone, *put]
            case Increment(_, measures):
                made = []
                for at in {**was, **now}:
                    less, more = (_named(schema, rows[at]) if at in rows else {} for rows in (was, now))
                    amounts = {name: (more.get(name) or 0) - (less.get(name) or 0) for name in measures}
                    if any(amounts.values()):
                        made.append(dict(zip(key, at, strict=True)) | amounts)
                return made
            case Columns():
                gone = [_patch(key, at, None) for at in was if at not in now]
                for at, row in now.items():
                    old_row = _named(schema, was[at]) if at in was else {}
                    patch = {n: v for n, v in _named(schema, row).items() if n not in key}
                    patch = {n: v for n, v in patch.items() if n not in old_row or old_row[n] != v}
                    if patch or at not in was:
                        gone.append(_patch(key, at, patch))
                return gone
            case Custom(_, name):
                function = self.functions(name)
                if not hasattr(function, "diff"):
                    raise EncodingError(f"the custom encoding {name} has no diff")
                one, two = (_grouped(key, (_named(schema, row) for row in rows)) for rows in (old, new))
                made = []
                for at in {**one, **two}:
                    sides = one.get(at, []), two.get(at, [])
                    if Counter(map(repr, sides[0])) != Counter(map(repr, sides[1])):
                        made += function.diff(*sides)
                return made
            case _:
                assert_never(encoding)

    @staticmethod
    def _delta(encoding: Encoding, schema: Schema, records: Iterable[Record]) -> Rows:
        return Rows.of(delta_schema(encoding, schema), records)

    # Writing

    def write(self, frame: Rows, plan: WritePlan) -> Block | None:
        name, kind, schema, encoding, old = plan.name, plan.kind, plan.schema, plan.encoding, plan.old
        self.pause()
        for check in plan.checks:
            check_columns_exist(check, schema.names)
        removals = net_rows = None
        if isinstance(kind, Base):
            records = [_named(schema, row) for row in frame.rows] if frame.schema == schema else frame.records
            _refuse_keys(encoding, records, unique=not isinstance(encoding, Custom))
            if isinstance(encoding, Increment):
                records = [record | {n: record[n] or 0 for n in encoding.measures} for record in records]
                records = [record for record in records if any(record[name] for name in encoding.measures)]
            after = [_row(schema, record) for record in records]
        else:
            if old is None and isinstance(encoding, Changes) and encoding.key:
                raise Conflict("another run is writing the channel")
            records = self._completed(frame, encoding, schema)
            if not records:
                return None
            after = []
            if old is not None:
                before = self._snapshot(old, schema)
                after = self._merged(encoding, schema, before, records)
                if isinstance(encoding, Changes):
                    _refuse_keys(encoding, [_named(schema, row) for row in after], unique=True)
                else:
                    if not isinstance(encoding, Append) and Counter(before) == Counter(after):
                        return None
                    removals = (Counter(before) - Counter(after)).total()
                    net_rows = len(after) - len(before)
                if plan.strong and isinstance(encoding, Upsert | Increment | Columns):
                    records = self._differing(Changes(), schema, before, after)
                    encoding = Changes(encoding.key)
            elif isinstance(encoding, Changes) and any(record["_weight"] < 0 for record in records):
                raise Conflict("another run is writing the channel")
            if isinstance(encoding, Append):
                removals, net_rows = 0, len(records)
            if isinstance(encoding, Changes):
                net_rows = sum(record["_weight"] for record in records)
                removals = -sum(record["_weight"] for record in records if record["_weight"] < 0)
        _refuse_rows(plan.checks, schema, after)
        columns = schema if isinstance(kind, Base) else delta_schema(encoding, schema)
        return self._put(name, kind, schema, columns, encoding, records, removals, net_rows)

    def _put(
        self,
        name: BlockName,
        kind: Kind,
        schema: Schema,
        columns: Schema,
        encoding: Encoding,
        records: list[Record],
        removals: int | None = None,
        net_rows: int | None = None,
    ) -> Block:
        self.stored[name] = [{name: record.get(name) for name in columns.names} for record in records]
        return Block(
            number=name.number,
            suffix=name.suffix,
            kind=kind,
            schema=schema,
            encoding=encoding,
            columns=columns,
            buckets=0,
            statistics=Statistics(
                rows=len(records), bytes=self.row_size * len(records), files=1, removals=removals, net_rows=net_rows
            ),
        )

    def register(self, external: External, plan: WritePlan) -> Block | None:
        raise NotImplementedError(f"no files of the format {external.format} are read here")

    def verify(self, snapshot: SnapshotRead, checks: tuple[Check, ...]) -> None:
        assert snapshot.schema is not None
        _refuse_rows(checks, snapshot.schema, self._snapshot(snapshot, snapshot.schema))

    def compact(self, snapshot: SnapshotRead, name: BlockName) -> Block:
        self.pause()
        schema = snapshot.schema
        assert schema is not None
        records = [_named(schema, row) for row in self._snapshot(snapshot, schema)]
        return self._put(name, Base(snapshot.at), schema, schema, snapshot.encoding, records)

    def merge_deltas(self, deltas: tuple[Block, ...], base: Block | None, name: BlockName) -> Block:
        self.pause()
        first, records = deltas[0], [record for block in deltas for record in self.stored[block.name]]
        if isinstance(first.encoding, Upsert):
            newest = {tuple(map(record.get, first.encoding.key)): record for record in records}
            records = list(newest.values())
        kind, removals = Delta(first.start, deltas[-1].end), 0 if isinstance(first.encoding, Append) else None
        net = [block.statistics.net_rows for block in deltas]
        net_rows = None if None in net else sum(each or 0 for each in net)
        return self._put(name, kind, first.schema, first.columns, first.encoding, records, removals, net_rows)

    def _completed(self, delta: Rows, encoding: Encoding, schema: Schema) -> list[Record]:
        """The records of a delta as its maker gave it, with all control columns."""
        records = delta.records
        if not isinstance(encoding, Changes):
            _refuse_keys(encoding, records, unique=isinstance(encoding, Upsert | Columns))
        match encoding:
            case Append() | Custom():
                return records
            case Upsert():
                return [record | {"_deleted": bool(record.get("_deleted"))} for record in records]
            case Changes():
                weights: Counter[Row] = Counter()
                for record in records:
                    weight = record.get("_weight")
                    weights[_row(schema, record)] += 1 if weight is None else weight
                left = [_named(schema, row) | {"_weight": weight} for row, weight in weights.items() if weight]
                _refuse_keys(encoding, left, unique=False)
                return left
            case Increment(key, measures):
                sums: dict[Row, Counter[str]] = {}
                for record in records:
                    amounts = sums.setdefault(tuple(record[name] for name in key), Counter())
                    for name in measures:
                        amounts[name] += record[name] or 0
                return [
                    dict(zip(key, at, strict=True)) | dict(amounts)
                    for at, amounts in sums.items()
                    if any(amounts.values())
                ]
            case Columns(key):
                given = [name for name in schema.names if name in delta.schema.names and name not in key]
                made = []
                for record in records:
                    deleted, named = bool(record.get("_deleted")), record.get("_set")
                    for name in () if deleted or named is None else named:
                        if name not in schema.names or name in key:
                            raise EncodingError("_set names a column that it cannot set", column=name)
                    chosen = None if deleted else tuple(given if named is None else named)
                    made.append(record | {"_deleted": deleted, "_set": chosen})
                return made
            case _:
                assert_never(encoding)


def _place(value: Any) -> tuple[bool, Any]:
    """A value among others, of which null is the lowest."""
    return value is not None, value


def _row(schema: Schema, record: Mapping[str, Any]) -> Row:
    return tuple(record.get(name) for name in schema.names)


def _named(schema: Schema, row: Row) -> Record:
    return dict(zip(schema.names, row, strict=True))


def _key(schema: Schema, key: tuple[str, ...], row: Row) -> Row:
    return tuple(row[schema.names.index(name)] for name in key)


def _grouped(key: tuple[str, ...], records: Iterable[Record]) -> dict[Row, list[Record]]:
    groups: dict[Row, list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in key), []).append(record)
    return groups


def _patch(key: tuple[str, ...], at: Row, patch: Record | None) -> Record:
    control = {"_deleted": patch is None, "_set": None if patch is None else tuple(patch)}
    return dict(zip(key, at, strict=True)) | (patch or {}) | control


def _refuse_keys(encoding: Encoding, records: Iterable[Record], *, unique: bool) -> None:
    key = key_of(encoding)
    if not key:
        return
    for at, group in _grouped(key, records).items():
        if None in at:
            raise KeyViolation(f"a key is null: {at}", column=", ".join(key))
        if unique and len(group) > 1:
            raise KeyViolation(f"rows share the key {at}", column=", ".join(key))


def _refuse_rows(checks: Sequence[Check], schema: Schema, rows: Sequence[Row]) -> None:
    for check in checks:
        match check:
            case NotNull(column):
                bad = any(_named(schema, row)[column] is None for row in rows)
            case AcceptedValues(column, values):
                bad = any(_named(schema, row)[column] not in (None, *values) for row in rows)
            case Unique(columns):
                found = [_key(schema, columns, row) for row in rows]
                bad = any(n > 1 and None not in at for at, n in Counter(found).items())
            case _:
                raise NotImplementedError(check)
        if bad:
            raise CheckFailed("rows violate it", check=describe_check(check))


class Killed(BaseException):
    """The process is dead; nothing that it does has an effect any more."""


class QuickCatalog(Catalog):
    """A catalog that need not outlive the machine.

    Attributes:
        dead: whether the process that uses it has been killed.
    """

    def __init__(self, url: str, clock: Callable[[], datetime]) -> None:
        super().__init__(url, clock)
        self.dead = False
        if self.dialect == "sqlite":

            @event.listens_for(self._engine, "connect")
            def connected(connection: Any, _record: Any) -> None:
                connection.execute("PRAGMA synchronous=OFF")

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        self._live()
        with super().reading() as tx:
            yield tx

    @contextmanager
    def writing(self, *, brief: bool = False) -> Iterator[Transaction]:
        self._live()
        with super().writing(brief=brief) as tx:
            yield tx

    def _live(self) -> None:
        if self.dead:
            raise Killed


class GeneratedResources(ProjectResources):
    """Resources of a project whose blocks are in memory, unless there is a Spark session.

    Args:
        directory: where its catalog is.
        clock: gives the present moment.
        template: a catalog to begin with, in place of making one, if it is there; else it is left there.
        session: a Spark session, for a project on files.
    """

    catalog: QuickCatalog

    def __init__(self, directory: Path, clock: Clock, template: Path, session: SparkSession | None) -> None:
        super().__init__(load_settings(directory, retry={"wait": 0}), directory, no_listener, session)
        self.catalog.close()
        file = directory / "catalog.db"
        if template.exists():
            shutil.copy(template, file)
        self.catalog = QuickCatalog(f"sqlite:///{file}", clock)
        self.create()
        if not template.exists():
            self.catalog.close()
            shutil.copy(file, template)
        self.memory = Memory(functools.cache(self._function)) if session is None else None

    def _function(self, name: str) -> Any:
        with self.catalog.reading() as tx:
            return pickled_functions(registry.function(tx, name).pickled)

    @property
    def warehouse(self) -> Any:
        return self.memory or super().warehouse

    def block_store(self, catalog: Catalog | None = None) -> Any:
        return self.memory or super().block_store(catalog)


class GeneratedProject(Project):
    """A project of such resources."""

    catalog: QuickCatalog

    def __init__(self, directory: Path, clock: Clock, template: Path, session: SparkSession | None = None) -> None:
        resources = GeneratedResources(directory, clock, template, session)
        super().__init__(resources)
        self._memory = resources.memory
        self.clock = clock
        self._pauses: list[Callable[[], None]] = []
        if self._memory is not None:
            self._memory.pause = self._pause
        else:
            self._pause_in_spark()

    def interrupt(self, call: Callable[[], None]) -> None:
        """Have something happen once, before the next block is written."""
        self._pauses = [call]

    def _pause(self) -> None:
        if self._pauses:
            self._pauses.pop()()

    def _pause_in_spark(self) -> None:
        warehouse = self.warehouse
        write, compact, merge = warehouse.write, warehouse.compact, warehouse.merge_deltas

        def paused_write(*args: Any, **named: Any) -> Any:
            self._pause()
            return write(*args, **named)

        def paused_compact(*args: Any, **named: Any) -> Any:
            self._pause()
            return compact(*args, **named)

        def paused_merge(*args: Any, **named: Any) -> Any:
            self._pause()
            return merge(*args, **named)

        warehouse.write, warehouse.compact, warehouse.merge_deltas = paused_write, paused_compact, paused_merge

    def rise(self) -> None:
        """Go on as another process that finds what a dead one has left."""
        self.catalog.dead = False
        self.clock.forward(2 * self.settings.run_lease)
        self.resources.recover_expired_runs()

    def look_up(self, readings: Sequence[ReadPlan]) -> list[Rows | KilonovaError]:
        """The rows of readings, or why they cannot be read."""
        frames = list(map(self._frame_of, readings))
        return frames if self._memory is not None else fetched(frames)

    def _frame_of(self, reading: ReadPlan) -> Any:
        if self._memory is None and not reading.blocks and reading.schema is not None:  # what Spark would take long for
            schema = (
                reading.schema if isinstance(reading, SnapshotRead) else delta_schema(reading.encoding, reading.schema)
            )
            return Rows(schema, ())
        try:
            return self.warehouse.open(reading)
        except KilonovaError as error:
            return error
