"""Maintenance of a materialized relation: its change as a query that gives a delta in the relation's encoding.

The query reads the channels after the change, before it and the change itself; and, for recomputed groups, the
relation's own rows of those groups, to find those that really differ.
"""

from __future__ import annotations

from kilonova.model.encoding import Append, Changes, Upsert
from kilonova.query.decimals import digits
from kilonova.query.delta_rules import delta_of_tree, touched
from kilonova.query.expression import Op, Scalar, and_, column, compose, null_safe_eq, or_
from kilonova.query.key_restriction import restrict_to_keys
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.materialized_relation import ROWS, MaterializedRelation, grouping, shown
from kilonova.query.properties import Known, single, types
from kilonova.query.tree import (
    WEIGHT,
    Aggregate,
    At,
    Explode,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Projection,
    Scan,
    Side,
    Top,
    Union,
    Unit,
    Window,
    channels,
    inputs,
    kept,
    names,
)
from kilonova.query.zset import consolidate, repeat_rows, union_changes, with_weight


def maintenance_delta(item: MaterializedRelation, known: Known, found: MaintenanceContext) -> Node | None:
    """Return the delta of a materialized relation.

    Args:
        item: the relation.
        known: the channels that it reads.
        found: their state at the start of the run.

    Returns:
        A tree with the columns of a delta in the relation's encoding, or a strong one; None if nothing changes.
    """
    if item.sums and not found.again:
        return _summed(item, known, found)
    changed = _own_groups(item, found.moved, known) or delta_of_tree(item.tree, found.moved, known)
    if changed is None:
        return None
    if not item.sums and isinstance(item.encoding, Changes) and removes_nothing(item.tree, known, found):
        return changed
    return consolidate(changed) if found.strong or item.sums else _encoded(item, changed, known)


def _summed(item: MaterializedRelation, known: Known, found: MaintenanceContext) -> Node | None:
    """Return the change of groups stored with their sums, by adding to the sums; always a strong delta."""
    group, above = grouping(item.tree)
    changed = delta_of_tree(group.input, found.moved, known)
    if changed is None:
        return None
    keys_, sums = (tuple(each.name for each in items) for items in (group.keys, group.calls))
    old, new = (tuple(f"{name}__{when}" for name in sums) for when in ("old", "new"))
    coming = _amounts(group, new, changed)
    there: Node = Scan(item.channel, tuple((shown(name, above)[0], name) for name in (*keys_, *sums)), At.OLD)
    if found.large and keys_:
        there = _touched_groups(there, group, known, found)
    weight = column(WEIGHT)
    signed = {n: compose("CASE WHEN {} > 0 THEN {} ELSE -{} END", weight, column(n), column(n)) for n in sums}
    nothing, one, none = compose("NULL", op=Op.NULL), compose("1L", op=Op.CALL), compose("0L", op=Op.CALL)
    adding = Projection(
        coming,
        (
            *kept(keys_),
            *(Item(name, nothing) for name in old),
            *kept(new),
            Item("_was", none),
            Item("_touched", one),
        ),
    )
    being = Projection(
        with_weight(there, 1),
        (
            *kept(keys_),
            *(Item(name, signed[source]) for name, source in zip(old, sums, strict=True)),
            *(Item(name, signed[source]) for name, source in zip(new, sums, strict=True)),
            Item("_was", column(WEIGHT)),
            Item("_touched", none),
        ),
    )
    both_ = Union((adding, being), names(adding))
    kinds = types(group, known)
    typed = zip((*old, *new), sums * 2, strict=True)
    totals = (
        *(Item(name, _total(name, kinds[source])) for name, source in typed),
        *(Item(name, _total(name, None)) for name in ("_was", "_touched")),
    )
    pairs = zip(map(column, old), map(column, new), strict=True)
    differs = or_(tuple(compose("NOT ({})", null_safe_eq(a, b), op=Op.NOT) for a, b in pairs))
    condition = and_((compose("{} > 0", column("_touched")), differs))
    assert condition is not None
    met_groups = Filter(Aggregate(both_, kept(keys_), totals), condition)
    rows = next(name for name in sums if ROWS in shown(name, above))
    is_there = compose("{} > 0", column(f"{rows}__new")) if keys_ else compose("TRUE", op=Op.BOOLEAN)
    each = Explode(met_groups, compose("EXPLODE(ARRAY(-1L, 1L))"), False, (WEIGHT,))
    pair = Filter(each, compose("CASE WHEN {} < 0 THEN {} > 0 ELSE {} END", weight, column("_was"), is_there))
    chosen = tuple(
        Item(n, compose("CASE WHEN {} < 0 THEN {} ELSE {} END", weight, column(before), column(after), op=Op.CALL))
        for n, before, after in zip(sums, old, new, strict=True)
    )
    made: Node = Projection(pair, (*kept(keys_), *chosen, *kept((WEIGHT,))))
    for project in reversed(above):
        made = Projection(made, (*project.items, *kept((WEIGHT,))))
    return made


