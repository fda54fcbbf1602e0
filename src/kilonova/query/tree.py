"""A query as a tree of relational operators: frozen values that say what is computed, not how.

Every column of a tree has a name of its own, so that an expression needs no qualifiers and a subtree can be moved.
Rows are bags. Several modules read the tree: `rendering` writes it as SQL, `properties` derives keys, nulls
and types, `change` derives how its result changes, `storing` what is worth keeping.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import assert_never

from kilonova.query.expression import Scalar, column

WEIGHT = "_weight"
"""The column that says how often a row of a change comes, or goes."""


class At(enum.Enum):
    """Which rows of a channel are read: those before the change, those after it, or the change itself."""

    OLD = "old"
    NEW = "new"
    CHANGE = "change"


class Kind(enum.Enum):
    """How rows of two relations are joined; SEMI and ANTI keep rows of the left one."""

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
    """A named expression."""

    name: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Order:
    """A sort key.

    Attributes:
        value: by what.
        direction: `""` or `" DESC"`, and where nulls come.
    """

    value: Scalar
    direction: str = ""

    @property
    def sql(self) -> str:
        """As it stands in ORDER BY."""
        return f"{self.value.sql}{self.direction}"


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a channel.

    Attributes:
        channel: its name.
        columns: the channel's columns that are read, each with its name in the tree.
        at: which rows.
        weighed: whether rows that are there come as rows with weights that add up to them.
    """

    channel: str
    columns: tuple[tuple[str, str], ...]
    at: At = At.NEW
    weighed: bool = False

    @property
    def weighs(self) -> bool:
        """Whether its rows have weights."""
        return self.weighed or self.at is At.CHANGE


@dataclass(frozen=True, slots=True)
class Unit:
    """One row without columns."""


@dataclass(frozen=True, slots=True)
class Project:
    """Expressions over each row."""

    input: Node
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which a condition is true."""

    input: Node
    condition: Scalar


@dataclass(frozen=True, slots=True)
class Join:
    """Rows of two relations side by side; without a condition every one with every one.

    Attributes:
        left: the one.
        right: the other.
        kind: which rows are wanted.
        condition: which rows meet.
        few: the side that has few rows, as far as can be told: a change, or the keys that it touches.
    """

    left: Node
    right: Node
    kind: Kind
    condition: Scalar | None
    few: Side | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row per group; one in all where there are no keys, even of no rows.

    Attributes:
        input: the rows.
        keys: what tells the groups apart.
        calls: aggregate functions, or expressions over them.
    """

    input: Node
    keys: tuple[Item, ...]
    calls: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of all inputs, duplicates kept; columns correspond by position."""

    inputs: tuple[Node, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Window functions beside each row, all over the same partitions.

    Attributes:
        input: the rows.
        partition: what tells the partitions apart.
        items: the functions with their OVER clauses.
    """

    input: Node
    partition: tuple[Scalar, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Explode:
    """Each row beside every element that a generator makes of it.

    Attributes:
        input: the rows.
        generator: `explode(…)` or another generator.
        outer: whether rows without elements stay, with nulls.
        columns: the names of the elements' columns.
    """

    input: Node
    generator: Scalar
    outer: bool
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows in an order; which of equals come is not defined unless the order is total."""

    input: Node
    order: tuple[Order, ...]
    limit: int | None
    offset: int


Node = Scan | Unit | Project | Filter | Join | Aggregate | Union | Window | Explode | Top


def names(node: Node) -> tuple[str, ...]:
    """The columns of a tree's rows."""
    match node:
        case Scan():
            own = tuple(name for _, name in node.columns)
            return (*own, WEIGHT) if node.weighs else own
        case Unit():
            return ()
        case Project():
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
    """The trees right below a node."""
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
    """The same node over other trees, which must have the same columns."""
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
    """The scans of a tree, from left to right."""
    if isinstance(node, Scan):
        return (node,)
    return tuple(scan for below in inputs(node) for scan in scans(below))


def channels(node: Node) -> tuple[str, ...]:
    """The channels that a tree reads, each once."""
    return tuple(dict.fromkeys(scan.channel for scan in scans(node)))


def at(node: Node, when: At) -> Node:
    """The same tree over the rows before or after the change."""
    if isinstance(node, Scan):
        return replace(node, at=when)
    return with_inputs(node, tuple(at(below, when) for below in inputs(node)))


def kept(columns: tuple[str, ...]) -> tuple[Item, ...]:
    """Columns as they are."""
    return tuple(Item(name, column(name)) for name in columns)
