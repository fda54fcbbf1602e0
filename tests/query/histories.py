"""Views over random histories, executed by DuckDB: what is kept by its changes must equal what is made anew.

Both sides are the same SQL that Spark gets, translated; so thousands of cases take minutes.
"""

from __future__ import annotations

import functools
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot

from kilonova.model.encoding import Append, Changes, Upsert
from kilonova.query.join_ordering import without_hints
from kilonova.query.maintenance import maintenance_delta
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.materialization import plan_materializations
from kilonova.query.materialized_relation import MaterializedRelation
from kilonova.query.parsing import parse_query
from kilonova.query.properties import RelationFacts
from kilonova.query.rendering import render
from kilonova.query.rules import OF_CHANGE, OF_RUN, adapt
from kilonova.query.syntax import with_ports
from kilonova.query.tree import WEIGHT, Scan, names
from kilonova.query.tree_json import tree_from_json, tree_to_json

Row = tuple[Any, ...]
Bag = Counter[Row]

TABLES: Mapping[str, Mapping[str, str]] = {
    "r": {"a": "int", "b": "int", "s": "string", "d": "decimal(10,2)"},
    "t": {"k": "int", "a": "int", "v": "decimal(10,2)", "s": "string"},
    "u": {"k": "int", "x": "int", "b": "int"},
    "g": {"a": "int", "s": "string", "n": "bigint"},
}
"""`t` and `u` have the key `k`, rows of `r` occur more than once, `g` only grows."""

KEYED = ("t", "u")
KNOWN = {
    name: RelationFacts(types=columns, key=("k",) if name in KEYED else (), grows=name == "g")
    for name, columns in TABLES.items()
}
_DUCK = {"int": "INTEGER", "bigint": "BIGINT", "string": "VARCHAR", "decimal(10,2)": "DECIMAL(10,2)"}
_WORD = re.compile(r"\w+")
_DATABASE = duckdb.connect(config={"threads": 1})


@functools.lru_cache(maxsize=8192)
def translated(sql: str) -> str:
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))  # sqlglot descends ten calls for each level of a query
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


def value(draw: random.Random, kind: str) -> Any:
    if draw.random() < 0.2:
        return None
    match kind:
        case "string":
            return draw.choice(["x", "y", "z"])
        case "decimal(10,2)":
            return Decimal(draw.randrange(-300, 300)) / 100
        case _:
            return draw.randrange(4)


def row(draw: random.Random, table: str, key: int = 0) -> Row:
    return tuple(key if name == "k" else value(draw, kind) for name, kind in TABLES[table].items())


def filled(draw: random.Random, table: str) -> Bag:
    size = draw.choice([0, 3, 8])
    if table in KEYED:
        return Counter(row(draw, table, key) for key in draw.sample(range(12), size))
    return Counter(row(draw, table) for _ in range(size))


def mutated(draw: random.Random, table: str, old: Bag) -> Bag:
    """The rows after a random change: some go, some come, and now and then all go."""
    if draw.random() < 0.35:
        return old
    if table == "g":
        return old + Counter(row(draw, table) for _ in range(draw.randrange(4)))
    if draw.random() < 0.05:
        return Counter()
    rows = [item for item in old.elements() if draw.random() > 0.25]
    if table in KEYED:
        taken = {item[0] for item in rows}
        free = [key for key in range(12) if key not in taken]
        rows += [row(draw, table, key) for key in draw.sample(free, min(len(free), draw.randrange(3)))]
    else:
        rows += [row(draw, table) for _ in range(draw.randrange(3))]
        if rows and draw.random() < 0.3:
            rows.append(draw.choice(rows))
    return Counter(rows)


