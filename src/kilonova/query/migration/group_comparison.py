"""Comparison of groups and windows, and of the conditions on the rows below them.

A condition on grouping or partition keys is true for all rows of a group or for none, so it passes the operator. So
does one on a lookup by grouping keys, if the new query only loses groups: others are computed from their rows alone
where the lookup comes first. With other conditions the rows of groups differ: they are a pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kilonova.query.expression import Op, Scalar, column, compose
from kilonova.query.migration.comparer import Comparer
from kilonova.query.migration.equivalence import all_expressed, canonical, expressed
from kilonova.query.migration.joint import Joint, Lookup
from kilonova.query.migration.pairs import kinds_of
from kilonova.query.migration.row_difference import added
from kilonova.query.migration.unpaired import Unpaired
from kilonova.query.properties import determined
from kilonova.query.tree import Aggregate, Item, Window, names


def compare_groups(comparison: Comparer, old: Aggregate, new: Aggregate) -> Joint:
    """Return the joint relation of two aggregates.

    Raises:
        Unpaired: none was found.
    """
    joint = comparison.of(old.input, new.input)
    keys_ = _over(old.keys, joint.old)
    now_keys = _over(new.keys, joint.new)
    named = {canonical(key.value): column(key.name) for key in reversed(keys_)}
    computed = {key.name: expressed(key.value, named) for key in now_keys}
    further = _further(keys_, tuple(key for key in now_keys if computed[key.name] is None))
    common = tuple(key for key in keys_ if not _further(now_keys, (key,)))
    if not _are_determined(comparison, (*further, *_further(common, keys_)), common, joint):
        raise Unpaired("the grouping keys differ")
    named |= {canonical(key.value): column(key.name) for key in further}
    calls, columns = _merged(_over(old.calls, joint.old), _over(new.calls, joint.new))
    calls += tuple(Item(key.name, compose("MAX({})", key.value, op=Op.MIN_MAX)) for key in further)
    was, now = all_expressed(joint.was, named), all_expressed(joint.now, named)
    lookups: tuple[Lookup, ...] = ()
    if keys_ and (was is None or now is None):
        lost = _lost(comparison, joint, named, (*keys_, *calls))
        was, now, lookups = (was, now, ()) if lost is None else (lost.was, lost.now, lost.lookups)
    has_pairs = not comparison.has_same_rows(replace(joint, was=(), now=()))
    if not keys_ or was is None or now is None or (has_pairs and (was or now)):
        below, was, now, lookups = comparison.relation(joint), (), (), ()
    else:
        below = joint.filtered((), (item.value for item in (*keys_, *calls)))
    return Joint(
        tree=Aggregate(below, keys_, calls),
        old={item.name: column(item.name) for item in (*old.keys, *old.calls)},
        new={key.name: computed[key.name] or named[canonical(key.value)] for key in now_keys} | columns,
        was=was,
        now=now,
        lookups=lookups,
    )


def _lost(comparison: Comparer, joint: Joint, named: Mapping[str, Scalar], items: tuple[Item, ...]) -> Joint | None:
    """Return a joint relation with its conditions and lookups over groups, if the new query only loses groups.

    Args:
        comparison: the comparison.
        joint: the joint relation of the rows of the groups.
        named: the grouping keys, as columns of the groups.
        items: the expressions over the rows of a group.
    """
    known, lookups = dict(named), []
    read = {name for item in items for name in item.value.columns}
    for lookup in joint.lookups:
        own = {canonical(column(name)): column(name) for name in names(lookup.rows)}
        condition = expressed(lookup.condition, {**known, **own})
        if condition is not None and read.isdisjoint(names(lookup.rows)):
            known |= own
            lookups.append(replace(lookup, condition=condition))
    was, now = all_expressed(joint.was, known), all_expressed(joint.now, known)
    if was is None or now is None:
        return None
    found = replace(joint, was=was, now=now, lookups=tuple(lookups))
    return found if added(found, kinds_of(joint, comparison.known)) is None else None


def compare_windows(comparison: Comparer, old: Window, new: Window) -> Joint:
    """Return the joint relation of window functions over two relations.

    Raises:
        Unpaired: none was found.
    """
    joint = comparison.of(old.input, new.input)
    partition = tuple(value.with_columns(joint.old) for value in old.partition)
    named = {canonical(value): value for value in partition}
    if {canonical(value.with_columns(joint.new)) for value in new.partition} != set(named):
        raise Unpaired("the partitions of window functions differ")
    items, columns = _merged(_over(old.items, joint.old), _over(new.items, joint.new))
    was, now = all_expressed(joint.was, named), all_expressed(joint.now, named)
    if not partition or was is None or now is None:
        below, was, now = comparison.relation(joint), (), ()
    else:
        below = joint.filtered((), (column(name) for name in joint.columns))

    return Joint(
        tree=Window(below, partition, items),
        old={**joint.old, **{item.name: column(item.name) for item in old.items}},
        new={**joint.new, **columns},
        was=was,
        now=now,
        holds=joint.holds,
    )


def _are_determined(comparison: Comparer, further: tuple[Item, ...], by: tuple[Item, ...], joint: Joint) -> bool:
    """Return whether further grouping keys are the same in all rows of a group."""
    if not further:
        return True
    rows = joint.filtered((), (key.value for key in (*further, *by)))
    given = frozenset(key.value.name for key in by if key.value.name is not None)
    found = determined(rows, given, comparison.known)
    return all(key.value.columns <= found and key.value.steady for key in further)


def _over(items: tuple[Item, ...], columns: Mapping[str, Scalar]) -> tuple[Item, ...]:
    """Return named expressions over a joint relation."""
    return tuple(Item(item.name, item.value.with_columns(columns)) for item in items)


def _merged(old: tuple[Item, ...], new: tuple[Item, ...]) -> tuple[tuple[Item, ...], dict[str, Scalar]]:
    """Return the expressions of both queries, and those of the new query as columns of them."""
    found = {canonical(item.value): item for item in reversed(old)}
    for item in new:
        found.setdefault(canonical(item.value), item)
    further = tuple(item for item in found.values() if item not in old)
    return (*old, *further), {item.name: column(found[canonical(item.value)].name) for item in new}


def _further(old: tuple[Item, ...], new: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the expressions that only the new query has, each once."""
    there = {canonical(item.value) for item in old}
    by_text = {canonical(item.value): item for item in reversed(new)}
    return tuple(item for text, item in by_text.items() if text not in there)
