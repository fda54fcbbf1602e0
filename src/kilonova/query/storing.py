"""Which relations a view keeps, and how each is written.

A view is a query; what it keeps are the relations `stored` gives, each a query over channels and over those before
it, the last one the view itself. Groups within a query are kept, so that whoever reads them sees their change.

Groups of exact sums and counts (`count`, `sum` and `avg` of whole numbers and decimals, `DISTINCT`) are stored with
those sums beside them, in columns that are no part of the relation: a change adds to them and need not look at the
rows that they were made of. Sums of floating-point numbers would drift; they are computed again for the groups that
change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from kilonova.model.encoding import Append, Changes, Encoding, Upsert
from kilonova.model.schema import KEPT
from kilonova.query.decimals import averaged, digits
from kilonova.query.expression import Scalar, column, parse
from kilonova.query.folding import folded
from kilonova.query.grouping import grouped_early, met_early
from kilonova.query.parsing import parsed
from kilonova.query.properties import (
    FLOATING,
    Facts,
    Known,
    equated,
    grows,
    keys,
    steady,
    tells_apart,
    type_of,
    types,
)
from kilonova.query.pruning import pruned
from kilonova.query.rendering import rendered
from kilonova.query.tree import (
    Aggregate,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Project,
    Scan,
    Top,
    channels,
    inputs,
    kept,
    names,
    with_inputs,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A relation that a view keeps.

    Attributes:
        channel: the channel that holds it.
        tree: what it is.
        encoding: how its changes are written.
        facts: what is known of it.
        whole: why it can only be made anew; None if its change can be derived.
    """

    channel: str
    tree: Node
    encoding: Encoding
    facts: Facts
    whole: str | None = None

    @property
    def sums(self) -> bool:
        """Whether the sums of its groups are stored beside them."""
        return any(name.startswith(KEPT) for name in names(self.tree))

    @property
    def reads(self) -> tuple[str, ...]:
        """The channels that it is made of."""
        return channels(self.tree)


def stored(name: str, tree: Node, known: Known, key: tuple[str, ...] = ()) -> tuple[Stored, ...]:
    """What a view keeps, in the order in which it is made.

    Args:
        name: the view's.
        tree: its query.
        known: the channels that it reads.
        key: the key that the user declares; empty for one that can be derived.
    """
    plain = folded(pruned(tree))
    if key and not tells_apart(plain, frozenset(key), known):
        # Rows of one key that come in different runs would replace each other; made anew, they are seen and refused.
        why = f"that {', '.join(key)} tells its rows apart does not follow from the query and the keys of what it reads"
        return (replace(kept_whole(name, tree, known, key), whole=why),)
    keeping = _Keeping(name, known)
    rest = keeping.root(plain)
    return (*keeping.found, keeping.made(name, rest, key))


def kept_whole(name: str, tree: Node, known: Known, key: tuple[str, ...] = ()) -> Stored:
    """A view that keeps nothing besides itself; for the parameters see `stored`."""
    return _Keeping(name, known).made(name, tree, key)


def restored(channel: str, text: str, encoding: Encoding, known: Known, facts: Facts) -> Stored:
    """A kept relation from its query.

    Args:
        channel: the channel that holds it.
        text: its query, as `kilonova.query.rendering` wrote it.
        encoding: how its changes are written.
        known: the channels that it reads.
        facts: what is known of its own channel.
    """
    tree = _as_sums(folded(pruned(parsed(text, known))))
    return Stored(channel=channel, tree=tree, encoding=encoding, facts=facts)


def _as_sums(tree: Node) -> Node:
    """Groups with sums beside them, each sum as one call again: reading takes it out of `COALESCE(SUM(x), zero)`."""
    if not isinstance(tree, Project):
        return tree
    if not isinstance(tree.input, Aggregate) or not all(item.name.startswith(KEPT) for item in tree.items):
        return replace(tree, input=_as_sums(tree.input))
    group = tree.input
    keys_ = {item.name: item.value for item in group.keys}
    calls = {item.name: item.value for item in group.calls}
    return Aggregate(
        group.input,
        tuple(Item(item.name, keys_[item.value.name]) for item in tree.items if item.value.name in keys_),
        tuple(Item(i.name, i.value.with_columns(calls)) for i in tree.items if i.value.name not in keys_),
    )


