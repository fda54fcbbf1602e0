"""Edits of the queries of TPC-H, of every kind that a migration is derived for; and how many of them are migrated."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal

from examples.tpch.workflow import QUERIES, TABLES
from kilonova.query.migration.migration import NoMigration
from tests.query.histories import Bag, World
from tests.query.query_pairs import QueryPair
from tests.query.test_tpch import KNOWN

EDITS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "q01": (
        ("filter loosened", "'90' day", "'60' day"),
        ("filter tightened", "'90' day", "'120' day"),
        ("aggregate added", "count(*) as count_order", "count(*) as count_order, sum(l_tax) as sum_tax"),
        ("column dropped", "avg(l_quantity) as avg_qty, ", ""),
        ("column renamed", "as count_order", "as orders"),
        ("group filter added", "where l_shipdate", "where l_returnflag <> 'N' and l_shipdate"),
    ),
    "q02": (
        ("filter changed", "p_size = 15", "p_size = 16"),
        ("column added", "s_phone, s_comment", "s_phone, s_comment, p_type"),
        ("column dropped", "s_phone, s_comment", "s_phone"),
        ("filter loosened", "p_size = 15", "p_size in (15, 16)"),
    ),
    "q03": (
        ("filter changed", "'BUILDING'", "'MACHINERY'"),
        ("filter loosened", "l_shipdate > date '1995-03-15'", "l_shipdate > date '1995-03-10'"),
        ("filter tightened", "o_orderdate < date '1995-03-15'", "o_orderdate < date '1995-03-01'"),
        ("column dropped", "o_orderdate, o_shippriority\nfrom", "o_orderdate\nfrom"),
        ("column renamed", "revenue", "turnover"),
    ),
    "q04": (
        ("filter loosened", "interval '3' month", "interval '4' month"),
        ("filter added", "where o_orderdate", "where o_orderpriority <> '5-LOW' and o_orderdate"),
        ("aggregate added", "count(*) as order_count", "count(*) as order_count, sum(o_totalprice) as total"),
        ("join condition changed", "l_commitdate < l_receiptdate", "l_shipdate < l_receiptdate"),
        ("filter removed", " and l_commitdate < l_receiptdate", ""),
    ),
    "q05": (
        ("filter changed", "'ASIA'", "'EUROPE'"),
        ("filter tightened", "interval '1' year", "interval '6' month"),
        ("aggregate added", "as revenue", "as revenue, count(*) as items"),
        ("filter added", "where c_custkey", "where n_name <> 'JAPAN' and c_custkey"),
    ),
    "q06": (
        ("filter loosened", "l_quantity < 24", "l_quantity < 30"),
        ("filter tightened", "l_quantity < 24", "l_quantity < 20"),
        ("filter changed", "between 0.05 and 0.07", "between 0.04 and 0.06"),
        ("aggregate added", "as revenue", "as revenue, count(*) as items"),
        ("column renamed", "as revenue", "as turnover"),
    ),
    "q07": (
        ("filter loosened", "date '1996-12-31'", "date '1997-12-31'"),
        ("filter changed", "'GERMANY'", "'JAPAN'"),
        ("aggregate added", "sum(volume) as revenue", "sum(volume) as revenue, count(*) as items"),
        ("threshold above groups", "group by supp_nation", "where l_year > 1995 group by supp_nation"),
    ),
    "q08": (
        ("filter changed", "'ECONOMY ANODIZED STEEL'", "'STANDARD ANODIZED STEEL'"),
        ("column changed", "nation = 'BRAZIL'", "nation = 'CANADA'"),
        ("filter tightened", "date '1996-12-31'", "date '1996-06-30'"),
        ("aggregate added", "as mkt_share", "as mkt_share, sum(volume) as volume"),
    ),
    "q09": (
        ("filter loosened", "'%green%'", "'%green'"),
        ("filter removed", " and p_name like '%green%'", ""),
        ("aggregate added", "as sum_profit", "as sum_profit, count(*) as items"),
        ("filter added", "group by nation", "where o_year > 1994 group by nation"),
    ),
    "q10": (
        ("filter changed", "l_returnflag = 'R'", "l_returnflag = 'A'"),
        ("filter loosened", "interval '3' month", "interval '6' month"),
        ("column dropped", "c_phone,\n  c_comment\nfrom", "c_phone\nfrom"),
        ("aggregate added", "as revenue", "as revenue, count(*) as items"),
        (
            "join added",
            "from customer, orders, lineitem, nation\nwhere",
            "from customer, orders, lineitem, nation, region\nwhere n_regionkey = r_regionkey and r_name = 'ASIA' and",
        ),
    ),
    "q11": (
        ("threshold lowered", "0.0001", "0.00001"),
        ("threshold raised", "0.0001", "0.001"),
        ("filter changed", "'GERMANY'", "'FRANCE'"),
        ("column renamed", "value", "amount"),
        ("aggregate added", "as value", "as value, count(*) as offers"),
    ),
    "q12": (
        ("filter tightened", "'MAIL', 'SHIP'", "'MAIL'"),
        ("filter loosened", "'MAIL', 'SHIP'", "'MAIL', 'SHIP', 'RAIL'"),
        ("filter removed", "and l_commitdate < l_receiptdate", ""),
        ("aggregate added", "as low_line_count", "as low_line_count, count(*) as lines"),
        ("column changed", "o_orderpriority = '2-HIGH'", "o_orderpriority = '3-MEDIUM'"),
    ),
    "q13": (
        ("filter changed", "'%special%requests%'", "'%pending%requests%'"),
        ("threshold above groups", "group by c_count", "where c_count > 2 group by c_count"),
        ("aggregate added", "as custdist", "as custdist, max(c_custkey) as last"),
        ("filter removed", " and o_comment not like '%special%requests%'", ""),
    ),
    "q14": (
        ("filter changed", "'PROMO%'", "'STANDARD%'"),
        ("filter loosened", "interval '1' month", "interval '2' month"),
        ("column renamed", "as promo_revenue", "as share"),
        ("aggregate added", "as promo_revenue", "as promo_revenue, count(*) as items"),
    ),
    "q15": (
        ("filter loosened", "interval '3' month", "interval '4' month"),
        ("column dropped", "s_phone, ", ""),
        ("column added", "s_phone, ", "s_phone, s_comment, "),
        ("filter changed", "date '1996-01-01'", "date '1996-02-01'"),
        ("threshold changed", "= (select max(total_revenue)", ">= (select 0.9 * max(total_revenue)"),
    ),
    "q16": (
        ("filter tightened", "49, 14, 23", "49, 14"),
        ("filter loosened", "49, 14, 23", "49, 14, 23, 24"),
        ("filter removed", "p_brand <> 'Brand#45' and ", ""),
        (
            "threshold above groups",
            "group by p_brand, p_type, p_size",
            "group by p_brand, p_type, p_size\nhaving count(distinct ps_suppkey) > 4",
        ),
        ("aggregate added", "as supplier_cnt", "as supplier_cnt, sum(ps_availqty) as quantity"),
    ),
    "q17": (
        ("filter changed", "'Brand#23'", "'Brand#24'"),
        ("column changed", "/ 7.0", "/ 12.0"),
        ("threshold changed", "0.2 * avg", "0.3 * avg"),
        ("filter removed", " and p_container = 'MED BOX'", ""),
    ),
    "q18": (
        ("threshold raised", "> 300", "> 310"),
        ("threshold lowered", "> 300", "> 290"),
        ("column dropped", "o_totalprice, sum(l_quantity) as sum_qty", "o_totalprice"),
        ("aggregate added", "as sum_qty", "as sum_qty, count(*) as items"),
    ),
    "q19": (
        ("filter tightened", "l_quantity <= 30", "l_quantity <= 25"),
        ("filter loosened", "l_quantity <= 30", "l_quantity <= 35"),
        ("filter loosened", "'AIR', 'AIR REG'", "'AIR', 'AIR REG', 'RAIL'"),
        ("aggregate added", "as revenue", "as revenue, count(*) as items"),
    ),
    "q20": (
        ("other nation", "'CANADA'", "'FRANCE'"),
        ("filter changed", "'forest%'", "'green%'"),
        ("column added", "select s_name, s_address", "select s_name, s_address, s_phone"),
        ("threshold raised", "0.5 * sum", "0.6 * sum"),
        ("filter loosened", "interval '1' year", "interval '2' year"),
    ),
    "q21": (
        ("filter changed", "'SAUDI ARABIA'", "'EGYPT'"),
        ("filter changed", "o_orderstatus = 'F'", "o_orderstatus = 'O'"),
        ("column renamed", "numwait", "waiting"),
        ("filter added", "where s_suppkey", "where o_totalprice > 1000 and s_suppkey"),
    ),
    "q22": (
        ("filter tightened", "'30', '18', '17')\n    and", "'30', '18')\n    and"),
        ("filter changed", "c_acctbal > 0.00", "c_acctbal > 100.00"),
        ("aggregate added", "as totacctbal", "as totacctbal, max(c_acctbal) as most"),
        ("filter removed", "\n    and not exists (select * from orders where o_custkey = c_custkey)", ""),
    ),
}
"""Edits by query: their kinds, the text that is replaced, and the text that replaces it."""


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
    assert before in QUERIES[name]
    return QueryPair(name, QUERIES[name], QUERIES[name].replace(before, after), KNOWN)


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
