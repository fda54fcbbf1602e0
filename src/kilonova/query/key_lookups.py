"""Lookups by key: the rows of a channel that can matter to a change.

A change is joined with channels by equalities. Where one of them compares the first column of a channel's key with a
value of a change, directly or through other equalities, rows with other values match nothing. A scan says so with its
`lookup`, and a run reads these rows by key instead of the whole channel, if they are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kilonova.query.expression import Op, Scalar
from kilonova.query.properties import Known
from kilonova.query.tree import (
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
    ScanLookup,
    Top,
    Union,
    Unit,
    Window,
    inputs,
    names,
    with_inputs,
)

Values = frozenset[tuple[str, str]]
"""Columns of changes, each with its channel before it, which have all values of some column among theirs."""


def look_up_keys(node: Node, known: Known) -> Node:
    """Return a change whose scans say which rows by key are enough.

    Args:
        node: the change of a tree.
        known: the channels that it reads.
    """
    return _LookUps(known).restricted(node, {})


@dataclass(frozen=True, slots=True)
class _Column:
    """Known properties of a column: its type, and columns of changes that have all its values; None if unknown."""

    kind: str
    values: Values | None = None


_Columns = Mapping[str, _Column]


class _LookUps:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._found: dict[int, tuple[Node, _Columns]] = {}  # with the node, whose number another might have after it

    def restricted(self, node: Node, wanted: Mapping[str, Values]) -> Node:
        """Return a tree whose scans say which rows are enough.

        Args:
            node: the tree.
            wanted: columns of the tree, of which rows with other values than these do not matter.
        """
        match node:
            case Scan():
                return self._scan(node, wanted)
            case Projection(items=items) | Aggregate(keys=items):
                return replace(node, input=self.restricted(node.input, _in_input(items, wanted)))
            case Filter():
                return replace(node, input=self.restricted(node.input, wanted))
            case Explode():
                below = {name: values for name, values in wanted.items() if name not in node.columns}
                return replace(node, input=self.restricted(node.input, below))
            case Window():
                partition = {value.name for value in node.partition}
                below = {name: values for name, values in wanted.items() if name in partition}
                return replace(node, input=self.restricted(node.input, below))
            case Union():
                return replace(node, inputs=tuple(self._part(node, each, wanted) for each in node.inputs))
            case Join():
                return self._join(node, wanted)
            case Top() | Unit():
                return with_inputs(node, tuple(self.restricted(each, {}) for each in inputs(node)))

    def _scan(self, node: Scan, wanted: Mapping[str, Values]) -> Scan:
        key = self._known[node.channel].key
        if node.at is At.CHANGE or not key:
            return node
        values = next((wanted[name] for source, name in node.columns if source == key[0] and name in wanted), None)
        return node if values is None else replace(node, lookup=ScanLookup(key[0], tuple(sorted(values))))

    def _part(self, union: Union, part: Node, wanted: Mapping[str, Values]) -> Node:
        own = zip(union.columns, names(part), strict=True)
        return self.restricted(part, {source: wanted[name] for name, source in own if name in wanted})

    def _join(self, node: Join, wanted: Mapping[str, Values]) -> Node:
        if node.kind is Kind.FULL:
            return with_inputs(node, tuple(self.restricted(each, {}) for each in inputs(node)))
        left, right = self._columns(node.left), self._columns(node.right)
        own, inner = frozenset(names(node.left)), node.kind is Kind.INNER
        to_left = {name: values for name, values in wanted.items() if name in own}
        to_right = {name: values for name, values in wanted.items() if inner and name not in to_left}
        pairs = _same(node.condition, left, right)
        for one, other in pairs:
            for values in (to_left.get(one), left[one].values):
                _narrow(to_right, other, values)
            if node.kind in (Kind.INNER, Kind.SEMI):
                for values in (to_right.get(other) if inner else None, right[other].values):
                    _narrow(to_left, one, values)
        return replace(node, left=self.restricted(node.left, to_left), right=self.restricted(node.right, to_right))

    def _columns(self, node: Node) -> _Columns:
        """Return the known properties of the columns of a tree."""
        if id(node) not in self._found:
            self._found[id(node)] = node, self._derived(node)
        return self._found[id(node)][1]

    def _derived(self, node: Node) -> _Columns:
        match node:
            case Scan():
                types, change = self._known[node.channel].types, node.at is At.CHANGE
                return {
                    name: _Column(types[source], frozenset({(node.channel, source)}) if change else None)
                    for source, name in node.columns
                    if types.get(source)
                }
            case Projection(items=items) | Aggregate(keys=items):
                below = self._columns(node.input)
                return {item.name: below[item.value.name or ""] for item in items if item.value.name in below}
            case Filter() | Explode() | Window() | Top():
                return self._columns(node.input)
            case Union():
                return self._united(node)
            case Join():
                return self._joined(node)
            case Unit():
                return {}

    def _united(self, node: Union) -> _Columns:
        parts = [self._columns(each) for each in node.inputs]
        found = {}
        for place, name in enumerate(node.columns):
            own = [part.get(names(each)[place]) for part, each in zip(parts, node.inputs, strict=True)]
            there = [each for each in own if each is not None]
            if len(there) == len(own) and len({each.kind for each in there}) == 1:
                values = [each.values for each in there]
                known = [each for each in values if each is not None]
                found[name] = _Column(there[0].kind, frozenset().union(*known) if len(known) == len(values) else None)
        return found

    def _joined(self, node: Join) -> _Columns:
        left, right = self._columns(node.left), self._columns(node.right)
        if node.kind is Kind.FULL:
            return {}
        if node.kind in (Kind.LEFT, Kind.ANTI):
            return left
        found = {**left, **right}
        for one, other in _same(node.condition, left, right):
            for name, values in ((one, right[other].values), (other, left[one].values)):
                if found[name].values is None:
                    found[name] = replace(found[name], values=values)
        return {name: found[name] for name in left} if node.kind is Kind.SEMI else found


def _in_input(items: Iterable[Item], wanted: Mapping[str, Values]) -> Mapping[str, Values]:
    """Return the columns that are wanted as those of the input that are passed through, or grouped by."""
    return {item.value.name: wanted[item.name] for item in items if item.name in wanted and item.value.name is not None}


def _same(condition: Scalar | None, left: _Columns, right: _Columns) -> Iterable[tuple[str, str]]:
    """Return the pairs of a left and a right column of one type that a join condition requires to be equal."""
    found = []
    for part in condition.conjuncts() if condition is not None else ():
        if part.bare.op in (Op.EQ, Op.NULL_SAFE_EQ):
            one, other = (operand.bare.name or "" for operand in part.bare.operands)
            for a, b in ((one, other), (other, one)):
                if a in left and b in right and left[a].kind == right[b].kind:
                    found.append((a, b))
    return found


def _narrow(wanted: dict[str, Values], name: str, values: Values | None) -> None:
    """Let only rows with some values of a column matter, unless fewer columns of changes have them already."""
    if values is not None and (name not in wanted or len(values) < len(wanted[name])):
        wanted[name] = values
