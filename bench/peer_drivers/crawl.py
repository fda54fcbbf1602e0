"""Pages that arrive in epochs, and the rows in which a table differs from its query."""

import os
from pathlib import Path

import duckdb


def arrive(place: Path, epoch: int) -> None:
    """Add the pages of an epoch to those that have arrived."""
    (place / "pages").mkdir(exist_ok=True)
    for file in (place / "arrivals" / f"{epoch}").resolve().glob("*.parquet"):
        os.link(file, place / "pages" / f"{epoch}-{file.name}")


def wrong(place: Path, case: dict[str, str], table: str) -> int:
    """Return the number of rows in which a table differs from the changed query."""
    expected = f"SELECT {case['columns']} FROM ({case['after']})"
    found = f"SELECT {case['columns']} FROM {table}"
    differing = f"(({found}) EXCEPT ALL ({expected})) UNION ALL (({expected}) EXCEPT ALL ({found}))"
    with duckdb.connect(str(place / "crawl.duckdb")) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM ({differing})").fetchone()
        return count
