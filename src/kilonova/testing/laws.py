"""Laws of encodings, tested on the user functions of a custom one (Nova, section 2.1).

For deltas Δ of one key, and relations B that deltas lead to:

    C(C(Δ₁, Δ₂), Δ₃) = C(Δ₁, C(Δ₂, Δ₃))          chain is associative
    M(M(B, Δ₁), Δ₂) = M(B, C(Δ₁, Δ₂))            merging twice is merging the chain
    M(B₁, D(B₁, B₂)) = B₂                        merge and diff are inverse
    M(B, Δ₁, Δ₂) = M(M(B, Δ₁), Δ₂)               if merge takes several deltas; likewise chain

as bags of rows, and each function returns the same rows for the same input, in any order of rows, and keeps the key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from decimal import Decimal
from functools import partial
from typing import Any

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from kilonova.declare.ddl import parse_schema
from kilonova.errors import DeclarationError, EncodingError
from kilonova.model.encoding import Custom, delta_schema
from kilonova.model.encoding import check_encoding as _fits
from kilonova.model.schema import Schema
from kilonova.warehouse.cogroup import Rows, over_many, takes_many

Row = dict[str, Any]
_PHASES = (Phase.generate, Phase.shrink)


class _Broken(Exception):
    """Violated law."""


def check_encoding(
    functions: Any,
    schema: str,
    *,
    key: str | Sequence[str],
    delta: str | None = None,
    rows: Iterable[Row] | st.SearchStrategy[Row] | None = None,
    examples: int = 200,
) -> None:
    """Check that the functions of a custom encoding obey the laws of encodings.

    Args:
        functions: the argument of `kn.custom`.
        schema: the columns of the channel, in SQL.
        key: its key.
        delta: the columns of a delta, in SQL; by default those of the channel.
        rows: rows that may occur in deltas, or a Hypothesis strategy for them; by default any that the
            columns allow, without nulls. The key's columns are overwritten.
        examples: number of cases to try for each law.

    Raises:
        EncodingError: a law does not hold; the message has the smallest case that was found.
        DeclarationError: the columns are invalid, or rows of such a type cannot be generated.
    """
    relation = parse_schema(schema)
    encoding = Custom(
        (key,) if isinstance(key, str) else tuple(key),
        type(functions).__name__,
        None if delta is None else parse_schema(delta),
    )
    _fits(encoding, relation)
    laws = _Laws(functions, relation, encoding)
    one = _rows(delta_schema(encoding, relation), rows)
    at = st.fixed_dictionaries({name: _values(relation.type_of(name), name) for name in encoding.key})
    bags = st.lists(one, min_size=1, max_size=3)
    cases = st.tuples(at, st.lists(bags, min_size=3, max_size=5)).map(
        lambda case: [[row | case[0] for row in bag] for bag in case[1]]
    )
    tried = settings(max_examples=examples, database=None, phases=_PHASES, suppress_health_check=list(HealthCheck))
    for law in laws.all():
        try:
            smallest = find(cases, partial(_is_broken, law), settings=tried)
        except NoSuchExample:
            continue
        raise EncodingError(
            f"the functions {encoding.function} break a law of encodings: {_violation(law, smallest)}",
            hint="Correct the functions, or describe in `rows` the rows that deltas may contain",
        )


def _is_broken(law: Callable[[list[Rows]], None], case: list[Rows]) -> bool:
    return _violation(law, case) is not None


def _violation(law: Callable[[list[Rows]], None], case: list[Rows]) -> str | None:
    try:
        law(case)
    except _Broken as broken:
        return str(broken)
    return None


class _Laws:
    """Laws for one object; each takes deltas of one key and raises `_Broken`."""

    def __init__(self, functions: Any, relation: Schema, encoding: Custom) -> None:
        self._functions = functions
        self._relation, self._delta = relation, delta_schema(encoding, relation)
        self._key = encoding.key

    def all(self) -> Sequence[Callable[[list[Rows]], None]]:
        """Return the laws that apply to the object's functions."""
        several = [law for name, law in (("merge", self._merges), ("chain", self._chains)) if self._many(name)]
        inverse = [self._inverse] if hasattr(self._functions, "diff") else []
        return [self._twice, self._associative, *inverse, *several]

    def _many(self, name: str) -> bool:
        return takes_many(getattr(self._functions, name))

    def _twice(self, deltas: list[Rows]) -> None:
        base, first, second = self._base(deltas[2:]), *deltas[:2]
        stepwise, chained = self._merge(self._merge(base, first), second), self._merge(base, self._chain(first, second))
        self._agree(
            "merging two deltas one after the other differs from merging their chain",
            self._relation,
            stepwise,
            chained,
            base=base,
            first=first,
            second=second,
        )

    def _associative(self, deltas: list[Rows]) -> None:
        first, second, third = deltas[:3]
        left = self._chain(self._chain(first, second), third)
        right = self._chain(first, self._chain(second, third))
        self._agree("chain is not associative", self._delta, left, right, first=first, second=second, third=third)

    def _inverse(self, deltas: list[Rows]) -> None:
        old, new = self._base(deltas[:1]), self._base(deltas[1:])
        if not _same(self._relation, old, new):
            found = self._asked("diff", self._delta, old, new)
            made = self._merge(old, found)
            self._agree(
                "merging the diff of two relations does not lead from one to the other",
                self._relation,
                made,
                new,
                old=old,
                new=new,
                diff=found,
            )

    def _merges(self, deltas: list[Rows]) -> None:
        base, few = self._base(deltas[2:]), deltas[:2]
        at_once = self._asked("merge", self._relation, base, *few)
        stepwise = self._merge(self._merge(base, few[0]), few[1])
        self._agree(
            "merging deltas at once differs from merging one after the other",
            self._relation,
            at_once,
            stepwise,
            base=base,
            first=few[0],
            second=few[1],
        )

    def _chains(self, deltas: list[Rows]) -> None:
        first, second, third = deltas[:3]
        at_once = self._asked("chain", self._delta, first, second, third)
        stepwise = self._chain(self._chain(first, second), third)
        self._agree(
            "chaining deltas at once differs from chaining one after the other",
            self._delta,
            at_once,
            stepwise,
            first=first,
            second=second,
            third=third,
        )

    def _base(self, deltas: list[Rows]) -> Rows:
        base: Rows = []
        for delta in deltas:
            base = self._merge(base, delta)
        return base

    def _merge(self, base: Rows, delta: Rows) -> Rows:
        return self._asked("merge", self._relation, base, delta) if delta else base

    def _chain(self, first: Rows, second: Rows) -> Rows:
        return self._asked("chain", self._delta, first, second) if first and second else first or second

    def _asked(self, name: str, schema: Schema, *bags: Rows) -> Rows:
        """Return a function's result for some rows.

        Raises:
            _Broken: it raises, is not deterministic, or returns rows of another key or with other columns.
        """
        function = over_many(getattr(self._functions, name), deltas=name == "chain")
        said = f"{name}({', '.join(map(repr, bags))})"
        try:
            made, again = (list(function(*_copies(bags, turned))) for turned in (False, False))
            turned = list(function(*_copies(bags, True)))
        except Exception as error:
            raise _Broken(f"{said} raises {type(error).__name__}: {error}") from error
        given = next(row for bag in bags for row in bag)
        for row in made:
            if unknown := [column for column in row if column not in schema.names]:
                raise _Broken(f"{said} returns the column {unknown[0]}, which is not one of {', '.join(schema.names)}")
            if any(row.get(column) != given[column] for column in self._key):
                raise _Broken(f"{said} returns a row of another key, {row}")
        if not _same(schema, made, again):
            raise _Broken(f"{said} returns {made} at one time and {again} at another")
        if not _same(schema, made, turned):
            raise _Broken(f"{said} returns {made}, but {turned} where the same rows come in another order")
        return made

    def _agree(self, what: str, schema: Schema, one: Rows, other: Rows, **given: Rows) -> None:
        if not _same(schema, one, other):
            said = ", ".join(f"{name} = {rows}" for name, rows in given.items())
            raise _Broken(f"{what}. With {said}: {one} against {other}")