class _Keeping:
    """Takes what is to be kept out of a tree, from the bottom up."""

    def __init__(self, name: str, known: Known) -> None:
        self._name = name
        self.known: dict[str, Facts] = dict(known)
        self.found: list[Stored] = []
        self._by_text: dict[str, Stored] = {}

    def made(self, channel: str, tree: Node, key: tuple[str, ...] = ()) -> Stored:
        """A relation with the encoding that follows from its tree."""
        tree = folded(pruned(_without_visible_keys(tree)))
        visible = frozenset(name for name in names(tree) if not name.startswith(KEPT))
        key = key or min((own for own in keys(tree, self.known) if visible.issuperset(own)), key=len, default=())
        whole = _why_whole(tree, self.known)
        encoding: Encoding = Upsert(key) if key else Changes()
        growing = whole is None and grows(tree, self.known)
        if growing and not key:
            encoding = Append()
        found = {name: kind or "" for name, kind in types(tree, self.known).items() if name in visible}
        return Stored(
            channel=channel,
            tree=tree,
            encoding=encoding,
            facts=Facts(types=found, key=key, grows=growing),
            whole=whole,
        )

    def root(self, node: Node, *, filtered: bool = False) -> Node:
        """The view's own tree over what else it keeps: groups at its top are the view itself.

        Sums cannot stand beside groups of which some are left out: those groups have sums as well.
        """
        match node:
            case Project():
                below = self.root(node.input, filtered=filtered)
                sums = () if filtered else kept(tuple(name for name in names(below) if name.startswith(KEPT)))
                return Project(below, (*node.items, *sums))
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
        """Whether a tree is a channel, or columns and conditions over what is kept already."""
        if isinstance(node, Scan):
            return True
        while isinstance(node, Project | Filter):
            node = node.input
        return isinstance(node, Scan) and node.channel in {item.channel for item in self.found}

    def below(self, node: Node) -> Node:
        """A part of the query over what is kept of it."""
        if isinstance(node, Aggregate):
            return self._grouped(node, root=False, apart=True)
        if isinstance(node, Join):
            node = met_early(node, self.known)
        node = with_inputs(node, tuple(self.below(part) for part in inputs(node)))
        return self._kept(node) if isinstance(node, Top) else node

    def _grouped(self, node: Aggregate, *, root: bool, apart: bool) -> Node:
        early = grouped_early(node, self.known)
        if not isinstance(early, Aggregate):
            return self.root(early) if root else self.below(early)
        node = replace(early, input=self.below(early.input))
        sums = None if _touches(node) else summed(node, self.known)
        if sums is not None:
            return self._kept(sums) if apart else sums
        return node if root else self._kept(node)

    def _kept(self, node: Node) -> Scan:
        """Keep a relation, or find it kept where the query says it twice, and read it."""
        if all(
            name.startswith(KEPT) for name in names(node)
        ):  # only that there are rows matters; a channel has columns
            node = Project(node, (Item(f"_there{len(self.found) + 1}", Scalar("TRUE")), *kept(names(node))))
        text = _text(node) if steady(node) else str(len(self.found))
        if text not in self._by_text:
            item = self.made(f"{self._name}__{len(self.found) + 1}", node)
            self.found.append(item)
            self.known[item.channel] = item.facts
            self._by_text[text] = replace(item, tree=node)
        item = self._by_text[text]
        pairs = zip(names(item.tree), names(node), strict=True)
        return Scan(item.channel, tuple((source, name) for source, name in pairs if not source.startswith(KEPT)))


_NAMES = re.compile(r"'(?:[^'\\]|\\.)*'|(?<!\.)`(?:[^`]|``)+`")
"""Strings, and names that are no fields of a structure."""


