"""Removal of work on weights that are known.

A change adds up the weights of equal rows, since rows of either sign might cancel each other. Where the rows are read
at one time, not as changes, and have a key, there are none: often that is known only in a run, by the number of rows of
a channel. Sums repeat rows by their weights, which need not be done for rows that are all added or removed once.
"""

from __future__ import annotations

from kilonova.query.properties import Known, unique
from kilonova.query.tree import WEIGHT, Aggregate, Explode, Filter, Node, inputs, names, scans, with_inputs
from kilonova.query.zset import consolidate, has_unit_weights, repeat_rows


def drop_redundant_weights(node: Node, known: Known) -> Node:
    """Return a change with the same rows that adds up weights, and repeats rows by them, only where that is needed.

    Args:
        node: the change, in which it is decided which channels are read with weights.
        known: the channels that it reads.
    """
    node = with_inputs(node, tuple(drop_redundant_weights(each, known) for each in inputs(node)))
    match node:
        case Filter(input=Aggregate(input=rows)) if WEIGHT in names(rows) and node == consolidate(rows):
            return Filter(rows, node.condition) if _is_distinct(rows, known) else node
        case Explode(input=rows) if WEIGHT in names(rows) and node == repeat_rows(rows):
            return rows if has_unit_weights(rows) else node
        case _:
            return node


def _is_distinct(node: Node, known: Known) -> bool:
    """Return whether no two rows of a change are equal but for their weights."""
    return not any(scan.weighs for scan in scans(node)) and any(WEIGHT not in key for key in unique(node, known))
