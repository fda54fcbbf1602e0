"""Lookups of rows by key in large snapshots, in this process, for changes that match few rows of what they join.

Spark reads the whole channel for such a join. Here the first column of the key is read alone, and of files sorted by
key only the parts that may have the values; the other columns are read only where rows are found that no later block
replaces. In a change that adds or deletes orders together with their lines, that is nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from kilonova.model.block import Base, Block, StoredFile
from kilonova.model.encoding import DELETED, WEIGHT, Append, Changes, Upsert, key_of
from kilonova.model.read_plan import ChangesRead, DeltaRead, KeyLookup, ReadPlan, SnapshotRead
from kilonova.model.schema import Schema
from kilonova.warehouse.arrow_types import arrow_schema, comparable_types
from kilonova.warehouse.block_rows import completed, last_places, names_of, with_new_names
from kilonova.warehouse.storage import Storage

_SHARE = 8
"""Least ratio of the rows of a channel to those of the changes whose values are looked up in it."""

_ROWS, _ROWS_FOUND = 1 << 20, 1 << 19
"""Number of rows of the changes, and of rows found in the files of a snapshot, at most."""

_MEMORY = 16 << 20
"""Size of the rows found in memory, and of their keys, in bytes, at most."""

_CACHED = 8
"""Number of sets of values that are cached, each with the keys found in files."""

_Changes = tuple[tuple[ReadPlan, str], ...]
"""Changes, each with the column whose values are looked up."""


class _TooMany(Exception):
    """Signals that so many rows are found that Spark had better read the channel."""


class KeyReader:
    """Reader of the rows of one warehouse by key.

    Args:
        storage: the storage of the blocks.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._search = lru_cache(maxsize=_CACHED)(self._new_search)  # of all views that look up the same

    def rows(self, snapshot: SnapshotRead, lookup: KeyLookup) -> pa.Table | None:
        """Return rows of a snapshot that `can_look_up`, with the columns of a lookup; None if there are many.

        Args:
            snapshot: the snapshot.
            lookup: which rows are enough, and which columns of them.

        Raises:
            StorageFailed: a block cannot be read.
        """
        assert snapshot.schema is not None
        key, wanted = snapshot.schema.only(key_of(snapshot.encoding)), snapshot.schema.only(lookup.columns)
        search = self._search(lookup.column, lookup.values)
        try:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = self._keys_found(pool, search, snapshot.blocks, key)
                chosen = zip(found, _last_of_keys(found), strict=True)
                parts = list(pool.map(lambda each: self._taken(each[0], each[1], wanted), chosen))
        except _TooMany:
            return None
        rows = pa.concat_tables([arrow_schema(wanted).empty_table(), *parts])
        return rows if rows.nbytes <= _MEMORY else None

    def _new_search(self, column: str, changes: _Changes) -> _Search:
        """Return a search for the values that columns have in the blocks of some changes, in a column."""
        parts, kinds = [], []
        for reading, name in changes:
            assert reading.schema is not None
            columns = reading.schema.only((name,))
            kinds.append(arrow_schema(columns).field(name).type)
            for block in _deltas(reading):
                stored = self._storage.table(block.name, block.stored or (), names_of(block, columns))
                parts.append(completed(with_new_names(stored, block, columns), columns)[name])
        return _Search(_Values.of(column, kinds[0], parts), {})

    def _keys_found(self, pool: Executor, search: _Search, blocks: Sequence[Block], key: Schema) -> list[_Found]:
        """Return the keys of rows in the files of blocks in which a column has one of the values searched for.

        Raises:
            _TooMany: there are too many.
        """
        known = [search.found.setdefault((block, key), {}) for block in blocks]
        total = _Total()
        for each in known:
            for found in tuple(each.values()):  # another thread may add to them
                total.add(found.count, found.size)

        def keys_in(block: Block, file: StoredFile, there: dict[StoredFile, _Found]) -> _Found:
            if file not in there:
                there[file] = self._keys_in(block, file, key, search.values, total)
            return there[file]

        files = [(block, file, each) for block, each in zip(blocks, known, strict=True) for file in block.stored or ()]
        return list(pool.map(lambda each: keys_in(*each), files))

    def _keys_in(self, block: Block, file: StoredFile, key: Schema, values: _Values, total: _Total) -> _Found:
        """Return the keys of rows in a file of a block in which a column has one of some values.

        Args:
            block: the block.
            file: the file.
            key: the columns of the key.
            values: the values.
            total: the sum of all keys found, to which these are added.

        Raises:
            _TooMany: there are too many.
        """
        found, column = _Found(block=block, file=file, keys=[], places=[]), values.column
        names = [name for name in names_of(block, key) if name != column]
        with self._storage.opened(block.name, file) as opened:
            for group in range(opened.num_row_groups):
                if values.may_be_in(opened.metadata.row_group(group)):
                    first = opened.read_row_group(group, [column], use_threads=False)
                    places = values.places_in(first[0])
                    if len(places):
                        rows = first.take(pa.array(places))
                        if names:
                            others = opened.read_row_group(group, names, use_threads=False).take(pa.array(places))
                            rows = pa.table({name: part[name] for part in (rows, others) for name in part.column_names})
                        found.add(group, places, rows, key)
                        total.add(len(places), found.keys[-1].nbytes)
        return found

    def _taken(self, found: _Found, last: Flags, wanted: Schema) -> pa.Table:
        """Return those rows found in a file that no later one replaces, with the columns that are wanted."""
        names = [name for name in names_of(found.block, wanted) if name not in (DELETED[0], WEIGHT[0])]
        parts, size, start = [arrow_schema(wanted).empty_table()], 0, 0
        with self._storage.opened(found.block.name, found.file) as opened:
            for group, places in found.places:
                chosen = places[last[start : start + len(places)]]
                start += len(places)
                if len(chosen):
                    rows = opened.read_row_group(group, names, use_threads=False).take(pa.array(chosen))
                    parts.append(completed(with_new_names(rows, found.block, wanted), wanted))
                    size += parts[-1].nbytes
                    if size > _MEMORY:
                        raise _TooMany
        return pa.concat_tables(parts)


