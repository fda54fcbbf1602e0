"""Relational operator tree of a query: frozen values that say what is computed, not how.

Every column of a tree has a unique name, so that an expression needs no qualifiers and a subtree can be moved.
Relations are bags. Several modules read the tree: `rendering` writes it as SQL, `properties` derives keys, nulls
and types, `delta_rules` the change of its result, `materialization` the relations to store.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import assert_never

from kilonova.query.expression import Scalar, column

WEIGHT = "_weight"
"""Weight column of a change: how many times a row is added (positive) or removed (negative)."""


class At(enum.Enum):
    """State of a channel to read: before the change, after it, or the change itself."""

    OLD = "old"
    NEW = "new"
    CHANGE = "change"


class Kind(enum.Enum):
    """Join type; SEMI and ANTI keep rows of the left relation."""

    INNER = "INNER"
    LEFT = "LEFT OUTER"
    FULL = "FULL OUTER"
    SEMI = "LEFT SEMI"
    ANTI = "LEFT ANTI"


class Side(enum.Enum):
    """One of the two sides of a join."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Item:
    """Named expression."""

    name: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Order:
    """Sort key.

    Attributes:
        value: the expression to sort by.
        direction: `""` or `" DESC"`, and the position of nulls.
    """

    value: Scalar
    direction: str = ""

    @property
    def sql(self) -> str:
        """Text of the sort key in ORDER BY."""
        return f"{self.value.sql}{self.direction}"


@dataclass(frozen=True, slots=True)
class ScanLookup:
    """Values of a column, of which rows with other values need not be read.

    Attributes:
        column: the column of the channel, the first of its key.
        values: channels, each with a column of it that has the values in its change.
    """

    column: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows of a channel.

    Attributes:
        channel: its name.
        columns: the channel's columns that are read, each with its name in the tree.
        at: the state that is read.
        weighed: whether the rows are read as weighted rows that add up to them.
        lookup: which rows are enough; None for all. Only in the change of a run, never stored.
    """

    channel: str
    columns: tuple[tuple[str, str], ...]
    at: At = At.NEW
    weighed: bool = False
    lookup: ScanLookup | None = None

    @property
    def weighs(self) -> bool:
        """Return whether its rows have weights."""
        return self.weighed or self.at is At.CHANGE


@dataclass(frozen=True, slots=True)
class Unit:
    """Single row without columns."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Expressions over each row."""

    input: Node
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which a condition is true."""

    input: Node
    condition: Scalar


@dataclass(frozen=True, slots=True)
class Join:
    """Join of two relations; without a condition their cross product.

    Attributes:
        left: the left relation.
        right: the right relation.
        kind: the join type.
        condition: the join condition.
        few: the side that is expected to have few rows: a change, or the keys that it touches.
    """

    left: Node
    right: Node
    kind: Kind
    condition: Scalar | None
    few: Side | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row per group; without keys exactly one row, even for no input rows.

    Attributes:
        input: the rows.
        keys: the grouping keys.
        calls: aggregate functions, or expressions over them.
    """

    input: Node
    keys: tuple[Item, ...]
    calls: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """Rows of all inputs, with duplicates; columns correspond by position."""

    inputs: tuple[Node, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Window functions added to each row, all over the same partitions.

    Attributes:
        input: the rows.
        partition: the partition keys.
        items: the functions with their OVER clauses.
    """

    input: Node
    partition: tuple[Scalar, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Explode:
    """Each row combined with every element that a generator produces from it.

    Attributes:
        input: the rows.
        generator: `explode(…)` or another generator.
        outer: whether rows without elements are kept, with nulls.
        columns: the names of the elements' columns.
    """

    input: Node
    generator: Scalar
    outer: bool
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Top:
    """First rows in an order; the choice among equal rows is undefined unless the order is total."""

    input: Node
    order: tuple[Order, ...]
    limit: int | None
    offset: int


Node = Scan | Unit | Projection | Filter | Join | Aggregate | Union | Window | Explode | Top


def names(node: Node) -> tuple[str, ...]:
    """Return the columns of a tree's rows."""
    match node:
        case Scan():
            own = tuple(name for _, name in node.columns)
            return (*own, WEIGHT) if node.weighs else own
        case Unit():
            return ()
        case Projection():
            return tuple(item.name for item in node.items)
        case Filter() | Top():
            return names(node.input)
        case Join(kind=Kind.SEMI | Kind.ANTI):
            return names(node.left)
        case Join():
            return (*names(node.left), *names(node.right))
        case Aggregate():
            return tuple(item.name for item in (*node.keys, *node.calls))
        case Union():
            return node.columns
        case Window():
            return (*names(node.input), *(item.name for item in node.items))
        case Explode():
            return (*names(node.input), *node.columns)
        case _:
            assert_never(node)


def inputs(node: Node) -> tuple[Node, ...]:
    """Return the direct inputs of a node."""
    match node:
        case Scan() | Unit():
            return ()
        case Join():
            return (node.left, node.right)
        case Union():
            return node.inputs
        case _:
            return (node.input,)


def with_inputs(node: Node, below: tuple[Node, ...]) -> Node:
    """Return the same node over other inputs, which must have the same columns."""
    match node:
        case Scan() | Unit():
            return node
        case Join():
            return replace(node, left=below[0], right=below[1])
        case Union():
            return replace(node, inputs=below)
        case _:
            return replace(node, input=below[0])


def scans(node: Node) -> tuple[Scan, ...]:
    """Return the scans of a tree, from left to right."""
    if isinstance(node, Scan):
        return (node,)
    return tuple(scan for below in inputs(node) for scan in scans(below))


def channels(node: Node) -> tuple[str, ...]:
    """Return the channels that a tree reads, each once."""
    return tuple(dict.fromkeys(scan.channel for scan in scans(node)))


def at(node: Node, when: At) -> Node:
    """Return the same tree over the rows before or after the change."""
    if isinstance(node, Scan):
        return replace(node, at=when)
    return with_inputs(node, tuple(at(below, when) for below in inputs(node)))


def kept(columns: tuple[str, ...]) -> tuple[Item, ...]:
    """Return items that pass columns through unchanged."""
    return tuple(Item(name, column(name)) for name in columns)
