"""Shape of a task's SQL, and the duration of a run over almost no data.

Spark analyses, compiles and schedules a query before it reads a row, and each scan of a relation opens its files.
Over small relations these costs dominate. The delta query of a query is larger than the query: each changed relation
adds a term, and a term has between one and all of the query's joins, as a chain of joins shares the results of its
first relations. These counts are estimated from those of the query, without deriving its delta query: that takes
seconds for fifty joins.

The counts are taken from the text, as they are only for estimates: a word in a string or a comment counts as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import assert_never

from kilonova.model.logic import Logic
from kilonova.model.run import RefreshMethod
from kilonova.model.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryShape:
    """Operator counts of a query.

    Attributes:
        relations: the number of distinct relations that it reads.
        scans: the number of scans of them.
        joins: the number of joins.
        stages: the number of other shuffles: groups, windows, orders.
        sources: the shape of a view's query over the channels that it names, if it may be computed from them.
    """

    relations: int = 1
    scans: int = 1
    joins: int = 0
    stages: int = 0
    sources: QueryShape | None = None


PLAIN = QueryShape()
"""Shape of a query that reads one relation once."""

_WORDS = re.compile(r"\b(JOIN|UNION|INTERSECT|EXCEPT|GROUP\s+BY|ORDER\s+BY|DISTINCT|OVER)\b", re.IGNORECASE)


def shape_of(task: Task) -> QueryShape:
    """Return the shape of a task's SQL; that of a function counts only its reads."""
    direct = task.from_sources
    shape = _shape(task.variants[0].logic, max(1, len(task.reads)))
    return shape if direct is None else replace(shape, sources=_shape(direct.logic, len(task.sources)))


def _shape(logic: Logic, relations: int) -> QueryShape:
    if logic.language != "sql":
        return QueryShape(relations=relations, scans=relations)
    words = [word.upper() for word in _WORDS.findall(logic.text)]
    joins, unions = words.count("JOIN"), sum(map(words.count, ("UNION", "INTERSECT", "EXCEPT")))
    scans = max(relations, joins + unions + 1)
    return QueryShape(relations=relations, scans=scans, joins=joins, stages=len(words) - joins - unions)


_TASK = 0.2
"""Seconds per task: planning, one job, files of a block and the catalog."""

_READING = 0.15
"""Seconds per scan of a relation, with its join."""

_STAGE = 0.1
"""Seconds per stage."""


def overhead(method: RefreshMethod, shape: QueryShape, moved: int) -> float:
    """Return the seconds of a run that do not depend on the size of the data.

    Args:
        method: the refresh method.
        shape: the shape of its query.
        moved: how many of its relations have changed.

    >>> star = QueryShape(relations=16, scans=16, joins=15)
    >>> round(overhead(RefreshMethod.INCREMENTAL, PLAIN, 1), 2), round(overhead(RefreshMethod.FULL, PLAIN, 1), 2)
    (0.35, 0.35)
    >>> round(overhead(RefreshMethod.INCREMENTAL, star, 16), 1), round(overhead(RefreshMethod.FULL, star, 16), 1)
    (21.7, 2.6)
    """
    match method:
        case RefreshMethod.FULL | RefreshMethod.INITIAL | RefreshMethod.MIGRATION:
            return _TASK + _READING * shape.scans + _STAGE * shape.stages
        case RefreshMethod.FROM_SOURCES:
            return overhead(RefreshMethod.FULL, shape.sources or shape, moved)
        case RefreshMethod.INCREMENTAL:
            return _TASK + _changing(shape, moved)
        case RefreshMethod.AFFECTED_GROUPS:
            return _TASK + _changing(shape, moved) + _READING * shape.scans
        case _:
            assert_never(method)


def _changing(shape: QueryShape, moved: int) -> float:
    """Return the seconds of a delta query, from the estimated number of its scans."""
    terms = shape.scans * min(moved, shape.relations) / shape.relations
    readings = terms + shape.joins * (terms + 1) / 2
    return _READING * readings + 2 * _STAGE * shape.stages
