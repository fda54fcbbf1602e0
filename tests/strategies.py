"""Hypothesis strategies for small relations and deltas of every encoding, over one fixed schema each.

Keys have few distinct values, so that they vanish and come back; strings may be null; `id` is never the first
column and never the last, so that nothing can rely on the key's place.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from kilonova.model.encoding import (
    Append,
    Changes,
    Columns,
    Custom,
    Encoding,
    Increment,
    Upsert,
)
from kilonova.model.schema import Schema
from kilonova.testing import reference
from kilonova.testing.reference import Bag, Delta, Record, ReferencePerKey

PLAIN = Schema.of(("note", "string"), ("id", "int"), ("n", "bigint"))
PAIRED = Schema.of(("note", "string"), ("id", "int"), ("part", "string"), ("n", "bigint"))
COUNTED = Schema.of(("n", "bigint"), ("id", "int"), ("amount", "decimal(10,2)"))


class Replace:
    """The delta's rows replace all rows of their key; a row whose `n` is null makes room for none."""

    def merge(self, base_rows: list[Record], delta_rows: list[Record]) -> list[Record]:
        return [row for row in delta_rows if row["n"] is not None]

    def chain(self, first_rows: list[Record], second_rows: list[Record]) -> list[Record]:
        return second_rows

    def diff(self, old_rows: list[Record], new_rows: list[Record]) -> list[Record]:
        return new_rows or [{"note": None, "id": old_rows[0]["id"], "n": None}]


class Largest:
    """Of all rows of a key the one with the largest `n` stays (then the largest note); there is no diff."""

    def merge(self, base_rows: list[Record], delta_rows: list[Record]) -> list[Record]:
        return [max(base_rows + delta_rows, key=lambda row: (row["n"], row["note"] or ""))]

    def chain(self, first_rows: list[Record], second_rows: list[Record]) -> list[Record]:
        return self.merge(first_rows, second_rows)


FUNCTIONS: dict[str, ReferencePerKey] = {"replace": Replace(), "largest": Largest()}

APPEND = Append()
UPSERT = Upsert(("id",))
UPSERT_PAIRS = Upsert(("id", "part"))
CHANGES = Changes()
CHANGES_KEYED = Changes(("id",))
INCREMENT = Increment(("id",), ("n", "amount"))
COLUMNS = Columns(("id",))
REPLACE = Custom(("id",), "replace")
LARGEST = Custom(("id",), "largest")

ENCODINGS: tuple[Encoding, ...] = (
    APPEND,
    UPSERT,
    UPSERT_PAIRS,
    CHANGES,
    CHANGES_KEYED,
    INCREMENT,
    COLUMNS,
    REPLACE,
    LARGEST,
)

_SCHEMAS: dict[Encoding, Schema] = {UPSERT_PAIRS: PAIRED, INCREMENT: COUNTED}

_ids = st.integers(0, 4)
_notes = st.sampled_from((None, "", "a", "b"))
_counts = st.integers(-2, 2)
_amounts = st.sampled_from([Decimal(text) for text in ("-1.50", "-0.25", "0.00", "0.25", "1.50")])
_values: dict[str, st.SearchStrategy[Any]] = {
    "note": _notes,
    "id": _ids,
    "part": st.sampled_from(("x", "y")),
    "n": _counts,
    "amount": _amounts,
}


def schema_of(encoding: Encoding) -> Schema:
    """The fixed schema over which the strategies of an encoding work."""
    return _SCHEMAS.get(encoding, PLAIN)


def function_of(encoding: Encoding) -> ReferencePerKey | None:
    """The per-key functions of a custom encoding."""
    return FUNCTIONS[encoding.function] if isinstance(encoding, Custom) else None


def has_diff(encoding: Encoding) -> bool:
    """Whether D is defined between any two relations."""
    return encoding not in (APPEND, LARGEST)