def _copies(bags: Sequence[Rows], turned: bool) -> list[Rows]:
    return [[dict(row) for row in (reversed(bag) if turned else bag)] for bag in bags]


def _same(schema: Schema, one: Rows, other: Rows) -> bool:
    left, right = (Counter(repr([row.get(name) for name in schema.names]) for row in rows) for rows in (one, other))
    return left == right


def _rows(schema: Schema, given: Iterable[Row] | st.SearchStrategy[Row] | None) -> st.SearchStrategy[Row]:
    if given is None:
        return st.fixed_dictionaries({item.name: _values(item.type, item.name) for item in schema.columns})
    return given if isinstance(given, st.SearchStrategy) else st.sampled_from(list(given))


def _values(type_: str, name: str) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a SQL type.

    Raises:
        DeclarationError: the type is nested, or unknown.
    """
    if type_.startswith("decimal"):
        scale = int(type_.rstrip(")").rpartition(",")[2])
        return st.integers(-9, 9).map(lambda n: Decimal(n).scaleb(-scale))
    known: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), st.integers(-9, 9)),
        **dict.fromkeys(("float", "double"), st.integers(-9, 9).map(float)),
        "string": st.text("abc", max_size=2),
        "boolean": st.booleans(),
        "binary": st.binary(max_size=2),
        "date": st.dates(),
        "timestamp": st.datetimes(timezones=st.just(UTC)),
        "timestamp_ntz": st.datetimes(),
    }
    if type_ not in known:
        raise DeclarationError(f"rows of the type {type_} cannot be generated", column=name, hint="Give rows")
    return known[type_]