def _text(node: Node) -> str:
    """A tree as a query that is the same for the same relation, whatever its columns are called."""

    def sourced(node: Node) -> Node:
        if isinstance(node, Scan):
            sources = ", ".join(source for source, _ in node.columns)
            return Scan(f"{node.channel}({sources})", tuple((name, name) for _, name in node.columns), node.at)
        return with_inputs(node, tuple(map(sourced, inputs(node))))

    seen: dict[str, str] = {}
    written = rendered(sourced(node), lambda scan: scan.channel)
    return _NAMES.sub(lambda m: m[0] if m[0][0] == "'" else seen.setdefault(m[0], f"`{len(seen)}`"), written)


ROWS = f"{KEPT}rows"
"""How many rows a group has."""


def summed(node: Aggregate, known: Known) -> Project | None:
    """Groups made of sums, which stand beside them; None where an aggregate is no exact sum."""
    kinds = types(node.input, known)
    sums: dict[str, Scalar] = {ROWS: Scalar("COUNT(*)")}
    calls: list[Item] = []
    for call in node.calls:
        value = _call_over_sums(call, kinds, sums)
        if value is None:
            return None
        calls.append(Item(call.name, parse(value)))
    own = tuple(Item(f"{KEPT}key__{key.name}", key.value) for key in node.keys)
    visible = tuple(Item(key.name, column(each.name)) for key, each in zip(node.keys, own, strict=True))
    group = Aggregate(node.input, own, tuple(Item(name, value) for name, value in sums.items()))
    return Project(group, (*visible, *calls, *kept(names(group))))


def grouping(tree: Node) -> tuple[Aggregate, tuple[Project, ...]]:
    """The groups below projections, and those, from the top."""
    above: list[Project] = []
    while isinstance(tree, Project):
        above.append(tree)
        tree = tree.input
    assert isinstance(tree, Aggregate)
    return tree, tuple(above)


def shown(name: str, above: tuple[Project, ...]) -> tuple[str, ...]:
    """The columns at the top that a column below projections is, those that are part of the relation first."""
    found = {name}
    for project in reversed(above):
        found = {item.name for item in project.items if item.value.name in found}
    return tuple(sorted(found, key=lambda each: (each.startswith(KEPT), each)))


def _without_visible_keys(tree: Node) -> Node:
    """Groups with sums beside them, without the keys beside them that are part of the relation as well."""
    if not isinstance(tree, Project) or not any(name.startswith(KEPT) for name in names(tree)):
        return tree
    group, above = grouping(tree)
    twice = {key.name for key in group.keys if not shown(key.name, above)[0].startswith(KEPT)}
    return replace(tree, items=tuple(item for item in tree.items if item.name not in twice))


def _call_over_sums(call: Item, kinds: Mapping[str, str | None], sums: dict[str, Scalar]) -> str | None:
    """An aggregate as an expression over sums, which are added to those that there are."""
    node = call.value.node
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
    if isinstance(node, exp.Avg) and kind == "bigint":  # whose sum may be out of range, while there is an average
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
    """The name of a sum, which is added to the others unless it is among them."""
    found = next((each for each, other in sums.items() if other == value), name)
    sums[found] = value
    return found


def _touches(node: Aggregate) -> bool:
    """Whether a change below groups is found by looking again at what it touches, before and after.

    Then computing the groups again looks at less: what they were is there. Their keys must be what is touched.
    """
    below = node.input
    while isinstance(below, Filter):
        below = below.input
    if not isinstance(below, Join) or below.kind is not Kind.LEFT or not node.keys:
        return False
    pairs = equated(below.condition, frozenset(names(below.left)), frozenset(names(below.right)))
    return bool(pairs) and {one for one, _ in pairs} <= {item.value for item in node.keys}


def _why_whole(node: Node, known: Known) -> str | None:
    """Why a tree can only be computed anew."""
    if not steady(node):
        return "it calls a function that gives something else each time"
    if any((kind or "").startswith("map") or "map<" in (kind or "") for kind in types(node, known).values()):
        return "it has a column of maps, which cannot be compared"
    return None
