"""Edits of the queries of TPC-H, of every kind that a migration is derived for."""

from examples.tpch.workflow import QUERIES

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


def edited(name: str, before: str, after: str) -> str:
    """Return a query after an edit.

    Args:
        name: `"q01"` to `"q22"`.
        before: the text that is replaced.
        after: the text that replaces it.
    """
    assert before in QUERIES[name]
    return QUERIES[name].replace(before, after)
