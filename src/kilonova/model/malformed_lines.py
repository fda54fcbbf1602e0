"""Lines of ingested files that did not fit the columns, where the reader option `mode` allows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedLines:
    """Lines that did not fit, of one ingest.

    Attributes:
        count: their number.
        dropped: whether their rows were dropped; else the values that did not fit became null.

    >>> str(MalformedLines(count=2, dropped=True))
    '2 lines did not fit, whose rows were dropped'
    """

    count: int
    dropped: bool

    def __str__(self) -> str:
        lines = "1 line" if self.count == 1 else f"{self.count:,} lines"
        return f"{lines} did not fit, whose {'rows were dropped' if self.dropped else 'wrong values became null'}"