def _touched_groups(stored: Node, group: Aggregate, known: Known, found: MaintenanceContext) -> Node:
    """Return those of the stored groups of an aggregate that a change touches."""
    keys, wanted = touched(group.input, tuple(key.value for key in group.keys), found.moved, known)
    own = tuple((column(item.name), key) for item, (_, key) in zip(group.keys, wanted, strict=True))
    return restrict_to_keys(stored, own, keys)


def _total(name: str, kind: str | None) -> Scalar:
    """Return the sum of amounts, cast to the type of the sum that they change: a sum of sums has a wider one."""
    total = compose("SUM({})", column(name), op=Op.SUM)
    return (
        total if kind is None or digits(kind) is None else compose(f"CAST({{}} AS {kind.upper()})", total, op=Op.CALL)
    )


def _amounts(group: Aggregate, columns: tuple[str, ...], changed: Node) -> Node:
    """Return the amounts that each row of a change adds to sums, each row repeated and signed by its weight."""
    amounts = tuple(Item(name, _signed(call.value)) for name, call in zip(columns, group.calls, strict=True))
    return Projection(repeat_rows(changed), (*group.keys, *amounts))


def _signed(call: Scalar) -> Scalar:
    """Return the amount that a row adds to `COUNT(x)` or `COALESCE(SUM(x), zero)`, negative if it is removed."""
    weight = column(WEIGHT)
    if call.op is Op.COUNT:
        (counted,) = call.operands
        if counted.op is Op.STAR or counted.sql == "1":
            return compose("CASE WHEN {} > 0 THEN 1L ELSE -1L END", weight, op=Op.CALL)
        text = "CASE WHEN ({}) IS NULL THEN 0L WHEN {} > 0 THEN 1L ELSE -1L END"
        return compose(text, counted, weight, op=Op.CALL)
    total, zero = call.operands
    (value,) = total.operands
    text = "COALESCE(CASE WHEN {} > 0 THEN {} ELSE -({}) END, {})"
    return compose(text, weight, value, value, zero, op=Op.COALESCE)


