"""Join conditions without the equalities that follow from others.

Of relations that meet in one value, every two are to be equal: that is what passes keys on from each to each, and lets
joins stand in any order (`ordering`). Once the tree stands, one equality for each further relation says it all. From
more of them Spark derives still more, at every level and for each pair of columns: for one change in a join of 46
relations that took 100 s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kilonova.query.expression import Scalar, both
from kilonova.query.properties import Known, equated
from kilonova.query.tree import (
    Explode,
    Filter,
    Join,
    Kind,
    Node,
    Project,
    Scan,
    Top,
    Window,
    inputs,
    with_inputs,
)


def thinned(node: Node, known: Known) -> Node:
    """A tree with the same rows, whose inner joins want no equality twice.

    Args:
        node: the tree.
        known: the channels that it reads.
    """
    return _thinned(node, known)[0]


@dataclass(frozen=True, slots=True)
class _Column:
    """What is known of a column: its type, and which of the columns beside it stands for those that it equals."""

    kind: str
    value: str


_Columns = dict[str, _Column]


def _thinned(node: Node, known: Known) -> tuple[Node, _Columns]:
    """A thinned tree, and its columns as far as they are known."""
    below = [_thinned(each, known) for each in inputs(node)]
    plain = with_inputs(node, tuple(tree for tree, _ in below))
    match plain:
        case Scan():
            types = known[plain.channel].types
            return plain, {name: _Column(types[source], name) for source, name in plain.columns if types.get(source)}
        case Project():
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
    """An inner join without what is known of its sides' columns, and what is known of its own."""
    wanted: list[Scalar] = []
    for condition in node.condition.conjuncts() if node.condition is not None else ():
        pair = next(iter(equated(condition, condition.columns, condition.columns)), None)
        one, other = (columns.get(side.name or "") for side in pair) if pair is not None else (None, None)
        if one is None or other is None or one.kind != other.kind:
            wanted.append(condition)
        elif one.value != other.value:
            wanted.append(condition)
            columns = {n: replace(c, value=one.value) if c.value == other.value else c for n, c in columns.items()}
    return replace(node, condition=both(tuple(wanted))), columns


def _named(node: Project, columns: _Columns) -> _Columns:
    """What is known of a projection's columns, by the names that they have there."""
    names: dict[str, str] = {}
    found: _Columns = {}
    for item in node.items:
        source = columns.get(item.value.name or "")
        if source is not None:
            found[item.name] = replace(source, value=names.setdefault(source.value, item.name))
    return found
