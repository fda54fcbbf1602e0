"""Normal form of projections, filters, inner joins, and operators that work on each row of their left input.

Every such tree is the cross product of its parts, to which operators are applied one after the other (left, semi- and
anti-joins and generators), then conditions, then expressions. So the order in which they are written is of no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kilonova.query.expression import Scalar, and_, column
from kilonova.query.join_ordering import join_in_order
from kilonova.query.tree import Explode, Filter, Join, Kind, Node, Projection, Unit, names

Step = Join | Explode
"""Left, semi- or anti-join or generator, over a placeholder instead of its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBlock:
    """Normal form of a tree.

    Attributes:
        parts: the relations that are joined.
        steps: the operators that are applied to their product.
        conditions: the conditions on the rows.
        columns: the columns of the tree as expressions.
    """

    parts: tuple[Node, ...]
    steps: tuple[Step, ...] = ()
    conditions: tuple[Scalar, ...] = ()
    columns: Mapping[str, Scalar]


def flatten(node: Node) -> QueryBlock:
    """Return the normal form of a tree."""
    match node:
        case Projection():
            block = flatten(node.input)
            return replace(block, columns={item.name: item.value.with_columns(block.columns) for item in node.items})
        case Filter():
            block = flatten(node.input)
            own = node.condition.with_columns(block.columns).conjuncts()
            return replace(block, conditions=(*block.conditions, *own))
        case Join(kind=Kind.INNER):
            one, other = flatten(node.left), flatten(node.right)
            columns = {**one.columns, **other.columns}
            own = () if node.condition is None else node.condition.with_columns(columns).conjuncts()
            return QueryBlock(
                parts=(*one.parts, *other.parts),
                steps=(*one.steps, *other.steps),
                conditions=(*one.conditions, *other.conditions, *own),
                columns=columns,
            )
        case Join(kind=Kind.LEFT | Kind.SEMI | Kind.ANTI):
            block = flatten(node.left)
            own = () if node.condition is None else node.condition.with_columns(block.columns).conjuncts()
            right, met = _restricted(node.right, own)
            alone: tuple[Scalar, ...] = ()
            if node.kind is Kind.SEMI:
                alone = tuple(each for each in met if not each.columns & frozenset(names(right)))
                met = tuple(each for each in met if each not in alone)
            columns = {**block.columns, **{name: column(name) for name in names(right) if node.kind is Kind.LEFT}}
            step = Join(Unit(), right, node.kind, and_(met))
            conditions = (*block.conditions, *alone)
            return replace(block, steps=(*block.steps, step), conditions=conditions, columns=columns)
        case Explode():
            block = flatten(node.input)
            made = Explode(Unit(), node.generator.with_columns(block.columns), node.outer, node.columns)
            columns = {**block.columns, **{name: column(name) for name in node.columns}}
            return replace(block, steps=(*block.steps, made), columns=columns)
        case _:
            return QueryBlock(parts=(node,), columns={name: column(name) for name in names(node)})


def _restricted(right: Node, conditions: tuple[Scalar, ...]) -> tuple[Node, tuple[Scalar, ...]]:
    """Return the right side of a join with the conditions that are on it alone, and the other conditions."""
    columns = frozenset(names(right))
    alone = and_(tuple(each for each in conditions if each.columns and each.columns <= columns))
    if alone is None:
        return right, conditions
    return Filter(right, alone), tuple(each for each in conditions if not each.columns or not each.columns <= columns)


def read_by(step: Step) -> frozenset[str]:
    """Return the columns of its input that an operator reads."""
    if isinstance(step, Explode):
        return step.generator.columns
    own = frozenset() if step.condition is None else step.condition.columns
    return own - frozenset(names(step.right))


def assemble(parts: Iterable[Node], steps: Iterable[Step], conditions: Iterable[Scalar]) -> Node:
    """Return the tree of parts, operators and conditions, each applied as early as its columns allow."""
    pending = list(dict.fromkeys(conditions))

    def taken(columns: frozenset[str]) -> tuple[Scalar, ...]:
        found = tuple(each for each in pending if each.columns <= columns)
        pending[:] = [each for each in pending if each not in found]
        return found

    def filtered(node: Node) -> Node:
        condition = and_(taken(frozenset(names(node))))
        return node if condition is None else Filter(node, condition)

    def joined(some: list[Node]) -> Node:
        columns = frozenset(name for piece in some for name in names(piece))
        return some[0] if len(some) == 1 else join_in_order(some[0], some[1:], taken(columns))

    pieces = [filtered(part) for part in parts]
    for step in steps:
        met = [piece for piece in pieces if read_by(step) & set(names(piece))] or pieces[:1]
        base = joined(met)
        made = filtered(replace(step, left=base) if isinstance(step, Join) else replace(step, input=base))
        pieces = [made if piece is met[0] else piece for piece in pieces if piece is met[0] or piece not in met]
    return joined(pieces)
