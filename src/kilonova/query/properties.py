"""Properties of a tree derived without reading data: types, nullability, keys, determinism, and append-only growth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import assert_never

from kilonova.query.decimals import LONGEST, bounded, digits
from kilonova.query.expression import Op, Scalar
from kilonova.query.tree import (
    Aggregate,
    Explode,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Projection,
    Scan,
    Top,
    Union,
    Unit,
    Window,
    inputs,
    names,
)

_WHOLE = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
FLOATING = ("float", "double")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationFacts:
    """Known properties of a channel.

    Attributes:
        types: its columns with their types in Spark's notation, in order.
        key: columns that are never null and identify its rows; empty if there are none.
        grows: whether rows are only ever added.
        single: whether it is expected to have at most one row, before a change and after it; if it has more, its
            change is still correct, but slower.
        one_row: whether it is known to have at most one row, before a change and after it.
    """

    types: Mapping[str, str]
    key: tuple[str, ...] = ()
    grows: bool = False
    single: bool = False
    one_row: bool = False


Known = Mapping[str, RelationFacts]
"""Known properties of every channel by name."""


def types(node: Node, known: Known) -> dict[str, str | None]:
    """Return the types of a tree's columns, None where unknown."""
    match node:
        case Scan():
            return {name: known[node.channel].types.get(source) or None for source, name in node.columns}
        case Unit():
            return {}
        case Projection():
            below = types(node.input, known)
            return {item.name: type_of(item.value, below) for item in node.items}
        case Join():
            found = types(node.left, known)
            if node.kind in (Kind.SEMI, Kind.ANTI):
                return found
            return found | types(node.right, known)
        case Aggregate():
            below = types(node.input, known)
            return {item.name: type_of(item.value, below) for item in (*node.keys, *node.calls)}
        case Union():
            each = [list(types(below, known).values()) for below in node.inputs]
            return {
                name: columns[0] if len(set(columns)) == 1 else None
                for name, columns in zip(node.columns, zip(*each, strict=True), strict=True)
            }
        case Window():
            below = types(node.input, known)
            return below | {item.name: None for item in node.items}
        case Explode():
            return types(node.input, known) | dict.fromkeys(node.columns)
        case Filter() | Top():
            return types(node.input, known)


def type_of(expression: Scalar, of: Mapping[str, str | None]) -> str | None:
    """Return the type of an expression by Spark's rules, None where unknown.

    >>> from kilonova.query.expression import column, compose
    >>> type_of(compose("{} * {}", column("a"), column("b"), op=Op.MUL), {"a": "decimal(15,2)", "b": "int"})
    'decimal(26,2)'
    """
    operands = expression.operands
    match expression.op:
        case Op.PAREN | Op.NEG | Op.ABS | Op.MIN_MAX:
            return type_of(operands[0], of)
        case Op.COLUMN:
            return of.get(expression.name or "")
        case Op.NUMBER:
            return _number(expression.sql)
        case Op.BOOLEAN | Op.AND | Op.OR | Op.NOT | Op.EQ | Op.NULL_SAFE_EQ | Op.COMPARISON | Op.RANGE | Op.IS:
            return "boolean"
        case Op.PREDICATE:
            return "boolean"
        case Op.CAST:
            return _cast(operands[-1].sql.lower().replace(", ", ","))
        case Op.ADD | Op.SUB | Op.MUL | Op.DIV:
            return _arithmetic(expression.op, *(_operand(operand, of) for operand in operands))
        case Op.COUNT:
            return "bigint"
        case Op.SUM:
            return _summed(type_of(operands[0], of))
        case Op.COALESCE:
            return _common(operands, of)
        case Op.CASE:
            pairs = zip(expression.texts, operands, strict=False)
            return _common([operand for text, operand in pairs if text.rstrip().endswith(("THEN", "ELSE"))], of)
        case Op.DATE_PART:
            return "int"
        case Op.STRING | Op.TEXT:
            return "string"
        case Op.NULL | Op.STAR | Op.TYPE | Op.AVG | Op.CALL | Op.OTHER | Op.UNSTEADY:
            return None
        case _:
            assert_never(expression.op)


