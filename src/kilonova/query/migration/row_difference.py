"""Rows that are in one of two queries only, as conditions over their joint relation."""

from __future__ import annotations

from collections.abc import Mapping

from kilonova.query.containment import difference
from kilonova.query.expression import Op, Scalar, and_, compose
from kilonova.query.migration.equivalence import not_true, without
from kilonova.query.migration.joint import Joint

TRUE = compose("TRUE", op=Op.BOOLEAN)
FALSE = compose("FALSE", op=Op.BOOLEAN)


def added(joint: Joint, kinds: Mapping[str, str | None]) -> tuple[Scalar, ...] | None:
    """Return the conditions of the rows that only the new query has; None if it provably has none."""
    return _only(joint.now, joint.was, joint, kinds)


def removed(joint: Joint, kinds: Mapping[str, str | None]) -> tuple[Scalar, ...] | None:
    """Return the conditions of the rows that only the old query has; None if it provably has none."""
    return _only(joint.was, joint.now, joint, kinds)


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
