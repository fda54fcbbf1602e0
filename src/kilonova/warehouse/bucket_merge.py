"""Merging of upserts with a base, both sorted by key, some rows at a time (Nova, section 2.4).

Rows of a key are neighbours once deltas, which are sorted, are merged by key; the last one counts. Its place in the
base is found by binary search. Python processes of Spark's workers do this too, which may lack Kilonova (see
`task_merge`): nothing is imported but modules that are sent to them as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import pairwise
from typing import IO, Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kilonova.warehouse.parquet_rows import RowWriter, completed
from kilonova.warehouse.spark_hash import buckets_of, text_matrix, unscaled

_AHEAD = 1024
"""Number of rows of a delta, at least, whose keys are compared with those of some rows of a base."""


class NotSorted(Exception):
    """Rows of a base that are not in the order of their keys."""


def write_merged(
    base: Callable[[], Iterable[pa.Table]],
    delta: pa.Table,
    key: Sequence[str],
    write: Callable[[Iterable[pa.Table]], None],
) -> None:
    """Write the rows of a base after an upsert, sorted by key.

    Args:
        base: returns the rows of the base, some at a time; their keys are unique. They need not be sorted, but are read
            twice if they are not, and then kept in memory.
        delta: rows with the same columns and `_deleted`, sorted by key, which is unique.
        key: the key columns, without nulls.
        write: writes the rows, some at a time; if called twice, it replaces what it wrote.
    """
    try:
        write(overwritten(base(), delta, key))
    except NotSorted:
        whole = pa.concat_tables(base()).combine_chunks()
        order = np.argsort(_sortable(whole.select(key)), kind="stable")
        write(overwritten([whole.take(pa.array(order))], delta, key))


def write_buckets(
    rows: Iterable[pa.Table],
    key: Sequence[str],
    schema: pa.Schema,
    buckets: Sequence[int],
    count: int,
    create: Callable[[int], AbstractContextManager[IO[bytes]]],
) -> None:
    """Write sorted rows to one file per bucket.

    Args:
        rows: the rows, some at a time.
        key: the key columns.
        schema: the columns to write.
        buckets: the buckets that the rows may be in.
        count: number of all buckets; 0 for one file.
        create: opens the file of a bucket.
    """
    with ExitStack() as stack:
        files = {bucket: stack.enter_context(create(bucket)) for bucket in buckets}
        writers = {bucket: stack.enter_context(RowWriter(file, schema)) for bucket, file in files.items()}
        for part in rows:
            if len(writers) == 1:
                writers[buckets[0]].write(part)
                continue
            place = buckets_of(part.select(key), count)
            for bucket, writer in writers.items():
                writer.write(part.filter(pa.array(place == bucket)))


def overwritten(base: Iterable[pa.Table], delta: pa.Table, key: Sequence[str]) -> Iterator[pa.Table]:
    """M(B, Δ): the rows of a base after an upsert, sorted by key.

    Args:
        base: rows with unique keys, sorted by key, some at a time.
        delta: rows with the same columns and `_deleted`, sorted by key, which is unique.
        key: the key columns, without nulls.

    Raises:
        NotSorted: the base is not sorted.
    """
    done, ahead = 0, _AHEAD
    last: pa.Table | None = None
    for rows in base:
        if not rows.num_rows:
            continue
        old, new = _keys(rows, delta, done, ahead, key)
        if np.any(old[1:] < old[:-1]) or (last is not None and not _follows(last, rows, key)):
            raise NotSorted
        count = len(new)
        yield _merged(rows, delta.slice(done, count), old, new) if count else rows
        done, ahead, last = done + count, max(_AHEAD, 2 * count), rows.slice(rows.num_rows - 1)
    rest = delta.slice(done)
    yield rest.filter(pc.invert(rest["_deleted"])).drop_columns("_deleted")


def as_upserts(rows: pa.Table, schema: pa.Schema) -> list[pa.Table]:
    """Return rows with all columns of a schema and `_deleted`: of a key, the last row counts.

    Args:
        rows: rows of an upsert, with `_deleted`; of a strong delta over a unique key, with `_weight`; or of a relation.
        schema: the columns.
    """
    whole = completed(rows, schema)
    if "_weight" in rows.column_names:
        removed = pc.less(rows["_weight"], 0)
        signed = whole.append_column("_deleted", removed)
        return [signed.filter(removed), signed.filter(pc.invert(removed))]
    deleted = "_deleted" in rows.column_names
    flags = rows["_deleted"] if deleted else pa.array(np.zeros(rows.num_rows, dtype=bool))
    return [whole.append_column("_deleted", flags)]


def split_by_bucket(rows: pa.Table, key: Sequence[str], buckets: int) -> list[pa.Table]:
    """Return the rows of each bucket, in their order.

    Args:
        rows: the rows.
        key: the key columns, without nulls.
        buckets: number of buckets.
    """
    if buckets == 1:
        return [rows]
    place = buckets_of(rows.select(key), buckets).astype(np.uint16)
    rows = rows.take(pa.array(np.argsort(place, kind="stable")))
    ends = [0, *np.cumsum(np.bincount(place, minlength=buckets)).tolist()]
    return [rows.slice(begin, end - begin) for begin, end in pairwise(ends)]


def last_rows(parts: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Return the last row of each key of tables that follow each other, sorted by key.

    Args:
        parts: the tables. The more their rows are sorted by key, the faster they are merged.
        key: the key columns, without nulls.
    """
    rows = pa.concat_tables(parts).combine_chunks()
    keys = _sortable(rows.select(key))
    order = np.argsort(keys, kind="stable")  # merges sorted runs
    ordered = keys[order]
    return rows.take(pa.array(order[np.append(ordered[1:] != ordered[:-1], True)[: len(order)]]))