def can_look_up(snapshot: SnapshotRead, lookup: KeyLookup, least: int) -> bool:
    """Return whether rows of a snapshot are to be looked up: it is large, and values are looked up in few of its rows.

    Args:
        snapshot: the snapshot.
        lookup: which rows are enough, and which columns of them.
        least: size of the snapshot from which on it is worth it, in bytes of Parquet.
    """
    schema, blocks = snapshot.schema, snapshot.blocks
    changes = [block for reading, _ in lookup.values for block in _deltas(reading)]
    rows = sum(block.statistics.rows for block in changes)
    key = key_of(snapshot.encoding)
    return (
        schema is not None
        and sum(block.statistics.bytes for block in blocks) >= least
        and rows <= min(_ROWS, sum(block.statistics.rows for block in blocks) // _SHARE)
        and all(_has_all_values(reading, name) for reading, name in lookup.values)
        and isinstance(snapshot.encoding, Changes | Upsert)
        and key[:1] == (lookup.column,)
        and all(block.encoding in (Upsert(key), Changes(key)) for block in snapshot.deltas)
        and all(block.external is None and block.stored is not None for block in (*blocks, *changes))
        and all(block.has_key_of(schema) for block in blocks)
        and comparable_types(schema, key, as_key=True)
        and comparable_types(schema, lookup.columns)
    )


def _has_all_values(reading: ReadPlan, name: str) -> bool:
    """Return whether the blocks of a change have all values of a column, of rows that it removes too."""
    match reading:
        case DeltaRead(deltas=deltas):
            return all(isinstance(block.encoding, Append | Changes) for block in deltas)
        case ChangesRead(delta=DeltaRead(deltas=deltas)):
            return all(
                isinstance(block.encoding, Upsert | Changes) and name in key_of(block.encoding) for block in deltas
            )
        case _:
            return False


def _deltas(reading: ReadPlan) -> tuple[Block, ...]:
    """Return the deltas of a change."""
    return reading.delta.deltas if isinstance(reading, ChangesRead) else reading.blocks


Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """Values that are looked up in a column.

    Attributes:
        column: the column.
        kind: its type.
        each: the values, each once, in order; points in time and dates as numbers.
        ordered: the same as an array of numbers, or of Python values.
    """

    column: str
    kind: pa.DataType
    each: pa.Array
    ordered: npt.NDArray[Any]

    @classmethod
    def of(cls, column: str, kind: pa.DataType, parts: Sequence[pa.ChunkedArray]) -> _Values:
        """Return the values of some columns, to be looked up in a column of their type."""
        values = pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)
        each = _comparable(values.unique().drop_null())
        each = each.take(pc.sort_indices(each))
        ordered = each.to_numpy() if pa.types.is_integer(each.type) else np.array(each.to_pylist(), dtype=object)
        return cls(column=column, kind=kind, each=each, ordered=ordered)

    def may_be_in(self, group: parquet.RowGroupMetaData) -> bool:
        """Return whether any of the values may be in a part of a file, by the least and the greatest number in it."""
        columns = map(group.column, range(group.num_columns))
        seen = next((column.statistics for column in columns if column.path_in_schema == self.column), None)
        if seen is None or not seen.has_min_max or seen.physical_type not in ("INT32", "INT64"):
            return True
        return not pa.types.is_integer(self.each.type) or bool(len(self._between(seen.min_raw, seen.max_raw)))

    def places_in(self, column: pa.ChunkedArray) -> Places:
        """Return the places at which a column has any of the values."""
        here = _comparable(column.cast(self.kind).combine_chunks())
        least, greatest = (each.as_py() for each in pc.min_max(here).values())
        few = self.each[:0] if least is None else self._between(least, greatest)
        found = pc.is_in(here, value_set=few) if len(few) else pa.array([], pa.bool_())
        return np.flatnonzero(found.to_numpy(zero_copy_only=False))

    def _between(self, least: Any, greatest: Any) -> pa.Array:
        """Return those of the values that lie between two of them."""
        start = int(np.searchsorted(self.ordered, least, "left"))
        return self.each[start : int(np.searchsorted(self.ordered, greatest, "right"))]


