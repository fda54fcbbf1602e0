"""Which relations a view keeps, and how each is written.

A view is a query; what it keeps are the relations `stored` gives, each a query over channels and over those before
it, the last one the view itself. Groups within a query are kept, so that whoever reads them sees their change.

Groups of exact sums and counts (`count`, `sum` and `avg` of whole numbers and decimals, `DISTINCT`) are kept as the
sums themselves: a change adds to them and need not look at what is there (the *weak delta* of asynchronous
scheduling, section 3). Sums of floating-point numbers would drift; they are computed again for the groups that
change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from kilonova.model.encoding import Append, Changes, Encoding, Increment, Upsert
from kilonova.query.expression import Scalar, column, parse
from kilonova.query.folding import folded
from kilonova.query.parsing import parsed
from kilonova.query.properties import (
    FLOATING,
    Facts,
    Known,
    equated,
    filled,
    grows,
    keys,
    steady,
    type_of,
    types,
    unique,
)
from kilonova.query.pruning import pruned
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
    names,
    with_inputs,
)

_DEFAULTS = {
    "string": "''",
    "date": "DATE '1970-01-01'",
    "boolean": "FALSE",
    "timestamp": "TIMESTAMP '1970-01-01 00:00:00'",
    "tinyint": "0Y",
    "smallint": "0S",
    "int": "0",
    "bigint": "0L",
}
"""What stands for null in the key of kept sums, beside a column that says so."""


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
    if key and not any(set(own) <= set(key) for own in unique(plain, known)):
        # Rows of one key that come in different runs would replace each other; made anew, they are seen and refused.
        why = f"that {', '.join(key)} tells its rows apart does not follow from the query"
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
    tree = folded(pruned(parsed(text, known)))
    if isinstance(encoding, Increment):
        tree = _as_groups(tree)
    return Stored(channel=channel, tree=tree, encoding=encoding, facts=facts)


def _as_groups(tree: Node) -> Aggregate:
    """Sums under the names of the projection above them."""
    assert isinstance(tree, Project)
    assert isinstance(tree.input, Aggregate)
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

    def made(self, channel: str, tree: Node, key: tuple[str, ...] = ()) -> Stored:
        """A relation with the encoding that follows from its tree."""
        tree = folded(pruned(tree))
        key = key or min(keys(tree, self.known), key=len, default=())
        whole = _why_whole(tree, self.known)
        encoding: Encoding = Upsert(key) if key else Changes()
        growing = whole is None and grows(tree, self.known)
        if growing and not key:
            encoding = Append()
        found = {column: kind or "" for column, kind in types(tree, self.known).items()}
        return Stored(
            channel=channel,
            tree=tree,
            encoding=encoding,
            facts=Facts(types=found, key=key, grows=growing),
            whole=whole,
        )

    def root(self, node: Node) -> Node:
        """The view's own tree over what else it keeps: groups at its top are the view itself."""
        match node:
            case Project() | Filter():
                return with_inputs(node, (self.root(node.input),))
            case Aggregate():
                return self._grouped(node, root=True)
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
            return self._grouped(node, root=False)
        node = with_inputs(node, tuple(self.below(part) for part in inputs(node)))
        return self._kept(node) if isinstance(node, Top) else node

    def _grouped(self, node: Aggregate, *, root: bool) -> Node:
        node = _distinct_first(node)
        node = replace(node, input=self.below(node.input))
        sums = summed(node, self.known)
        if sums is not None and not _touches(node):
            return sums.over(self._kept(sums.kept, tuple(item.name for item in sums.kept.calls)))
        return node if root else self._kept(node)

    def _kept(self, node: Node, measures: tuple[str, ...] = ()) -> Scan:
        """Keep a relation, and read it."""
        channel = f"{self._name}__{len(self.found) + 1}"
        item = self.made(channel, node)
        if measures:
            assert isinstance(node, Aggregate)
            own = tuple(key.name for key in node.keys)
            item = replace(item, encoding=Increment(own, measures), facts=replace(item.facts, key=own))
        self.found.append(item)
        self.known[channel] = item.facts
        return Scan(channel, tuple((name, name) for name in names(node)))


@dataclass(frozen=True, slots=True)
class Sums:
    """Groups as sums to keep, and what makes the groups of them again.

    Attributes:
        kept: counts and sums per group.
        keys: the keys of the groups, over the columns of `kept`.
        calls: the aggregates, over the columns of `kept`.
    """

    kept: Aggregate
    keys: tuple[Item, ...]
    calls: tuple[Item, ...]

    def over(self, scan: Scan) -> Node:
        """The groups, from the sums as they are kept; one in all even of no rows, where there are no keys."""
        if self.keys:
            return Project(scan, (*self.keys, *self.calls))
        sums = {item.name: Scalar(f"MAX({column(item.name).sql})") for item in self.kept.calls}
        return Aggregate(scan, (), tuple(Item(item.name, item.value.with_columns(sums)) for item in self.calls))


