"""Migration of a stored output by the rows and columns in which the new query differs from the old one.

What the stored output has the columns for is computed from it alone; the rest from the joint relation of the queries,
restricted to the rows that are added, and to the columns that are added or computed differently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from kilonova.model.encoding import DELETED, SET, Changes, Columns, key_of
from kilonova.model.schema import KEPT
from kilonova.query.column_pruning import prune_columns
from kilonova.query.containment import is_constant
from kilonova.query.expression import Op, Scalar, and_, column, compose, delimited, null_safe_eq, or_
from kilonova.query.materialized_relation import MaterializedRelation
from kilonova.query.migration.description import describe_conditions
from kilonova.query.migration.equivalence import all_expressed, canonical, expressed, not_true, without
from kilonova.query.migration.joint import Joint, Lookup
from kilonova.query.migration.migration import Migration, NoMigration
from kilonova.query.migration.pairs import kinds_of
from kilonova.query.migration.row_difference import FALSE, TRUE, added, changed_rows, removed
from kilonova.query.properties import FLOATING, Known, equi_pairs, non_null, tells_apart, type_of, unique
from kilonova.query.tree import (
    Aggregate,
    At,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Projection,
    Scan,
    Union,
    kept,
    names,
)
from kilonova.query.zset import consolidate, union_changes, with_weight

Conditions = tuple[Scalar, ...] | None
"""Conditions of rows; None if there are none."""

NO_CHANGE = "changes no row"
"""Description of a migration after which the output has the same rows."""

_OUT = "__out"


class OutputMigration:
    """The stored output of an old query, and what a new one needs of it.

    Args:
        joint: the joint relation of the queries, the columns of both by their names in the output.
        own: the relation that is stored.
        new: the new query.
        known: the channels that the queries read, and the relation itself.
        stored: the names with which the output has columns of the old query, by others that the joint relation has.
        same_types: the columns of the output whose types are those of the joint relation; None if all are.
    """

    def __init__(
        self,
        joint: Joint,
        own: MaterializedRelation,
        new: Node,
        known: Known,
        stored: Mapping[str, str] | None = None,
        same_types: Collection[str] | None = None,
    ) -> None:
        self._joint = joint
        self._own = own
        self._new = new
        self._known = known
        self._names = {name: name for name in joint.old} | dict(stored or {})
        self._same_types = joint.old.keys() if same_types is None else same_types
        self._kinds = kinds_of(joint, known)
        self._visible = self._columns_of_output()
        self._rows = Scan(own.channel, tuple((self._names[name], _out(name)) for name in joint.old), At.OLD)
        self._stored = Joint(tree=self._rows, old={}, new={}, lookups=self._lookups_of_output())
        self._changed = tuple(name for name in joint.new if not self._is_same(name))

    def migration(self) -> Migration | NoMigration:
        """Return the migration."""
        found = self._of_difference()
        same_state = has_same_state(self._joint.old, self._joint.new)
        names = self._renamed(key_of(self._own.encoding)) if same_state else {}
        if not names or isinstance(found, NoMigration):
            return found
        other = self._with_names(names)._of_difference()
        if isinstance(other, NoMigration) or (other.delta is not None and other.encoding is None):
            return found
        return replace(found, description=other.description, by_reference=replace(other, renamed=names))

    def whole(self) -> Migration | NoMigration:
        """Return the migration that gives the whole output of the new query."""
        names = self._renamed(())
        other = self._with_names(names)
        found = other._whole(added(other._joint, other._kinds))
        if isinstance(found, NoMigration):
            return found
        texts = ["writes its rows again", *([found.description] if found.description != NO_CHANGE else [])]
        return replace(found, description=" and ".join(texts), renamed=names)

    def _renamed(self, laid_out_by: Collection[str]) -> dict[str, str]:
        """Return the names before of the columns that only have other names in the new query, by these names.

        Args:
            laid_out_by: the columns by which the output stays laid out, which are not renamed.
        """
        joint, found = self._joint, dict[str, str]()
        fixed = {*laid_out_by}
        former = [old for old in joint.old if old not in joint.new or old in self._changed]
        former = [old for old in former if old in self._same_types and old not in fixed and not old.startswith(KEPT)]
        for name in self._changed:
            value = canonical(joint.new[name])
            if name not in fixed and not name.startswith(KEPT):
                same = [old for old in former if canonical(joint.old[old]) == value and old not in found.values()]
                found |= {name: same[0]} if same else {}
        return found

    def _with_names(self, renamed: Mapping[str, str]) -> OutputMigration:
        """Return the same for the output if some of its columns have been given their new names."""
        taken, new = {name.lower() for name in renamed}, {old: name for name, old in renamed.items()}

        def present(old: str) -> str:
            return new.get(old) or (_out(old) if old.lower() in taken else old)

        joint = replace(self._joint, old={present(old): value for old, value in self._joint.old.items()})
        stored = {present(old): old for old in self._joint.old}
        return OutputMigration(joint, self._own, self._new, self._known, stored)

    def _of_difference(self) -> Migration | NoMigration:
        """Return the migration that writes the rows and columns that differ."""
        gone, come = removed(self._joint, self._kinds), added(self._joint, self._kinds)
        if gone is not None and not without(gone, self._joint.was):
            return NoMigration(reason="none of its rows is a row of the new query")
        if not has_same_state(self._joint.old, self._joint.new):
            return self._whole(come)
        if not self._changed:
            return self._of_rows(gone, come)
        key = key_of(self._own.encoding)
        keeps_key = key and set(key) <= self._joint.new.keys() - set(self._changed) and self._has_key(key, gone, come)
        if keeps_key and all(name not in self._joint.old or self._has_same_type(name) for name in self._changed):
            return self._of_columns(key, gone, come)
        return self._whole(come)

    def _has_same_type(self, name: str) -> bool:
        """Return whether a column of both queries is known to have one type."""
        kinds = [type_of(columns[name], self._kinds) for columns in (self._joint.old, self._joint.new)]
        return kinds[0] is not None and kinds[0] == kinds[1]

    def _is_same(self, name: str) -> bool:
        old = self._joint.old.get(name)
        return old is not None and canonical(old) == canonical(self._joint.new[name])

    def _columns_of_output(self) -> dict[str, Scalar]:
        """Return the columns of the output by the expressions of the joint relation that they are."""
        users_last = sorted(self._joint.old.items(), key=lambda each: not each[0].startswith(KEPT))
        visible = {canonical(value): column(_out(name)) for name, value in users_last}
        equal = [
            (one, other)
            for condition in (*self._joint.holds, *self._joint.was)
            for pair in equi_pairs(condition, condition.columns, condition.columns)
            for one, other in (pair, pair[::-1])
            if one.name and other.name and self._is_exact(one.name) and self._kinds[one.name] == self._kinds[other.name]
        ]
        for _ in equal:
            for one, other in equal:
                if canonical(one) in visible:
                    visible.setdefault(canonical(other), visible[canonical(one)])
        return visible

    def _is_exact(self, name: str) -> bool:
        """Return whether equal values of a column are the same value."""
        return (self._kinds.get(name) or FLOATING[0]) not in FLOATING

    def _lookups_of_output(self) -> tuple[Lookup, ...]:
        """Return the lookups that can be joined to the output, and make their columns visible."""
        found = []
        for lookup in self._joint.lookups:
            own = {canonical(column(name)): column(name) for name in names(lookup.rows)}
            condition = expressed(lookup.condition, {**self._visible, **own})
            if condition is not None:
                self._visible = {**own, **self._visible}
                found.append(replace(lookup, condition=condition))
        return tuple(found)

    def _has_key(self, key: tuple[str, ...], gone: Conditions, come: Conditions) -> bool:
        """Return whether a key of the output is one of the new query, and each of its values one of joint rows."""
        if not tells_apart(self._new, frozenset(key), self._known):
            return False
        if come is None:
            return True
        if not set(key) <= non_null(self._new, self._known):
            return False
        return gone is None or tells_apart(self._all(key), frozenset(key), self._known)

    def _all(self, columns: Iterable[str]) -> Node:
        """Return columns of the new query for all joint rows."""
        return self._joint.select((), self._items(columns))

    def _items(self, columns: Iterable[str]) -> tuple[Item, ...]:
        return tuple(Item(name, self._joint.new[name]) for name in columns)

    def _of_rows(self, gone: Conditions, come: Conditions) -> Migration | NoMigration:
        """Return the migration if the columns of all rows stay as they are."""
        columns = tuple(self._joint.new)
        if gone is not None and come is not None and (one := self._of_one_read(gone, come)) is not None:
            return one
        parts, texts, separate, removal = [], [], True, None
        if gone is not None:
            rows, text = self._gone(gone, columns)
            separate = self._follows_from_output(without(gone, self._joint.was))
            parts.append(with_weight(rows, -1))
            texts.append(text)
        if come is not None:
            rows, text = self._come(come)
            parts.append(with_weight(rows, 1))
            texts.append(text)
        elif gone is not None and set(columns) == self._joint.old.keys():
            removal = self._removal(without(gone, self._joint.was))
        texts += self._dropped()
        delta = union_changes(parts, columns) if parts else None
        if delta is not None and len(parts) > 1:  # rows of one sign cannot cancel each other
            delta = delta if unique(self._all(columns), self._known) else consolidate(delta)
        return replace(self._made(delta, Changes(), texts), separate=separate, removal=removal)

    def _of_one_read(self, gone: tuple[Scalar, ...], come: tuple[Scalar, ...]) -> Migration | None:
        """Return the migration that finds the rows to remove and those to add by reading the joint rows once.

        None if the removed rows are found in the output, or the added ones besides it, or if two passes are cheaper.
        """
        further, columns = without(gone, self._joint.was), tuple(self._joint.new)
        if all_expressed(further, self._visible) is not None:
            return None
        if self._not_stored(self._joint.tree) != self._joint.tree:
            return None
        delta = changed_rows(self._joint, gone, come, self._items(columns))
        if delta is None:
            return None
        texts = [
            f"removes the rows for which {self._text(further)}",
            f"adds the rows for which {self._text(without(come, self._common()) or come)}",
            *self._dropped(),
        ]
        delta = delta if unique(self._all(columns), self._known) else consolidate(delta)
        return replace(self._made(delta, Changes(), texts), separate=False)

    def _removal(self, conditions: tuple[Scalar, ...]) -> Scalar | None:
        """Return conditions as one on the columns of the output; None if that may differ from session to session."""
        own = {_out(name): column(name) for name in self._joint.old}
        here = all_expressed(conditions, self._visible)
        if here is None or not all(each.columns <= own.keys() for each in here):
            return None
        condition = and_(tuple(each.with_columns(own) for each in here))
        types = {name: type_of(value, self._kinds) for name, value in self._joint.old.items()}
        return condition if condition is not None and is_constant(condition, types) else None

    def _gone(self, conditions: tuple[Scalar, ...], columns: tuple[str, ...]) -> tuple[Node, str]:
        """Return the rows that only the old query has."""
        further = without(conditions, self._joint.was)
        here = all_expressed(further, self._visible)
        text = f"removes the rows for which {self._text(further)}"
        if here is not None:
            return self._stored.select(here, tuple(Item(name, column(_out(name))) for name in columns)), text
        items = tuple(Item(name, self._joint.old[name]) for name in columns)
        return self._joint.select(conditions, items), text

    def _follows_from_output(self, conditions: tuple[Scalar, ...]) -> bool:
        """Return whether conditions depend on the columns of the output only."""
        here = all_expressed(conditions, self._visible)
        own = {_out(name) for name in self._joint.old}
        return here is not None and all(each.columns <= own for each in here)

    def _come(self, conditions: tuple[Scalar, ...]) -> tuple[Node, str]:
        """Return the rows that only the new query has."""
        further = without(conditions, self._common())
        text = f"adds the rows for which {self._text(further or conditions)}"
        joint = replace(self._joint, tree=self._not_stored(self._joint.tree))
        return joint.select(conditions, self._items(self._joint.new)), text

    def _common(self) -> tuple[Scalar, ...]:
        """Return the conditions of both queries."""
        return tuple(each for each in self._joint.now if not without((each,), self._joint.was))

    def _not_stored(self, node: Node) -> Node:
        """Return groups without those that are stored: their rows need not be read again."""
        if isinstance(node, Filter):
            return replace(node, input=self._not_stored(node.input))
        if not isinstance(node, Aggregate) or not node.keys:
            return node
        stored = [self._visible.get(canonical(column(key.name))) for key in node.keys]
        if any(each is None for each in stored):
            return node
        items = tuple(Item(f"{key.name}{_OUT}key", each) for key, each in zip(node.keys, stored, strict=True) if each)
        condition = and_(
            tuple(null_safe_eq(key.value, column(item.name)) for key, item in zip(node.keys, items, strict=True))
        )
        return replace(node, input=Join(node.input, Projection(self._rows, items), Kind.ANTI, condition))

    def _of_columns(self, key: tuple[str, ...], gone: Conditions, come: Conditions) -> Migration | NoMigration:
        """Return the migration if rows have a key, and some columns are other ones."""
        changed = self._changed
        rows, text = self._recomputed(key)
        if rows is None:
            return NoMigration(reason="every column is computed differently")
        texts = [text]
        if gone is None and come is None:
            return self._made(rows, Columns(key), [*texts, *self._dropped()])
        columns = tuple(self._joint.new)
        nothing, no = compose("NULL", op=Op.NULL), FALSE
        every = (*columns, DELETED[0], SET[0])
        set_ = compose(f"ARRAY({', '.join(_literal(name) for name in changed)})", op=Op.CALL)
        kept_ = {*key, *changed}
        parts: list[Node] = [
            Projection(
                rows,
                (
                    *(Item(name, column(name) if name in kept_ else nothing) for name in columns),
                    Item(DELETED[0], no),
                    Item(SET[0], set_),
                ),
            )
        ]
        if gone is not None:
            found, text = self._gone(gone, key)
            values = (Item(name, column(name) if name in key else nothing) for name in columns)
            parts.append(Projection(found, (*values, Item(DELETED[0], TRUE), Item(SET[0], nothing))))
            texts.append(text)
        if come is not None:
            found, text = self._come(come)
            parts.append(Projection(found, (*kept(columns), Item(DELETED[0], no), Item(SET[0], nothing))))
            texts.append(text)
        return self._made(Union(tuple(parts), every), Columns(key), [*texts, *self._dropped()])

    def _recomputed(self, key: tuple[str, ...]) -> tuple[Node | None, str]:
        """Return the key with the columns that are other ones, of the rows that both queries have."""
        changed = self._changed
        wanted = (*key, *changed)
        values = all_expressed((self._joint.new[name] for name in wanted), self._visible)
        further = all_expressed(without(self._joint.now, self._joint.was), self._visible)
        if values is not None and further is not None:
            old = {name: column(_out(name)) for name in self._joint.old}
            differing = self._differing(old, dict(zip(wanted, values, strict=True)))
            items = tuple(Item(name, value) for name, value in zip(wanted, values, strict=True))
            rows = self._stored.select((*further, *differing), items)
            return rows, self._computed(changed, ())
        if set(wanted) == self._joint.new.keys() and set(changed) <= self._joint.old.keys():
            return None, ""
        read = frozenset().union(*(self._joint.new[name].columns for name in wanted))
        near = {name: value for name, value in self._joint.old.items() if value.columns <= read}
        complete = set(changed) & self._joint.old.keys() <= near.keys()
        differing = self._differing(near, self._joint.new) if complete else ()
        conditions = without((*self._joint.was, *self._joint.now), ())
        return self._joint.select((*conditions, *differing), self._items(wanted)), self._computed(changed, changed)

    def _differing(self, old: Mapping[str, Scalar], new: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        """Return the condition that a row has other values than before."""
        parts = []
        for name in self._changed:
            if name not in old:
                parts.append(compose("NOT {}", compose("{} IS NULL", delimited(new[name]), op=Op.IS), op=Op.NOT))
                continue
            parts.append(compose("NOT ({})", null_safe_eq(old[name], new[name]), op=Op.NOT))
        return (or_(tuple(parts)),)

    def _whole(self, come: Conditions) -> Migration | NoMigration:
        """Return the migration that writes the output again, from itself as far as its rows stay."""
        columns = tuple(self._joint.new)
        further = all_expressed(without(self._joint.now, self._joint.was), self._visible)
        values = {name: expressed(self._joint.new[name], self._visible) for name in columns}
        missing = tuple(name for name in columns if values[name] is None)
        if missing or further is None:
            key = self._shared_key()
            if key is None:
                what = f"{', '.join(missing) or 'the condition'} cannot be computed from the stored output"
                return NoMigration(reason=f"{what}, whose rows have no key that both queries have")
            if {*key, *missing} == self._joint.new.keys():
                return NoMigration(reason="every column is computed differently")
            rows = self._completed(key, missing)
        else:
            items = tuple(Item(name, value) for name, value in values.items() if value is not None)
            rows = self._stored.select(further, items)
        texts = [self._computed(self._changed, missing)] if self._changed else []
        if further:
            texts.append(f"removes the rows for which {self._text((not_true(further),))}")
        parts = [rows]
        if come is not None:
            rows, text = self._come(come)
            parts.append(rows)
            texts.append(text)
        whole = parts[0] if len(parts) == 1 else Union(tuple(parts), columns)
        return self._made(whole, None, [*texts, *self._dropped()])

    def _shared_key(self) -> tuple[str, ...] | None:
        """Return columns that stay and tell the rows apart, nulls counting as values; None if there are none."""
        same = tuple(name for name in self._joint.new if name not in self._changed)
        return min(unique(self._all(same), self._known), key=len, default=None)

    def _completed(self, key: tuple[str, ...], missing: tuple[str, ...]) -> Node:
        """Return the rows that both queries have, with columns that the output lacks looked up by a key."""
        joint = self._joint
        wanted = {f"{name}{_OUT}new": joint.new[name] for name in (*key, *missing)}
        conditions = without((*joint.was, *joint.now), ())
        looked_up = joint.select(conditions, tuple(Item(name, value) for name, value in wanted.items()))
        on = and_(tuple(null_safe_eq(column(_out(name)), column(f"{name}{_OUT}new")) for name in key))
        read = {name: expressed(joint.new[name], self._visible) for name in joint.new}
        near = self._stored.filtered((), (value for value in read.values() if value is not None))
        items = tuple(Item(name, value or column(f"{name}{_OUT}new")) for name, value in read.items())
        return Projection(Join(near, looked_up, Kind.INNER, on), items)

    def _made(self, delta: Node | None, encoding: Changes | Columns | None, texts: list[str]) -> Migration:
        former = {name: self._names.get(name, name) for name in self._joint.new}
        names = [f"{old} to {name}" for name, old in former.items() if old != name]
        text = " and ".join([*([f"renames {', '.join(names)}"] if names else []), *texts]) or NO_CHANGE
        return Migration(
            delta=None if delta is None else prune_columns(delta), encoding=encoding, description=text, tree=self._new
        )

    def _computed(self, columns: tuple[str, ...], read: tuple[str, ...]) -> str:
        """Return a text that says which columns are computed, and which of them from channels."""
        new = [name for name in read if not name.startswith(KEPT)]
        here = [name for name in columns if name not in read and not name.startswith(KEPT)]
        texts = [f"computes {', '.join(new)}"] if new else []
        texts += [f"computes {', '.join(here)} from the output"] if here else []
        return " and ".join(texts) or "computes what is stored with its rows"

    def _dropped(self) -> list[str]:
        """Return a text about the columns of the old query that the new one has not."""
        joint = self._joint
        gone = [self._names[name] for name in joint.old if name not in joint.new and not name.startswith(KEPT)]
        return [f"drops {', '.join(gone)}"] if gone else []

    def _text(self, conditions: tuple[Scalar, ...]) -> str:
        """Return conditions as shown to users: with the names of the output's columns, or else of the channels'."""
        shown = {value.name: name for name, value in self._joint.old.items() if value.name and KEPT not in name}
        shown |= {_out(name): name for name in self._joint.old}
        return describe_conditions(self._joint, conditions, shown)


def has_same_state(old: Iterable[str], new: Iterable[str]) -> bool:
    """Return whether two relations have the same state columns, which no delta can add or drop."""
    return {name for name in old if name.startswith(KEPT)} == {name for name in new if name.startswith(KEPT)}


def _out(name: str) -> str:
    return name + _OUT


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
