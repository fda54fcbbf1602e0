"""JSON form of a tree, in which the catalog stores the relations of views, so that runs need not parse SQL.

Each value is an object with one member, whose name says what it is: an operator, as `{"Filter": {"input": …}}`, an
alternative, as `{"Kind": "INNER"}`, a column, or an expression, as `{"eq": ["", {"column": "a"}, " = ", …]}`, texts
and operands in turn. Decoding an encoded tree gives an equal tree, whose expressions have the same operands.
"""

from __future__ import annotations

import json
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from kilonova.query.expression import Op, Scalar, column, interleave
from kilonova.query.tree import (
    Aggregate,
    At,
    Explode,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Order,
    Projection,
    Scan,
    Side,
    Top,
    Union,
    Unit,
    Window,
)

_RECORDS: dict[str, type[Any]] = {
    each.__name__: each
    for each in (Aggregate, Explode, Filter, Item, Join, Order, Projection, Scan, Top, Union, Unit, Window)
}
_ENUMS: dict[str, type[Enum]] = {each.__name__: each for each in (At, Kind, Side)}


def tree_to_json(node: Node) -> str:
    """Return a tree as JSON."""
    return json.dumps(_encoded(node), ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=1024)
def tree_from_json(text: str) -> Node:
    """Return the tree that `tree_to_json` encoded."""
    node: Node = _decoded(json.loads(text))
    return node


def _encoded(value: Any) -> Any:
    match value:
        case Scalar(op=Op.COLUMN):
            return {"column": value.name}
        case Scalar():
            pairs = zip_longest(value.texts, map(_encoded, value.operands))
            return {value.op.value: [each for pair in pairs for each in pair][:-1]}
        case Enum():
            return {type(value).__name__: value.name}
        case tuple():
            return list(map(_encoded, value))
        case None | str() | int():
            return value
        case _:
            return {type(value).__name__: {each.name: _encoded(getattr(value, each.name)) for each in fields(value)}}


def _decoded(value: Any) -> Any:
    match value:
        case list():
            return tuple(map(_decoded, value))
        case dict():
            ((kind, content),) = value.items()
        case _:
            return value
    if kind == "column":
        return column(content)
    if (record := _RECORDS.get(kind)) is not None:
        return record(**{name: _decoded(each) for name, each in content.items()})
    if (alternatives := _ENUMS.get(kind)) is not None:
        return alternatives[content]
    return interleave(Op(kind), tuple(content[::2]), tuple(map(_decoded, content[1::2])))
