"""Syntax of a query, before names are resolved against the channels."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

from kilonova.errors import QueryError, closest_name
from kilonova.query.column_names import name_columns
from kilonova.query.expression_syntax import as_called
from kilonova.query.properties import Known

AGGREGATES = frozenset(
    """
    mode kurtosis skewness bool_and bool_or every some any histogram_numeric percentile bit_and bit_or bit_xor
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    mean std hll_sketch_agg hll_union_agg theta_sketch_agg theta_union_agg schema_of_variant_agg
    listagg string_agg collect_list collect_set count_min_sketch try_sum try_avg
    """.split()  # noqa: SIM905
)
"""Spark aggregate functions that the parser does not recognize as aggregates."""


class UnsupportedSql(Exception):
    """SQL construct that the tree has no operator for.

    Attributes:
        construct: the construct.
        advice: an alternative way to write it.
    """

    def __init__(self, construct: str, advice: str = "") -> None:
        super().__init__(construct)
        self.construct = construct
        self.advice = advice


def tables_of(text: str) -> tuple[str, ...]:
    """Return the tables that a query reads, without its own CTEs.

    Raises:
        QueryError: it cannot be parsed.
    """
    tree = syntax_of(text)
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found = (table.name for table in tree.find_all(exp.Table))
    return tuple(dict.fromkeys(name for name in found if name.lower() not in own))


def channels_of(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the tables that a query reads, under their registered names; matching is case-insensitive.

    Raises:
        QueryError: it cannot be parsed.

    >>> channels_of("SELECT * FROM ORDERS JOIN orders JOIN Other", {"Orders"})
    ('Orders', 'Other')
    """
    real = {name.lower(): name for name in known}
    return tuple(dict.fromkeys(real.get(table.lower(), table) for table in tables_of(text)))


def expanded(text: str, queries: Mapping[str, str]) -> str:
    """Return a query with the other queries that it reads, directly or indirectly, inlined as CTEs.

    Args:
        text: the query.
        queries: the other queries by name.

    Raises:
        QueryError: it cannot be parsed.
    """
    read = {name: queries[name] for name in channels_of(text, queries) if name in queries}
    if not read:
        return text
    syntax = syntax_of(text)
    own = [cte.copy() for cte in syntax.ctes]
    for name, query in read.items():
        syntax = syntax.with_(exp.to_identifier(name, quoted=True), as_=syntax_of(expanded(query, queries)))
    defined = syntax.find(exp.With)
    assert defined is not None
    defined.set("expressions", [*(cte for cte in defined.expressions if cte.alias in read), *own])
    return syntax.sql("spark")


def reading(text: str, names: Mapping[str, str]) -> str:
    """Return a query with some of its tables replaced by others.

    Args:
        text: the query.
        names: the replacement of each table.

    Raises:
        QueryError: it cannot be parsed.

    >>> reading("SELECT a.n, b.m FROM a JOIN b AS b ON a.k = b.k", {"a": "c"})
    'SELECT a.n, b.m FROM c AS a JOIN b AS b ON a.k = b.k'
    """
    syntax = syntax_of(text)
    own = {cte.alias.lower() for cte in syntax.find_all(exp.CTE)}
    instead = {name.lower(): other for name, other in names.items() if name.lower() not in own}
    for table in syntax.find_all(exp.Table):
        if table.name.lower() in instead:
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
            table.set("this", exp.to_identifier(instead[table.name.lower()]))
    return syntax.sql("spark")


def render_pretty(sql: str) -> str:
    """Return a query formatted for reading."""
    return sqlglot.parse_one(sql, dialect="spark").sql("spark", pretty=True)