def _common(parts: Sequence[Scalar], of: Mapping[str, str | None]) -> str | None:
    """Return the common type of alternative expressions; NULL literals fit any type."""
    found = dict.fromkeys(type_of(part, of) for part in parts if part.bare.op is not Op.NULL)
    return reduce(_wider, found) if found else None


def _wider(one: str | None, other: str | None) -> str | None:
    """Return the narrowest exact numeric type that holds the values of two types; None if there is none."""
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=lambda kind: _WHOLE[kind])
    sides = [None if kind is None else _digits(kind) for kind in (one, other)]
    if sides[0] is None or sides[1] is None:
        return None
    (p1, s1), (p2, s2) = sides[0], sides[1]
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    return f"decimal({precision},{scale})" if precision <= LONGEST else None


def _cast(kind: str) -> str:
    """Return the type that a cast names, with Spark's default precision and scale for decimals without them."""
    return {"decimal": "decimal(10,0)"}.get(kind, re.sub(r"^decimal\((\d+)\)$", r"decimal(\1,0)", kind))


def _number(text: str) -> str | None:
    if text.isdigit():
        return "int" if int(text) < 1 << 31 else "bigint"
    if match := re.fullmatch(r"(\d*)\.(\d*)", text):
        scale = len(match[2])
        return f"decimal({max(len(match[1].lstrip('0')) + scale, scale, 1)},{scale})"
    return "double"


def _operand(expression: Scalar, of: Mapping[str, str | None]) -> str | None:
    """Return the type of an operand; an integer literal is as narrow as its digits."""
    bare = expression.bare
    bare = bare.operands[0] if bare.op is Op.NEG else bare
    if bare.op is Op.NUMBER and bare.sql.isdigit():
        return f"literal({len(bare.sql)})"
    return type_of(expression, of)


def _arithmetic(op: Op, left: str | None, right: str | None) -> str | None:
    if left is None or right is None:
        return None
    if left in FLOATING or right in FLOATING:
        return "double"
    if digits(left) is None and digits(right) is None:
        widths = [_WHOLE.get("int" if kind.startswith("literal") else kind) for kind in (left, right)]
        if None in widths:
            return None
        if op is Op.DIV:
            return "double"
        kinds = ["int" if kind.startswith("literal") else kind for kind in (left, right)]
        return max(kinds, key=lambda kind: _WHOLE[kind])
    sides = [_digits(kind) for kind in (left, right)]
    if sides[0] is None or sides[1] is None:
        return None
    (p1, s1), (p2, s2) = sides[0], sides[1]
    match op:
        case Op.MUL:
            return bounded(p1 + p2 + 1, s1 + s2)
        case Op.DIV:
            scale = max(6, s1 + p2 + 1)
            return bounded(p1 - s1 + s2 + scale, scale)
        case _:
            scale = max(s1, s2)
            return bounded(max(p1 - s1, p2 - s2) + scale + 1, scale)


def _digits(kind: str) -> tuple[int, int] | None:
    if found := digits(kind):
        return found
    if match := re.fullmatch(r"literal\((\d+)\)", kind):
        return int(match[1]), 0
    return (_WHOLE[kind], 0) if kind in _WHOLE else None


def _summed(kind: str | None) -> str | None:
    if kind in _WHOLE:
        return "bigint"
    if kind in FLOATING:
        return "double"
    if kind is not None and (found := digits(kind)):
        return f"decimal({min(LONGEST, found[0] + 10)},{found[1]})"
    return None