class World:
    """Tables in DuckDB before and after a change, and the change itself."""

    def __init__(self) -> None:
        self.duck = _DATABASE.cursor()  # has temporary tables of its own
        self.duck.execute("PRAGMA disable_optimizer")  # it computes some outer joins wrong
        self.types: dict[str, dict[str, str]] = {
            name: {column: _DUCK[kind] for column, kind in columns.items()} for name, columns in TABLES.items()
        }
        self.rows: dict[str, Bag] = {name: Counter() for name in TABLES}
        self.most: dict[str, int] = dict.fromkeys(TABLES, 0)
        """The number of rows before a change or after it, whichever is larger."""
        self.layers: dict[str, list[Row]] = {}
        self.moved: set[str] = set()
        self.adding: set[str] = set()
        """Those that lost no rows."""
        self.settled: set[str] = set()
        """Tables in which the rows before the change are those after it."""
        self.unread: dict[str, tuple[dict[str, str], list[Row]]] = {}
        """Types and rows of tables that DuckDB does not have yet: to create one takes milliseconds, few are read."""

    def put(self, name: str, old: Bag, new: Bag) -> None:
        """Let a table go from some rows to others."""
        self.rows[name] = new
        self.most[name] = max(old.total(), new.total())
        if old != new:
            self.moved.add(name)
            self.adding |= {name} if old <= new else set()
        elif name in self.settled:
            return
        self.settled = self.settled - {name} if old != new else self.settled | {name}
        change = Counter(new)
        change.subtract(old)
        weighed = [(*item, weight) for item, weight in change.items() if weight]
        layers = self.layers.get(name, [])
        if summed(layers) != old:
            layers = [(*item, weight) for item, weight in old.items()]
        self.layers[name] = [*layers, *weighed]
        tables = {
            "old": list(old.elements()),
            "new": list(new.elements()),
            "change": weighed,
            "old__weighed": layers,
            "new__weighed": self.layers[name],
        }
        for at, rows in tables.items():
            columns = self.types[name] | ({} if at in ("old", "new") else {"_weight": "BIGINT"})
            self.unread[f"{name}_{at}"] = columns, rows

    def _create(self, table: str) -> None:
        """Let DuckDB have a table."""
        columns, rows = self.unread.pop(table)
        listed = ", ".join(
            f'CAST(c{place} AS {kind}) AS "{column}"' for place, (column, kind) in enumerate(columns.items())
        )
        places = ", ".join(f"c{place}" for place in range(len(columns)))
        values = ", ".join(f"({', '.join(map(_literal, item))})" for item in rows)
        nothing = f"({', '.join('NULL' for _ in columns)})"
        self.duck.execute(
            f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {listed} FROM (VALUES {values or nothing})"
            f" AS t({places})" + ("" if values else " WHERE FALSE")
        )

    def step(self, changes: Mapping[str, Bag]) -> None:
        """Change the source tables."""
        self.moved, self.adding = set(), set()
        for name, new in changes.items():
            self.put(name, self.rows[name], new)

    def asked(self, sql: str) -> tuple[list[str], list[str], list[Row]]:
        """The names, types and rows of a query's result."""
        text = translated(sql)
        for table in self.unread.keys() & _WORD.findall(text):
            self._create(table)
        found = self.duck.execute(text)
        names_, kinds = [item[0] for item in found.description], [str(item[1]) for item in found.description]
        return names_, kinds, found.fetchall()


def summed(layers: list[Row]) -> Bag:
    """The rows that weights add up to."""
    total: Bag = Counter()
    for *item, weight in layers:
        total[tuple(item)] += weight
    return +total


def _literal(item: Any) -> str:
    if item is None:
        return "NULL"
    return f"'{item}'" if isinstance(item, str | date) else str(item)


class View:
    """A view and all that it keeps."""

    def __init__(self, world: World, text: str, draw: random.Random, key: tuple[str, ...] = ()) -> None:
        self.world = world
        self.draw = draw
        # Any of the rows that are alike may be the first; and DuckDB makes a grand total of nothing, Spark does not.
        other = any(word in text.upper() for word in ("LIMIT", "ROLLUP", "CUBE", "GROUPING SETS"))
        self.written = None if other else with_ports(text, KNOWN).format(**{name: f"{name}_new" for name in KNOWN})
        known = dict(KNOWN)
        self.items = []
        for item in plan_materializations("v", parse_query(text, KNOWN), KNOWN, key):
            self.items.append(replace(item, tree=tree_from_json(tree_to_json(item.tree))))
            known[item.channel] = item.facts
        self.known = known
        self.rows: dict[str, Bag] = {item.channel: Counter() for item in self.items}

    def run(self, *, anew: bool) -> None:
        """Bring everything up to date, and compare it with what is made anew: by its tree, and as it was written."""
        for item in self.items:
            columns, kinds, found = self.world.asked(render(item.tree, lambda scan: f"{scan.channel}_new"))
            self.world.types[item.channel] = dict(zip(columns, kinds, strict=True))
            expected, old = Counter(found), self.rows[item.channel]
            got = expected if anew or item.whole else self._maintained(item, old)
            assert got == expected, f"{item.channel}: {got - expected} too many, {expected - got} too few"
            _check_key(item, got)
            self.rows[item.channel] = got
            self.world.put(item.channel, old, got)
        if self.written is not None:
            _, _, found = self.world.asked(self.written)
            shown = [place for place, name in enumerate(names(self.items[-1].tree)) if not name.startswith("_kept_")]
            own = (tuple(row[place] for place in shown) for row in self.rows["v"].elements())
            assert about(own) == about(found), "the tree is not what the query says"

    def _maintained(self, item: MaterializedRelation, old: Bag) -> Bag:
        moved = frozenset(self.world.moved & set(item.reads))
        strong, large, layered, again = (self.draw.random() < 0.5 for _ in range(4))
        found = MaintenanceContext(
            moved=moved,
            sizes={name: len(self.rows.get(name, name)) for name in item.reads},
            layered=frozenset({*item.reads, item.channel}) if layered else frozenset(),
            large=large,
            strong=strong,
            again=again,
            adding=frozenset(self.world.adding),
        )
        single = {name for name in item.reads if len(self.rows.get(name, name)) <= self.draw.choice((0, 1, 100))}
        known = {
            name: replace(each, single=name in single, one_row=self.world.most[name] <= 1)
            for name, each in self.known.items()
        }
        change = maintenance_delta(replace(item, tree=adapt(OF_RUN, item.tree, known, found)), known, found)
        if change is None:
            return Counter(old)
        tree = adapt(OF_CHANGE, change, known, found)
        if WEIGHT in names(tree):
            item = replace(item, encoding=Changes())
        self.world.put(item.channel, old, old)
        sql = render(without_hints(tree), table)
        columns, _, rows = self.world.asked(sql)
        return applied(item, old, [dict(zip(columns, values, strict=True)) for values in rows])