def file_name(bucket: int, buckets: int) -> str:
    """Return the name of a new file, as Spark would name it.

    Args:
        bucket: the bucket of its rows.
        buckets: number of all buckets; 0 for none.
    """
    return f"part-{bucket:05d}-{uuid4()}{f'_{bucket:05d}' if buckets else ''}.c000.zstd.parquet"


def _keys(
    rows: pa.Table, delta: pa.Table, done: int, ahead: int, key: Sequence[str]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the keys of some rows of a base, and those of the next rows of a delta that are not greater than all.

    Args:
        rows: the rows of the base, at least one.
        delta: the delta.
        done: number of its rows that belong to rows of the base before.
        ahead: number of its rows to look at first.
        key: the key columns.
    """
    while True:
        keys = _sortable(pa.concat_tables([rows.select(key), delta.slice(done, ahead).select(key)]))
        old, new = keys[: rows.num_rows], keys[rows.num_rows :]
        count = int(np.searchsorted(new, old[-1], side="right"))
        if count < len(new) or done + ahead >= delta.num_rows:
            return old, new[:count]
        ahead *= 2


def _follows(last: pa.Table, rows: pa.Table, key: Sequence[str]) -> bool:
    """Return whether the first of some rows has a key that is greater than that of the row before."""
    before, after = _sortable(pa.concat_tables([last.select(key), rows.slice(0, 1).select(key)]))
    return bool(before < after)


def _merged(rows: pa.Table, delta: pa.Table, old: npt.NDArray[Any], new: npt.NDArray[Any]) -> pa.Table:
    """Return rows after an upsert, given the keys of both, which are sorted."""
    count = len(old)
    place = np.searchsorted(old, new)
    found = place < count
    found[found] = old[place[found]] == new[found]
    deleted = delta["_deleted"].to_numpy(zero_copy_only=False)
    from_delta = np.where(deleted, -1, np.arange(count, count + len(new)))
    order = np.arange(count)
    order[place[found]] = from_delta[found]
    order = np.insert(order, place[~found], from_delta[~found])
    both = pa.concat_tables([rows, delta.select(rows.column_names)]).combine_chunks()
    return both.take(pa.array(order[order >= 0] if deleted.any() else order))


def _sortable(keys: pa.Table) -> npt.NDArray[Any]:
    """Return values that are ordered as keys are: numbers for a single column of numbers, else texts of bytes."""
    columns = [column.combine_chunks() for column in keys.columns]
    if len(columns) == 1 and not (pa.types.is_string(columns[0].type) or pa.types.is_decimal(columns[0].type)):
        return _numbers(columns[0])
    parts = np.hstack([part for column in columns for part in _ordered_bytes(column)])
    return np.ascontiguousarray(parts).view(f"S{parts.shape[1]}").ravel()


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.int32())
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


def _ordered_bytes(column: pa.Array) -> list[npt.NDArray[np.uint8]]:
    """Return bytes whose order is that of a key column: of texts, their length comes after them."""
    if pa.types.is_string(column.type):
        texts, lengths = text_matrix(column)
        return [texts, _big_endian(lengths.astype(np.uint32))]
    if pa.types.is_decimal(column.type):
        words = unscaled(column)
        return [_signed(words[:, 1]), _big_endian(words[:, 0].view(np.uint64))]
    return [_signed(_numbers(column))]


def _signed(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    return _big_endian(np.ascontiguousarray(values).view(np.uint64) ^ np.uint64(1 << 63))


def _big_endian(values: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.uint8]:
    wide = np.ascontiguousarray(values).byteswap()
    return wide.view(np.uint8).reshape(len(values), wide.dtype.itemsize)