def non_null(node: Node, known: Known) -> frozenset[str]:
    """Return the columns that are never null."""
    match node:
        case Scan():
            return frozenset(name for source, name in node.columns if source in known[node.channel].key)
        case Unit():
            return frozenset()
        case Projection():
            below = non_null(node.input, known)
            return frozenset(item.name for item in node.items if _never_null(item.value, below))
        case Filter():
            return non_null(node.input, known) | _implied(node.condition)
        case Join(kind=kind):
            left, right = non_null(node.left, known), non_null(node.right, known)
            held = frozenset() if node.condition is None else _implied(node.condition)
            match kind:
                case Kind.INNER:
                    return left | right | held
                case Kind.SEMI:
                    return left | (held & frozenset(names(node.left)))
                case Kind.LEFT | Kind.ANTI:
                    return left
                case Kind.FULL:
                    return frozenset()
        case Aggregate():
            below = non_null(node.input, known)
            keys = frozenset(item.name for item in node.keys if _never_null(item.value, below))
            return keys | frozenset(item.name for item in node.calls if item.value.op is Op.COUNT)
        case Union():
            each = [
                frozenset(
                    name for name, own in zip(node.columns, names(below), strict=True) if own in non_null(below, known)
                )
                for below in node.inputs
            ]
            return frozenset.intersection(*each)
        case Window() | Explode() | Top():
            return non_null(node.input, known)


def _never_null(expression: Scalar, below: frozenset[str]) -> bool:
    match expression.op:
        case Op.COLUMN:
            return expression.name in below
        case Op.NUMBER | Op.STRING | Op.BOOLEAN | Op.IS | Op.NULL_SAFE_EQ:
            return True
        case Op.COALESCE:
            return any(_never_null(part, below) for part in expression.operands)
        case _:
            return False


def _implied(condition: Scalar) -> frozenset[str]:
    """Return the columns that cannot be null where the condition is true."""
    found: set[str | None] = set()
    for part in condition.conjuncts():
        bare = part.bare
        if bare.op in (Op.EQ, Op.COMPARISON):
            found.update(side.name for side in bare.operands)
        elif bare.op is Op.RANGE:
            found.add(bare.operands[0].name)
        elif bare.op is Op.NOT and (inner := bare.operands[0].bare).op is Op.IS:
            value, what = inner.operands
            found.add(value.name if what.op is Op.NULL else None)
    return frozenset(name for name in found if name is not None)


def _fixed(condition: Scalar) -> frozenset[str]:
    """Return the columns that a condition requires to equal constants."""
    found = set()
    for part in condition.conjuncts():
        if part.bare.op is Op.EQ:
            one, other = part.bare.operands
            sides = ((one, other), (other, one))
            found |= {side.name for side, value in sides if side.name and value.op in (Op.NUMBER, Op.STRING)}
    return frozenset(found)


def equi_pairs(
    condition: Scalar | None, left: frozenset[str], right: frozenset[str]
) -> tuple[tuple[Scalar, Scalar], ...]:
    """Return the pairs of a left and a right expression that a join condition requires to be equal."""
    pairs = []
    for part in condition.conjuncts() if condition is not None else ():
        if (sides := _sides(part)) is not None:
            one, other = sides
            if one.columns <= left and other.columns <= right:
                pairs.append((one, other))
            elif one.columns <= right and other.columns <= left:
                pairs.append((other, one))
    return tuple(pairs)


def equal_columns(conditions: Iterable[Scalar], kinds: Mapping[str, str | None]) -> list[set[str]]:
    """Return the sets of columns, of one known type each, that conditions require to be equal.

    Only of one type, because two strings that equal a number may differ.
    """
    classes: list[set[str]] = []
    for condition in conditions:
        for one, other in equi_pairs(condition, condition.columns, condition.columns):
            if one.name is not None and other.name is not None and kinds[one.name] == kinds[other.name] is not None:
                met = [group for group in classes if group & {one.name, other.name}]
                classes = [group for group in classes if group not in met]
                classes.append({one.name, other.name}.union(*met))
    return classes