@dataclass(slots=True, kw_only=True)
class _Found:
    """Keys of rows found in a file.

    Attributes:
        block: the block of the file.
        file: the file.
        keys: the keys, with whether the rows are deleted, one table for each part of the file.
        places: the numbers of the parts, each with the places of the rows in it.
    """

    block: Block
    file: StoredFile
    keys: list[pa.Table]
    places: list[tuple[int, Places]]

    def add(self, group: int, places: Places, rows: pa.Table, key: Schema) -> None:
        """Add rows of a part of the file.

        Args:
            group: the number of the part.
            places: the places of the rows in it.
            rows: their key, and the control column if the block has one.
            key: the columns of the key.
        """
        if isinstance(self.block.kind, Base):
            deleted = pa.nulls(len(rows), pa.bool_()).fill_null(False)
        elif isinstance(self.block.encoding, Changes):
            deleted = pc.less(rows[WEIGHT[0]], 0)
        else:
            deleted = rows[DELETED[0]]
        self.keys.append(completed(rows, key).append_column(DELETED[0], deleted))
        self.places.append((group, places))

    @property
    def count(self) -> int:
        """Number of the rows."""
        return sum(len(places) for _, places in self.places)

    @property
    def size(self) -> int:
        """Size of their keys in bytes."""
        return sum(rows.nbytes for rows in self.keys)


@dataclass(frozen=True, slots=True)
class _Search:
    """Search for values, with what was found so far.

    Attributes:
        values: the values.
        found: by block and columns of the key, the keys found in each file.
    """

    values: _Values
    found: dict[tuple[Block, Schema], dict[StoredFile, _Found]]


@dataclass(slots=True)
class _Total:
    """Sum of the keys found in the files of a snapshot."""

    rows: int = 0
    size: int = 0

    def add(self, rows: int, size: int) -> None:
        """Add keys.

        Args:
            rows: their number.
            size: their size in bytes.

        Raises:
            _TooMany: there are too many now.
        """
        self.rows, self.size = self.rows + rows, self.size + size
        if self.rows > _ROWS_FOUND or self.size > _MEMORY:
            raise _TooMany


def _last_of_keys(found: Sequence[_Found]) -> list[Flags]:
    """Return which rows found in files are the last ones of their keys, and are not deleted.

    Args:
        found: the rows found, in the order of their blocks.
    """
    counts = [each.count for each in found]
    if not any(counts):
        return [np.empty(0, dtype=bool) for _ in found]
    rows = pa.concat_tables([table for each in found for table in each.keys])
    deleted = rows[DELETED[0]].to_numpy()
    numbers = {name: number for number, name in enumerate(dict.fromkeys(each.block.name for each in found))}
    ranks = np.repeat([2 * numbers[each.block.name] for each in found], counts) + ~deleted  # a block removes, then adds
    order = np.argsort(ranks, kind="stable")
    newest = order[last_places(rows.drop_columns(DELETED[0]).take(pa.array(order)))]
    last = np.zeros(len(order), dtype=bool)
    last[newest] = ~deleted[newest]
    return np.split(last, np.cumsum(counts)[:-1])


def _comparable(column: pa.Array) -> pa.Array:
    """Return a column whose values are in order as Python values: points in time and dates as numbers."""
    return column.view(f"int{column.type.bit_width}") if pa.types.is_temporal(column.type) else column