def with_ports(text: str, known: Known) -> str:
    """Return a query with the channels that it reads as ports in braces, its own braces doubled, without comments.

    Raises:
        QueryError: it cannot be parsed, or there is no such channel.
    """
    syntax = syntax_of(text)
    own = {cte.alias.lower() for cte in syntax.find_all(exp.CTE)}
    names_ = {name.lower(): name for name in known}
    for table in syntax.find_all(exp.Table):
        if table.name.lower() in own:
            continue
        if table.name.lower() not in names_:
            raise QueryError(f"there is no channel {table.name}", hint=closest_name(table.name, list(known)))
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
        table.set("this", exp.to_identifier(f"\x02{names_[table.name.lower()]}\x03"))
    sql = syntax.sql("spark", comments=False).replace("{", "{{").replace("}", "}}")
    return sql.replace("`\x02", "{").replace("\x03`", "}").replace("\x02", "{").replace("\x03", "}")


def with_calls(syntax: exp.Query, columns: Collection[str]) -> exp.Query:
    """Return a query in which functions that Spark calls without parentheses have parentheses.

    Args:
        syntax: the query.
        columns: the names of the columns that it may read, in lower case; they take precedence over functions.

    >>> with_calls(syntax_of("SELECT user, t.user, current_time FROM t"), {"current_time"}).sql("spark")
    'SELECT USER(), t.user, current_time FROM t'
    """
    syntax = syntax.copy()
    taken = {*columns, *(alias.alias.lower() for alias in syntax.find_all(exp.Alias))}
    taken |= {column.name.lower() for alias in syntax.find_all(exp.TableAlias) for column in alias.columns}
    for column in list(syntax.find_all(exp.Column)):
        bare_name = not column.table and not column.this.args.get("quoted")
        if bare_name and column.name.lower() in {"user", "current_time"} - taken:
            column.replace(exp.Anonymous(this=column.name.upper()))
    return syntax


def selected_names(text: str) -> list[str]:
    """Return the names of a query's columns as written; an empty list if it selects a star.

    Raises:
        QueryError: it cannot be parsed.
    """
    return written_names(name_columns(syntax_of(text), text))


_QUOTED = re.compile(
    r"""--[^\n]*|/\*.*?\*/|`[^`]*`|\br'[^']*'|\br"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""",
    re.DOTALL | re.IGNORECASE,
)
_WITHIN = re.compile(r"""\\.|''|\"\"""", re.DOTALL)


def with_escaped_quotes(text: str) -> str:
    r"""Return SQL with quotes within strings escaped, as SQLGlot expects; Spark also accepts doubled quotes.

    >>> print(with_escaped_quotes("SELECT 'it''s', 'a' 'b', '' -- it''s"))
    SELECT 'it\'s', 'a' 'b', '' -- it''s
    """

    def escaped(found: re.Match[str]) -> str:
        literal = found[0]
        if literal[0] not in "'\"" or len(literal) == 2:
            return literal
        doubled = 2 * literal[0]
        inner = _WITHIN.sub(lambda each: f"\\{literal[0]}" if each[0] == doubled else each[0], literal[1:-1])
        return f"{literal[0]}{inner}{literal[0]}"

    return _QUOTED.sub(escaped, text)


def syntax_of(text: str) -> exp.Query:
    """Return the syntax tree of a query.

    Raises:
        QueryError: it cannot be parsed, or is no query.
    """
    try:
        statements = sqlglot.parse(with_escaped_quotes(text), dialect="spark")
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        where = f"line {first['line']}, column {first['col']}: " if first.get("line") else ""
        near = f" near {first['highlight']!r}" if first.get("highlight") else ""
        raise QueryError(
            f"the query cannot be parsed: {where}{first.get('description', error)}{near}",
            hint="Correct the query; it is one SELECT of Spark SQL",
        ) from None
    except sqlglot.errors.TokenError as error:
        raise QueryError(
            f"the query cannot be parsed: {error}", hint="Correct the query; it is one SELECT of Spark SQL"
        ) from None
    if len(statements) != 1 or statements[0] is None:
        raise QueryError("exactly one query is expected", hint="Write one SELECT, without a semicolon in between")
    if not isinstance(statements[0], exp.Query):
        raise QueryError("this is not a query", hint="Write a SELECT")
    for call in statements[0].find_all(exp.Extract, exp.Anonymous):
        _refuse_unknown_field(call, text)
    return as_called(statements[0])


