"""Edits of the queries of TPC-H as pairs of queries, small tables for them, and how many of them are migrated."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal

from examples.tpch.edits import EDITS
from examples.tpch.edits import edited as edited_query
from examples.tpch.workflow import QUERIES, TABLES
from kilonova.query.migration.migration import NoMigration
from tests.query.histories import Bag, World
from tests.query.query_pairs import QueryPair
from tests.query.test_tpch import KNOWN

VALUES: dict[str, tuple[object, ...]] = {
    "r_name": ("ASIA", "EUROPE", "EUROPE", "AMERICA"),
    "n_name": ("FRANCE", "GERMANY", "CANADA", "SAUDI ARABIA", "EGYPT", "JAPAN"),
    "c_mktsegment": ("BUILDING", "MACHINERY"),
    "c_phone": ("13-1", "31-2", "17-3", "99-4"),
    "p_name": ("forest green", "dark green x", "green", "red"),
    "p_brand": ("Brand#12", "Brand#23", "Brand#24", "Brand#34", "Brand#45"),
    "p_type": (
        "LARGE BRASS",
        "SMALL BRASS",
        "ECONOMY ANODIZED STEEL",
        "STANDARD ANODIZED STEEL",
        "PROMO X",
        "MEDIUM POLISHED X",
    ),
    "p_size": (3, 14, 15, 15, 16, 16, 23, 24),
    "p_container": ("SM BOX", "MED BOX", "LG BOX", "X"),
    "ps_availqty": (1, 10, 100),
    "o_orderstatus": ("F", "O"),
    "o_orderpriority": ("1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW"),
    "o_comment": ("special requests", "pending requests", "none"),
    "s_comment": ("Customer Complaints", "none"),
    "l_quantity": tuple(Decimal(n) for n in (1, 5, 11, 15, 20, 22, 25, 28, 32, 150)),
    "l_discount": tuple(Decimal(n) / 100 for n in (3, 4, 5, 6, 7)),
    "l_returnflag": ("R", "A", "N"),
    "l_shipmode": ("MAIL", "SHIP", "RAIL", "AIR"),
    "l_shipinstruct": ("DELIVER IN PERSON", "DELIVER IN PERSON", "NONE"),
}
"""Values of columns for which queries have conditions."""

SIZES = {
    "region": 3,
    "nation": 7,
    "supplier": 9,
    "customer": 20,
    "part": 20,
    "partsupp": 60,
    "orders": 90,
    "lineitem": 300,
}
_KEYS = {
    "regionkey": "region",
    "nationkey": "nation",
    "suppkey": "supplier",
    "custkey": "customer",
    "partkey": "part",
    "orderkey": "orders",
}
_TYPES = {"bigint": "BIGINT", "int": "INTEGER", "string": "VARCHAR", "date": "DATE", "decimal(15,2)": "DECIMAL(15,2)"}
_DAYS = tuple(
    map(date.fromisoformat, ("1993-07-01", "1993-10-01", "1994-01-01", "1995-03-01", "1995-09-01", "1996-01-01"))
)


def tpch_world(draw: random.Random) -> World:
    """Small tables of TPC-H, whose rows meet the conditions of the queries often."""
    world = World()
    for name, facts in KNOWN.items():
        if name not in TABLES:
            continue
        world.types[name] = {column: _TYPES[kind] for column, kind in facts.types.items()}
        by_key: dict[tuple[object, ...], tuple[object, ...]] = {}
        for number in range(SIZES[name]):
            row = {column: _value(draw, column, kind, name, number) for column, kind in facts.types.items()}
            by_key[tuple(row[column] for column in facts.key)] = tuple(row.values())
        rows: Bag = Counter(by_key.values())
        world.put(name, rows, rows)
    return world


def _value(draw: random.Random, column: str, kind: str, table: str, number: int) -> object:
    if column in VALUES:
        return draw.choice(VALUES[column])
    if (other := _KEYS.get(column.partition("_")[2])) is not None:
        return number if KNOWN[table].key == (column,) else draw.randrange(SIZES[other])
    match kind:
        case "date":
            return draw.choice((*_DAYS, date(1998, 9, 10))) + timedelta(draw.randrange(125))
        case "string":
            return draw.choice(("x", "y", None))
        case "decimal(15,2)":
            return Decimal(draw.randrange(100, 30000)) / 100
        case _:
            return draw.randrange(4)


def edited(name: str, before: str, after: str) -> QueryPair:
    """A query before an edit and after it."""
    return QueryPair(name, QUERIES[name], edited_query(name, before, after), KNOWN)


if __name__ == "__main__":
    counts: Counter[str] = Counter()
    some_worlds = [tpch_world(random.Random(seed)) for seed in range(3)]
    for name, edits in EDITS.items():
        for kind, before, after in edits:
            pair = edited(name, before, after)
            counts["migrate" if pair.migrates else "do not"] += 1
            counts["from the output alone"] += pair.from_output
            print(f"{name} {kind}: {'migrates' if pair.migrates else 'does not'} {' '.join(pair.others)}")
            for channel, each in pair.migrations.items():
                while each is not None:
                    if isinstance(each, NoMigration):
                        print(f"    {channel}: {each.reason}")
                        break
                    print(f"    {channel}: {each.description[:250]}; reads {', '.join(each.reads)}")
                    each = each.then
            pair.check(some_worlds)
    print(dict(counts))
