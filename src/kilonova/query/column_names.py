"""Column names that Spark assigns to selected expressions without an alias.

Spark names an expression by its normalized text: `MIN(t.x)` is `min(x)`, `x+1` is `(x + 1)`, `COUNT(*)` is
`count(1)`. Names of windows, subqueries and functions that the parser knows under another name are not determined.
"""

from __future__ import annotations

import re

from sqlglot import exp

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.And: "AND",
    exp.Or: "OR",
}


class _Unknown(Exception):
    """Signal that the name of an expression cannot be determined."""


def name_columns(syntax: exp.Query, text: str) -> exp.Query:
    """Return a query with aliases for unnamed selected expressions: the names that Spark assigns, where known.

    Args:
        syntax: the query.
        text: its text, which shows the names used for functions that have several.

    >>> import sqlglot
    >>> text = "SELECT MIN(t.x), x+1, COUNT(*) FROM t"
    >>> name_columns(sqlglot.parse_one(text, dialect="spark"), text).sql("spark")
    'SELECT MIN(t.x) AS `min(x)`, x + 1 AS `(x + 1)`, COUNT(*) AS `count(1)` FROM t'
    """
    syntax = syntax.copy()
    for select in list(syntax.find_all(exp.Select)):
        for item in select.expressions:
            if item.output_name or item.is_star or isinstance(item, exp.Aliases):
                continue
            try:
                name = _name(item, text)
            except _Unknown:
                continue
            item.replace(exp.alias_(item.copy(), exp.to_identifier(name, quoted=True)))
    return syntax


def _name(node: exp.Expr, text: str) -> str:
    def of(part: exp.Expr) -> str:
        return _name(part, text)

    match node:
        case exp.Column():
            return node.name
        case exp.Literal() if node.is_string or re.fullmatch(r"\d+(\.\d+)?", node.name):
            return node.name
        case exp.Paren():
            return of(node.this)
        case exp.Null():
            return "NULL"
        case exp.Boolean():
            return str(node.this).lower()
        case exp.Neg():
            return f"(- {of(node.this)})"
        case exp.NEQ():
            return f"(NOT ({of(node.this)} = {of(node.expression)}))"
        case exp.Not() if isinstance(node.this, exp.Is):
            return f"({of(node.this.this)} IS NOT {of(node.this.expression)})"
        case exp.Not():
            return f"(NOT {of(node.this)})"
        case exp.Is():
            return f"({of(node.this)} IS {of(node.expression)})"
        case exp.In() if node.expressions:
            return f"({of(node.this)} IN ({', '.join(map(of, node.expressions))}))"
        case exp.Between():
            return f"between({of(node.this)}, {of(node.args['low'])}, {of(node.args['high'])})"
        case exp.Like():
            return f"{of(node.this)} LIKE {of(node.expression)}"
        case exp.DPipe():
            return f"concat({of(node.this)}, {of(node.expression)})"
        case exp.Cast() if not isinstance(node.this, exp.Literal) and "try_cast" not in text.lower():
            return f"CAST({of(node.this)} AS {node.to.sql('spark').upper().replace(', ', ',')})"
        case exp.Case():
            return _case(node, text)
        case exp.Filter():
            return f"{of(node.this)} FILTER (WHERE {of(node.expression.this)})"
        case exp.Distinct():
            return f"DISTINCT {', '.join(map(of, node.expressions))}"
        case exp.Star() if isinstance(node.parent, exp.Count):
            return "1"
        case _ if (sign := _BINARY.get(type(node))) is not None:
            return f"({of(node.this)} {sign} {of(node.expression)})"
        case exp.Func() if not node.args.get("position"):
            return _call(node, text)
        case _:
            raise _Unknown


def _case(node: exp.Case, text: str) -> str:
    given = node.this
    parts = []
    for branch in node.args["ifs"]:
        condition = branch.this if given is None else exp.EQ(this=given.copy(), expression=branch.this.copy())
        parts.append(f"WHEN {_name(condition, text)} THEN {_name(branch.args['true'], text)}")
    default = node.args.get("default")
    parts += [] if default is None else [f"ELSE {_name(default, text)}"]
    return f"CASE {' '.join(parts)} END"


def _call(node: exp.Func, text: str) -> str:
    """Return the name of a function call: the one function name that occurs in the text, its arguments as written."""
    known = [node.name] if isinstance(node, exp.Anonymous) else type(node).sql_names()
    written = [name for name in known if re.search(rf"\b{re.escape(name)}\s*\(", text, re.IGNORECASE)]
    if len(written) != 1 or written[0].lower() not in _PLAIN:
        raise _Unknown
    parts = [
        part
        for key, value in node.args.items()
        if key != "is_var_len_args"
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, exp.Expr)
    ]
    if isinstance(node, exp.Anonymous):
        parts = node.expressions
    return f"{written[0].lower()}({', '.join(_name(part, text) for part in parts)})"


_PLAIN = frozenset(
    """
    abs any_value approx_count_distinct avg ceil coalesce concat count count_if first floor greatest ifnull last
    least length lower ltrim max max_by mean min min_by nullif nvl round rtrim sqrt std stddev sum trim upper var_samp
    variance
    """.split()  # noqa: SIM905
)
"""Functions whose calls Spark names as written, with the arguments as written."""