def _own_groups(item: MaterializedRelation, moved: frozenset[str], known: Known) -> Node | None:
    """Return the change of an aggregate by recomputing the touched groups and subtracting their stored rows.

    None if the relation does not consist of groups with their keys among its columns.
    """
    group = item.tree
    while isinstance(group, Projection | Filter):
        group = group.input
    if isinstance(group, Aggregate):
        values = tuple(key.value for key in group.keys)
        own = tuple(column(key.name) for key in group.keys)
    elif isinstance(group, Window):
        values = own = group.partition
    elif not isinstance(group, Top):
        return None
    else:
        values = own = ()
    if not moved & set(item.reads):
        return None
    if not own:  # one group, or the first of all rows
        kept_all = Scan(item.channel, tuple((name, name) for name in names(item.tree)), At.OLD)
        return union_changes([with_weight(item.tree, 1), with_weight(kept_all, -1)], names(item.tree))
    outside = _outside(item.tree, own)
    if outside is None:
        return None
    keys, wanted = touched(group.input, values, moved, known)
    there = tuple((expression, key) for expression, (_, key) in zip(outside, wanted, strict=True))
    new = restrict_to_keys(item.tree, there, keys)
    columns = names(item.tree)
    kept_rows = Scan(item.channel, tuple((name, name) for name in columns), At.OLD)
    condition = and_(tuple(null_safe_eq(expression, column(key)) for expression, key in there))
    old = Join(kept_rows, Projection(keys.node, kept(tuple(key for _, key in there))), Kind.SEMI, condition, Side.RIGHT)
    return union_changes([with_weight(new, 1), with_weight(old, -1)], columns)


def _outside(node: Node, values: tuple[Scalar, ...]) -> tuple[Scalar, ...] | None:
    """Return expressions over groups as columns of the tree above them; None if they are not among those."""
    if not isinstance(node, Projection | Filter):
        return values
    below = _outside(node.input, values)
    if below is None or isinstance(node, Filter):
        return below
    found = []
    for value in below:
        name = next((item.name for item in node.items if item.value == value), None)
        if name is None:
            return None
        found.append(column(name))
    return tuple(found)


def _encoded(item: MaterializedRelation, changed: Node, known: Known) -> Node:
    """Return a weighted change in the relation's encoding."""
    columns = names(item.tree)
    weight = column(WEIGHT)
    match item.encoding:
        case Append():
            changed = changed if _only_adds(item.tree, known) else consolidate(changed)
            rows = Explode(changed, compose("EXPLODE(SEQUENCE(1, CAST({} AS INT)))", weight), False, ("_each",))
            return Projection(rows, kept(columns))
        case Upsert(key):
            effective = consolidate(changed)
            partition = ", ".join(["{}"] * len(key))
            best = compose(f"MAX({{}}) OVER (PARTITION BY {partition})", weight, *map(column, key))
            ranked = Window(effective, tuple(map(column, key)), (Item("_best", best),))
            chosen = Filter(ranked, or_((compose("{} > 0", weight), compose("{} < 0", column("_best")))))
            gone = Item("_deleted", compose("{} < 0", weight))
            return Projection(chosen, (*kept(columns), gone))
        case Changes():
            return consolidate(changed)
        case _:
            raise AssertionError(f"a view is never written as {item.encoding}")


def removes_nothing(node: Node, known: Known, found: MaintenanceContext) -> bool:
    """Return whether a tree's change in a run has rows with positive weights only."""
    plain = found.layered.isdisjoint(channels(node))  # else rows are read with the weights by which they changed before
    return plain and found.moved <= found.adding and _only_adds(node, known)


def _only_adds(node: Node, known: Known) -> bool:
    """Return whether a tree's change has no removals, not even transient ones, if its channels' changes have none.

    The change of a join with at most one row has: it replaces the rows before the change by those after it.
    """
    plain = isinstance(node, Scan | Unit | Projection | Filter | Union | Explode)
    inner = isinstance(node, Join) and node.kind is Kind.INNER and not single(node, known)
    return (plain or inner) and all(_only_adds(below, known) for below in inputs(node))


def refresh_method_of_tree(item: MaterializedRelation) -> str:
    """Return a text that says how a relation is kept up to date."""
    if item.whole is not None:
        return f"fully recomputed in each run: {item.whole}"
    if item.sums:
        return "the changes are added to the sums"
    group = item.tree
    while isinstance(group, Projection | Filter):
        group = group.input
    match group:
        case Aggregate(keys=()):
            return "the single row is recomputed"
        case Aggregate() | Window():
            return "the affected groups are recomputed"
        case Top():
            return "the first rows are recomputed"
        case _:
            return "new rows are appended" if isinstance(item.encoding, Append) else "the changes are passed through"
