"""Projections one above the other as one, and those that only rename as part of the scan below them.

It changes no result; it makes equal trees of queries that were written, rendered and read again.
"""

from __future__ import annotations

from collections import Counter

from kilonova.query.tree import Item, Node, Project, Scan, inputs, kept, names, with_inputs


def folded(node: Node) -> Node:
    """A tree without projections that do nothing of their own."""
    node = with_inputs(node, tuple(folded(below) for below in inputs(node)))
    if not isinstance(node, Project):
        return node
    if node.items == kept(names(node.input)):
        return node.input
    if isinstance(node.input, Scan):
        return _renamed(node, node.input)
    if isinstance(node.input, Project):
        return _joined(node, node.input)
    return node


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