_FIELDS = frozenset(
    """
    YEAR Y YEARS YR YRS YEAROFWEEK QUARTER QTR MONTH MON MONS MONTHS WEEK W WEEKS DAY D DAYS DAYOFWEEK DOW DAYOFWEEK_ISO
    DOW_ISO DOY HOUR H HOURS HR HRS MINUTE M MIN MINS MINUTES SECOND S SEC SECONDS SECS
    """.split()  # noqa: SIM905
)
"""Fields that Spark extracts from dates, times and intervals."""


def _refuse_unknown_field(call: exp.Expr, text: str) -> None:
    """Reject EXTRACT and DATE_PART of unknown fields: Spark's own error would refer to generated SQL."""
    if isinstance(call, exp.Extract):
        field = call.name
    elif call.name.lower() in ("date_part", "datepart") and call.expressions and call.expressions[0].is_string:
        field = call.expressions[0].name
    else:
        return
    if field.upper() not in _FIELDS:
        token = next(each for each in sqlglot.tokenize(text, dialect="spark") if each.text.upper() == field.upper())
        raise QueryError(
            f"Spark cannot extract {field}. Line: {token.line}, Col: {token.col - (token.end - token.start)}",
            column=field,
            hint="Extract DAYOFWEEK_ISO" if field.upper() == "ISODOW" else closest_name(field.upper(), sorted(_FIELDS)),
        )


