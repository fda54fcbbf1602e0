"""Rules: equivalences that make a query smaller or its change cheaper, in the order in which they are applied.

Each is defined in a module of its own, and returns a tree with the same rows; so the change of a tree is right without
any of them, and each is tested on its own (`tests/query/rules`). Beside these lists, `kilonova.query.eager_aggregation`
is applied to single operators, where `kilonova.query.materialization` decides which relations are stored.
"""

from __future__ import annotations

from collections.abc import Callable

from kilonova.model.logic import RunScale
from kilonova.query.column_pruning import narrow_to, prune_columns
from kilonova.query.join_ordering import order_joins, without_hints
from kilonova.query.key_lookups import look_up_keys
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.predicate_pushdown import push_predicates
from kilonova.query.projection_merging import merge_projections
from kilonova.query.properties import Known
from kilonova.query.redundant_equalities import drop_redundant_equalities
from kilonova.query.redundant_weights import drop_redundant_weights
from kilonova.query.tree import Node
from kilonova.query.weighted_reads import read_with_weights

Rule = Callable[[Node, Known, MaintenanceContext], Node]

OF_PARSED: tuple[Callable[[Node], Node], ...] = (push_predicates,)
"""Rules for a query and its subqueries, once they are parsed."""

OF_STORED: tuple[Callable[[Node], Node], ...] = (prune_columns, merge_projections)
"""Rules for the query of a relation that is stored."""

OF_RUN: tuple[Rule, ...] = (
    lambda node, known, run: order_joins(node, run.moved, run.sizes, known),
    lambda node, known, run: narrow_to(node),
)
"""Rules for the query of a stored relation in a run, before its change is derived."""

OF_CHANGE: tuple[Rule, ...] = (
    lambda node, known, run: read_with_weights(node, run.layered),
    lambda node, known, run: drop_redundant_weights(node, known),
    lambda node, known, run: look_up_keys(node, known),
    lambda node, known, run: drop_redundant_equalities(node, known),
    lambda node, known, run: without_hints(node) if run.scale is RunScale.SHUFFLE else node,
)
"""Rules for the change of a relation."""


def simplify(rules: tuple[Callable[[Node], Node], ...], node: Node) -> Node:
    """Return a tree after rules were applied to it, in their order."""
    for rule in rules:
        node = rule(node)
    return node


def adapt(rules: tuple[Rule, ...], node: Node, known: Known, run: MaintenanceContext) -> Node:
    """Return a tree after rules that depend on the circumstances of a run were applied to it, in their order."""
    for rule in rules:
        node = rule(node, known, run)
    return node
