"""Materialization: the relations that a view stores, and their encodings.

A view is a query; `plan_materializations` gives the relations that it stores, each a query over channels and over the
relations before it, the last one the view itself. Aggregates within a query are stored, so that operators above them
can read their change.

Groups of exact sums and counts (`count`, `sum` and `avg` of whole numbers and decimals, `DISTINCT`) are stored
together with those sums, in columns that are no part of the relation: a change adds to them without reading the
rows of the group. Sums of floating-point numbers would drift; they are recomputed for the groups that change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from kilonova.model.encoding import Append, Changes, Encoding, Upsert
from kilonova.model.schema import KEPT
from kilonova.query.canonical_form import canonical_names, canonical_text
from kilonova.query.decimals import averaged, digits
from kilonova.query.eager_aggregation import aggregate_early, met_early
from kilonova.query.expression import Scalar, column
from kilonova.query.expression_syntax import node_of, parse
from kilonova.query.group_restriction import restrict_groups
from kilonova.query.materialized_relation import ROWS, MaterializedRelation, grouping, shown
from kilonova.query.properties import (
    FLOATING,
    Known,
    RelationFacts,
    equi_pairs,
    is_deterministic,
    is_growing,
    keys,
    tells_apart,
    type_of,
    types,
)
from kilonova.query.rules import OF_STORED, simplify
from kilonova.query.tree import (
    Aggregate,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Projection,
    Scan,
    Top,
    inputs,
    kept,
    names,
    with_inputs,
)


def plan_materializations(
    name: str, tree: Node, known: Known, key: tuple[str, ...] = ()
) -> tuple[MaterializedRelation, ...]:
    """Return the relations that a view stores, in the order in which they are computed.

    Args:
        name: the view's name.
        tree: its query.
        known: the channels that it reads.
        key: the key that the user declares; empty to derive one.
    """
    plain = restrict_groups(simplify(OF_STORED, tree), known)
    if key and not tells_apart(plain, frozenset(key), known):
        # Rows of one key from different runs would replace each other; a full recomputation detects and rejects them.
        why = f"the query and the keys of its inputs do not imply that {', '.join(key)} identifies its rows"
        return (replace(kept_whole(name, tree, known, key), whole=why),)
    keeping = _Keeping(name, known)
    rest = keeping.root(plain)
    return _numbered(keeping.found, keeping.made(name, rest, key))


def kept_whole(name: str, tree: Node, known: Known, key: tuple[str, ...] = ()) -> MaterializedRelation:
    """Return a view that stores nothing besides itself; for the parameters see `plan_materializations`."""
    return _Keeping(name, known).made(name, tree, key)


def _numbered(parts: Sequence[MaterializedRelation], whole: MaterializedRelation) -> tuple[MaterializedRelation, ...]:
    """Return the relations of a view, with those before it numbered by the channels that they are computed from.

    Their numbers so rarely depend on the order in which the query names them; nor do they on what it does with their
    rows, so that a relation keeps its number when the query changes, and can be migrated.
    """
    sources: dict[str, tuple[str, ...]] = {}
    for item in parts:
        read = (sources.get(name, (name,)) for name in item.reads)
        sources[item.channel] = tuple(sorted({name for some in read for name in some}))
    waiting, found = {item.channel: item for item in parts}, list[MaterializedRelation]()
    numbers: dict[str, str] = {}
    while waiting:
        ready = (name for name, item in waiting.items() if waiting.keys().isdisjoint(item.reads))
        item = waiting.pop(min(ready, key=lambda name: sources[name]))
        numbers[item.channel] = f"{whole.channel}__{len(found) + 1}"
        found.append(replace(_reading(item, numbers), channel=numbers[item.channel]))
    return (*found, _reading(whole, numbers))


def _reading(item: MaterializedRelation, numbers: Mapping[str, str]) -> MaterializedRelation:
    """Return a relation that reads some channels under other names."""

    def reading(node: Node) -> Node:
        if isinstance(node, Scan):
            return replace(node, channel=numbers.get(node.channel, node.channel))
        return with_inputs(node, tuple(map(reading, inputs(node))))

    return replace(item, tree=reading(item.tree))


class _Keeping:
    """Extraction of the relations to store from a tree, bottom-up."""

    def __init__(self, name: str, known: Known) -> None:
        self._name = name
        self.known: dict[str, RelationFacts] = dict(known)
        self.found: list[MaterializedRelation] = []
        self._by_text: dict[str, MaterializedRelation] = {}

    def made(self, channel: str, tree: Node, key: tuple[str, ...] = ()) -> MaterializedRelation:
        """Return a relation with the encoding that follows from its tree."""
        tree = simplify(OF_STORED, _without_visible_keys(tree))
        visible = frozenset(name for name in names(tree) if not name.startswith(KEPT))
        derived = (
            tuple(sorted(own, key=names(tree).index)) for own in keys(tree, self.known) if visible.issuperset(own)
        )
        key = key or min(derived, key=lambda own: (len(own), own), default=())
        whole = _why_whole(tree, self.known)
        encoding: Encoding = Upsert(key) if key else Changes()
        growing = whole is None and is_growing(tree, self.known)
        if growing and not key:
            encoding = Append()
        found = {name: kind or "" for name, kind in types(tree, self.known).items() if name in visible}
        return MaterializedRelation(
            channel=channel,
            tree=tree,
            encoding=encoding,
            facts=RelationFacts(types=found, key=key, grows=growing),
            whole=whole,
        )

    def root(self, node: Node, *, filtered: bool = False) -> Node:
        """Return the view's own tree over the other relations it stores: an aggregate at its top is the view itself.

        Sums cannot be stored with a filtered aggregate: the groups that are left out have sums as well.
        """
        match node:
            case Projection():
                below = self.root(node.input, filtered=filtered)
                sums = () if filtered else kept(tuple(name for name in names(below) if name.startswith(KEPT)))
                return Projection(below, (*node.items, *sums))
            case Filter():
                return replace(node, input=self.root(node.input, filtered=True))
            case Aggregate():
                return self._grouped(node, root=True, apart=filtered)
            case Top():
                below = self.below(node.input)
                return replace(node, input=below if self._there(below) else self._kept(below))
            case _:
                return self.below(node)

    def _there(self, node: Node) -> bool:
        """Return whether a tree is a channel, or projections and filters over a relation that is already stored."""
        if isinstance(node, Scan):
            return True
        while isinstance(node, Projection | Filter):
            node = node.input
        return isinstance(node, Scan) and node.channel in {item.channel for item in self.found}

    def below(self, node: Node) -> Node:
        """Return a part of the query over the relations stored for it."""
        if isinstance(node, Aggregate):
            return self._grouped(node, root=False, apart=True)
        if isinstance(node, Join):
            node = met_early(node, self.known)
        node = with_inputs(node, tuple(self.below(part) for part in inputs(node)))
        return self._kept(node) if isinstance(node, Top) else node

    def _grouped(self, node: Aggregate, *, root: bool, apart: bool) -> Node:
        early = aggregate_early(node, self.known)
        if not isinstance(early, Aggregate):
            return self.root(early) if root else self.below(early)
        node = replace(early, input=self.below(early.input))
        sums = None if _touches(node) else summed(node, self.known)
        if sums is not None:
            return self._kept(sums) if apart else sums
        return node if root else self._kept(node)

    def _kept(self, node: Node) -> Scan:
        """Store a relation, or reuse it where the query contains it twice, and return a scan of it."""
        if all(
            name.startswith(KEPT) for name in names(node)
        ):  # only the number of rows matters; a channel must have columns
            node = Projection(node, (Item(f"_there{len(self.found) + 1}", parse("TRUE")), *kept(names(node))))
        own = tuple(name for name in names(node) if name.startswith(KEPT))
        seen = Projection(node, kept(tuple(name for name in names(node) if name not in own)))
        named = canonical_names(seen, self.known)
        node = Projection(node, (*(Item(each, column(name)) for name, each in named.items()), *kept(own)))
        text = canonical_text(node, self.known) if is_deterministic(node) else str(len(self.found))
        if text not in self._by_text:
            item = self.made(f"{self._name}__{len(self.found) + 1}", node)
            self.found.append(item)
            self.known[item.channel] = item.facts
            self._by_text[text] = item
        return Scan(self._by_text[text].channel, tuple((named[name], name) for name in names(seen)))


def summed(node: Aggregate, known: Known) -> Projection | None:
    """Return groups computed from sums that are stored with them; None where an aggregate is no exact sum."""
    kinds = types(node.input, known)
    named = canonical_names(node, known)
    sums: dict[str, Scalar] = {ROWS: parse("COUNT(*)")}
    calls: list[Item] = []
    for call in node.calls:
        value = _call_over_sums(replace(call, name=named[call.name]), kinds, sums)
        if value is None:
            return None
        calls.append(Item(call.name, parse(value)))
    own = tuple(Item(f"{KEPT}key__{named[key.name]}", key.value) for key in node.keys)
    visible = tuple(Item(key.name, column(each.name)) for key, each in zip(node.keys, own, strict=True))
    group = Aggregate(node.input, own, tuple(Item(name, value) for name, value in sums.items()))
    return Projection(group, (*visible, *calls, *kept(names(group))))


def _without_visible_keys(tree: Node) -> Node:
    """Remove stored key columns that duplicate a key column of the relation."""
    if not isinstance(tree, Projection) or not any(name.startswith(KEPT) for name in names(tree)):
        return tree
    group, above = grouping(tree)
    twice = {key.name for key in group.keys if not shown(key.name, above)[0].startswith(KEPT)}
    return replace(tree, items=tuple(item for item in tree.items if item.name not in twice))


def _call_over_sums(call: Item, kinds: Mapping[str, str | None], sums: dict[str, Scalar]) -> str | None:
    """Return an aggregate as an expression over sums, adding missing ones to `sums`; None if it is no exact sum."""
    node = node_of(call.value)
    condition = None
    if isinstance(node, exp.Filter):
        condition, node = node.expression.this.sql("spark"), node.this
    if not isinstance(node, exp.Count | exp.Sum | exp.Avg) or isinstance(node.this, exp.Distinct):
        return None
    if isinstance(node, exp.Count) and (node.expressions or isinstance(node.this, exp.Tuple)):
        return None
    argument = "1" if isinstance(node.this, exp.Star) or (isinstance(node, exp.Count) and node.this is None) else ""
    argument = argument or node.this.sql("spark")
    if condition is None and argument == "1" and isinstance(node, exp.Count):
        return column(ROWS).sql
    value = argument if condition is None else f"CASE WHEN {condition} THEN {argument} END"
    count = _among(sums, f"{KEPT}count__{call.name}", parse(f"COUNT({value})"))
    if isinstance(node, exp.Count):
        return column(count).sql
    kind = type_of(parse(argument), kinds)
    if isinstance(node, exp.Avg) and kind == "bigint":  # the sum may overflow although the average exists
        value = f"CAST({value} AS DECIMAL(20,0))"
    summed_kind = type_of(parse(f"SUM({value})"), kinds)
    if kind is None or summed_kind is None or kind in FLOATING:
        return None
    zero = f"CAST(0 AS {summed_kind.upper()})" if digits(summed_kind) else "0"
    total = _among(sums, f"{KEPT}sum__{call.name}", parse(f"COALESCE(SUM({value}), {zero})"))
    some = f"CASE WHEN {column(count).sql} > 0 THEN {{}} END"
    if isinstance(node, exp.Sum):
        return some.format(column(total).sql)
    if digits(kind) is None:
        return some.format(f"CAST({column(total).sql} AS DOUBLE) / {column(count).sql}")
    mean = averaged(column(total), column(count), kind)
    return None if mean is None else some.format(mean)


def _among(sums: dict[str, Scalar], name: str, value: Scalar) -> str:
    """Return the name of a sum, adding it to the others unless it is among them."""
    found = next((each for each, other in sums.items() if other == value), name)
    sums[found] = value
    return found


def _touches(node: Aggregate) -> bool:
    """Return whether the change below an aggregate is found by recomputing touched rows before and after.

    Recomputing the groups then reads less, as their old rows are stored. Their keys must include the join columns.
    """
    below = node.input
    while isinstance(below, Filter):
        below = below.input
    if not isinstance(below, Join) or below.kind is not Kind.LEFT or not node.keys:
        return False
    pairs = equi_pairs(below.condition, frozenset(names(below.left)), frozenset(names(below.right)))
    return bool(pairs) and {one for one, _ in pairs} <= {item.value for item in node.keys}


def _why_whole(node: Node, known: Known) -> str | None:
    """Return why a tree can only be fully recomputed; None if its change can be derived."""
    if not is_deterministic(node):
        return "it calls a non-deterministic function"
    if any((kind or "").startswith("map") or "map<" in (kind or "") for kind in types(node, known).values()):
        return "it has a column of maps, which cannot be compared"
    return None
