"""Comparison of an old and a new query: their joint relation, found operator by operator from below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kilonova.query.expression import Scalar, column
from kilonova.query.migration.equivalence import canonical
from kilonova.query.migration.group_comparison import compare_groups, compare_windows
from kilonova.query.migration.joint import Joint
from kilonova.query.migration.pairs import Pair, kinds_of, moved
from kilonova.query.migration.query_block import QueryBlock, flatten
from kilonova.query.migration.query_block_comparison import compare_blocks
from kilonova.query.migration.row_difference import added, removed
from kilonova.query.migration.union_comparison import compare_unions
from kilonova.query.migration.unpaired import Unpaired, described
from kilonova.query.properties import Known, RelationFacts, keys
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
                return compare_groups(self, old, new)
            case Window(), Window():
                return compare_windows(self, old, new)
            case Union(), Union():
                return compare_unions(self, old, new)
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
        return self.pair(((joint, items),), kinds, keys(whole, self.known))

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

    def pair(
        self,
        branches: tuple[tuple[Joint, tuple[Item, ...]], ...],
        kinds: Mapping[str, str | None],
        key: tuple[tuple[str, ...], ...],
    ) -> Scan:
        """Return a scan of a new pair.

        Args:
            branches: the joint relations whose union its rows are, each with the columns as expressions over it.
            kinds: the types of the columns.
            key: the keys of its rows, before and after.
        """
        name = f"pair {len(self.pairs) + 1}"
        columns = tuple(item.name for item in branches[0][1])
        self.pairs[name] = Pair(branches=branches, columns=columns)
        typed = {each: kinds.get(each) or "" for each in columns}
        self.known[name] = RelationFacts(types=typed, key=min(key, key=len, default=()))
        return Scan(name, tuple((each, each) for each in columns))

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


def _text(expression: Scalar | None) -> str:
    return "" if expression is None else canonical(expression)


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