def _sides(condition: Scalar) -> tuple[Scalar, Scalar] | None:
    """Return the two sides of an equality if both have columns; otherwise None."""
    bare = condition.bare
    if bare.op is not Op.EQ:
        return None
    one, other = bare.operands
    return (one, other) if one.columns and other.columns else None


def keys(node: Node, known: Known) -> tuple[tuple[str, ...], ...]:
    """Return the keys of a tree: sets of columns that identify the rows and are never null."""
    full = non_null(node, known)
    return tuple(key for key in unique(node, known) if set(key) <= full)


def unique(node: Node, known: Known) -> tuple[tuple[str, ...], ...]:
    """Return sets of columns in which no two rows have the same values, nulls counting as values."""
    match node:
        case Scan():
            if known[node.channel].one_row and not node.weighs:
                return ((),)
            name_of = dict(node.columns)
            key = known[node.channel].key
            return (tuple(name_of[source] for source in key),) if key and all(k in name_of for k in key) else ()
        case Unit():
            return ((),)
        case Projection():
            renamed: dict[str, str] = {}
            for item in node.items:
                if item.value.name is not None:
                    renamed.setdefault(item.value.name, item.name)
            return tuple(
                tuple(renamed[name] for name in key)
                for key in unique(node.input, known)
                if all(name in renamed for name in key)
            )
        case Filter() | Window() | Top():
            return unique(node.input, known)
        case Join(kind=Kind.SEMI | Kind.ANTI):
            return unique(node.left, known)
        case Join():
            return _joined(node, known)
        case Aggregate():
            return (tuple(item.name for item in node.keys),)
        case Union() | Explode():
            return ()


def tells_apart(node: Node, columns: frozenset[str], known: Known) -> bool:
    """Return whether some columns are provably unique, by the tree and the keys of its channels.

    Args:
        node: the tree.
        columns: the columns; nulls count as values.
        known: the channels that it reads.
    """
    if isinstance(node, Projection):
        below = [item.value.name for item in node.items if item.name in columns]
        return tells_apart(node.input, frozenset(name for name in below if name), known)
    columns_known = determined(node, columns, known)
    return any(columns_known.issuperset(key) for key in unique(node, known))


def determined(node: Node, given: frozenset[str], known: Known) -> frozenset[str]:
    """Return the columns that functionally depend on some columns: rows that agree in those agree in these.

    Args:
        node: the tree.
        given: the columns in which rows agree, nulls counting as values.
        known: the channels that it reads.
    """
    given &= frozenset(names(node))
    match node:
        case Scan():
            return frozenset(names(node)) if any(given.issuperset(key) for key in unique(node, known)) else given
        case Unit() | Union():
            return given
        case Projection():
            below = frozenset(item.value.name for item in node.items if item.name in given and item.value.name)
            return given | _follow(node.items, determined(node.input, below, known))
        case Filter():
            return determined(node.input, given | _fixed(node.condition), known)
        case Join(kind=Kind.INNER | Kind.LEFT):
            return _determined_by_join(node, given, known)
        case Join(kind=Kind.SEMI | Kind.ANTI):
            return determined(node.left, given, known)
        case Join():
            return given
        case Aggregate():
            below = frozenset(item.value.name for item in node.keys if item.name in given and item.value.name)
            found = given | _follow(node.keys, determined(node.input, below, known))
            return frozenset(names(node)) if found.issuperset(item.name for item in node.keys) else found
        case Window() | Explode() | Top():
            return given | determined(node.input, given, known)


def _follow(items: tuple[Item, ...], below: frozenset[str]) -> frozenset[str]:
    """Return the names of deterministic expressions over some columns alone."""
    return frozenset(item.name for item in items if item.value.columns <= below and item.value.steady)


