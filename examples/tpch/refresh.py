"""The data of TPC-H, and rounds of refresh: new orders with their line items, deleted ones, updates of the rest.

A hundredth of the orders, chosen by a hash of their key, is held back for each round and arrives in it; half as many go
again, and some customers, parts and supplies change.
"""

import shutil
import subprocess
import sysconfig
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.tpch.workflow import TABLES

KEYS = {name: (key,) if isinstance(key, str) else key for name, (_, key) in TABLES.items()}
_BY_ORDER = {"orders": "o_orderkey", "lineitem": "l_orderkey"}


def generate(place: Path, scale: float) -> Path:
    """Write the tables as Parquet, if they are not there.

    Args:
        place: a directory.
        scale: 1 is a gigabyte.

    Returns:
        The directory with a file per table.
    """
    made = place / f"scale-{scale:g}"
    if not made.exists():
        tool = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or "tpchgen-cli"
        part = place / f"scale-{scale:g}.part"
        subprocess.run(
            [tool, "parquet", "-s", f"{scale:g}", "--output-dir", str(part)], check=True, capture_output=True
        )
        part.rename(made)
    return made


class Refresh:
    """The rows of each round.

    Args:
        spark: the session.
        data: what `generate` gave.
    """

    def __init__(self, spark: SparkSession, data: Path) -> None:
        self._tables = {
            name: spark.read.parquet(str(data / f"{name}.parquet")).selectExpr(*_cast(schema))
            for name, (schema, _) in TABLES.items()
        }

    def first(self, table: str) -> DataFrame:
        """What a table holds before the first round."""
        rows = self._tables[table]
        return rows.where(f"{_bucket(_BY_ORDER[table])} >= 30") if table in _BY_ORDER else rows

    def round(self, number: int) -> dict[str, DataFrame]:
        """The upserts of a round, of all tables that change: 1, 2, … up to 30.

        Args:
            number: which.
        """
        return self.orders(number) | self._others(number)

    def orders(self, number: int) -> dict[str, DataFrame]:
        """The upserts of a round to orders and line items; the part of `round` that TPC-H itself has.

        Args:
            number: which.
        """
        found = {}
        for table, key in _BY_ORDER.items():
            rows = self._tables[table]
            new = rows.where(f"{_bucket(key)} = {number - 1}")
            gone = rows.where(f"{_bucket(key)} = {30 + number} AND pmod(hash({key}, 2), 20) < 10")
            found[table] = _marked(new, "false").unionByName(_marked(gone, "true"))
        return found

    def _others(self, number: int) -> dict[str, DataFrame]:
        found = {}
        changes = {
            "customer": "c_acctbal + 100.00 AS c_acctbal",
            "part": "p_size % 50 + 1 AS p_size",
            "partsupp": "ps_availqty + 1 AS ps_availqty",
        }
        for table, changed in changes.items():
            rows, (key, *_) = self._tables[table], KEYS[table]
            altered = rows.where(f"pmod(hash({key}, {number}), 500) = 0")
            value, _, name = changed.partition(" AS ")
            changed_rows = altered.withColumn(name, F.expr(value).cast(altered.schema[name].dataType))
            found[table] = _marked(changed_rows, "false")
        return found


def _bucket(key: str) -> str:
    return f"pmod(hash({key}), 100)"


def _marked(rows: DataFrame, deleted: str) -> DataFrame:
    return rows.selectExpr("*", f"{deleted} AS _deleted")


def _cast(schema: str) -> list[str]:
    columns = (part.strip().rsplit(" ", 1) for part in schema.replace(", ", ",\n").splitlines())
    return [f"CAST({name} AS {kind.rstrip(',')}) AS {name}" for name, kind in columns]
