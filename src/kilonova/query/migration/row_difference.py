"""Rows that are in one of two queries only, as conditions over their joint relation."""

from __future__ import annotations

from collections.abc import Mapping

from kilonova.query.containment import difference
from kilonova.query.expression import Op, Scalar, and_, compose, or_
from kilonova.query.migration.equivalence import not_true, without
from kilonova.query.migration.joint import Joint, safe_first
from kilonova.query.tree import Item, Node, scans
from kilonova.query.zset import weight_where

TRUE = compose("TRUE", op=Op.BOOLEAN)
FALSE = compose("FALSE", op=Op.BOOLEAN)


def added(joint: Joint, kinds: Mapping[str, str | None]) -> tuple[Scalar, ...] | None:
    """Return the conditions of the rows that only the new query has; None if it provably has none."""
    return _only(joint.now, joint.was, joint, kinds)


def removed(joint: Joint, kinds: Mapping[str, str | None]) -> tuple[Scalar, ...] | None:
    """Return the conditions of the rows that only the old query has; None if it provably has none."""
    return _only(joint.was, joint.now, joint, kinds)


def changed_rows(
    joint: Joint, gone: tuple[Scalar, ...], come: tuple[Scalar, ...], items: tuple[Item, ...]
) -> Node | None:
    """Return expressions over the rows of one query only, with weights, by reading the joint rows once.

    None if the conditions that tell the rows apart are on columns of several relations: each of them may then select
    few rows of one, where both together do not.

    Args:
        joint: the joint relation.
        gone: the conditions of the rows that only the old query has.
        come: the conditions of the rows that only the new query has.
        items: the expressions.
    """
    removing, adding = and_(safe_first(without(gone, come))), and_(safe_first(without(come, gone)))
    if removing is None or adding is None:
        return None
    read = {each.columns for each in (*removing.conjuncts(), *adding.conjuncts())}
    if len(read) > 1 and (joint.lookups or len(scans(joint.tree)) > 1):
        return None
    either = (*without(gone, removing.conjuncts()), or_((removing, adding)))
    return joint.select(either, (*items, weight_where(removing)))


def _only(
    wanted: tuple[Scalar, ...], had: tuple[Scalar, ...], joint: Joint, kinds: Mapping[str, str | None]
) -> tuple[Scalar, ...] | None:
    further = without(had, wanted)
    if not further or FALSE in wanted:
        return None
    if FALSE in had:
        return wanted
    plain = frozenset(joint.columns) - {lookup.marker for lookup in joint.lookups}
    if not all(each.columns <= plain for each in further):
        return (*wanted, not_true(further))
    compared = tuple(each for each in wanted if each.columns <= plain)
    condition = difference(and_(compared), and_(further), kinds)
    if condition is None:
        return None
    return (*without(wanted, compared), *condition.conjuncts())
