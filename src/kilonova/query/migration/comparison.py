"""Comparison of an old and a new query: their joint relation, found operator by operator from below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kilonova.query.expression import Op, Scalar, column, compose
from kilonova.query.migration.equivalence import all_expressed, canonical, expressed
from kilonova.query.migration.joint import Joint
from kilonova.query.migration.pairs import Pair, kinds_of, moved
from kilonova.query.migration.query_block import QueryBlock, flatten
from kilonova.query.migration.query_block_comparison import compare_blocks
from kilonova.query.migration.row_difference import FALSE, added, removed
from kilonova.query.migration.unpaired import Unpaired, described
from kilonova.query.properties import Known, RelationFacts, determined, keys, type_of, types
from kilonova.query.tree import (
    Aggregate,
    Item,
    Join,
    Node,
    Order,
    Projection,
    Scan,
    Top,
    Union,
    Unit,
    Window,
    names,
)

Columns = Mapping[str, Scalar]


class Comparison:
    """Comparison of two queries.

    Args:
        known: the channels that they read.

    Attributes:
        known: the channels, and the pairs that were found.
        pairs: the places in which the queries have different rows; see `kilonova.query.migration.pairs`.
    """

    def __init__(self, known: Known) -> None:
        self.known: dict[str, RelationFacts] = dict(known)
        self.pairs: dict[str, Pair] = {}

    def of(self, old: Node, new: Node) -> Joint:
        """Return the joint relation of two queries that have no column name in common.

        Raises:
            Unpaired: none was found.
        """
        one, other = flatten(old), flatten(new)
        if _is_union(one) and not _is_union(other):
            other = _as_union(new)
        elif _is_union(other) and not _is_union(one):
            one = _as_union(old)
        return compare_blocks(self, one, other)

    def part(self, old: Node, new: Node) -> Joint:
        """Return the joint relation of two relations of which the queries are joins.

        Raises:
            Unpaired: none was found.
        """
        match old, new:
            case Scan(), Scan() if (old.channel, old.at) == (new.channel, new.at):
                return _scanned(old, new)
            case Unit(), Unit():
                return Joint(tree=old, old={}, new={})
            case Aggregate(), Aggregate():
                return self._grouped(old, new)
            case Window(), Window():
                return self._window(old, new)
            case Union(), Union():
                return self._union(old, new)
            case Join(), Join():
                return self._full(old, new)
            case Top(), Top():
                return self._top(old, new)
            case _:
                raise Unpaired(f"{described(old)} was replaced by {described(new)}")

    def has_same_rows(self, joint: Joint) -> bool:
        """Return whether both queries have the same rows, up to their columns."""
        rows = (joint.tree, *(lookup.rows for lookup in joint.lookups))
        return joint.steady and not any(moved(each, self.pairs) for each in rows)

    def relation(self, joint: Joint) -> Node:
        """Return the rows of a joint relation as one relation: a pair if the queries have different rows."""
        used = tuple(column(name) for name in joint.columns)
        kinds = kinds_of(joint, self.known)
        if joint.steady or added(joint, kinds) is None is removed(joint, kinds):
            needed = tuple(value for columns in (joint.old, joint.new) for value in columns.values())
            return joint.filtered(joint.was, needed)
        whole = joint.filtered((), used)
        items = tuple(Item(name, column(name)) for name in joint.columns)
        return self._pair(((joint, items),), kinds, keys(whole, self.known))

    def plain(self, joint: Joint) -> tuple[Node, Columns, Columns]:
        """Return the rows of a joint relation as one relation whose columns are those of both queries."""
        node = self.relation(joint)
        items: dict[str, Item] = {}
        for columns in (joint.old, joint.new):
            for name, value in columns.items():
                items.setdefault(canonical(value), Item(value.name or name, value))
        if all(item.value.name is not None for item in items.values()):
            return node, joint.old, joint.new

        def named(columns: Columns) -> Columns:
            return {name: column(items[canonical(value)].name) for name, value in columns.items()}

        return Projection(node, tuple(items.values())), named(joint.old), named(joint.new)

    def _pair(
        self,
        branches: tuple[tuple[Joint, tuple[Item, ...]], ...],
        kinds: Mapping[str, str | None],
        key: tuple[tuple[str, ...], ...],
    ) -> Scan:
        name = f"pair {len(self.pairs) + 1}"
        columns = tuple(item.name for item in branches[0][1])
        self.pairs[name] = Pair(branches=branches, columns=columns)
        typed = {each: kinds.get(each) or "" for each in columns}
        self.known[name] = RelationFacts(types=typed, key=min(key, key=len, default=()))
        return Scan(name, tuple((each, each) for each in columns))

    def _grouped(self, old: Aggregate, new: Aggregate) -> Joint:
        joint = self.of(old.input, new.input)
        keys_ = _over(old.keys, joint.old)
        now_keys = _over(new.keys, joint.new)
        named = {canonical(key.value): column(key.name) for key in reversed(keys_)}
        computed = {key.name: expressed(key.value, named) for key in now_keys}
        further = _further(keys_, tuple(key for key in now_keys if computed[key.name] is None))
        common = tuple(key for key in keys_ if not _further(now_keys, (key,)))
        if not self._are_determined((*further, *_further(common, keys_)), common, joint):
            raise Unpaired("the grouping keys differ")
        named |= {canonical(key.value): column(key.name) for key in further}
        calls, columns = _merged(_over(old.calls, joint.old), _over(new.calls, joint.new))
        calls += tuple(Item(key.name, compose("MAX({})", key.value, op=Op.MIN_MAX)) for key in further)
        was, now = all_expressed(joint.was, named), all_expressed(joint.now, named)
        if not keys_ or was is None or now is None:
            below, was, now = self.relation(joint), (), ()
        else:
            below = joint.filtered((), (item.value for item in (*keys_, *calls)))
        return Joint(
            tree=Aggregate(below, keys_, calls),
            old={item.name: column(item.name) for item in (*old.keys, *old.calls)},
            new={key.name: computed[key.name] or named[canonical(key.value)] for key in now_keys} | columns,
            was=was,
            now=now,
        )

    def _are_determined(self, further: tuple[Item, ...], by: tuple[Item, ...], joint: Joint) -> bool:
        """Return whether further grouping keys are the same in all rows of a group."""
        if not further:
            return True
        rows = joint.filtered((), (key.value for key in (*further, *by)))
        given = frozenset(key.value.name for key in by if key.value.name is not None)
        found = determined(rows, given, self.known)
        return all(key.value.columns <= found and key.value.steady for key in further)

    def _window(self, old: Window, new: Window) -> Joint:
        joint = self.of(old.input, new.input)
        partition = tuple(value.with_columns(joint.old) for value in old.partition)
        named = {canonical(value): value for value in partition}
        if {canonical(value.with_columns(joint.new)) for value in new.partition} != set(named):
            raise Unpaired("the partitions of window functions differ")
        items, columns = _merged(_over(old.items, joint.old), _over(new.items, joint.new))
        was, now = all_expressed(joint.was, named), all_expressed(joint.now, named)
        if not partition or was is None or now is None:
            below, was, now = self.relation(joint), (), ()
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

    def _top(self, old: Top, new: Top) -> Joint:
        joint = self.of(old.input, new.input)
        orders = [
            tuple((canonical(item.value.with_columns(columns)), item.direction) for item in each.order)
            for each, columns in ((old, joint.old), (new, joint.new))
        ]
        if orders[0] != orders[1]:
            raise Unpaired("the rows are selected in another order")
        if (old.limit, old.offset) != (new.limit, new.offset):
            raise Unpaired("another number of first rows is selected")
        node = self.relation(joint)
        if moved(node, self.pairs):
            raise Unpaired("the first rows are selected from others")
        order = tuple(Order(item.value.with_columns(joint.old), item.direction) for item in old.order)
        return Joint(tree=replace(old, input=node, order=order), old=joint.old, new=joint.new)

    def _full(self, old: Join, new: Join) -> Joint:
        left, was_left, now_left = self.plain(self.of(old.left, new.left))
        right, was_right, now_right = self.plain(self.of(old.right, new.right))
        was, now = {**was_left, **was_right}, {**now_left, **now_right}
        conditions = [
            None if each.condition is None else each.condition.with_columns(columns)
            for each, columns in ((old, was), (new, now))
        ]
        if old.kind is not new.kind or _text(conditions[0]) != _text(conditions[1]):
            raise Unpaired("the conditions of an outer join differ")
        return Joint(tree=Join(left, right, old.kind, conditions[0]), old=was, new=now)

    def _union(self, old: Union, new: Union) -> Joint:
        left = list(range(len(new.inputs)))
        matched: list[tuple[Joint, tuple[Scalar, ...], tuple[Scalar, ...]]] = []
        gone: list[Node] = []
        for branch in old.inputs:
            found = self._branch(branch, new, left)
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
        if not gone and not come and all(self.has_same_rows(joint) for joint, _, _ in matched):
            parts = tuple(joint.select(joint.was, shaped(was, now)) for joint, was, now in matched)
            return Joint(tree=Union(parts, every), old=columns["old"], new=columns["new"])
        if any(old_place < 0 or new_place < 0 for _, old_place, new_place in items.values()):
            raise Unpaired("the columns of a union and its rows differ at once")
        if not self._are_alike(matched, gone, come, [(one, other) for _, one, other in items.values()]):
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
        kinds = kinds_of(matched[0][0], self.known)
        typed = {item.name: kinds.get(item.value.name or "") for item in branches[0][1]}
        return Joint(tree=self._pair(tuple(branches), typed, ()), old=columns["old"], new=columns["new"])

    def _are_alike(
        self,
        matched: list[tuple[Joint, tuple[Scalar, ...], tuple[Scalar, ...]]],
        gone: list[Node],
        come: list[Node],
        places: list[tuple[int, int]],
    ) -> bool:
        """Return whether the parts that only one union has do not change the types of its columns."""
        joint, was, _ = matched[0]
        kinds = kinds_of(joint, self.known)
        for old_place, new_place in places:
            kind = type_of(was[old_place], kinds)
            own = [list(types(node, self.known).values())[old_place] for node in gone]
            own += [list(types(node, self.known).values())[new_place] for node in come]
            if kind is None or any(each != kind for each in own):
                return False
        return True

    def _branch(self, branch: Node, new: Union, left: list[int]) -> tuple[int, Joint] | None:
        """Return one of the remaining parts of a union that corresponds to a part of another, if possible the same."""
        found: list[tuple[int, Joint]] = []
        for place in left:
            try:
                joint = self.of(branch, new.inputs[place])
            except Unpaired:
                continue
            if self.has_same_rows(joint):
                return place, joint
            found.append((place, joint))
        return found[0] if found else None


def _over(items: tuple[Item, ...], columns: Columns) -> tuple[Item, ...]:
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


def _text(expression: Scalar | None) -> str:
    return "" if expression is None else canonical(expression)


def _transposed(rows: list[tuple[Scalar, ...]], width: int) -> list[tuple[str, ...]]:
    """Return for each column its expressions in all rows."""
    return [tuple(canonical(row[place]) for row in rows) for place in range(width)]


def _scanned(old: Scan, new: Scan) -> Joint:
    names_: dict[str, str] = {}
    for source, name in (*old.columns, *new.columns):
        names_.setdefault(source, name)
    return Joint(
        tree=Scan(old.channel, tuple(names_.items()), old.at),
        old={name: column(names_[source]) for source, name in old.columns},
        new={name: column(names_[source]) for source, name in new.columns},
    )


def _is_union(block: QueryBlock) -> bool:
    return len(block.parts) == 1 and isinstance(block.parts[0], Union) and not block.steps


def _as_union(node: Node) -> QueryBlock:
    """Return a query as a union of one part."""
    own = tuple(f"{name}__part" for name in names(node))
    columns = {name: column(each) for name, each in zip(names(node), own, strict=True)}
    return QueryBlock(parts=(Union((node,), own),), columns=columns)
