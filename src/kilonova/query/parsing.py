"""Parser from Spark SQL text to a tree, with names resolved against the channels.

Subqueries become joins: EXISTS and IN semi-joins, their negations anti-joins, a scalar subquery a join with the
groups that it aggregates.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.qualify import qualify

from kilonova.errors import QueryError, closest_name
from kilonova.model.schema import RESERVED
from kilonova.query.column_names import name_columns
from kilonova.query.expression import Scalar, and_, column, eq, null_safe_eq
from kilonova.query.expression_syntax import node_of, parse, scalar_of
from kilonova.query.properties import Known, equi_pairs, non_null, present, single, unique
from kilonova.query.rules import OF_PARSED, simplify
from kilonova.query.syntax import (
    UnsupportedSql,
    bare,
    by_counts,
    conjuncts,
    grouping_sets,
    has_aggregates,
    is_call,
    limit_of,
    outermost,
    plain,
    refuses_null,
    require_one_column,
    syntax_of,
    tables_of,
    unaliased,
    unfiltered,
    with_calls,
    without_generators,
    written_names,
)
from kilonova.query.tree import (
    Aggregate,
    Explode,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Order,
    Projection,
    Scan,
    Top,
    Union,
    Unit,
    Window,
    kept,
    names,
)


def parse_query(text: str, known: Known) -> Node:
    """Parse a query into a tree whose columns have the names of the result; ORDER BY without LIMIT is dropped.

    Args:
        text: Spark SQL.
        known: the channels that it may read.

    Raises:
        QueryError: it is no query, or names a channel or column that does not exist.
        UnsupportedSql: it uses a construct that the tree has no operator for.
    """
    syntax = name_columns(syntax_of(text), text)
    wanted = written_names(syntax)
    real = {name.lower(): name for name in known}
    schema: dict[str, object] = {}
    columns: set[str] = set()
    for table in tables_of(text):
        if table.lower() not in real:
            raise QueryError(f"there is no channel {table}", hint=closest_name(table, list(known)))
        types = known[real[table.lower()]].types
        if not types:
            raise UnsupportedSql(f"{table}, whose columns are not known before it has run")
        schema[table.lower()] = {name.lower(): kind or "string" for name, kind in types.items()}
        columns |= {name.lower() for name in types}
    syntax = with_calls(syntax, columns)
    try:
        resolved = qualify(syntax, schema=schema, dialect="spark", quote_identifiers=False, identify=False)
    except OptimizeError as error:
        raise _unknown_column(str(error), known, tables_of(text)) from None
    reader = _Reader(known)
    node, outputs = reader.query(resolved, {}, None)
    if isinstance(node, Top) and node.limit is None and not node.offset:
        node = node.input
    visible = wanted if len(wanted) == len(outputs) else [name for name, _ in outputs]
    visible = [given or name for given, (name, _) in zip(visible, outputs, strict=True)]
    if len({name.lower() for name in visible}) < len(visible):
        twice = next(name for name in visible if sum(name.lower() == other.lower() for other in visible) > 1)
        raise QueryError(f"two columns of the result are called {twice}", column=twice, hint="Give one an alias")
    items = tuple(Item(name, column(internal)) for name, (_, internal) in zip(visible, outputs, strict=True))
    return simplify(OF_PARSED, Projection(node, items))


def _unknown_column(message: str, known: Known, tables: tuple[str, ...]) -> QueryError:
    first = message.splitlines()[0]
    quoted = first.split("'")[1] if first.count("'") >= 2 else first.partition("Unknown column: ")[2]
    name = quoted.split(".")[-1].strip('"`')
    columns = [item for table, facts in known.items() if table in tables for item in facts.types]
    if not name:
        return QueryError(f"the query cannot be resolved: {first.rstrip('.')}", hint="Correct the query")
    return QueryError(f"there is no column {name}", column=name, hint=closest_name(name, columns))


Outputs = list[tuple[str, str]]
"""Columns of a query's result: the visible name, and the name in the tree."""


@dataclass
class _Scope:
    """Columns that the expressions of one SELECT can refer to."""

    outer: _Scope | None
    columns: dict[tuple[str, str], str] = field(default_factory=dict)

    def find(self, table: str, name: str) -> str | None:
        found = self.columns.get((table.lower(), name.lower()))
        if found is None and not table:
            matches = {own for (_, each), own in self.columns.items() if each == name.lower()}
            found = matches.pop() if len(matches) == 1 else None
        if found is None and self.outer is not None:
            return self.outer.find(table, name)
        return found

    def add(self, alias: str, outputs: Outputs) -> None:
        for visible, internal in outputs:
            self.columns[alias.lower(), visible.lower()] = internal


Ctes = Mapping[str, tuple[exp.Expr, "Ctes"]]


@dataclass(frozen=True)
class _Body:
    """FROM and WHERE of a SELECT, with the conditions that refer to an outer query."""

    node: Node
    scope: _Scope
    free: tuple[Scalar, ...]


