"""Shape of a task's SQL, and what a run of it takes where next to no data flows.

Spark analyses, compiles and schedules a query before it reads a row, and each reading of a relation opens its files.
Over small relations nothing else counts. The change of a query is larger than the query: each relation that has changed
makes a term, and a term has between one and all of the query's joins, as a chain of joins shares what its first
relations make. These counts are estimated from those of the query, without deriving its change: that takes seconds
for fifty joins.

The counts are taken from the text, because they are for estimates only: a word in a string or a comment counts as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import assert_never

from kilonova.model.run import Way
from kilonova.model.task import Function, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a query consists of.

    Attributes:
        relations: different relations that it reads.
        scans: how often it reads one of them.
        joins: its joins.
        stages: where rows have to meet otherwise: groups, windows, orders.
    """

    relations: int = 1
    scans: int = 1
    joins: int = 0
    stages: int = 0


PLAIN = Shape()
"""One relation, read once."""

_WORDS = re.compile(r"\b(JOIN|UNION|INTERSECT|EXCEPT|GROUP\s+BY|ORDER\s+BY|DISTINCT|OVER)\b", re.IGNORECASE)


def shape_of(task: Task) -> Shape:
    """The shape of a task's SQL; of a function, as if it did nothing but read."""
    relations = max(1, len(task.reads))
    logic = task.variants[0].logic
    if isinstance(logic, Function):
        return Shape(relations=relations, scans=relations)
    words = [word.upper() for word in _WORDS.findall(logic.text)]
    joins, unions = words.count("JOIN"), sum(map(words.count, ("UNION", "INTERSECT", "EXCEPT")))
    scans = max(relations, joins + unions + 1)
    return Shape(relations=relations, scans=scans, joins=joins, stages=len(words) - joins - unions)


_TASK = 0.2
"""Seconds of a task: deciding, one job, files of a block and the catalog."""

_READING = 0.15
"""Seconds of reading a relation once, and joining it."""

_STAGE = 0.1
"""Seconds of a stage."""


def overhead(way: Way, shape: Shape, moved: int) -> float:
    """How many seconds a run takes besides what depends on the size of data.

    Args:
        way: any but fresh.
        shape: what its query consists of.
        moved: how many of its relations have changed.

    >>> star = Shape(relations=16, scans=16, joins=15)
    >>> round(overhead(Way.INCREMENTAL, PLAIN, 1), 2), round(overhead(Way.WHOLE, PLAIN, 1), 2)
    (0.35, 0.35)
    >>> round(overhead(Way.INCREMENTAL, star, 16), 1), round(overhead(Way.WHOLE, star, 16), 1)
    (21.7, 2.6)
    """
    match way:
        case Way.WHOLE | Way.FRESH:
            return _TASK + _READING * shape.scans + _STAGE * shape.stages
        case Way.INCREMENTAL:
            return _TASK + _changing(shape, moved)
        case Way.PARTITIONWISE:
            return _TASK + _changing(shape, moved) + _READING * shape.scans
        case _:
            assert_never(way)


def _changing(shape: Shape, moved: int) -> float:
    """The seconds of the SQL of a change, from about as many readings as that has."""
    terms = shape.scans * min(moved, shape.relations) / shape.relations
    readings = terms + shape.joins * (terms + 1) / 2
    return _READING * readings + 2 * _STAGE * shape.stages
