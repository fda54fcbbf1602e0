"""An encoding defines how a delta block represents changes, with merge, chain and diff (Nova, section 2.1).

For bases B and deltas Δ of one channel, every encoding obeys

    C(C(Δ₁, Δ₂), Δ₃) = C(Δ₁, C(Δ₂, Δ₃))          chain is associative
    M(M(B, Δ₁), Δ₂) = M(B, C(Δ₁, Δ₂))            merging twice is merging the chain
    M(B₁, D(B₁, B₂)) = B₂                        merge and diff are inverse

as bags of rows; `append` and `custom` only where D is defined. The functions themselves are implemented in
`kilonova.testing.reference` (plain Python) and `kilonova.warehouse` (Spark). This module defines the
encodings, the columns of their delta blocks and the capabilities of each.

A delta block's columns are those of the relation and, after them, the encoding's control columns:

- `_deleted boolean` (upsert, columns): the key is to be deleted; the other columns are ignored.
- `_weight bigint` (changes): number of times the row is added (positive) or removed (negative); never 0.
- `_set array<string>` (columns): the columns that this row sets; null sets every column in the block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar, assert_never

from kilonova.errors import DeclarationError
from kilonova.model.schema import Schema, check_names

DELETED = ("_deleted", "boolean")
WEIGHT = ("_weight", "bigint")
SET = ("_set", "array<string>")

_EXACT_NUMBER = re.compile(r"(tinyint|smallint|int|bigint|decimal\(\d+,\d+\))$")


@dataclass(frozen=True, slots=True)
class Append:
    """Encoding whose deltas hold rows to add. Diff is defined only where no row disappears."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """Encoding whose deltas hold rows by key, and tombstones; the latest per key wins."""

    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """Encoding whose deltas hold rows with a weight, +n or −n: the *strong delta* of asynchronous scheduling, 2.2.

    With a key, the key is unique in every snapshot and blocks are laid out by it.
    """

    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Increment:
    """Encoding whose deltas hold (key, amounts to add): a *weak delta*.

    A key whose measures are all zero is absent from the relation, so that groups can be added and removed; a
    group whose sums may cancel while it still has rows needs a count among its measures.
    """

    key: tuple[str, ...]
    measures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """Encoding whose deltas hold keys with new values for some columns; they may also insert and delete keys."""

    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Custom:
    """Encoding whose deltas hold rows that the user's per-key functions interpret.

    Attributes:
        key: the columns by which rows are cogrouped; a delta has them too.
        function: the functions' registered name.
        delta: the columns of a delta; None if they are the relation's.
        has_diff: whether the functions can compute the difference of two relations.
    """

    key: tuple[str, ...]
    function: str
    delta: Schema | None = None
    has_diff: bool = True


Encoding = Append | Upsert | Changes | Increment | Columns | Custom


@dataclass(frozen=True, slots=True)
class Removal:
    """Encoding of a delta without rows: it removes the rows for which a condition is true.

    No channel has it as its own: migrations write such deltas, which need not read what they remove (logic evolution,
    2.7). They are applied when a snapshot is read.

    Attributes:
        key: the key of the relation, empty if it has none.
        condition: the condition in Spark SQL, over the relation's columns. It has one result for a row whenever and
            wherever it is evaluated, and its evaluation cannot fail.
    """

    key: tuple[str, ...]
    condition: str


BlockEncoding = Encoding | Removal
"""Encoding of a block."""

_Encoding = TypeVar("_Encoding", bound=BlockEncoding)


def key_of(encoding: BlockEncoding) -> tuple[str, ...]:
    """Return the key by which the blocks of an encoding are laid out, empty if it has none."""
    match encoding:
        case Append():
            return ()
        case Upsert(key) | Changes(key) | Increment(key, _) | Columns(key) | Custom(key, _, _) | Removal(key):
            return key
        case _:
            assert_never(encoding)


def delta_schema(encoding: Encoding, relation: Schema) -> Schema:
    """Return the columns of a delta block for a relation.

    >>> delta_schema(Upsert(("id",)), Schema.of(("id", "int"), ("x", "string"))).names
    ('id', 'x', '_deleted')
    """
    match encoding:
        case Append() | Increment():
            return relation
        case Custom(delta=delta):
            return relation if delta is None else delta
        case Upsert():
            return relation.plus(DELETED)
        case Changes():
            return relation.plus(WEIGHT)
        case Columns():
            return relation.plus(DELETED, SET)
        case _:
            assert_never(encoding)


def optional_columns(encoding: Encoding, relation: Schema) -> tuple[str, ...]:
    """Return the columns that the author of a delta block may leave out.

    Control columns default to "not deleted", weight 1 and "sets every column given"; a columns delta may
    leave out any column but the key.
    """
    match encoding:
        case Append() | Increment() | Custom():
            return ()
        case Upsert():
            return (DELETED[0],)
        case Changes():
            return (WEIGHT[0],)
        case Columns(key):
            return (DELETED[0], SET[0], *(name for name in relation.names if name not in key))
        case _:
            assert_never(encoding)


def merge_encoding(encoding: _Encoding) -> _Encoding | Upsert:
    """Return the encoding by which a delta is merged: upsert for a strong delta with a unique key, as it reads less.

    >>> merge_encoding(Changes(("id",)))
    Upsert(key=('id',))
    """
    return Upsert(encoding.key) if isinstance(encoding, Changes) and encoding.key else encoding


def is_append_only(encoding: BlockEncoding) -> bool:
    """Return whether no delta of this encoding can ever remove or replace a row."""
    return isinstance(encoding, Append)


def has_diff(encoding: Encoding) -> bool:
    """Return whether the difference of any two relations can be expressed; append cannot remove rows."""
    return encoding.has_diff if isinstance(encoding, Custom) else not is_append_only(encoding)


def adds_at_most_its_rows(encoding: BlockEncoding) -> bool:
    """Return whether no delta of this encoding can add more rows to a relation than it has itself.

    A row of a strong delta has a weight, and the functions of a custom encoding may return any number of rows.
    """
    return not isinstance(encoding, Changes | Custom)


def check_encoding(encoding: Encoding, relation: Schema) -> None:
    """Check that an encoding fits the relation.

    Raises:
        DeclarationError: a key or measure is not a column, a measure is not an exact number, a column is
            neither key nor measure, or a key is missing, also in the columns of a custom delta.
    """
    key = key_of(encoding)
    for name in key:
        if name not in relation.names:
            raise DeclarationError(
                "the key names a column that is not in the schema",
                column=name,
                hint="Correct its name, or add the column",
            )
        if "map<" in relation.type_of(name):
            raise DeclarationError("a map cannot be a key", column=name, hint="Choose columns of other types")
    if len(set(key)) < len(key):
        raise DeclarationError("the key names a column twice", column=key[0], hint="Name each column once")
    if not key and not isinstance(encoding, Append | Changes):
        raise DeclarationError(f"the encoding {name_of(encoding)} needs a key", hint="Declare it with key=…")
    if isinstance(encoding, Custom) and encoding.delta is not None:
        check_names(encoding.delta)
        for name in key:
            if name not in encoding.delta.names or encoding.delta.type_of(name) != relation.type_of(name):
                raise DeclarationError(
                    "the columns of a delta do not include a column of the key", column=name, hint="Add it to delta=…"
                )
    if isinstance(encoding, Increment):
        if not encoding.measures:
            raise DeclarationError("the encoding increment needs at least one measure", hint='Write increment("n")')
        for name in encoding.measures:
            if name not in relation.names:
                raise DeclarationError(
                    "a measure names a column that is not in the schema",
                    column=name,
                    hint="Correct its name, or add the column",
                )
            if not _EXACT_NUMBER.match(relation.type_of(name)):
                raise DeclarationError(
                    f"a measure must be an integer or a decimal, not {relation.type_of(name)}",
                    column=name,
                    hint="Floating-point sums depend on their order; declare it decimal, or use upsert",
                )
            if re.fullmatch(r"decimal\(38,(?!0*[0-6]\))\d+\)", relation.type_of(name)):
                raise DeclarationError(
                    f"a measure of 38 digits may have at most 6 decimal places, unlike {relation.type_of(name)}",
                    column=name,
                    hint="Sums of such decimals would lose their last digit; declare 37 digits, or use upsert",
                )
        if set(encoding.key) & set(encoding.measures):
            raise DeclarationError("a column cannot be both key and measure", hint="Leave it out of one of them")
        for name in relation.names:
            if name not in encoding.key and name not in encoding.measures:
                raise DeclarationError(
                    "the column is neither key nor measure", column=name, hint="Add it to one of them, or remove it"
                )


_ORDERED = re.compile(r"(tinyint|smallint|int|bigint|float|double|decimal\(\d+,\d+\)|string|date|timestamp(_ntz)?)$")


def check_sequence(sequence_by: str | None, encoding: Encoding, relation: Schema) -> None:
    """Check that a column can order the rows of a key.

    Raises:
        DeclarationError: there is no such column, it is part of the key, its type has no order, or the encoding is not
            upsert.
    """
    if sequence_by is None:
        return
    if not isinstance(encoding, Upsert):
        raise DeclarationError(
            f"sequence_by requires the encoding upsert, not {name_of(encoding)}",
            hint="Declare a key, or no sequence_by",
        )
    if sequence_by not in relation.names:
        raise DeclarationError(
            "sequence_by names a column that is not in the schema",
            column=sequence_by,
            hint=f"The columns are: {', '.join(relation.names)}",
        )
    if sequence_by in encoding.key:
        raise DeclarationError(
            "sequence_by names a column of the key, which is equal in all rows",
            column=sequence_by,
            hint="Name a column that tells which row of a key is newer",
        )
    if not _ORDERED.match(relation.type_of(sequence_by)):
        raise DeclarationError(
            f"sequence_by names a column of the type {relation.type_of(sequence_by)}",
            column=sequence_by,
            hint="Use a number, a string, a date or a timestamp",
        )


def name_of(encoding: BlockEncoding) -> str:
    """Return the encoding's name as shown to users.

    >>> name_of(Upsert(("id",)))
    'upsert'
    """
    return type(encoding).__name__.lower()


def describe_encoding(encoding: BlockEncoding) -> str:
    """Return the encoding as users write it.

    >>> describe_encoding(Increment(("carrier",), ("n",)))
    'increment(carrier; n)'
    """
    match encoding:
        case Increment(key, measures):
            return f"increment({', '.join(key)}; {', '.join(measures)})"
        case Custom(key, function, _):
            return f"custom({', '.join(key)}; {function})"
        case Removal(_, condition):
            return f"removal({condition})"
        case _:
            key = key_of(encoding)
            return f"{name_of(encoding)}({', '.join(key)})" if key else name_of(encoding)