def rows(encoding: Encoding) -> st.SearchStrategy[tuple[Any, ...]]:
    """A row of the encoding's schema."""
    return st.tuples(*(_values[name] for name in schema_of(encoding).names))


def _keys(key: tuple[str, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(_values[name] for name in key))


@st.composite
def relations(draw: st.DrawFn, encoding: Encoding) -> Bag:
    """A relation that a channel of this encoding can hold."""
    schema = schema_of(encoding)
    drawn = draw(st.lists(rows(encoding), max_size=6))
    named = [dict(zip(schema.names, row, strict=True)) for row in drawn]
    match encoding:
        case Append() | Changes(()) | Custom():
            return reference.relation_of(encoding, schema, named)
        case Upsert(key) | Changes(key) | Increment(key, _) | Columns(key):
            unique = {tuple(record[name] for name in key): record for record in named}
            return reference.relation_of(encoding, schema, list(unique.values()))


@st.composite
def deltas(draw: st.DrawFn, encoding: Encoding, base: Bag) -> Delta:
    """A delta that applies to `base`; parts of it may change nothing."""
    schema = schema_of(encoding)
    match encoding:
        case Append():
            return Counter(draw(st.lists(rows(encoding), max_size=4)))
        case Changes():
            return reference.diff(encoding, schema, base, _near(draw, encoding, base))
        case Upsert(key):
            put = reference.from_base(encoding, schema, draw(relations(encoding)))
            same = reference.from_base(encoding, schema, _part(draw, base))
            gone: Delta = dict.fromkeys(draw(st.lists(_keys(key), max_size=2)))
            return {**put, **same, **gone}
        case Columns(key):
            rest = [name for name in schema.names if name not in key]
            patches = st.fixed_dictionaries({}, optional={name: _values[name] for name in rest})
            put = draw(st.dictionaries(_keys(key), st.none() | patches, max_size=4))
            same = reference.from_base(encoding, schema, _part(draw, base))
            return {**put, **{k: row for k, row in same.items() if k not in put}}
        case Increment(key, _):
            some = draw(st.dictionaries(_keys(key), st.tuples(_counts, _amounts), max_size=3))
            undone = reference.diff(encoding, schema, _part(draw, base), Counter())
            return {k: amounts for k, amounts in {**some, **undone}.items() if any(amounts)}
        case Custom(_, function):
            drawn = draw(st.lists(rows(encoding), max_size=4))
            if function == "replace":
                vacated = draw(st.lists(_ids, max_size=2))
                drawn = [row for row in drawn if row[1] not in vacated] + [(None, id_, None) for id_ in vacated]
            return Counter(drawn)


def _part(draw: st.DrawFn, base: Bag) -> Bag:
    """Some of the rows of a relation."""
    present = sorted(base.elements(), key=repr)
    if not present:
        return Counter()
    chosen = draw(st.sets(st.integers(0, len(present) - 1), max_size=3))
    return Counter(present[index] for index in chosen)


def _near(draw: st.DrawFn, encoding: Encoding, base: Bag) -> Bag:
    """Another relation that shares rows with `base`."""
    kept, fresh = _part(draw, base), draw(relations(encoding))
    if not (isinstance(encoding, Changes) and encoding.key):
        return kept + fresh
    schema = schema_of(encoding)
    by_key = {
        tuple(row[schema.names.index(name)] for name in encoding.key): row
        for row in (*kept.elements(), *fresh.elements())
    }
    return Counter(by_key.values())


@st.composite
def histories(draw: st.DrawFn, encoding: Encoding, length: int = 3) -> tuple[Bag, list[Delta]]:
    """A relation, and deltas that apply to it one after the other."""
    schema, function = schema_of(encoding), function_of(encoding)
    base = current = draw(relations(encoding))
    steps = []
    for _ in range(length):
        steps.append(draw(deltas(encoding, current)))
        current = reference.merge(encoding, schema, current, steps[-1], function=function)
    return base, steps
