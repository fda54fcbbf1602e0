"""Removal of join conditions that follow from other equalities.

Of relations joined on one value, every pair has an equality: this lets keys pass between any two of them, and joins
be in any order (`join_ordering`). Once the tree is final, one equality per further relation is enough. From
redundant ones Spark derives still more, at every level and for each pair of columns: for one change in a join of 46
relations that took 100 s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kilonova.query.expression import Scalar, and_
from kilonova.query.properties import Known, equi_pairs
from kilonova.query.tree import (
    Explode,
    Filter,
    Join,
    Kind,
    Node,
    Projection,
    Scan,
    Top,
    Window,
    inputs,
    with_inputs,
)


def drop_redundant_equalities(node: Node, known: Known) -> Node:
    """Return a tree with the same rows whose inner joins have no redundant equalities.

    Args:
        node: the tree.
        known: the channels that it reads.
    """
    return _thinned(node, known)[0]


@dataclass(frozen=True, slots=True)
class _Column:
    """Known properties of a column: its type, and the representative of the columns that it equals."""

    kind: str
    value: str


_Columns = dict[str, _Column]


def _thinned(node: Node, known: Known) -> tuple[Node, _Columns]:
    """Return a tree without redundant equalities, and the known properties of its columns."""
    below = [_thinned(each, known) for each in inputs(node)]
    plain = with_inputs(node, tuple(tree for tree, _ in below))
    match plain:
        case Scan():
            types = known[plain.channel].types
            return plain, {name: _Column(types[source], name) for source, name in plain.columns if types.get(source)}
        case Projection():
            return plain, _named(plain, below[0][1])
        case Filter() | Window() | Explode() | Top():
            return plain, below[0][1]
        case Join(kind=Kind.INNER):
            return _met(plain, below[0][1] | below[1][1])
        case Join():
            return plain, below[0][1]
        case _:
            return plain, {}


def _met(node: Join, columns: _Columns) -> tuple[Node, _Columns]:
    """Return an inner join without redundant equalities, and the known properties of its columns."""
    wanted: list[Scalar] = []
    for condition in node.condition.conjuncts() if node.condition is not None else ():
        pair = next(iter(equi_pairs(condition, condition.columns, condition.columns)), None)
        one, other = (columns.get(side.name or "") for side in pair) if pair is not None else (None, None)
        if one is None or other is None or one.kind != other.kind:
            wanted.append(condition)
        elif one.value != other.value:
            wanted.append(condition)
            columns = {n: replace(c, value=one.value) if c.value == other.value else c for n, c in columns.items()}
    return replace(node, condition=and_(tuple(wanted))), columns


def _named(node: Projection, columns: _Columns) -> _Columns:
    """Return the known properties of a projection's columns, by their names there."""
    names: dict[str, str] = {}
    found: _Columns = {}
    for item in node.items:
        source = columns.get(item.value.name or "")
        if source is not None:
            found[item.name] = replace(source, value=names.setdefault(source.value, item.name))
    return found
