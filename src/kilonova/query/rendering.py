"""Rendering of a tree as Spark SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from kilonova.query.expression import column
from kilonova.query.tree import (
    WEIGHT,
    Aggregate,
    Explode,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Projection,
    Scan,
    Side,
    Top,
    Union,
    Unit,
    Window,
    names,
)

Tables = Callable[[Scan], str]
"""Function that returns the table of a scan as written in the query."""


def render(node: Node, tables: Tables, *, alone: bool = False) -> str:
    """Render a tree as one query.

    Args:
        node: the tree.
        tables: returns the table of each scan.
        alone: whether to coalesce to one partition, without a shuffle.
    """
    one = "/*+ COALESCE(1) */ " if alone else ""

    def nested(below: Node) -> str:
        return f"({render(below, tables, alone=alone)})"

    match node:
        case Scan():
            return f"SELECT {one}{_scanned(node)} FROM {tables(node)}"
        case Unit():
            return "SELECT 1"
        case Projection():
            return f"SELECT {_listed(node.items)} FROM {nested(node.input)}"
        case Filter():
            return f"SELECT * FROM {nested(node.input)} WHERE {node.condition.sql}"
        case Join():
            return _join(node, nested(node.left), nested(node.right), alone)
        case Aggregate():
            grouped = f" GROUP BY {', '.join(item.value.sql for item in node.keys)}" if node.keys else ""
            return f"SELECT {_listed((*node.keys, *node.calls))} FROM {nested(node.input)}{grouped}"
        case Union():
            columns = [_renamed(names(below), node.columns) for below in node.inputs]
            parts = (f"SELECT {each} FROM {nested(below)}" for each, below in zip(columns, node.inputs, strict=True))
            whole = " UNION ALL ".join(parts)
            return f"SELECT {one}* FROM ({whole})" if alone else whole
        case Window():
            return f"SELECT *, {_listed(node.items)} FROM {nested(node.input)}"
        case Explode():
            made = ", ".join(column(name).sql for name in node.columns)
            outer = "OUTER " if node.outer else ""
            return f"SELECT * FROM {nested(node.input)} LATERAL VIEW {outer}{node.generator.sql} _e AS {made}"
        case Top():
            order = f" ORDER BY {', '.join(item.sql for item in node.order)}" if node.order else ""
            limit = f" LIMIT {node.limit}" if node.limit is not None else ""
            offset = f" OFFSET {node.offset}" if node.offset else ""
            return f"SELECT * FROM {nested(node.input)}{order}{limit}{offset}"
        case _:
            assert_never(node)


def _join(node: Join, left: str, right: str, alone: bool) -> str:
    if node.condition is not None:
        join, on = f"{node.kind.value} JOIN", f" ON {node.condition.sql}"
    elif node.kind is Kind.INNER:
        join, on = "CROSS JOIN", ""
    else:
        join, on = f"{node.kind.value} JOIN", " ON TRUE"
    few = Side.RIGHT if alone else node.few
    # Spark moves a semi-join below the operator that coalesces its left side to one partition.
    stays = alone and node.kind not in (Kind.SEMI, Kind.ANTI)
    hint = f"/*+ {'SHUFFLE_HASH' if stays else 'BROADCAST'}(_few) */ " if few is not None else ""
    left += " AS _few" if few is Side.LEFT else ""
    right += " AS _few" if few is Side.RIGHT else ""
    return f"SELECT {hint}* FROM {left} {join} {right}{on}"


def _scanned(scan: Scan) -> str:
    sources, columns = (tuple(each) for each in zip(*scan.columns, strict=True)) if scan.columns else ((), ())
    weight = (WEIGHT,) if scan.weighs else ()
    return _renamed((*sources, *weight), (*columns, *weight))


def _renamed(sources: tuple[str, ...], columns: tuple[str, ...]) -> str:
    pairs = zip(columns, sources, strict=True)
    return _listed(tuple(Item(name, column(source)) for name, source in pairs))


def _listed(items: tuple[Item, ...]) -> str:
    listed = (
        item.value.sql if item.value == column(item.name) else f"{item.value.sql} AS {column(item.name).sql}"
        for item in items
    )
    return ", ".join(listed) or "1"
