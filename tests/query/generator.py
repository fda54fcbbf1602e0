"""Random queries over the tables of `histories`: every construct that a tree has an operator for, nested."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from tests.query.histories import TABLES

NUMBER, TEXT, AMOUNT = "number", "text", "amount"
_KINDS = {"int": NUMBER, "bigint": NUMBER, "string": TEXT, "decimal(10,2)": AMOUNT}


@dataclass(frozen=True)
class Source:
    """Something to select from: its SQL and its columns with their kinds."""

    sql: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Column:
    """A column as an expression names it."""

    sql: str
    kind: str


class Generator:
    """Makes queries.

    Args:
        seed: of all that is random.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._names = itertools.count(1)

    def query(self, depth: int = 2) -> str:
        """A query."""
        return self.select(depth).sql

    def name(self) -> str:
        return f"c{next(self._names)}"

    def source(self, depth: int) -> tuple[str, list[Column]]:
        """What stands in FROM, and the columns that it gives."""
        alias = f"q{next(self._names)}"
        if depth <= 0 or self.draw.random() < 0.6:
            table = self.draw.choice(list(TABLES))
            columns = [Column(f"{alias}.{name}", _KINDS[kind]) for name, kind in TABLES[table].items()]
            return f"{table} AS {alias}", columns
        inner = self.select(depth - 1)
        return f"({inner.sql}) AS {alias}", [Column(f"{alias}.{name}", kind) for name, kind in inner.columns]

    def joined(self, depth: int) -> tuple[str, list[Column]]:
        """One source, or several joined."""
        text, columns = self.source(depth)
        for _ in range(self.draw.choice([0, 0, 1, 1, 2])):
            other, theirs = self.source(depth - 1)
            kind = self.draw.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
            on = self.matching(columns, theirs)
            if on is None:
                continue
            if self.draw.random() < 0.2 and kind != "FULL JOIN":
                on += f" AND {self.condition([*columns, *theirs])}"
            text += f" {'LEFT ' if kind in ('SEMI JOIN', 'ANTI JOIN') else ''}{kind} {other} ON {on}"
            if kind not in ("SEMI JOIN", "ANTI JOIN"):
                columns = [*columns, *theirs]
        return text, columns

    def matching(self, ones: list[Column], others: list[Column]) -> str | None:
        pairs = [(one, other) for one in ones for other in others if one.kind == other.kind and one.kind != AMOUNT]
        if not pairs:
            return None
        chosen = self.draw.sample(pairs, min(len(pairs), self.draw.choice([1, 1, 1, 2])))
        return " AND ".join(f"{one.sql} = {other.sql}" for one, other in chosen)

    def condition(self, columns: list[Column]) -> str:
        column = self.draw.choice(columns)
        match column.kind:
            case "number":
                return self.draw.choice(
                    [f"{column.sql} > {self.draw.randrange(3)}", f"{column.sql} IS NOT NULL", f"{column.sql} IN (1, 2)"]
                )
            case "text":
                return self.draw.choice([f"{column.sql} = 'x'", f"{column.sql} <> 'y'", f"{column.sql} IS NULL"])
            case _:
                return f"{column.sql} < {self.draw.randrange(-1, 2)}.5"

    def where(self, columns: list[Column], depth: int) -> str:
        parts = [self.condition(columns) for _ in range(self.draw.choice([0, 0, 1, 1, 2]))]
        if depth > 0 and self.draw.random() < 0.35:
            parts.append(self.subquery(columns, depth - 1))
            if self.draw.random() < 0.3:
                parts[-1] = f"({self.condition(columns)} OR {parts[-1]})"
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def subquery(self, columns: list[Column], depth: int) -> str:
        text, theirs = self.source(depth)
        on = self.matching(columns, theirs)
        if on is not None and self.draw.random() < 0.2:
            on = on.replace(" = ", self.draw.choice([" < ", " <> ", " >= "]))
        numbers = [column for column in columns if column.kind == NUMBER]
        own = [column for column in theirs if column.kind == NUMBER]
        where = f" WHERE {on}" if on is not None and self.draw.random() < 0.7 else ""
        if not numbers or not own:
            return f"EXISTS (SELECT 1 FROM {text}{where})"
        left, right = self.draw.choice(numbers).sql, self.draw.choice(own).sql
        call = self.draw.choice(["max", "count", "sum", "min"])
        return self.draw.choice(
            [
                f"EXISTS (SELECT 1 FROM {text}{where})",
                f"NOT EXISTS (SELECT 1 FROM {text}{where})",
                f"{left} IN (SELECT {right} FROM {text}{where})",
                f"{left} NOT IN (SELECT {right} FROM {text}{where})",
                f"{left} <= (SELECT {call}({right}) FROM {text}{where})",
                f"{left} > (SELECT COALESCE({call}({right}), 0) FROM {text}{where})",
            ]
        )

    def select(self, depth: int) -> Source:
        """A query with the columns of its result."""
        form = self.draw.choice(["plain"] * 3 + ["groups"] * 4 + ["distinct", "set", "window", "top", "sets"])
        if form == "set":
            return self.combined(depth)
        text, columns = self.joined(depth)
        where = self.where(columns, depth)
        match form:
            case "groups" | "sets":
                return self.grouped(text + where, columns, form == "sets")
            case "window":
                return self.windowed(text + where, columns)
        chosen = self.draw.sample(columns, min(len(columns), self.draw.randrange(1, 4)))
        items = [(self.expression(column), self.name(), column.kind) for column in chosen]
        listed = ", ".join(f"{value} AS {name}" for value, name, _ in items)
        own = tuple((name, kind) for _, name, kind in items)
        distinct = "DISTINCT " if form == "distinct" else ""
        top = ""
        if form == "top":
            top = f" ORDER BY {', '.join(name for name, _ in own)} LIMIT {self.draw.randrange(1, 5)}"
        return Source(f"SELECT {distinct}{listed} FROM {text}{where}{top}", own)

    def expression(self, column: Column) -> str:
        match column.kind:
            case "number":
                return self.draw.choice([column.sql, column.sql, f"{column.sql} + 1", f"COALESCE({column.sql}, 0)"])
            case "text":
                return self.draw.choice([column.sql, column.sql, f"UPPER({column.sql})"])
            case _:
                return column.sql

    def grouped(self, text: str, columns: list[Column], sets: bool) -> Source:
        keys = self.draw.sample(columns, min(len(columns), 2 if sets else self.draw.choice([0, 1, 1, 2])))
        items = [(column.sql, self.name(), column.kind) for column in keys]
        for _ in range(self.draw.randrange(0 if keys else 1, 3)):
            column = self.draw.choice(columns)
            calls = {
                "number": ["sum", "count", "min", "max", "count distinct", "avg"],
                "text": ["count", "min", "max", "count distinct"],
                "amount": ["sum", "count", "min", "max", "avg"],
            }[column.kind]
            call = self.draw.choice([*calls, "count star"])
            match call:
                case "count star":
                    value, kind = "count(*)", NUMBER
                case "count distinct":
                    value, kind = f"count(DISTINCT {column.sql})", NUMBER
                case "sum" | "min" | "max":
                    value, kind = f"{call}({column.sql})", column.kind
                case _:
                    value, kind = f"{call}({column.sql})", NUMBER if call == "count" else "other"
            if self.draw.random() < 0.15 and "DISTINCT" not in value:
                value += f" FILTER (WHERE {self.condition(columns)})"
            items.append((value, self.name(), kind))
        listed = ", ".join(f"{value} AS {name}" for value, name, _ in items)
        by = ", ".join(dict.fromkeys(column.sql for column in keys))
        group = "" if not keys else f" GROUP BY ROLLUP({by})" if sets else f" GROUP BY {by}"
        having = " HAVING count(*) > 1" if keys and self.draw.random() < 0.2 else ""
        own = tuple((name, kind) for _, name, kind in items if kind != "other")
        if not own:
            name = self.name()
            listed, own = f"{listed}, count(*) AS {name}", ((name, NUMBER),)
        return Source(f"SELECT {listed} FROM {text}{group}{having}", own)

    def windowed(self, text: str, columns: list[Column]) -> Source:
        partition = self.draw.choice(columns).sql
        by = f"PARTITION BY {partition} " if self.draw.random() < 0.8 else ""
        column = self.draw.choice([column for column in columns if column.kind != TEXT] or columns)
        call = "max" if column.kind == TEXT else self.draw.choice(["sum", "max", "count"])
        function = self.draw.choice(
            [f"rank() OVER ({by}ORDER BY {column.sql})", f"{call}({column.sql}) OVER ({by.strip()})"]
        )
        name, other = self.name(), self.name()
        kept = self.draw.choice(columns)
        kind = NUMBER if function.startswith(("rank", "count")) else column.kind
        return Source(
            f"SELECT {kept.sql} AS {name}, {function} AS {other} FROM {text}", ((name, kept.kind), (other, kind))
        )

    def combined(self, depth: int) -> Source:
        operator = self.draw.choice(["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"])
        name, sides = self.name(), []
        for _ in range(2):
            text, columns = self.source(depth - 1)
            numbers = [column for column in columns if column.kind == NUMBER]
            value = f"CAST({self.draw.choice(numbers).sql} AS BIGINT)" if numbers else "CAST(1 AS BIGINT)"
            sides.append(f"SELECT {value} AS {name} FROM {text}")
        return Source(f" {operator} ".join(sides), ((name, NUMBER),))


if __name__ == "__main__":
    import sys
    import time
    import traceback
    from collections import Counter

    from kilonova.query.syntax import UnsupportedSql
    from tests.query.histories import lived

    first, count = int(sys.argv[1]), int(sys.argv[2])
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(first, first + count):
        text = Generator(seed).query()
        try:
            lived(text, seed, steps=4)
            outcomes["equal"] += 1
            if outcomes["equal"] % 500 == 0:
                print(f"{outcomes['equal']} equal, {time.monotonic() - began:.0f} s", flush=True)
        except UnsupportedSql as error:
            outcomes[f"beyond: {error.construct}"] += 1
        except Exception as error:
            outcomes["wrong"] += 1
            print(f"seed {seed}: {text}\n   {type(error).__name__}: {str(error)[:600]}", flush=True)
            if "-v" in sys.argv:
                traceback.print_exc()
    print(dict(outcomes), f"{time.monotonic() - began:.0f} s")
