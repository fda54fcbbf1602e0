"""Queries over channels whose columns have been renamed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kilonova.query.tree import Node, Scan, inputs, with_inputs


def with_new_names(tree: Node, names: Mapping[str, Mapping[str, str]]) -> Node:
    """Return a query over channels whose columns have been renamed: it reads the same columns by their new names.

    Args:
        tree: the query over the channels before.
        names: the new names of columns, by their names before, of each channel of which some are renamed.
    """
    if isinstance(tree, Scan):
        new = names.get(tree.channel, {})
        return replace(tree, columns=tuple((new.get(source, source), name) for source, name in tree.columns))
    return with_inputs(tree, tuple(with_new_names(below, names) for below in inputs(tree)))