def table(scan: Scan) -> str:
    """What a scan reads: a table, or only the rows of it that it says are enough."""
    whole = f"{scan.channel}_{scan.at.value}{'__weighed' if scan.weighed else ''}"
    if scan.lookup is None:
        return whole
    values = " UNION ALL ".join(f"SELECT `{column}` FROM {channel}_change" for channel, column in scan.lookup.values)
    return f"(SELECT * FROM {whole} WHERE `{scan.lookup.column}` IN ({values}))"


def about(rows: Iterable[Row]) -> Bag:
    """Rows whose numbers are compared as far as DuckDB's own types for them allow."""
    return Counter(
        tuple(round(float(item), 4) if isinstance(item, Decimal | float) else item for item in row) for row in rows
    )


def _check_key(item: MaterializedRelation, rows: Bag) -> None:
    if isinstance(item.encoding, Upsert):
        columns = names(item.tree)
        found = Counter(tuple(each[columns.index(name)] for name in item.encoding.key) for each in rows.elements())
        assert all(count == 1 for count in found.values()), f"{item.channel}: a key occurs twice"
        assert not any(part is None for key in found for part in key), f"{item.channel}: a key is null"


def applied(item: MaterializedRelation, old: Bag, delta: list[dict[str, Any]]) -> Bag:
    """The rows after a delta, which must be effective."""
    columns = names(item.tree)
    plain = [tuple(each[name] for name in columns) for each in delta]
    match item.encoding:
        case Append():
            return old + Counter(plain)
        case Changes():
            after = Counter(old)
            for values, each in zip(plain, delta, strict=True):
                assert each["_weight"] != 0
                after[values] += each["_weight"]
            assert all(count >= 0 for count in after.values()), "a row is retracted that is not there"
            return +after
        case Upsert(key):
            places = [columns.index(name) for name in key]
            by_key = {tuple(values[place] for place in places): values for values in old}
            assert len({tuple(each[name] for name in key) for each in delta}) == len(delta), "a key occurs twice"
            for values, each in zip(plain, delta, strict=True):
                own = tuple(each[name] for name in key)
                gone = each["_deleted"]
                assert not gone or own in by_key, "a row is deleted that is not there"
                assert gone or by_key.get(own) != values, "a row is replaced by its like"
                by_key.pop(own, None) if gone else by_key.__setitem__(own, values)
            return Counter(by_key.values())
        case _:
            raise AssertionError(item.encoding)


def lived(text: str, seed: int, steps: int = 5, key: tuple[str, ...] = ()) -> None:
    """Let a view live through a random history; with a key it may not be made anew.

    Raises:
        AssertionError: at some point it differed from its recomputation.
    """
    draw = random.Random(seed)
    world = World()
    view = View(world, text, draw, key)
    assert not key or not any(item.whole for item in view.items)
    tables = [name for name in TABLES if name in re.findall(r"\w+", text)]
    world.step({name: filled(draw, name) for name in tables})
    view.run(anew=True)
    for _ in range(steps):
        world.step({name: mutated(draw, name, world.rows[name]) for name in tables})
        view.run(anew=False)
