"""The eight tables of TPC-H as channels, and its 22 queries as views over them."""

from pathlib import Path

import kilonova as kn

TABLES = {
    "region": ("r_regionkey bigint, r_name string, r_comment string", "r_regionkey"),
    "nation": ("n_nationkey bigint, n_name string, n_regionkey bigint, n_comment string", "n_nationkey"),
    "supplier": (
        "s_suppkey bigint, s_name string, s_address string, s_nationkey bigint, s_phone string,"
        " s_acctbal decimal(15,2), s_comment string",
        "s_suppkey",
    ),
    "customer": (
        "c_custkey bigint, c_name string, c_address string, c_nationkey bigint, c_phone string,"
        " c_acctbal decimal(15,2), c_mktsegment string, c_comment string",
        "c_custkey",
    ),
    "part": (
        "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int,"
        " p_container string, p_retailprice decimal(15,2), p_comment string",
        "p_partkey",
    ),
    "partsupp": (
        "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(15,2), ps_comment string",
        ("ps_partkey", "ps_suppkey"),
    ),
    "orders": (
        "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15,2), o_orderdate date,"
        " o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
        "o_orderkey",
    ),
    "lineitem": (
        "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15,2),"
        " l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string,"
        " l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string,"
        " l_shipmode string, l_comment string",
        ("l_orderkey", "l_linenumber"),
    ),
}
QUERIES = {file.stem: file.read_text() for file in sorted(Path(__file__).parent.glob("q*.sql"))}


def tpch(queries: tuple[str, ...] = tuple(QUERIES), refresh: str = "auto") -> kn.Workflow:
    """The workflow with some of the queries.

    Args:
        queries: which, `"q01"` to `"q22"`.
        refresh: as for `Workflow.view`.
    """
    workflow = kn.Workflow("tpch")
    for name, (schema, key) in TABLES.items():
        workflow.channel(name, schema, key=key)
    for name in queries:
        workflow.view(name, QUERIES[name], refresh=refresh)
    return workflow


def maintenance() -> list[str]:
    """How each query is kept up to date, as the rows of a Markdown table."""
    tasks = tpch().declared().workflow.tasks
    rows = []
    for name in QUERIES:
        mine = [task for task in tasks if task.name.partition("__")[0] == name]
        steps = (f"{task.name.removeprefix(name).lstrip('_') or 'view'}: {task.note}" for task in mine)
        rows.append(f"| {name} | {'; '.join(steps)} |")
    return rows
