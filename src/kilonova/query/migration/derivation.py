"""Derivation of migrations: queries that turn the stored output of an old query into that of a new one.

Let OUT be the stored output of the query O at some versions of its channels, and N the new query. A migration is a
query M over the channels at these versions, and over OUT, with

    OUT + M = N

where + applies a delta of the migration's encoding to the rows of OUT with the columns of N: columns that OUT does
not have are null in it. Rows that N has not are found in OUT alone wherever the changed conditions are on columns that
it has; rows and columns that OUT has not are computed from no more of the channels than they need. Where the queries
differ below an operator that combines rows, the delta rules give the change (see `kilonova.query.migration.pairs`).

(Logic evolution, sections 1.3, 2.6 and 2.7, which leaves the derivation as future work.)
"""

from __future__ import annotations

from dataclasses import replace

from kilonova.model.encoding import Changes
from kilonova.query.column_pruning import prune_columns
from kilonova.query.maintenance import maintenance_delta
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.materialized_relation import MaterializedRelation
from kilonova.query.migration.comparison import Comparison
from kilonova.query.migration.description import describe_pair
from kilonova.query.migration.joint import Joint
from kilonova.query.migration.migration import Migration, NoMigration
from kilonova.query.migration.output_migration import OutputMigration, has_same_state
from kilonova.query.migration.pairs import moved, resolve
from kilonova.query.migration.renaming import every_name, with_suffix
from kilonova.query.migration.unpaired import Unpaired
from kilonova.query.properties import Known, is_deterministic, types
from kilonova.query.tree import WEIGHT, Item, Node, Projection, kept, names


def derive_migration(
    old: Node, new: Node, own: MaterializedRelation, known: Known, *, whole: bool = False
) -> Migration | NoMigration:
    """Return a migration of a stored relation to a new query.

    Args:
        old: the query whose output is stored.
        new: the new query.
        own: the relation that is stored, as the old query defined it.
        known: the channels that the queries read.
        whole: whether the migration gives the whole output of the new query, for another relation, or another key.
    """
    if not is_deterministic(old) or not is_deterministic(new):
        return NoMigration(reason="the query calls a non-deterministic function")
    comparison = Comparison({**known, own.channel: own.facts})
    try:
        joint = _compared(comparison, old, new)
    except Unpaired as error:
        return NoMigration(reason=error.reason)
    if not moved(joint.tree, comparison.pairs):
        migrated = OutputMigration(joint, own, new, comparison.known)
        return migrated.whole() if whole else migrated.migration()
    if whole:
        return NoMigration(reason="the queries have different rows below an operator that combines rows")
    return _through_pairs(joint, new, own, comparison)


def equal_columns(old: Node, new: Node, known: Known) -> dict[str, str]:
    """Return the columns of a new query by those of an old one that have the same values; none if nothing is in common.

    Args:
        old: the old query.
        new: the new query.
        known: the channels that the queries read.
    """
    try:
        joint = _compared(Comparison(known), old, new)
    except Unpaired:
        return {}
    by_value = {value: name for name, value in reversed([*joint.new.items()])}
    return {name: by_value[value] for name, value in joint.old.items() if value in by_value}


def _compared(comparison: Comparison, old: Node, new: Node) -> Joint:
    """Return the joint relation of two queries; see `Comparison.of`.

    Raises:
        Unpaired: none was found.
    """
    suffix = "__new"
    while any(name.endswith(suffix) for name in every_name(old)):
        suffix += "_"
    joint = comparison.of(old, with_suffix(new, suffix))
    return replace(joint, new={name: joint.new[name + suffix] for name in names(new)})


def _through_pairs(
    joint: Joint, new: Node, own: MaterializedRelation, comparison: Comparison
) -> Migration | NoMigration:
    """Return the migration where the queries have different rows below an operator that combines rows.

    It changes these rows only; if that is not all, what remains is a second migration.
    """
    known, pairs = comparison.known, comparison.pairs
    tree = prune_columns(joint.select(joint.was, tuple(Item(name, value) for name, value in joint.old.items())))
    moves = moved(tree, pairs)
    item = replace(own, tree=tree)
    delta = maintenance_delta(item, known, MaintenanceContext(moved=moves, sizes={}, strong=True)) if moves else None
    after = resolve(tree, pairs, known)
    same = all(joint.old.get(name) == value for name, value in joint.new.items())
    last = joint.steady and same and has_same_state(joint.old, joint.new)
    if delta is not None and last:
        delta = Projection(delta, (*kept(names(new)), *kept((WEIGHT,))))
    first = Migration(
        delta=None if delta is None else prune_columns(resolve(delta, pairs, known)),
        encoding=Changes(),
        description=" and ".join(text for name in sorted(moves) for text in describe_pair(pairs[name], known)),
        tree=after,
    )
    if last:
        return replace(first, tree=new)
    lookups = tuple(replace(each, rows=resolve(each.rows, pairs, known)) for each in joint.lookups)
    rest = replace(joint, tree=resolve(joint.tree, pairs, known), lookups=lookups)
    # Other rows may have another type, which columns do not get by another name.
    before, since = types(own.tree, known), types(after, known)
    same_types = {name for name in joint.old if before.get(name) is not None and before[name] == since.get(name)}
    then = OutputMigration(rest, replace(own, tree=after), new, known, same_types=same_types).migration()
    if isinstance(then, NoMigration) or delta is None:
        return then
    return replace(first, then=then)