class _Reader:
    """Translator of the resolved syntax of one query into a tree."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._channels = {name.lower(): name for name in known}
        self._taken: set[str] = set(RESERVED)  # intermediate results may be stored

    def name(self, wanted: str) -> str:
        """Return a name that is unique in the tree."""
        for number in itertools.count(1):
            name = wanted if number == 1 else f"{wanted}_{number}"
            if name.lower() not in self._taken:
                self._taken.add(name.lower())
                return name
        raise AssertionError("unreachable")

    def query(self, syntax: exp.Expr, ctes: Ctes, outer: _Scope | None) -> tuple[Node, Outputs]:
        """Return the tree of a query, and its columns."""
        ctes = self._with(syntax, ctes)
        match syntax:
            case exp.Subquery():
                node, outputs = self.query(syntax.this, ctes, outer)
            case exp.SetOperation():
                node, outputs = self._combined(syntax, ctes, outer)
            case exp.Select():
                body = self._body(syntax, ctes, outer)
                if body.free:
                    raise UnsupportedSql("a correlated subquery in this place", "Write it as a join")
                return self._selected(syntax, body.node, body.scope, ctes)
            case _:
                raise UnsupportedSql(f"{syntax.key.upper()} as a query")
        return self._ordered(syntax, node, _outputs_scope(outputs, outer)), outputs

    def _with(self, syntax: exp.Expr, ctes: Ctes) -> Ctes:
        found = syntax.args.get("with_") or syntax.args.get("with")
        if found is None:
            return ctes
        if found.args.get("recursive"):
            raise UnsupportedSql("WITH RECURSIVE", "Only full recomputation is possible")
        for cte in found.expressions:
            ctes = {**ctes, cte.alias.lower(): (cte.this, ctes)}
        return ctes

    # FROM and WHERE

    def _body(self, syntax: exp.Select, ctes: Ctes, outer: _Scope | None) -> _Body:
        scope = _Scope(outer)
        source = syntax.args.get("from_") or syntax.args.get("from")
        node: Node = Unit() if source is None else self._source(source.this, scope, ctes)
        for joined in syntax.args.get("joins") or ():
            node = self._joined(node, joined, scope, ctes)
        for lateral in syntax.args.get("laterals") or ():
            node = self._exploded(node, lateral, scope)
        where = syntax.args.get("where")
        free: list[Scalar] = []
        if where is not None:
            node, free = self._filtered(node, where.this, scope, ctes)
        return _Body(simplify(OF_PARSED, node), scope, tuple(free))

    def _source(self, syntax: exp.Expr, scope: _Scope, ctes: Ctes) -> Node:
        alias = syntax.alias_or_name
        for part in ("pivots", "sample", "version", "when"):
            if syntax.args.get(part):
                raise UnsupportedSql(part.upper())
        if isinstance(syntax, exp.Table) and syntax.name.lower() in ctes:
            body, around = ctes[syntax.name.lower()]
            node, outputs = self.query(body, around, None)
            cte_alias = body.parent.args.get("alias") if body.parent is not None else None
            outputs = _renamed(outputs, cte_alias)
        elif isinstance(syntax, exp.Table):
            channel = self._channels[syntax.name.lower()]
            columns = tuple((name, self.name(name)) for name in self._known[channel].types)
            node, outputs = Scan(channel, columns), list(columns)
        elif isinstance(syntax, exp.Subquery):
            node, outputs = self.query(syntax.this, self._with(syntax, ctes), None)
            node = _unordered(node)
        else:
            raise UnsupportedSql(f"{syntax.key.upper()} in FROM")
        table_alias = syntax.args.get("alias")
        scope.add(alias, _renamed(outputs, table_alias))
        for joined in syntax.args.get("joins") or ():
            node = self._joined(node, joined, scope, ctes)
        return node

    def _joined(self, left: Node, syntax: exp.Join, scope: _Scope, ctes: Ctes) -> Node:
        if isinstance(syntax.this, exp.Lateral):
            return self._exploded(left, syntax.this, scope)
        side, kind = (syntax.side or "").upper(), (syntax.kind or "").upper()
        if syntax.method or syntax.args.get("using"):
            raise UnsupportedSql(f"{syntax.method or 'USING'} in a join", "Write the condition with ON")
        right_scope = _Scope(None)
        right = self._source(syntax.this, right_scope, ctes)
        scope.columns |= right_scope.columns
        on = syntax.args.get("on")
        if on is not None and on.find(exp.Query):
            raise UnsupportedSql("a subquery in the condition of a join", "Join with it first")
        condition = None if on is None else self._expression(on, scope)
        if condition is not None and condition.sql.upper() == "TRUE":
            condition = None
        match side, kind:
            case "", "" | "INNER" | "CROSS":
                return Join(left, right, Kind.INNER, condition)
            case "LEFT", "" | "OUTER":
                return Join(left, right, Kind.LEFT, condition)
            case "RIGHT", "" | "OUTER":
                return Join(right, left, Kind.LEFT, condition)
            case "FULL", "" | "OUTER":
                return Join(left, right, Kind.FULL, condition)
            case "LEFT" | "", "SEMI":
                return Join(left, right, Kind.SEMI, condition)
            case "LEFT" | "", "ANTI":
                return Join(left, right, Kind.ANTI, condition)
            case _:
                raise UnsupportedSql(f"{side} {kind} JOIN".strip())

    def _exploded(self, node: Node, syntax: exp.Lateral, scope: _Scope) -> Node:
        alias = syntax.args["alias"]
        wanted = [item.name for item in alias.columns] or ["col"]
        if syntax.args.get("view") is None and not isinstance(syntax.this, exp.Explode | exp.Posexplode | exp.Inline):
            raise UnsupportedSql("LATERAL with a subquery", "Use LATERAL VIEW explode(…), or a join")
        columns = tuple(self.name(name) for name in wanted)
        generator = self._expression(syntax.this, scope)
        scope.add(alias.name, list(zip(wanted, columns, strict=True)))
        return Explode(node, generator, bool(syntax.args.get("outer")), columns)

    def _filtered(self, node: Node, condition: exp.Expr, scope: _Scope, ctes: Ctes) -> tuple[Node, list[Scalar]]:
        free: list[Scalar] = []
        for part in sorted(conjuncts(condition), key=lambda part: part.find(exp.Query) is not None):
            inner, negated = bare(part)
            if isinstance(inner, exp.Exists):
                node = self._exists(node, inner, negated, scope, ctes)
            elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
                node = self._in(node, inner, negated, scope, ctes)
            else:
                node, replaced = self._scalars(node, part, scope, ctes, condition=True)
                expression = self._expression(replaced, scope)
                if expression.columns <= set(names(node)):
                    node = Filter(node, expression)
                else:
                    free.append(expression)
        return node, free

    def _exists(self, node: Node, syntax: exp.Exists, negated: bool, scope: _Scope, ctes: Ctes) -> Node:
        kind = Kind.ANTI if negated else Kind.SEMI
        query = syntax.this.unnest() if isinstance(syntax.this, exp.Subquery) else syntax.this
        ctes = self._with(query, ctes)
        if isinstance(query, exp.Select) and plain(query):
            body = self._body(query, ctes, scope)
            self._inside(body.free, node, body.node)
            return Join(node, body.node, kind, and_(body.free))
        inner, _ = self.query(query, ctes, None)
        return Join(node, inner, kind, None)

    def _in(self, node: Node, syntax: exp.In, negated: bool, scope: _Scope, ctes: Ctes) -> Node:
        query = syntax.args["query"].unnest()
        ctes = self._with(query, ctes)
        free: tuple[Scalar, ...] = ()
        if isinstance(query, exp.Select) and plain(query):
            body = self._body(query, ctes, scope)
            inner, free = body.node, body.free
            values = tuple(self._expression(unaliased(item), body.scope) for item in query.selects)
            self._inside(free, node, inner)
        else:
            inner, outputs = self.query(query, ctes, None)
            values = tuple(column(internal) for _, internal in outputs)
        given = syntax.this.unnest()
        node, given = self._scalars(node, given, scope, ctes)
        wanted = tuple(
            self._expression(item, scope) for item in (given.expressions if isinstance(given, exp.Tuple) else (given,))
        )
        if len(wanted) != len(values):
            raise QueryError(
                "IN compares a different number of columns", hint="Compare as many columns as the subquery returns"
            )
        if not all(item.columns <= set(names(node)) for item in wanted):
            raise UnsupportedSql("IN with a column of an outer query")
        conditions = [eq(one, other) for one, other in zip(wanted, values, strict=True)]
        if negated:
            sure = non_null(node, self._known) | non_null(inner, self._known)
            conditions = [
                condition if one.name in sure and other.name in sure else _perhaps(condition)
                for condition, one, other in zip(conditions, wanted, values, strict=True)
            ]
        return Join(node, inner, Kind.ANTI if negated else Kind.SEMI, and_((*conditions, *free)))

    def _scalars(
        self, node: Node, syntax: exp.Expr, scope: _Scope, ctes: Ctes, *, condition: bool = False
    ) -> tuple[Node, exp.Expr]:
        """Join with the scalar subqueries in an expression, and replace them by references to their values.

        Rows for which it is not true may be left out where it is a condition.
        """
        if not syntax.find(exp.Query):
            return node, syntax
        holder = exp.Paren(this=by_counts(syntax))
        for subquery in outermost(holder):
            refuses = condition and refuses_null(holder.this, subquery)
            node, value = self._scalar(node, subquery, scope, ctes, refuses)
            subquery.replace(value)
        return node, holder.this

    def _scalar(
        self, node: Node, subquery: exp.Expr, scope: _Scope, ctes: Ctes, refuses: bool
    ) -> tuple[Node, exp.Expr]:
        query = subquery.unnest()
        require_one_column(query)
        ctes = self._with(query, ctes)
        if not isinstance(query, exp.Select) or query.args.get("group") or not has_aggregates(query):
            return self._looked_up(node, query, scope, ctes, refuses)
        body = self._body(query, ctes, scope)
        item = unaliased(query.selects[0])
        may_be_none = any(query.args.get(part) for part in ("having", "limit", "offset", "qualify"))
        if not body.free:
            inner, outputs = self._selected(query, body.node, body.scope, ctes)
            kind = Kind.LEFT if may_be_none and not refuses else Kind.INNER
            return Join(node, inner, kind, None), _internal(outputs[0][1])
        if may_be_none:
            raise UnsupportedSql("a correlated scalar subquery with HAVING or LIMIT", "Use CASE, or write it as a join")
        self._inside(body.free, node, body.node)
        calls: list[Item] = []
        value = self._called(item.copy(), body.scope, {}, calls)
        below, pairs = self._correlated(node, body)
        keys = tuple(Item(self.name("_key"), one) for one, _ in pairs)
        named, mark = Item(self.name("_value"), value), Item(self.name("_found"), parse("1"))
        grouped = Aggregate(below, keys, tuple(calls))
        empty = value.with_columns({call.name: _of_nothing(call.value) for call in calls})
        alike = null_safe_eq if below is not body.node else eq
        on = and_(tuple(alike(column(key.name), other) for key, (_, other) in zip(keys, pairs, strict=True)))
        inner = Projection(grouped, (*kept(tuple(key.name for key in keys)), named, mark))
        if _null_of_null(empty):
            return Join(node, inner, Kind.INNER if refuses else Kind.LEFT, on), _internal(named.name)
        chosen = exp.Case().when(f"{column(mark.name).sql} IS NULL", node_of(empty), dialect="spark")
        return Join(node, inner, Kind.LEFT, on), chosen.else_(_internal(named.name))

    def _looked_up(
        self, node: Node, query: exp.Expr, scope: _Scope, ctes: Ctes, refuses: bool
    ) -> tuple[Node, exp.Expr]:
        """Join with a scalar subquery that has at most one row by its keys or LIMIT, and refer to its value."""
        on = None
        if isinstance(query, exp.Select) and plain(query):
            body = self._body(query, ctes, scope)
            self._inside(body.free, node, body.node)
            found, outputs = self._selected(query, body.node, body.scope, ctes)
            inner = _unordered(found)
            if not isinstance(inner, Projection) or not all(
                i.value.columns <= set(names(inner.input)) for i in inner.items
            ):
                raise UnsupportedSql(
                    "a scalar subquery that selects columns of the query around it", "Write it as a join"
                )
            on = and_(body.free)
            met = {other.name for _, other in equi_pairs(on, frozenset(names(node)), frozenset(names(body.node)))}
            one = single(body.node, self._known) or any(met.issuperset(key) for key in unique(body.node, self._known))
            inner = Projection(inner.input, (*inner.items, *kept(names(body.node)))) if body.free else inner
        else:
            inner, outputs = self.query(query, ctes, None)
            one = single(inner, self._known)
        if not one:
            raise UnsupportedSql("a scalar subquery that may have several rows", "Aggregate its value, or write a join")
        sure = refuses or (on is None and present(inner))
        return Join(node, inner, Kind.INNER if sure else Kind.LEFT, on), _internal(outputs[0][1])

    def _correlated(self, node: Node, body: _Body) -> tuple[Node, list[tuple[Scalar, Scalar]]]:
        """Return the rows of a correlated subquery, and the pairs of expressions that relate them to the outer query.

        Where the correlation is more than equalities, the subquery is joined with the distinct values of the outer
        query.
        """
        inside = frozenset(names(body.node))
        pairs: list[tuple[Scalar, Scalar]] = []
        for condition in body.free:
            found = node_of(condition).unnest()
            sides = (scalar_of(found.this), scalar_of(found.expression)) if isinstance(found, exp.EQ) else None
            if sides and sides[0].columns <= inside and not sides[1].columns & inside:
                pairs.append(sides)
            elif sides and sides[1].columns <= inside and not sides[0].columns & inside:
                pairs.append((sides[1], sides[0]))
        if len(pairs) == len(body.free):
            return body.node, pairs
        outer = sorted(frozenset().union(*(condition.columns for condition in body.free)) - inside)
        values = tuple(Item(self.name("_outer"), column(name)) for name in outer)
        renamed = {name: column(item.name) for name, item in zip(outer, values, strict=True)}
        on = and_(tuple(condition.with_columns(renamed) for condition in body.free))
        met = Join(Aggregate(node, values, ()), body.node, Kind.INNER, on)
        return met, [(column(item.name), column(name)) for name, item in zip(outer, values, strict=True)]

    def _inside(self, free: tuple[Scalar, ...], node: Node, inner: Node) -> None:
        reach = set(names(node)) | set(names(inner))
        if any(not condition.columns <= reach for condition in free):
            raise UnsupportedSql("a subquery that refers to a query further out than the next", "Write it as a join")

    # SELECT and what follows

    def _selected(self, syntax: exp.Select, node: Node, scope: _Scope, ctes: Ctes) -> tuple[Node, Outputs]:
        for part in ("pivots", "sample", "cluster", "distribute", "sort", "match", "connect"):
            if syntax.args.get(part):
                raise UnsupportedSql(part.upper())
        items = [(item.alias_or_name, unaliased(item).unnest()) for item in syntax.selects]
        having, qualifying = syntax.args.get("having"), syntax.args.get("qualify")
        group = syntax.args.get("group")
        if group is not None or having is not None or has_aggregates(syntax):
            return self._grouped(syntax, items, node, scope, ctes)
        outputs: Outputs = []
        chosen: list[Item] = []
        if len(items) == 1 and isinstance(items[0][1], exp.Explode):
            generator = self._expression(items[0][1], scope)
            name = self.name(items[0][0] or "col")
            node = Explode(node, generator, False, (name,))
            return self._finished(syntax, node, [(items[0][0] or "col", name)], scope)
        values = [(name, without_generators(value)) for name, value in items]
        node, values = self._joined_scalars(node, values, scope, ctes)
        extra = [self._expression(qualifying.this, scope)] if qualifying is not None else []
        node, expressions = self._windows(node, [*(self._expression(value, scope) for _, value in values), *extra])
        if extra:
            node = Filter(node, expressions.pop())
        for (name, _), expression in zip(values, expressions, strict=True):
            internal = self.name(name or "_c")
            chosen.append(Item(internal, expression))
            outputs.append((name, internal))
        return self._finished(syntax, node, outputs, scope, tuple(chosen))

    def _joined_scalars(
        self, node: Node, values: list[tuple[str, exp.Expr]], scope: _Scope, ctes: Ctes
    ) -> tuple[Node, list[tuple[str, exp.Expr]]]:
        replaced = []
        for name, value in values:
            node, value = self._scalars(node, value, scope, ctes)
            replaced.append((name, value))
        return node, replaced

    def _grouped(
        self, syntax: exp.Select, items: list[tuple[str, exp.Expr]], node: Node, scope: _Scope, ctes: Ctes
    ) -> tuple[Node, Outputs]:
        group = syntax.args.get("group")
        if group is not None and group.args.get("all"):
            group = exp.Group(expressions=[value.copy() for _, value in items if not value.find(exp.AggFunc)])
        sets = grouping_sets(group)
        which = self.name("_set")
        keys: list[Item] = []
        listed = group.expressions if group is not None and group.args.get("grouping_sets") else []
        for key in dict.fromkeys(self._expression(item, scope) for item in itertools.chain(listed, *sets)):
            keys.append(Item(self.name(key.name or "_key"), key))
        by_text = {key.value.sql: key.name for key in keys}
        calls: list[Item] = []
        having, qualifying = syntax.args.get("having"), syntax.args.get("qualify")
        scalars: list[tuple[exp.Expr, exp.Expr]] = []
        chosen_by_set = [{self._expression(item, scope).sql for item in chosen} for chosen in sets]
        aliases = {name.lower(): value for name, value in reversed(items)}

        def called(value: exp.Expr, aliases: Mapping[str, exp.Expr] | None = None) -> Scalar:
            value = self._told_apart(_unnamed(value.copy(), aliases or {}), scope, list(by_text), chosen_by_set, which)
            return self._called(value, scope, by_text, calls, scalars)

        values = [called(without_generators(value)) for _, value in items]
        conditions = [called(part) for part in (conjuncts(having.this) if having is not None else ())]
        extra = [called(qualifying.this, aliases)] if qualifying is not None else []
        sorting = syntax.args["order"].expressions if syntax.args.get("order") else []
        order = [called(item.this, aliases) for item in sorting]
        node = self._aggregated(node, keys, calls, chosen_by_set, which)
        marks: dict[str, Scalar] = {}
        key_of = {key.value.name: key.name for key in keys}
        around = _Scope(None, {place: key_of[own] for place, own in scope.columns.items() if own in key_of})
        for placeholder, subquery in scalars:
            node, found = self._scalar(node, subquery, around, ctes, False)
            marks[placeholder.name] = scalar_of(found)
        for condition in conditions:
            node = Filter(node, condition.with_columns(marks))
        node, expressions = self._windows(node, [value.with_columns(marks) for value in (*values, *extra, *order)])
        chosen, outputs = [], []
        for (name, _), expression in zip(items, expressions, strict=False):
            internal = self.name(name or "_c")
            chosen.append(Item(internal, expression))
            outputs.append((name, internal))
        if extra:
            node = Filter(node, expressions[len(items)])
        by_value = {item.value: column(item.name) for item in chosen}
        ordered_by = expressions[len(items) + len(extra) :]
        ordering = tuple(_ordering(by_value.get(v, v), item) for v, item in zip(ordered_by, sorting, strict=True))
        return self._finished(syntax, node, outputs, scope, tuple(chosen), ordering)

    def _aggregated(self, node: Node, keys: list[Item], calls: list[Item], sets: list[set[str]], which: str) -> Node:
        """Return groups by each of several sets of keys, with the number of the set as an additional key `which`."""
        if len(sets) == 1 and all(key.value.sql in sets[0] for key in keys):
            return Aggregate(node, tuple(keys), tuple(calls))
        number = self.name("_number")
        numbers = ", ".join(map(str, range(len(sets))))
        node = Explode(node, parse(f"EXPLODE(ARRAY({numbers}))"), False, (number,))
        grouped = []
        for key in keys:
            holding = ", ".join(str(place) for place, chosen in enumerate(sets) if key.value.sql in chosen) or "NULL"
            value = f"CASE WHEN {column(number).sql} IN ({holding}) THEN {key.value.sql} END"
            grouped.append(Item(key.name, parse(value)))
        return Aggregate(node, (*grouped, Item(which, column(number))), tuple(calls))

    def _told_apart(
        self, value: exp.Expr, scope: _Scope, keys: list[str], sets: list[set[str]], which: str
    ) -> exp.Expr:
        """Return an expression in which GROUPING and GROUPING_ID are computed from the number of the set of keys."""
        holder = exp.Paren(this=value.copy())
        for call in list(holder.find_all(exp.Grouping, exp.GroupingId)):
            asked = [self._expression(item, scope).sql for item in call.expressions]
            if len(sets) == 1 or not set(asked) <= set(keys):
                raise QueryError(
                    f"{call.sql('spark')} does not name a grouping key of several grouping sets",
                    hint="Group by ROLLUP, CUBE or GROUPING SETS of its arguments",
                )
            bits = ["".join(str(int(key not in chosen)) for key in asked or keys) for chosen in sets]
            kind = "TINYINT" if isinstance(call, exp.Grouping) else "BIGINT"
            branches = " ".join(f"WHEN {place} THEN {int(each, 2)}" for place, each in enumerate(bits))
            case = node_of(parse(f"CAST(CASE {column(which).sql} {branches} END AS {kind})"))
            for each in case.find_all(exp.Column):
                each.set("marked", True)
            call.replace(case)
        told_apart: exp.Expr = holder.this
        return told_apart

    def _called(
        self,
        syntax: exp.Expr,
        scope: _Scope,
        keys: Mapping[str, str],
        calls: list[Item],
        scalars: list[tuple[exp.Expr, exp.Expr]] | None = None,
    ) -> Scalar:
        """Return an expression over groups, with keys and aggregates replaced by their columns."""
        holder = exp.Paren(this=syntax)
        for subquery in outermost(holder):
            if scalars is None:
                raise UnsupportedSql("a subquery within a subquery's aggregate")
            if subquery.find_ancestor(exp.Exists, exp.In):
                raise UnsupportedSql(
                    "EXISTS or IN with a subquery beside groups", "Select from the groups, and filter them"
                )
            placeholder = exp.column(exp.to_identifier(self.name("_scalar"), quoted=True))
            placeholder.set("marked", True)
            scalars.append((placeholder, subquery.copy()))
            subquery.replace(placeholder)
        self._replace(holder, scope, keys, calls)
        return scalar_of(holder.this)

    def _replace(self, parent: exp.Expr, scope: _Scope, keys: Mapping[str, str], calls: list[Item]) -> None:
        for child in list(parent.iter_expressions()):
            if isinstance(child, exp.Column) and child.args.get("marked"):
                continue
            if isinstance(child, exp.Condition):
                try:
                    text = self._expression(child, scope).sql
                except (QueryError, UnsupportedSql):
                    text = ""
                if text in keys:
                    child.replace(_internal(keys[text]))
                    continue
            if is_call(child) and not isinstance(parent, exp.Window):
                value = self._expression(child, scope)
                call = next((item for item in calls if item.value == value), None)
                if call is None:
                    call = Item(self.name(f"_{child.key if not isinstance(child, exp.Filter) else 'agg'}"), value)
                    calls.append(call)
                child.replace(_internal(call.name))
                continue
            if isinstance(child, exp.Column):
                internal = scope.find(child.table, child.name)
                raise QueryError(
                    f"the column {child.name} is neither grouped by nor aggregated",
                    column=child.name if internal else None,
                    hint="Group by it, or aggregate it",
                )
            self._replace(child, scope, keys, calls)

    def _windows(self, node: Node, expressions: list[Scalar]) -> tuple[Node, list[Scalar]]:
        """Return a tree that computes the window functions, and the expressions over their columns."""
        by_partition: dict[tuple[Scalar, ...], list[Item]] = {}
        replaced = []
        known: dict[str, str] = {}
        for expression in expressions:
            syntax = exp.Paren(this=node_of(expression))
            for window in [item for item in syntax.find_all(exp.Window) if not item.find_ancestor(exp.Window)]:
                text = window.sql("spark")
                if text not in known:
                    known[text] = self.name("_window")
                    partition = tuple(scalar_of(item) for item in window.args.get("partition_by") or ())
                    by_partition.setdefault(partition, []).append(Item(known[text], parse(text)))
                window.replace(_internal(known[text]))
            replaced.append(scalar_of(syntax.this))
        for partition, items in by_partition.items():
            node = Window(node, partition, tuple(items))
        return node, replaced

    def _finished(
        self,
        syntax: exp.Select,
        node: Node,
        outputs: Outputs,
        scope: _Scope,
        chosen: tuple[Item, ...] | None = None,
        ordering: tuple[Order, ...] | None = None,
    ) -> tuple[Node, Outputs]:
        """Apply the projection, DISTINCT, ORDER BY and LIMIT."""
        order = syntax.args.get("order")
        if ordering is None:
            ordering = ()
            by_value = {item.value: column(item.name) for item in chosen or ()}
            for item in order.expressions if order is not None else ():
                value = self._order_value(item.this, scope, outputs)
                ordering = (*ordering, _ordering(by_value.get(value, value), item))
        own = {internal for _, internal in outputs}
        if chosen is not None:
            hidden = {name for item in ordering for name in item.value.columns if name not in own}
            if hidden and syntax.args.get("distinct"):
                raise UnsupportedSql("ORDER BY a column that SELECT DISTINCT leaves out")
            node = Projection(node, (*chosen, *kept(tuple(sorted(hidden)))))
        if distinct := syntax.args.get("distinct"):
            if distinct.args.get("on"):
                raise UnsupportedSql("DISTINCT ON")
            fresh = tuple(Item(self.name(internal), column(internal)) for _, internal in outputs)
            renamed = {item.value.name: column(item.name) for item in fresh if item.value.name}
            ordering = tuple(Order(item.value.with_columns(renamed), item.direction) for item in ordering)
            outputs = [(visible, item.name) for (visible, _), item in zip(outputs, fresh, strict=True)]
            node = Aggregate(node, fresh, ())
        limit, offset = limit_of(syntax)
        if ordering or limit is not None or offset:
            node = Top(node, ordering, limit, offset)
        return node, outputs

    def _order_value(self, syntax: exp.Expr, scope: _Scope, outputs: Outputs) -> Scalar:
        if syntax.find(exp.Window, exp.Query):
            raise UnsupportedSql("a window function or a subquery in ORDER BY", "Select it under a name")
        selected = {visible.lower(): _internal(internal) for visible, internal in reversed(outputs)}
        return self._expression(_unnamed(syntax.unnest().copy(), selected), scope)

    def _ordered(self, syntax: exp.Expr, node: Node, scope: _Scope) -> Node:
        order = syntax.args.get("order")
        ordering = tuple(
            _ordering(self._expression(item.this, scope), item)
            for item in (order.expressions if order is not None else ())
        )
        limit, offset = limit_of(syntax)
        return Top(node, ordering, limit, offset) if ordering or limit is not None or offset else node

    def _combined(self, syntax: exp.SetOperation, ctes: Ctes, outer: _Scope | None) -> tuple[Node, Outputs]:
        left, one = self.query(syntax.left, ctes, outer)
        right, other = self.query(syntax.right, ctes, outer)
        if len(one) != len(other):
            raise QueryError(
                f"{syntax.key.upper()} of {len(one)} and {len(other)} columns",
                hint="Select the same number of columns in both",
            )
        left = Projection(left, tuple(Item(self.name(i), column(i)) for _, i in one))
        right = Projection(right, tuple(Item(self.name(i), column(i)) for _, i in other))
        outputs = [(visible, self.name(visible)) for visible, _ in one]
        columns = tuple(internal for _, internal in outputs)
        distinct = bool(syntax.args.get("distinct"))
        if isinstance(syntax, exp.Union):
            node: Node = Union((left, right), columns)
            if distinct:
                again = tuple(Item(self.name(name), column(name)) for name in columns)
                node = Aggregate(node, again, ())
                outputs = [(visible, item.name) for (visible, _), item in zip(outputs, again, strict=True)]
            return node, outputs
        if not distinct:
            return self._counted(syntax, left, right, columns), outputs
        keys = tuple(Item(name, column(own)) for name, own in zip(columns, names(left), strict=True))
        alike = tuple(
            parse(f"{column(name).sql} <=> {column(own).sql}") for name, own in zip(columns, names(right), strict=True)
        )
        kind = Kind.ANTI if isinstance(syntax, exp.Except) else Kind.SEMI
        return Join(Aggregate(left, keys, ()), right, kind, and_(alike)), outputs

    def _counted(self, syntax: exp.SetOperation, left: Node, right: Node, columns: tuple[str, ...]) -> Node:
        """Return `EXCEPT ALL` or `INTERSECT ALL`: each row with the difference or the minimum of its counts."""
        sides = tuple(self.name(side) for side in ("_left", "_right"))
        parts = tuple(
            Projection(part, (*kept(names(part)), *(Item(side, parse(str(int(side == own)))) for side in sides)))
            for part, own in ((left, sides[0]), (right, sides[1]))
        )
        rows = tuple(self.name(name) for name in columns)
        counts = tuple(self.name(side) for side in sides)
        sums = tuple(Item(n, parse(f"SUM({column(side).sql})")) for n, side in zip(counts, sides, strict=True))
        keys = tuple(Item(name, column(row)) for name, row in zip(columns, rows, strict=True))
        groups = Aggregate(Union(parts, (*rows, *sides)), keys, sums)
        one, other = (column(name).sql for name in counts)
        often = f"{one} - {other}" if isinstance(syntax, exp.Except) else f"LEAST({one}, {other})"
        each = parse(f"EXPLODE(SEQUENCE(1, CAST({often} AS INT)))")
        there = Filter(groups, parse(f"{often} > 0"))
        return Projection(Explode(there, each, False, (self.name("_each"),)), kept(columns))

    def _expression(self, syntax: exp.Expr, scope: _Scope) -> Scalar:
        """Return a scalar expression with the tree's column names."""

        def resolved(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and not node.args.get("marked"):
                internal = scope.find(node.table, node.name)
                if internal is None:
                    if node.table == "" and node.this.args.get("quoted"):
                        return node
                    hint = "Correct its name, or that of its table"
                    raise QueryError(f"there is no column {node.sql('spark')}", column=node.name, hint=hint)
                return _internal(internal)
            return node

        if syntax.find(exp.Query):
            raise UnsupportedSql("a subquery in this place", "Write it as a join")
        return scalar_of(exp.Paren(this=syntax.copy()).transform(resolved).this)


def _internal(name: str) -> exp.Column:
    found = exp.column(exp.to_identifier(name, quoted=True))
    found.set("marked", True)
    return found


def _outputs_scope(outputs: Outputs, outer: _Scope | None) -> _Scope:
    scope = _Scope(outer)
    scope.add("", outputs)
    return scope


def _renamed(outputs: Outputs, alias: exp.Expr | None) -> Outputs:
    """Return the columns under the names that `AS t(a, b)` gives."""
    given = [item.name for item in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not given:
        return outputs
    return [(new, internal) for new, (_, internal) in zip(given, outputs, strict=True)]


def _unordered(node: Node) -> Node:
    """Return a tree without an order that has no effect, as there is no LIMIT or OFFSET."""
    return node.input if isinstance(node, Top) and node.limit is None and not node.offset else node


def _unnamed(value: exp.Expr, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return an expression with aliases replaced by the selected expressions."""

    def selected(node: exp.Expr) -> exp.Expr:
        chosen = aliases.get(node.name.lower()) if isinstance(node, exp.Column) and not node.table else None
        if chosen is None or node.args.get("marked"):
            return node
        return chosen.copy() if node is value or isinstance(chosen, exp.Column) else exp.paren(chosen)

    return value.transform(selected, copy=False)


def _of_nothing(call: Scalar) -> Scalar:
    """Return the result of an aggregate function over no rows."""
    match unfiltered(node_of(call)):
        case exp.Count() | exp.CountIf() | exp.ApproxDistinct() | exp.RegrCount():
            return parse("0")
        case exp.ArrayAgg() | exp.ArrayUniqueAgg():
            return parse("ARRAY()")
        case exp.Anonymous() as other:
            raise UnsupportedSql(f"{other.name} in a correlated scalar subquery", "Write it as a join")
        case _:
            return parse("NULL")


def _null_of_null(value: Scalar) -> bool:
    """Return whether a value is null because a part of it is."""
    parts = (
        exp.Null | exp.Literal | exp.Mul | exp.Add | exp.Sub | exp.Div | exp.Neg | exp.Paren | exp.Cast | exp.DataType
    )
    return (node := node_of(value)).find(exp.Null) is not None and all(isinstance(part, parts) for part in node.walk())


def _perhaps(condition: Scalar) -> Scalar:
    return parse(f"COALESCE({condition.sql}, TRUE)")


def _ordering(value: Scalar, item: exp.Expr) -> Order:
    """Return a sort key with its direction."""
    direction = " DESC" if item.args.get("desc") else ""
    first = item.args.get("nulls_first")
    nulls = "" if first is None else (" NULLS FIRST" if first else " NULLS LAST")
    return Order(value, f"{direction}{nulls}")
