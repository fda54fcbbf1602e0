"""Comparison of unions, whose parts correspond in any order."""

from __future__ import annotations

from kilonova.query.expression import Scalar, column
from kilonova.query.migration.comparer import Comparer
from kilonova.query.migration.equivalence import canonical
from kilonova.query.migration.joint import Joint
from kilonova.query.migration.pairs import kinds_of
from kilonova.query.migration.row_difference import FALSE
from kilonova.query.migration.unpaired import Unpaired
from kilonova.query.properties import type_of, types
from kilonova.query.tree import Item, Node, Union, names


def compare_unions(comparison: Comparer, old: Union, new: Union) -> Joint:
    """Return the joint relation of two unions.

    Raises:
        Unpaired: none was found.
    """
    left = list(range(len(new.inputs)))
    matched: list[tuple[Joint, tuple[Scalar, ...], tuple[Scalar, ...]]] = []
    gone: list[Node] = []
    for branch in old.inputs:
        found = _branch(comparison, branch, new, left)
        if found is None:
            gone.append(branch)
            continue
        place, joint = found
        left.remove(place)
        was = tuple(joint.old[name] for name in names(branch))
        now = tuple(joint.new[name] for name in names(new.inputs[place]))
        matched.append((joint, was, now))
    come = [new.inputs[place] for place in left]
    if not matched:
        raise Unpaired("no part of the union is the same")
    was_texts = _transposed([each[1] for each in matched], len(old.columns))
    now_texts = _transposed([each[2] for each in matched], len(new.columns))
    items: dict[tuple[str, ...], tuple[str, int, int]] = {}  # name, and the place among the old or new columns
    for place, (name, texts) in enumerate(zip(old.columns, was_texts, strict=True)):
        items.setdefault(texts, (name, place, -1))
    for place, (name, texts) in enumerate(zip(new.columns, now_texts, strict=True)):
        own, old_place, _ = items.get(texts, (name, -1, place))
        items[texts] = (own, old_place, place)
    columns = {
        "old": {name: column(items[texts][0]) for name, texts in zip(old.columns, was_texts, strict=True)},
        "new": {name: column(items[texts][0]) for name, texts in zip(new.columns, now_texts, strict=True)},
    }

    def shaped(was: tuple[Scalar, ...], now: tuple[Scalar, ...]) -> tuple[Item, ...]:
        return tuple(Item(name, was[one] if one >= 0 else now[other]) for name, one, other in items.values())

    every = tuple(name for name, _, _ in items.values())
    if not gone and not come and all(comparison.has_same_rows(joint) for joint, _, _ in matched):
        parts = tuple(joint.select(joint.was, shaped(was, now)) for joint, was, now in matched)
        return Joint(tree=Union(parts, every), old=columns["old"], new=columns["new"])
    if any(old_place < 0 or new_place < 0 for _, old_place, new_place in items.values()):
        raise Unpaired("the columns of a union and its rows differ at once")
    if not _are_alike(comparison, matched, gone, come, [(one, other) for _, one, other in items.values()]):
        raise Unpaired("the parts of a union are not known to have the same types")
    if len(set(was_texts)) < len(was_texts) or len(set(now_texts)) < len(now_texts):
        raise Unpaired("a union has equal columns")
    branches = [(joint, shaped(was, now)) for joint, was, now in matched]
    for node in gone:
        values = tuple(column(name) for name in names(node))
        branches.append((Joint(tree=node, old={}, new={}, now=(FALSE,)), shaped(values, values)))
    for node in come:
        values = tuple(column(name) for name in names(node))
        ordered = tuple(Item(name, values[other]) for name, _, other in items.values())
        branches.append((Joint(tree=node, old={}, new={}, was=(FALSE,)), ordered))
    kinds = kinds_of(matched[0][0], comparison.known)
    typed = {item.name: kinds.get(item.value.name or "") for item in branches[0][1]}
    return Joint(tree=comparison.pair(tuple(branches), typed, ()), old=columns["old"], new=columns["new"])


def _are_alike(
    comparison: Comparer,
    matched: list[tuple[Joint, tuple[Scalar, ...], tuple[Scalar, ...]]],
    gone: list[Node],
    come: list[Node],
    places: list[tuple[int, int]],
) -> bool:
    """Return whether the parts that only one union has do not change the types of its columns."""
    joint, was, _ = matched[0]
    kinds = kinds_of(joint, comparison.known)
    for old_place, new_place in places:
        kind = type_of(was[old_place], kinds)
        own = [list(types(node, comparison.known).values())[old_place] for node in gone]
        own += [list(types(node, comparison.known).values())[new_place] for node in come]
        if kind is None or any(each != kind for each in own):
            return False
    return True


def _branch(comparison: Comparer, branch: Node, new: Union, left: list[int]) -> tuple[int, Joint] | None:
    """Return one of the remaining parts of a union that corresponds to a part of another, if possible the same."""
    found: list[tuple[int, Joint]] = []
    for place in left:
        try:
            joint = comparison.of(branch, new.inputs[place])
        except Unpaired:
            continue
        if comparison.has_same_rows(joint):
            return place, joint
        found.append((place, joint))
    return found[0] if found else None


def _transposed(rows: list[tuple[Scalar, ...]], width: int) -> list[tuple[str, ...]]:
    """Return for each column its expressions in all rows."""
    return [tuple(canonical(row[place]) for row in rows) for place in range(width)]
