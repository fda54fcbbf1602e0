"""Assignment of the parts of an old query to those of a new one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from kilonova.query.expression import Scalar
from kilonova.query.migration.comparer import Comparer
from kilonova.query.migration.equivalence import canonical
from kilonova.query.migration.joint import Joint
from kilonova.query.migration.query_block import QueryBlock
from kilonova.query.migration.unpaired import Unpaired, described
from kilonova.query.tree import Scan

_ASSIGNMENTS = 200
"""Number of assignments of the parts of one query to those of the other that are tried."""

Matches = dict[int, tuple[int, Joint]]
"""Parts of the old query, each with the part of the new one that it corresponds to, and their joint relation."""


def match_parts(comparison: Comparer, old: QueryBlock, new: QueryBlock) -> Matches:
    """Return the assignment of parts that leaves the fewest parts, and shares the most conditions."""
    candidates: list[list[tuple[int, Joint]]] = []
    reason: str | None = None
    for one in old.parts:
        found = []
        for place, other in enumerate(new.parts):
            if type(one) is type(other):
                try:
                    found.append((place, comparison.part(one, other)))
                except Unpaired as error:
                    same = not isinstance(one, Scan)
                    reason = error.reason if same or reason is None else reason
        candidates.append(found)
    every = list(islice(_assignments(candidates, 0, frozenset()), _ASSIGNMENTS))
    best = max(every, key=lambda each: (len(each), _shared(old, new, each)))
    if not best:
        raise Unpaired(reason or f"{described(old.parts[0])} was replaced by {described(new.parts[0])}")
    return best


def _assignments(candidates: list[list[tuple[int, Joint]]], place: int, used: frozenset[int]) -> Iterator[Matches]:
    if place == len(candidates):
        yield {}
        return
    free = [each for each in candidates[place] if each[0] not in used]
    for other, joint in free:
        for rest in _assignments(candidates, place + 1, used | {other}):
            yield {place: (other, joint), **rest}
    yield from _assignments(candidates, place + 1, used)


def _shared(old: QueryBlock, new: QueryBlock, matches: Matches) -> int:
    was: dict[str, Scalar] = {}
    now: dict[str, Scalar] = {}
    for _, joint in matches.values():
        was.update(joint.old)
        now.update(joint.new)
    texts = [
        {canonical(each.with_columns(columns)) for each in block.conditions}
        for block, columns in ((old, was), (new, now))
    ]
    return len(texts[0] & texts[1])