def summed(node: Aggregate, known: Known) -> Sums | None:
    """Groups as sums; None where an aggregate is no exact sum or a key cannot be kept."""
    kinds, full = types(node.input, known), filled(node.input, known)
    own: list[Item] = []
    back: list[Item] = []
    for key in node.keys:
        if key.value.name in full:
            own.append(key)
            back.append(Item(key.name, column(key.name)))
            continue
        kind = type_of(key.value, kinds) or ""
        default = f"CAST(0 AS {kind})" if kind.startswith("decimal") else _DEFAULTS.get(kind)
        if default is None:
            return None
        absent = f"{key.name}__null"
        own.append(Item(key.name, parse(f"COALESCE({key.value.sql}, {default})")))
        own.append(Item(absent, parse(f"({key.value.sql}) IS NULL")))
        back.append(Item(key.name, parse(f"CASE WHEN NOT {column(absent).sql} THEN {column(key.name).sql} END")))
    if not own:
        own.append(Item("all", Scalar("1")))
    rows = "rows" if "rows" not in {item.name for item in (*own, *node.calls)} else "rows__all"
    sums: dict[str, Scalar] = {rows: Scalar("COUNT(*)")}
    calls: list[Item] = []
    for call in node.calls:
        value = _call_over_sums(call, kinds, rows, sums)
        if value is None:
            return None
        calls.append(Item(call.name, parse(value)))
    kept_calls = tuple(Item(name, value) for name, value in sums.items())
    return Sums(Aggregate(node.input, tuple(own), kept_calls), tuple(back), tuple(calls))


def _call_over_sums(call: Item, kinds: Mapping[str, str | None], rows: str, sums: dict[str, Scalar]) -> str | None:
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
        return f"COALESCE({column(rows).sql}, 0L)"
    value = argument if condition is None else f"CASE WHEN {condition} THEN {argument} END"
    count, total = f"{call.name}__count", f"{call.name}__sum"
    sums[count] = parse(f"COUNT({value})")
    if isinstance(node, exp.Count):
        return f"COALESCE({column(count).sql}, 0L)"
    kind = type_of(parse(argument), kinds)
    summed_kind = type_of(parse(f"SUM({argument})"), kinds)
    if kind is None or summed_kind is None or kind in FLOATING:
        return None
    sums[total] = parse(f"COALESCE(SUM({value}), 0)")
    some = f"CASE WHEN {column(count).sql} > 0 THEN {{}} END"
    if isinstance(node, exp.Sum):
        return some.format(column(total).sql)
    if (match := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)) is None:
        return some.format(f"CAST({column(total).sql} AS DOUBLE) / {column(count).sql}")
    precision, scale = min(38, int(match[1]) + 4), min(38, int(match[2]) + 4)
    quotient = f"{column(total).sql} / CAST({column(count).sql} AS DECIMAL(20, 0))"
    return some.format(f"CAST({quotient} AS DECIMAL({precision}, {scale}))")


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


def _distinct_first(node: Aggregate) -> Aggregate:
    """`count(DISTINCT x)` as `count(x)` over groups that have x among their keys, where nothing else is asked for."""
    values = {_distinct_argument(call.value) for call in node.calls}
    if len(values) != 1 or None in values:
        return node
    (argument,) = values
    assert argument is not None
    inner = f"{node.calls[0].name}__each"
    below = Aggregate(node.input, (*node.keys, Item(inner, argument)), ())
    keys_ = tuple(Item(key.name, column(key.name)) for key in node.keys)
    return Aggregate(below, keys_, tuple(Item(c.name, Scalar(f"COUNT({column(inner).sql})")) for c in node.calls))


def _distinct_argument(value: Scalar) -> Scalar | None:
    node = value.node
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct) and len(node.this.expressions) == 1:
        return Scalar.of(node.this.expressions[0])
    return None


def _why_whole(node: Node, known: Known) -> str | None:
    """Why a tree can only be computed anew."""
    if not steady(node):
        return "it calls a function that gives something else each time"
    if any((kind or "").startswith("map") or "map<" in (kind or "") for kind in types(node, known).values()):
        return "it has a column of maps, which cannot be compared"
    return None
