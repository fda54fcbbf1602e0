"""Execution of plans on bags of rows in plain Python: what every variant and conversion means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from kilonova.schedule.asynchrony.data_block import BASE, BlockKey, DataBlock, accepted_types, is_weak, key_of
from kilonova.schedule.asynchrony.execution_plan import ChainStep, ConversionStep, Invocation, TaskStep
from kilonova.schedule.asynchrony.provenance import Provenance

Row = tuple[Any, ...]
Bag = dict[Row, int]
"""Rows with a weight other than 0: of a base all are positive. Of a weak delta, a row is a key with an increment."""


def bag(rows: Iterable[tuple[Row, int]]) -> Bag:
    total: Counter[Row] = Counter()
    for row, weight in rows:
        total[row] += weight
    return {row: weight for row, weight in total.items() if weight}


def plus(*bags: Bag) -> Bag:
    return bag(item for each in bags for item in each.items())


def minus(one: Bag, other: Bag) -> Bag:
    return plus(one, {row: -weight for row, weight in other.items()})


@dataclass(frozen=True)
class Each:
    """A stateless task."""

    function: Callable[[Row], Iterable[Row]]

    def __call__(self, rows: Bag) -> Bag:
        return bag((new, weight) for row, weight in rows.items() for new in self.function(row))


@dataclass(frozen=True)
class Count:
    """Rows (key, number) per key."""

    key: Callable[[Row], Any]

    def increments(self, rows: Bag) -> Bag:
        return bag(((self.key(row),), weight) for row, weight in rows.items())


@dataclass(frozen=True)
class Join:
    """Rows that `match` makes of a pair, or None."""

    match: Callable[[Row, Row], Row | None]

    def __call__(self, left: Bag, right: Bag) -> Bag:
        pairs = ((self.match(a, b), m * n) for a, m in left.items() for b, n in right.items())
        return bag((row, weight) for row, weight in pairs if row is not None)


@dataclass(frozen=True)
class Union:
    """Bag union."""


Meaning = Each | Count | Join | Union


def counted(increments: Bag) -> Bag:
    """Return the base (key, number) of increments from nothing."""
    assert all(number > 0 for number in increments.values())
    return {(key, number): 1 for (key,), number in increments.items()}


def increments_of(base: Bag) -> Bag:
    return {(key,): number for key, number in base}


@dataclass
class Database:
    """Blocks with their rows."""

    meanings: Mapping[str, Meaning]
    rows: dict[BlockKey, Bag] = field(default_factory=dict)

    def put(self, block: DataBlock, rows: Bag) -> None:
        known = self.rows.setdefault(key_of(block), rows)
        assert known == rows, f"two plans write different rows for {block}"

    def get(self, block: DataBlock) -> Bag:
        """Return the rows of a block, or of a chain of deltas."""
        known = self.rows.get(key_of(block))
        return self._chained(block, block.start) if known is None else known

    def _chained(self, block: DataBlock, start: Provenance | None) -> Bag:
        for (channel, kind, begin, target), rows in self.rows.items():
            if channel == block.channel and kind in accepted_types(block.kind) and begin == start and begin is not None:
                if target == block.target:
                    return rows
                try:
                    return plus(rows, self._chained(block, target))
                except LookupError:
                    continue
        raise LookupError(block)

    def execute(self, invocation: Invocation) -> None:
        """Execute one invocation."""
        block = invocation.writes
        match invocation.step:
            case TaskStep(task):
                rows = self._run(self.meanings[task], invocation)
            case ConversionStep():
                rows = self._convert(*invocation.reads[0], into=block)
            case ChainStep():
                rows = plus(*(self.get(each) for each in invocation.reads[0]))
            case _:
                assert_never(invocation.step)
        self.put(block, rows)

    def _run(self, meaning: Meaning, invocation: Invocation) -> Bag:
        ports = [[self.get(block) for block in port] for port in invocation.reads]
        whole = invocation.writes.kind == BASE
        match meaning:
            case Each():
                return meaning(ports[0][0])
            case Count():
                found = meaning.increments(ports[0][0])
                return counted(found) if whole else found
            case Union():
                return plus(*(rows for port in ports for rows in port))
            case Join():
                if len(ports[0]) == len(ports[1]) == 1:
                    return meaning(ports[0][0], ports[1][0])
                (left, more_left), (right, more_right) = ports
                return plus(meaning(more_left, right), meaning(left, more_right), meaning(more_left, more_right))
            case _:
                assert_never(meaning)

    def _convert(self, first: DataBlock, second: DataBlock | None = None, *, into: DataBlock) -> Bag:
        one = self.get(first)
        if second is None:
            raise AssertionError("no example has a conversion without the old base")
        other = self.get(second)
        if second.kind == BASE:
            if is_weak(into.kind):
                return minus(increments_of(other), increments_of(one))
            return minus(other, one)
        if is_weak(second.kind):
            after = counted(plus(increments_of(one), other))
            return after if into.kind == BASE else minus(after, one)
        return plus(one, other)
