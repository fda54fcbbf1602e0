"""Projection merging: stacked projections become one; renaming ones are merged into a scan or lifted above a join.

Results do not change; a query that is rendered and parsed again gives an equal tree.
"""

from __future__ import annotations

from collections import Counter

from kilonova.query.expression import Scalar, column
from kilonova.query.tree import Item, Join, Node, Projection, Scan, inputs, kept, names, with_inputs


def merge_projections(node: Node) -> Node:
    """Return a tree without redundant projections."""
    node = with_inputs(node, tuple(merge_projections(below) for below in inputs(node)))
    if isinstance(node, Join):
        return _lifted(node)
    if not isinstance(node, Projection):
        return node
    if node.items == kept(names(node.input)):
        return node.input
    if isinstance(node.input, Scan):
        return _renamed(node, node.input)
    if isinstance(node.input, Projection):
        return _joined(node, node.input)
    return node


def _lifted(node: Join) -> Node:
    """Lift renaming projections from the inputs of a join above it, so that joins are adjacent to joins."""
    left, left_names = _bare(node.left)
    right, right_names = _bare(node.right)
    values = left_names | right_names
    if not values or set(names(left)) & set(names(right)):
        return node
    condition = node.condition.with_columns(values) if node.condition is not None else None
    joined = Join(left, right, node.kind, condition, node.few)
    return merge_projections(
        Projection(joined, tuple(Item(name, values.get(name, column(name))) for name in names(node)))
    )


def _bare(node: Node) -> tuple[Node, dict[str, Scalar]]:
    """Return a tree without a projection on top that only renames, and the expressions of its names."""
    if isinstance(node, Projection) and all(item.value.name is not None for item in node.items):
        return node.input, {item.name: item.value for item in node.items}
    return node, {}


def _renamed(node: Projection, scan: Scan) -> Node:
    """Merge a projection that only renames into the scan below it."""
    sources = {name: source for source, name in scan.columns}
    wanted = [item.value.name for item in node.items]
    if any(name not in sources for name in wanted) or len(set(wanted)) < len(wanted):
        return node
    return Scan(scan.channel, tuple((sources[i.value.name], i.name) for i in node.items if i.value.name), scan.at)


def _joined(node: Projection, below: Projection) -> Node:
    """Merge two projections, unless that would compute something twice."""
    used = Counter(name for item in node.items for name in item.value.columns)
    if any(used[item.name] > 1 and item.value.name is None for item in below.items):
        return node
    values = {item.name: item.value for item in below.items}
    return merge_projections(
        Projection(below.input, tuple(Item(item.name, item.value.with_columns(values)) for item in node.items))
    )
