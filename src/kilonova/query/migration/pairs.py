"""Pairs of relations: places of a query where the old and the new one have different rows.

A pair stands in the joint tree of the queries around it as a scan of a relation that does not exist. So the change of
that tree follows from the delta rules, as if rows had been added to the relation and removed from it; `resolve` then
puts in what its rows are: those of the old query, those of the new one, and their weighted difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kilonova.query.delta_rules import delta_of_tree
from kilonova.query.expression import column
from kilonova.query.migration.joint import Joint
from kilonova.query.migration.row_difference import FALSE, added, changed_rows, removed
from kilonova.query.properties import Known, types
from kilonova.query.tree import WEIGHT, At, Item, Node, Projection, Scan, Union, channels, inputs, kept, with_inputs
from kilonova.query.zset import union_changes, with_weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two relations with the same columns: all rows of the old query and of the new one in some place.

    Attributes:
        branches: the joint relations whose union the rows are, each with the columns as expressions over it.
        columns: the columns.
    """

    branches: tuple[tuple[Joint, tuple[Item, ...]], ...]
    columns: tuple[str, ...]


Pairs = Mapping[str, Pair]
"""Pairs by the name of the relation that stands for each."""


def resolve(node: Node, pairs: Pairs, known: Known) -> Node:
    """Return a tree over channels alone."""
    if not isinstance(node, Scan):
        return with_inputs(node, tuple(resolve(below, pairs, known) for below in inputs(node)))
    pair = pairs.get(node.channel)
    if pair is None:
        return node
    read = tuple(source for source, _ in node.columns)
    match node.at:
        case At.CHANGE:
            rows = _change(pair, read, pairs, known)
        case At.OLD:
            rows = _at_old(
                _union([joint.select(joint.was, _only(items, read)) for joint, items in _had(pair)], read), pairs
            )
        case At.NEW:
            rows = _union([joint.select(joint.now, _only(items, read)) for joint, items in _has(pair)], read)
    weight = kept((WEIGHT,)) if node.at is At.CHANGE else ()
    made = Projection(rows, (*(Item(name, column(source)) for source, name in node.columns), *weight))
    return resolve(made, pairs, known)


def moved(node: Node, pairs: Pairs) -> frozenset[str]:
    """Return the pairs that a tree reads."""
    return frozenset(channels(node)) & frozenset(pairs)


def kinds_of(joint: Joint, known: Known) -> dict[str, str | None]:
    """Return the types of the columns of a joint relation and its lookups."""
    found = types(joint.tree, known)
    for lookup in joint.lookups:
        found |= types(lookup.rows, known)
    return found


def _had(pair: Pair) -> list[tuple[Joint, tuple[Item, ...]]]:
    return [each for each in pair.branches if FALSE not in each[0].was]


def _has(pair: Pair) -> list[tuple[Joint, tuple[Item, ...]]]:
    return [each for each in pair.branches if FALSE not in each[0].now]


def _only(items: tuple[Item, ...], read: tuple[str, ...]) -> tuple[Item, ...]:
    by_name = {item.name: item for item in items}
    return tuple(by_name[name] for name in read)


def _union(parts: list[Node], columns: tuple[str, ...]) -> Node:
    return parts[0] if len(parts) == 1 else Union(tuple(parts), columns)


def _change(pair: Pair, read: tuple[str, ...], pairs: Pairs, known: Known) -> Node:
    parts: list[Node] = []
    for joint, items in pair.branches:
        own = _only(items, read)
        moves = moved(joint.tree, pairs)
        if moves and FALSE not in joint.was:
            changed = delta_of_tree(joint.select(joint.was, own), moves, known)
            parts += [] if changed is None else [changed]
        kinds = kinds_of(joint, known)
        come, gone = added(joint, kinds), removed(joint, kinds)
        both = None if come is None or gone is None else changed_rows(joint, gone, come, own)
        if both is not None:
            parts.append(both)
            continue
        for conditions, weight in ((come, 1), (gone, -1)):
            if conditions is not None:
                parts.append(with_weight(joint.select(conditions, own), weight))
    return union_changes(parts, read)


def _at_old(node: Node, pairs: Pairs) -> Node:
    """Return a tree over the old rows of the pairs that it reads."""
    if isinstance(node, Scan):
        return replace(node, at=At.OLD) if node.channel in pairs else node
    return with_inputs(node, tuple(_at_old(below, pairs) for below in inputs(node)))