def written_names(syntax: exp.Expr) -> list[str]:
    """Return the names of the result's columns as written, "" for no name; an empty list if it selects a star."""
    while isinstance(syntax, exp.SetOperation | exp.Subquery):
        syntax = syntax.this
    if not isinstance(syntax, exp.Select) or any(item.is_star for item in syntax.selects):
        return []
    return [item.output_name for item in syntax.selects]


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that AND combines.

    >>> [part.sql() for part in conjuncts(sqlglot.condition("a AND (b OR c) AND d"))]
    ['a', 'b OR c', 'd']
    """
    whole = condition.unnest()
    return [each for part in whole.flatten() for each in conjuncts(part)] if isinstance(whole, exp.And) else [whole]


def bare(part: exp.Expr) -> tuple[exp.Expr, bool]:
    """Return a condition without the NOTs around it, and whether they negate it."""
    negated = False
    part = part.unnest()
    while isinstance(part, exp.Not):
        negated, part = not negated, part.this.unnest()
    return part, negated


def plain(query: exp.Select) -> bool:
    """Return whether a SELECT only joins and filters."""
    parts = ("group", "having", "limit", "offset", "distinct", "qualify", "with", "with_")
    special = any(query.args.get(part) for part in parts)
    return not special and not has_aggregates(query) and not any(item.find(exp.Window) for item in query.selects)


def has_aggregates(query: exp.Select) -> bool:
    """Return whether the SELECT itself aggregates, disregarding subqueries and windows in it."""
    places = [*query.selects]
    if query.args.get("having"):
        places.append(query.args["having"])
    for place in places:
        for node in place.walk(prune=lambda item: isinstance(item, exp.Query)):
            if is_call(node) and not isinstance(node.parent, exp.Window):
                return True
    return False


def is_call(node: exp.Expr) -> bool:
    """Return whether a node is a call of an aggregate function."""
    if isinstance(node, exp.Filter):
        return is_call(node.this)
    if isinstance(node, exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        return is_call(node.this)
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES)


def unfiltered(node: exp.Expr) -> exp.Expr:
    """Return a call without its FILTER."""
    return node.this if isinstance(node, exp.Filter) else node


def outermost(holder: exp.Expr) -> list[exp.Expr]:
    """Return the outermost subqueries in an expression."""
    found = [
        node.parent if isinstance(node.parent, exp.Subquery) else node
        for node in holder.find_all(exp.Select, exp.SetOperation)
    ]
    return [node for node in found if not node.find_ancestor(exp.Select, exp.SetOperation)]


def require_one_column(query: exp.Expr) -> None:
    """Check that a subquery whose rows are values returns one column.

    Raises:
        QueryError: it returns several.
    """
    if isinstance(query, exp.Query) and len(query.selects) != 1:
        raise QueryError(
            f"a subquery returns {len(query.selects)} columns where one is expected", hint="Select one column"
        )


def by_counts(expression: exp.Expr) -> exp.Expr:
    """Return an expression in which EXISTS and IN are rewritten to compare the row counts of their subqueries.

    As in Spark, IN is never null: it is false where no row is certainly equal, and NOT IN where one may be equal.

    Args:
        expression: the expression, with its names resolved.

    Raises:
        UnsupportedSql: the rows of a subquery cannot be counted.
        QueryError: IN compares with several columns.

    >>> by_counts(sqlglot.condition("a OR EXISTS (SELECT b FROM t)")).sql()
    'a OR (SELECT COUNT(*) FROM t) > 0'
    >>> by_counts(sqlglot.condition("a OR x IN (SELECT b FROM t)")).sql()
    'a OR (SELECT COUNT(*) FROM t WHERE b = x) > 0'
    """
    holder = exp.Paren(this=expression.copy())
    for found in list(holder.find_all(exp.Exists, exp.In)):
        if found.find_ancestor(exp.Query) or not found.find(exp.Query):
            continue
        if isinstance(found, exp.In):
            if found.args.get("query") is not None:
                found.replace(_among(found))
        else:
            found.replace(_more(_counted(found.this, exp.Count(this=exp.Star()))))
    made: exp.Expr = holder.this
    return made


def _among(found: exp.In) -> exp.Expr:
    """Rewrite IN over a subquery: true if a row is equal; below NOT, if one may be equal."""
    query, given = found.args["query"].unnest(), found.this.unnest()
    if isinstance(given, exp.Tuple) or given.find(exp.Query) or not isinstance(query, exp.Select):
        raise UnsupportedSql(
            "IN over several columns or subqueries below OR or within an expression", "Use a UNION or a join"
        )
    require_one_column(query)
    query = _under_other_aliases(query, {each.table for each in given.find_all(exp.Column)})
    value, every = unaliased(query.selects[0]), exp.Count(this=exp.Star())
    alike = _more(_counted(query, every, exp.EQ(this=value.copy(), expression=given.copy())))
    if not _negated(found):
        return alike
    unknown = _more(_counted(query, exp.Sub(this=every.copy(), expression=exp.Count(this=value.copy()))))
    without = exp.and_(exp.Is(this=given.copy(), expression=exp.Null()), _more(_counted(query, every)))
    return exp.paren(exp.or_(alike, unknown, without))


def _under_other_aliases(query: exp.Select, taken: Collection[str]) -> exp.Select:
    """Rename table aliases that clash with some names, so that expressions over those can be used in the query."""
    query = query.copy()
    sources = list(query.find_all(exp.Table, exp.Subquery, exp.Lateral))
    used = {*taken, *(each.alias_or_name for each in sources)}
    for name in sorted({each.alias_or_name for each in sources if each.parent_select is query} & {*taken}):
        other = next(each for each in (f"{name}_{number}" for number in itertools.count(2)) if each not in used)
        used.add(other)
        for source in sources:
            if source.alias_or_name == name:
                given = source.args.get("alias")
                columns = given.columns if isinstance(given, exp.TableAlias) else []
                source.set("alias", exp.TableAlias(this=exp.to_identifier(other), columns=columns))
        for column in query.find_all(exp.Column):
            if column.table == name:
                column.set("table", exp.to_identifier(other))
    return query


def _negated(part: exp.Expr) -> bool:
    """Return whether a condition is below an odd number of NOTs."""
    odd, above = False, part.parent
    while isinstance(above, exp.And | exp.Or | exp.Not | exp.Paren):
        odd, above = odd != isinstance(above, exp.Not), above.parent
    return odd


def _counted(query: exp.Expr, count: exp.Expr, *conditions: exp.Expr) -> exp.Subquery:
    """Return a scalar subquery that counts the rows of another."""
    query = query.unnest().copy()
    if not isinstance(query, exp.Select) or not plain(query):
        raise UnsupportedSql("a subquery with groups, DISTINCT or LIMIT below OR or within an expression", "Use a join")
    query.set("order", None)
    return query.select(count.copy(), append=False).where(*conditions).subquery(copy=False)


def _more(count: exp.Expr) -> exp.Expr:
    return exp.GT(this=count, expression=exp.Literal.number(0))


def refuses_null(condition: exp.Expr, subquery: exp.Expr) -> bool:
    """Return whether a condition is a comparison that is not true where the subquery in it gives null."""
    compared = condition.unnest()
    if not isinstance(compared, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.NEQ):
        return False
    node = subquery.parent
    while isinstance(node, exp.Paren | exp.Mul | exp.Add | exp.Sub | exp.Div | exp.Neg):
        node = node.parent
    return node is compared


def unaliased(item: exp.Expr) -> exp.Expr:
    """Return a selected expression without its alias."""
    return item.this if isinstance(item, exp.Alias) else item


def without_generators(value: exp.Expr) -> exp.Expr:
    """Return a selected expression if it contains no generator.

    Raises:
        UnsupportedSql: it contains one.
    """
    if value.find(exp.Explode, exp.Posexplode, exp.Inline):
        raise UnsupportedSql("a generator beside other columns", "Use LATERAL VIEW")
    return value


def limit_of(syntax: exp.Expr) -> tuple[int | None, int]:
    """Return LIMIT and OFFSET.

    Raises:
        UnsupportedSql: one is not a number.
    """
    numbers: list[int | None] = []
    for part in ("limit", "offset"):
        found = syntax.args.get(part)
        value = found.expression if found is not None else None
        if value is not None and not (isinstance(value, exp.Literal) and value.name.isdigit()):
            raise UnsupportedSql(f"{part.upper()} that is not a number")
        numbers.append(None if value is None else int(value.name))
    return numbers[0], numbers[1] or 0


def grouping_sets(group: exp.Expr | None) -> list[list[exp.Expr]]:
    """Return the sets of expressions to group by, in order.

    >>> group = sqlglot.parse_one("SELECT 1 FROM t GROUP BY ROLLUP (a, b)", dialect="spark").args["group"]
    >>> [[item.sql() for item in some] for some in grouping_sets(group)]
    [['a', 'b'], ['a'], []]
    >>> group = sqlglot.parse_one("SELECT 1 FROM t GROUP BY a, b WITH ROLLUP", dialect="spark").args["group"]
    >>> [[item.sql() for item in some] for some in grouping_sets(group)]
    [['a', 'b'], ['a'], []]
    """
    parts: list[exp.Expr] = [] if group is None else group.expressions
    if group is not None:
        for named in group.args.get("grouping_sets") or ():  # GROUP BY a, b GROUPING SETS ((a), (b))
            parts = [named]
        for over_all in (*(group.args.get("rollup") or ()), *(group.args.get("cube") or ())):  # GROUP BY a, b WITH CUBE
            parts = [over_all.__class__(expressions=parts)]
    sets: list[list[exp.Expr]] = [[]]
    for part in parts:
        sets = [[*one, *other] for one in sets for other in _sets(part)]
    return sets


def _sets(part: exp.Expr) -> list[list[exp.Expr]]:
    items = [_listed(item) for item in part.expressions]
    match part:
        case exp.Rollup():
            return [list(itertools.chain.from_iterable(items[:n])) for n in range(len(items), -1, -1)]
        case exp.Cube():
            return [
                list(itertools.chain.from_iterable(some))
                for n in range(len(items), -1, -1)
                for some in itertools.combinations(items, n)
            ]
        case exp.GroupingSets():
            return [one for item in part.expressions for one in _sets(item)]
        case _:
            return [_listed(part)]


def _listed(item: exp.Expr) -> list[exp.Expr]:
    return list(item.expressions) if isinstance(item, exp.Tuple) else [item.unnest()]
