"""Rows with weights: how often each comes, or goes."""

from __future__ import annotations

from kilonova.query.expression import Scalar, column
from kilonova.query.tree import WEIGHT, Aggregate, Explode, Filter, Item, Node, Project, Union, kept, names


def consolidated(node: Node) -> Node:
    """A change with one row for equal ones, those that cancel each other left out."""
    columns = tuple(name for name in names(node) if name != WEIGHT)
    total = Aggregate(node, kept(columns), (Item(WEIGHT, Scalar(f"SUM({column(WEIGHT).sql})")),))
    return Filter(total, Scalar(f"{column(WEIGHT).sql} <> 0"))


def weighed(node: Node, weight: int) -> Node:
    """Rows that all come (1) or all go (-1)."""
    value = Scalar(f"CAST({weight} AS BIGINT)")
    return Project(node, (*kept(names(node)), Item(WEIGHT, value)))


def together(parts: list[Node], columns: tuple[str, ...]) -> Node:
    """Several changes as one."""
    every = (*columns, WEIGHT)
    shaped = tuple(part if names(part) == every else Project(part, kept(every)) for part in parts)
    return shaped[0] if len(shaped) == 1 else Union(shaped, every)


def settled(node: Node, columns: tuple[str, ...]) -> Node:
    """Rows with weights as the rows that they add up to."""
    weight = column(WEIGHT).sql
    each = Scalar(f"EXPLODE(SEQUENCE(1, CAST({weight} AS INT)))")
    return Project(Explode(consolidated(node), each, False, ("_each",)), kept(columns))