def _determined_by_join(node: Join, given: frozenset[str], known: Known) -> frozenset[str]:
    pairs = equi_pairs(node.condition, frozenset(names(node.left)), frozenset(names(node.right)))
    found, before = given, None
    while found != before:
        before = found
        found |= determined(node.left, found, known)
        if node.kind is Kind.INNER:  # unmatched rows of an outer join have nulls, whatever the equalities
            found |= determined(node.right, found, known)
            for one, other in (*pairs, *((other, one) for one, other in pairs)):
                if one.columns <= found and one.steady and other.name:
                    found |= {other.name}
        elif set(found) >= frozenset(names(node.left)) and _meets_one(node, known):
            found |= frozenset(names(node.right))
    return found


def _meets_one(node: Join, known: Known) -> bool:
    """Return whether a row of the left side of a join matches at most one row of the right."""
    pairs = equi_pairs(node.condition, frozenset(names(node.left)), frozenset(names(node.right)))
    met = {other.name for _, other in pairs}
    return any(met.issuperset(key) for key in unique(node.right, known))


def _joined(node: Join, known: Known) -> tuple[tuple[str, ...], ...]:
    pairs = equi_pairs(node.condition, frozenset(names(node.left)), frozenset(names(node.right)))
    lefts, rights = unique(node.left, known), unique(node.right, known)
    met_left = {one.name for one, _ in pairs}
    met_right = {other.name for _, other in pairs}
    found: list[tuple[str, ...]] = []
    if node.kind is not Kind.FULL and any(set(key) <= met_right for key in rights):
        found += lefts
    if node.kind is Kind.INNER and any(set(key) <= met_left for key in lefts):
        found += rights
    return tuple(found or [(*one, *other) for one in lefts for other in rights])


def single(node: Node, known: Known) -> bool:
    """Return whether a tree is known to have at most one row, before a change and after it."""
    match node:
        case Scan():
            return known[node.channel].single
        case Unit():
            return True
        case Filter():
            fixed = _fixed(node.condition)
            return single(node.input, known) or any(fixed.issuperset(key) for key in unique(node.input, known))
        case Projection() | Window():
            return single(node.input, known)
        case Join(kind=Kind.SEMI | Kind.ANTI):
            return single(node.left, known)
        case Join(kind=Kind.INNER | Kind.LEFT):
            return single(node.left, known) and single(node.right, known)
        case Aggregate():
            return not node.keys
        case Top():
            return node.limit in (0, 1) or single(node.input, known)
        case Join() | Union() | Explode():
            return False


def present(node: Node) -> bool:
    """Return whether a tree has at least one row, whatever the channels contain."""
    match node:
        case Unit():
            return True
        case Projection() | Window():
            return present(node.input)
        case Join(kind=Kind.LEFT):
            return present(node.left)
        case Aggregate():
            return not node.keys
        case _:
            return False


def is_growing(node: Node, known: Known) -> bool:
    """Return whether a tree is append-only: its channels are, and rows added to them only add rows here."""
    match node:
        case Scan():
            return known[node.channel].grows
        case Join(kind=Kind.INNER | Kind.SEMI) | Projection() | Filter() | Union() | Explode() | Unit():
            return all(is_growing(below, known) for below in inputs(node))
        case Aggregate(calls=()) if node.keys:
            return is_growing(node.input, known)
        case _:
            return False


def is_deterministic(node: Node) -> bool:
    """Return whether a tree gives the same rows for the same channels each time."""
    own: tuple[Scalar, ...]
    match node:
        case Projection():
            own = tuple(item.value for item in node.items)
        case Filter():
            own = (node.condition,)
        case Join():
            own = () if node.condition is None else (node.condition,)
        case Aggregate():
            own = tuple(item.value for item in (*node.keys, *node.calls))
        case Window():
            own = tuple(item.value for item in node.items)
        case Explode():
            own = (node.generator,)
        case Top():
            own = tuple(item.value for item in node.order)
        case _:
            own = ()
    return all(expression.steady for expression in own) and all(is_deterministic(below) for below in inputs(node))
