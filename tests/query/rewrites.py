"""Random rewrites of a query that keep its meaning, and random edits that may change it."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

import sqlglot
from sqlglot import exp

MIRRORED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}
COMMUTATIVE = (exp.EQ, exp.NEQ, exp.And, exp.Or)


class Rewriter:
    """Writes a query of `generator` differently.

    Args:
        seed: of all that is random.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def rewritten(self, text: str) -> str:
        """The query with the same meaning, written differently in many places."""
        syntax = sqlglot.parse_one(text, dialect="spark")
        self.names(syntax)
        steps: list[Callable[[exp.Expr], exp.Expr]] = [
            self.operands,
            self.parentheses,
            self.filters,
            self.joins,
            self.groups,
            self.values,
            self.branches,
            self.nesting,
        ]
        self.draw.shuffle(steps)
        for step in steps:
            syntax = step(syntax)
        written = syntax.sql("spark", pretty=self.draw.random() < 0.5)
        return written.lower() if self.draw.random() < 0.3 else written

    @staticmethod
    def is_symmetric(text: str) -> bool:
        """Whether a table is joined with itself, so that two forms may be the same."""
        for select in sqlglot.parse_one(text, dialect="spark").find_all(exp.Select):
            sources = [select.args.get("from_"), *(select.args.get("joins") or [])]
            tables = [table.name for each in sources if each is not None for table in each.find_all(exp.Table)]
            if len(set(tables)) < len(tables):
                return True
        return False

    def names(self, syntax: exp.Expr) -> None:
        """Give tables, and columns that are not the query's own, other names."""
        own = {each.alias_or_name for each in _first(syntax).selects}
        others = {name for name in re.findall(r"\b[cq]\d+\b", syntax.sql("spark")) if name not in own}
        fresh = [f"n{place}" for place in range(len(others))]
        self.draw.shuffle(fresh)
        names = dict(zip(sorted(others), fresh, strict=True))
        for each in syntax.find_all(exp.Identifier):
            each.set("this", names.get(each.name, each.name))

    def operands(self, syntax: exp.Expr) -> exp.Expr:
        """Swap operands within conditions, and turn comparisons around."""
        for each in list(syntax.find_all(*COMMUTATIVE, *MIRRORED)):
            if self.draw.random() < 0.5 and each.find_ancestor(exp.Where, exp.Join, exp.Having):
                one, other = each.this.copy(), each.expression.copy()
                kind = MIRRORED.get(type(each), type(each))
                swapped = kind(this=_wrapped(other), expression=_wrapped(one))
                if each.parent is None:
                    return swapped
                each.replace(swapped)
        return syntax

    def parentheses(self, syntax: exp.Expr) -> exp.Expr:
        for each in list(syntax.find_all(exp.EQ, exp.GT, exp.In, exp.Is)):
            if self.draw.random() < 0.3 and each.parent is not None:
                each.replace(exp.Paren(this=each.copy()))
        return syntax

    def filters(self, syntax: exp.Expr) -> exp.Expr:
        """Move conditions between ON and WHERE, and into a subquery of their own table."""
        for select in list(syntax.find_all(exp.Select)):
            joins = select.args.get("joins") or []
            if joins and all(not each.side and not each.kind for each in joins) and self.draw.random() < 0.5:
                for join in joins:
                    if (on := join.args.get("on")) is not None:
                        join.set("on", None)
                        join.set("kind", "CROSS")
                        select.where(on.copy(), copy=False)
        return syntax

    def joins(self, syntax: exp.Expr) -> exp.Expr:
        """Swap the sides of joins."""
        for select in list(syntax.find_all(exp.Select)):
            source, joins = select.args.get("from_"), select.args.get("joins") or []
            if source is None or not joins or self.draw.random() < 0.3:
                continue
            first = joins[0]
            kind = (first.side, first.kind)
            sides = {
                ("", ""): "",
                ("", "CROSS"): "",
                ("LEFT", ""): "RIGHT",
                ("RIGHT", ""): "LEFT",
                ("FULL", ""): "FULL",
            }
            if kind in sides:
                one, other = source.this.copy(), first.this.copy()
                source.set("this", other)
                first.set("this", one)
                first.set("side", sides[kind] or None)
        return syntax

    def groups(self, syntax: exp.Expr) -> exp.Expr:
        for group in syntax.find_all(exp.Group):
            if not group.args.get("rollup"):
                self.draw.shuffle(group.expressions)
                group.set("expressions", list(group.expressions))
        for select in list(syntax.find_all(exp.Select)):
            if select.args.get("distinct") and not select.args.get("order") and self.draw.random() < 0.5:
                select.set("distinct", None)
                select.set("group", exp.Group(expressions=[each.unalias().copy() for each in select.selects]))
        return syntax

    def values(self, syntax: exp.Expr) -> exp.Expr:
        for each in syntax.find_all(exp.In):
            if each.expressions:
                values = [*each.expressions, self.draw.choice(each.expressions).copy()]
                self.draw.shuffle(values)
                each.set("expressions", values)
        return syntax

    def branches(self, syntax: exp.Expr) -> exp.Expr:
        for union in list(syntax.find_all(exp.Union)):
            if self.draw.random() < 0.5:
                one, other = union.this.copy(), union.expression.copy()
                union.set("this", other)
                union.set("expression", one)
        return syntax

    def nesting(self, syntax: exp.Expr) -> exp.Expr:
        """Put tables into subqueries and CTEs."""
        places = itertools.count(1)
        ctes: list[tuple[str, exp.Expr]] = []
        for table in list(syntax.find_all(exp.Table)):
            if self.draw.random() < 0.3 and table.alias:
                inner = exp.select("*").from_(table.name)
                if self.draw.random() < 0.5:
                    name = f"w{next(places)}"
                    ctes.append((name, inner))
                    table.replace(exp.alias_(exp.to_table(name), table.alias, table=True))
                else:
                    table.replace(inner.subquery(table.alias))
        if isinstance(syntax, exp.Query):
            for name, inner in ctes:
                syntax = syntax.with_(name, as_=inner)
        return syntax

    def edited(self, text: str) -> str:
        """The query with one change that may give it another meaning."""
        syntax = sqlglot.parse_one(text, dialect="spark")
        edits: list[Callable[[], object]] = []
        for each in syntax.find_all(exp.Literal):
            if not each.is_string:
                edits.append(lambda each=each: each.set("this", str(int(float(each.name)) + 1)))
            else:
                edits.append(lambda each=each: each.set("this", "y" if each.name == "x" else "x"))
        for each in syntax.find_all(exp.EQ, exp.GT, exp.LTE, exp.NEQ, exp.LT, exp.GTE):
            kind = self.draw.choice([exp.EQ, exp.GT, exp.LTE, exp.NEQ])
            edits.append(lambda each=each, kind=kind: each.replace(kind(this=each.this, expression=each.expression)))
        for each in syntax.find_all(exp.And, exp.Or):
            other = exp.Or if isinstance(each, exp.And) else exp.And
            edits.append(lambda each=each: each.replace(each.this.copy()))
            edits.append(
                lambda each=each, other=other: each.replace(
                    exp.paren(other(this=_wrapped(each.this.copy()), expression=_wrapped(each.expression.copy())))
                )
            )
        for each in syntax.find_all(exp.Join):
            side = self.draw.choice(["", "LEFT", "RIGHT", "FULL"])
            if each.args.get("on") is not None and each.kind not in ("SEMI", "ANTI"):
                edits.append(lambda each=each, side=side: each.set("side", side or None))
            elif each.kind in ("SEMI", "ANTI"):
                kind = "ANTI" if each.kind == "SEMI" else "SEMI"
                edits.append(lambda each=each, kind=kind: each.set("kind", kind))
        for each in syntax.find_all(exp.Sum, exp.Min, exp.Max):
            kind = self.draw.choice([exp.Sum, exp.Min, exp.Max])
            edits.append(lambda each=each, kind=kind: each.replace(kind(this=each.this)))
        for each in syntax.find_all(exp.Column):
            others = [
                other
                for other in syntax.find_all(exp.Column)
                if other.find_ancestor(exp.Select) is each.find_ancestor(exp.Select)
            ]
            other = self.draw.choice(others).copy()
            edits.append(lambda each=each, other=other: each.replace(other))
        for each in syntax.find_all(exp.Not):
            edits.append(lambda each=each: each.replace(each.this))
        for each in syntax.find_all(exp.Union, exp.Except, exp.Intersect):
            edits.append(lambda each=each: each.set("distinct", not each.args.get("distinct")))
        for each in syntax.find_all(exp.Limit):
            edits.append(lambda each=each: each.set("expression", exp.Literal.number(2)))
        for select in syntax.find_all(exp.Select):
            for part in ("where", "having", "distinct"):
                if select.args.get(part):
                    edits.append(lambda select=select, part=part: select.set(part, None))
        if edits:  # count(*) of a whole relation has nothing to change
            self.draw.choice(edits)()
        return syntax.sql("spark")


def _first(syntax: exp.Expr) -> exp.Select:
    while not isinstance(syntax, exp.Select):
        syntax = syntax.this
    return syntax


def _wrapped(operand: exp.Expr) -> exp.Expr:
    return exp.paren(operand) if isinstance(operand, exp.Binary | exp.Not | exp.In | exp.Is) else operand
