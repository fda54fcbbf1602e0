"""Random edits of queries: those that people make to a view, in any of its subqueries, one or several at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import sqlglot
from sqlglot import exp

from tests.query.histories import TABLES

_NUMBERS = ("int", "bigint")


class Editor:
    """Makes edits.

    Args:
        seed: of all that is random.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._count = 0
        self.edits: dict[str, Callable[[exp.Select], bool]] = {
            "drop condition": self.drop_condition,
            "add condition": self.add_condition,
            "change condition": self.change_condition,
            "drop column": self.drop_column,
            "rename column": self.rename_column,
            "exchange names": self.exchange_names,
            "reorder columns": self.reorder_columns,
            "add column": self.add_column,
            "change column": self.change_column,
            "add call": self.add_call,
            "add join": self.add_join,
            "drop join": self.drop_join,
            "change join": self.change_join,
        }

    def edited(self, text: str, count: int) -> tuple[str, tuple[str, ...]]:
        """A query after some edits, and their kinds."""
        tree = sqlglot.parse_one(text, dialect="spark")
        made: list[str] = []
        for _ in range(50):
            if len(made) == count:
                break
            kind = self.draw.choice(
                [*self.edits, *["drop condition", "add condition", "change condition"], "union", "wrap"]
            )
            selects = list(tree.find_all(exp.Select))
            try:
                if kind in ("union", "wrap"):
                    changed = self.union(tree) if kind == "union" else self.wrap(tree)
                else:
                    changed = tree if self.edits[kind](self.draw.choice(selects[:1] * 2 + selects)) else None
            except sqlglot.errors.ParseError:  # what stands in GROUP BY is no expression
                changed = None
            if changed is not None:
                tree = changed
                made.append(kind)
        return tree.sql("spark"), tuple(made)

    def fresh(self) -> str:
        self._count += 1
        return f"e{self._count}"

    def columns(self, select: exp.Select) -> list[tuple[str, str]]:
        """Columns in scope, with their types as far as they are a channel's."""
        found: dict[str, str] = {}
        for source in [select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or [])]:
            table = None if source is None else source.this
            if isinstance(source, exp.Join) and (source.kind in ("SEMI", "ANTI") or source.side in ("SEMI", "ANTI")):
                continue
            if isinstance(table, exp.Table) and table.name in TABLES:
                for name, kind in TABLES[table.name].items():
                    found[f"{table.alias_or_name}.{name}"] = kind
            elif isinstance(table, exp.Subquery):
                for item in table.this.selects:
                    if item.alias_or_name:
                        found[f"{table.alias}.{item.alias_or_name}"] = ""
        return list(found.items())

    def condition(self, columns: list[tuple[str, str]]) -> exp.Expression:
        name, kind = self.draw.choice(columns)
        if kind in _NUMBERS:
            texts = [
                f"{name} > {self.draw.randrange(3)}",
                f"{name} IN (1, 2)",
                f"NOT {name} = 2",
                f"{name} IS NOT NULL",
            ]
        elif kind == "string":
            texts = [f"{name} = 'x'", f"{name} <> 'y'", f"{name} IS NULL", f"{name} IN ('x', 'y')"]
        elif kind:
            texts = [f"{name} < {self.draw.randrange(-1, 2)}.5", f"{name} >= 0"]
        else:
            texts = [f"{name} IS NOT NULL", f"{name} IS NULL"]
        return sqlglot.parse_one(self.draw.choice(texts), dialect="spark")

    def places(self, select: exp.Select) -> list[exp.Expression]:
        """Conditions of a query: in WHERE, HAVING and ON."""
        found: list[exp.Expression] = [each for each in (select.args.get("where"), select.args.get("having")) if each]
        return found + [join for join in select.args.get("joins") or [] if join.args.get("on")]

    def drop_condition(self, select: exp.Select) -> bool:
        places = self.places(select)
        if not places:
            return False
        place = self.draw.choice(places)
        key = "on" if isinstance(place, exp.Join) else "this"
        parts = list(place.args[key].flatten()) if isinstance(place.args[key], exp.And) else [place.args[key]]
        if len(parts) == 1:
            if key == "on":
                return False
            place.pop()
            return True
        parts.pop(self.draw.randrange(len(parts)))
        place.set(key, exp.and_(*parts, copy=True))
        return True

    def add_condition(self, select: exp.Select) -> bool:
        columns = self.columns(select)
        if not columns:
            return False
        if select.args.get("group") and self.draw.random() < 0.5:
            call = self.draw.choice(["count(*) > 1", "count(*) < 3"])
            keys = [each.sql("spark") for each in select.args["group"].expressions]
            select.having(
                f"{self.draw.choice(keys)} IS NOT NULL" if keys and self.draw.random() < 0.3 else call, copy=False
            )
            return True
        joins = [join for join in select.args.get("joins") or [] if join.args.get("on")]
        if joins and self.draw.random() < 0.2:
            join = self.draw.choice(joins)
            join.set("on", exp.and_(join.args["on"], self.condition(columns)))
            return True
        select.where(self.condition(columns), copy=False)
        return True

    def change_condition(self, select: exp.Select) -> bool:
        places = self.places(select)
        if not places:
            return False
        place = self.draw.choice(places).args
        inside = place["on"] if "on" in place else place["this"]
        literals = [each for each in inside.find_all(exp.Literal) if each.find_ancestor(exp.Select) is select]
        signs = [each for each in inside.find_all(exp.GT, exp.LT) if each.find_ancestor(exp.Select) is select]
        if signs and self.draw.random() < 0.3:
            sign = self.draw.choice(signs)
            other = self.draw.choice([exp.GTE, exp.EQ, exp.LTE, exp.NEQ])
            sign.replace(other(this=sign.this, expression=sign.expression))
            return True
        if not literals:
            return False
        return self._change(self.draw.choice(literals))

    def _change(self, literal: exp.Literal) -> bool:
        if literal.is_string:
            literal.replace(exp.Literal.string(self.draw.choice(["x", "y", "z"])))
        elif literal.is_int:
            literal.replace(exp.Literal.number(int(literal.name) + self.draw.choice([1, 2])))
        else:
            literal.replace(exp.Literal.number(f"{self.draw.randrange(3)}.25"))
        return True

    def drop_column(self, select: exp.Select) -> bool:
        if len(select.expressions) < 2:
            return False
        select.expressions.pop(self.draw.randrange(len(select.expressions)))
        return True

    def rename_column(self, select: exp.Select) -> bool:
        items = [each for each in select.expressions if isinstance(each, exp.Alias)]
        if not items:
            return False
        self.draw.choice(items).set("alias", exp.to_identifier(self.fresh()))
        return True

    def exchange_names(self, select: exp.Select) -> bool:
        items = [each for each in select.expressions if isinstance(each, exp.Alias)]
        if len(items) < 2:
            return False
        one, other = self.draw.sample(items, 2)
        first, second = one.args["alias"], other.args["alias"]
        one.set("alias", second)
        other.set("alias", first)
        return True

    def reorder_columns(self, select: exp.Select) -> bool:
        self.draw.shuffle(select.expressions)
        return True

    def add_column(self, select: exp.Select) -> bool:
        if select.args.get("group") or select.find(exp.AggFunc):
            keys = select.args["group"].expressions if select.args.get("group") else []
            if not keys:
                return False
            select.select(f"{self.draw.choice(keys).sql('spark')} AS {self.fresh()}", copy=False)
            return True
        columns = self.columns(select)
        if not columns:
            return False
        name, kind = self.draw.choice(columns)
        value = self.draw.choice([name, f"{name} + 1"]) if kind in _NUMBERS else name
        select.select(f"{value} AS {self.fresh()}", copy=False)
        return True

    def change_column(self, select: exp.Select) -> bool:
        items = [each for each in select.expressions if isinstance(each, exp.Alias)]
        if not items:
            return False
        item = self.draw.choice(items)
        literals = list(item.this.find_all(exp.Literal))
        if literals and self.draw.random() < 0.5:
            return self._change(self.draw.choice(literals))
        columns = self.columns(select)
        kinds = dict(columns)
        kind = kinds.get(item.this.sql("spark"), "")
        if kind in _NUMBERS:
            texts = [f"{item.this.sql('spark')} + 1", f"COALESCE({item.this.sql('spark')}, 1)"]
        elif kind == "string":
            texts = [f"UPPER({item.this.sql('spark')})"]
        else:
            texts = [item.this.sql("spark")]
        same = [name for name, other in columns if other == kind]
        if not select.args.get("group") and same:
            texts.append(self.draw.choice(same))
        item.set("this", sqlglot.parse_one(self.draw.choice(texts), dialect="spark"))
        return True

    def add_call(self, select: exp.Select) -> bool:
        columns = self.columns(select)
        if not (select.args.get("group") or select.find(exp.AggFunc)) or not columns:
            return False
        name, kind = self.draw.choice(columns)
        call = self.draw.choice(["sum", "avg", "max"]) if kind in _NUMBERS else self.draw.choice(["count", "max"])
        select.select(f"{self.draw.choice([f'{call}({name})', 'count(*)'])} AS {self.fresh()}", copy=False)
        return True

    def add_join(self, select: exp.Select) -> bool:
        numbers = [name for name, kind in self.columns(select) if kind in _NUMBERS]
        if not numbers:
            return False
        alias = self.fresh()
        table = self.draw.choice(["t", "u"])
        kind = self.draw.choice(["left", "left", "inner", "left semi", "left anti"])
        select.join(
            f"{table} AS {alias}",
            on=f"{self.draw.choice(numbers)} = {alias}.k",
            join_type=kind,
            dialect="spark",
            copy=False,
        )
        grouped = select.args.get("group") or select.find(exp.AggFunc)
        if kind in ("left", "inner") and not grouped and self.draw.random() < 0.7:
            other = self.draw.choice([name for name in TABLES[table] if name != "k"])
            select.select(f"{alias}.{other} AS {self.fresh()}", copy=False)
        if kind in ("left", "inner") and self.draw.random() < 0.3:
            select.where(f"{alias}.{'v > 0' if table == 't' else 'b > 0'}", copy=False)
        return True

    def drop_join(self, select: exp.Select) -> bool:
        joins = select.args.get("joins") or []
        if not joins:
            return False
        joins.pop(self.draw.randrange(len(joins)))
        return True

    def change_join(self, select: exp.Select) -> bool:
        joins = [each for each in select.args.get("joins") or [] if each.args.get("on")]
        if not joins:
            return False
        join = self.draw.choice(joins)
        if join.kind in ("SEMI", "ANTI"):
            join.set("kind", "ANTI" if join.kind == "SEMI" else "SEMI")
        else:
            join.set("side", self.draw.choice(["LEFT", None]))
        return True

    def union(self, tree: exp.Expression) -> exp.Expression | None:
        found = [each for each in tree.find_all(exp.Union) if not each.args.get("distinct")]
        if found and self.draw.random() < 0.6:
            union = self.draw.choice(found)
            rest = self.draw.choice([union.this, union.expression])
            if union is tree:
                return rest.copy()
            union.replace(rest.copy())
            return tree
        if not isinstance(tree, exp.Select) or tree.args.get("limit"):
            return None
        other = tree.copy()
        if self.draw.random() < 0.7:
            self.change_condition(other) or self.add_condition(other)
        return exp.union(tree, other, distinct=False, copy=False)

    def wrap(self, tree: exp.Expression) -> exp.Expression | None:
        names = [item.alias_or_name for item in tree.selects]
        if not all(names):
            return None
        alias = self.fresh()
        name = self.draw.choice(names)
        test = self.draw.choice([f"WHERE {alias}.{name} IS NOT NULL", ""])
        listed = ", ".join(f"{alias}.{each}" for each in names)
        return sqlglot.parse_one(f"SELECT {listed} FROM ({tree.sql('spark')}) AS {alias} {test}", dialect="spark")
