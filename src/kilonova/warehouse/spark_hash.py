"""Spark's hash of keys, computed with NumPy: it decides in which bucket a row belongs.

This is `org.apache.spark.sql.catalyst.expressions.Murmur3Hash` with its seed, for the types of keys in `arrow_types`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SEED = 42
_LONG_DECIMAL = 18
"""Number of digits up to which Spark hashes a decimal as its unscaled 64-bit value."""

_MATRIX = 1 << 30
"""Size of the matrix of a column of texts, in bytes, at most."""

Words = npt.NDArray[np.uint32]


def hashes_like_spark(keys: pa.Schema) -> bool:
    """Return whether `buckets_of` knows how Spark hashes all columns of a key."""
    return not any(pa.types.is_decimal(field.type) and field.type.precision > _LONG_DECIMAL for field in keys)


def buckets_of(keys: pa.Table, count: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each row.

    Args:
        keys: the key columns, without nulls.
        count: number of buckets.
    """
    hashed = np.full(keys.num_rows, _SEED, dtype=np.uint32)
    for column in keys.columns:
        hashed = _hashed(column.combine_chunks(), hashed)
    return np.mod(hashed.view(np.int32).astype(np.int64), count)


def _hashed(column: pa.Array, seed: Words) -> Words:
    kind = column.type
    if pa.types.is_string(kind):
        return _hash_texts(column, seed)
    if pa.types.is_decimal(kind):
        values = unscaled(column)[:, 0]
    elif pa.types.is_boolean(kind):
        values = column.cast(pa.int32()).to_numpy()
    elif pa.types.is_timestamp(kind):
        values = column.cast(pa.int64()).to_numpy()
    else:
        values = (column.cast(pa.int32()) if pa.types.is_date(kind) else column).to_numpy()
    if values.dtype.itemsize == 8:
        halves = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)
        return _finished(_mixed(_mixed(seed, halves[:, 0]), halves[:, 1]), np.uint32(8))
    return _finished(_mixed(seed, values.astype(np.int32).view(np.uint32)), np.uint32(4))


def unscaled(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the unscaled values of decimals, each as its lower and upper 64 bits."""
    words = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)
    return words[column.offset : column.offset + len(column)]


def _hash_texts(column: pa.Array, seed: Words) -> Words:
    """Hash texts as Spark does: four bytes at a time, and the remaining ones each as a number with a sign."""
    texts, lengths = text_matrix(column)
    texts = np.pad(texts, ((0, 0), (0, -texts.shape[1] % 4)))
    words = np.ascontiguousarray(texts).view(np.uint32)
    whole, hashed = lengths // 4, seed
    for place in range(words.shape[1]):
        hashed = np.where(place < whole, _mixed(hashed, words[:, place]), hashed)
    rows = np.arange(len(lengths))
    for place in range(3):
        at = whole * 4 + place
        within = at < lengths
        tail = texts[rows[within], at[within]].view(np.int8).astype(np.int32).view(np.uint32)
        hashed = hashed.copy()
        hashed[within] = _mixed(hashed[within], tail)
    return _finished(hashed, lengths.astype(np.uint32))


def text_matrix(column: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of texts, one per row and padded with zeros, and the number of bytes of each.

    Raises:
        MemoryError: the longest text is so long that padding the others to its length takes too much memory.
    """
    lengths = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    width = int(lengths.max(initial=0))
    if width * len(column) > _MATRIX:
        raise MemoryError
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    matrix = np.zeros((len(column), width), dtype=np.uint8)
    if width:
        data = np.frombuffer(column.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
        matrix[np.arange(width) < lengths[:, None]] = data
    return matrix, lengths


def _rotated(words: Words, by: int) -> Words:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def _mixed(hashed: Words, words: Words) -> Words:
    mixed = hashed ^ (_rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593))
    return _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(hashed: Words, length: Any) -> Words:
    hashed = hashed ^ length
    hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashed ^ (hashed >> np.uint32(16))
