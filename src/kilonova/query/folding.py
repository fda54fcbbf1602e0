"""Projections one above the other as one, those that only rename as part of the scan below them or above a join.

It changes no result; it makes equal trees of queries that were written, rendered and read again.
"""

from __future__ import annotations

from collections import Counter

from kilonova.query.expression import Scalar, column
from kilonova.query.tree import Item, Join, Node, Project, Scan, inputs, kept, names, with_inputs


def folded(node: Node) -> Node:
    """A tree without projections that do nothing of their own."""
    node = with_inputs(node, tuple(folded(below) for below in inputs(node)))
    if isinstance(node, Join):
        return _lifted(node)
    if not isinstance(node, Project):
        return node
    if node.items == kept(names(node.input)):
        return node.input
    if isinstance(node.input, Scan):
        return _renamed(node, node.input)
    if isinstance(node.input, Project):
        return _joined(node, node.input)
    return node


def _lifted(node: Join) -> Node:
    """A join of what projections only rename, with the renaming above it: so joins stand beside joins."""
    left, left_names = _bare(node.left)
    right, right_names = _bare(node.right)
    values = left_names | right_names
    if not values or set(names(left)) & set(names(right)):
        return node
    condition = node.condition.with_columns(values) if node.condition is not None else None
    joined = Join(left, right, node.kind, condition, node.few)
    return folded(Project(joined, tuple(Item(name, values.get(name, column(name))) for name in names(node))))


def _bare(node: Node) -> tuple[Node, dict[str, Scalar]]:
    """A tree without the projection on top of it, if that does no more than rename, and what the names stood for."""
    if isinstance(node, Project) and all(item.value.name is not None for item in node.items):
        return node.input, {item.name: item.value for item in node.items}
    return node, {}


def _renamed(node: Project, scan: Scan) -> Node:
    """A scan under other names, if the projection is nothing else."""
    sources = {name: source for source, name in scan.columns}
    wanted = [item.value.name for item in node.items]
    if any(name not in sources for name in wanted) or len(set(wanted)) < len(wanted):
        return node
    return Scan(scan.channel, tuple((sources[i.value.name], i.name) for i in node.items if i.value.name), scan.at)


def _joined(node: Project, below: Project) -> Node:
    """Two projections as one, unless that would compute something twice."""
    used = Counter(name for item in node.items for name in item.value.columns)
    if any(used[item.name] > 1 and item.value.name is None for item in below.items):
        return node
    values = {item.name: item.value for item in below.items}
    return folded(Project(below.input, tuple(Item(item.name, item.value.with_columns(values)) for item in node.items)))
