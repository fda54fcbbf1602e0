r"""The temporal provenance of a block or point: per path from a source channel, the source points that it reflects.

It is the part of a version (`kilonova.model.version`) that planning needs, with logic versions left out, as a tuple:
entry i belongs to path i of the channel. An entry is a set of source points as disjoint, sorted ranges, because a
block reflects one point of most paths, and rarely more than a few.

    ⊕:   provenance of what several inputs are combined into: concatenation
    ≺:   T₁ ≺ T₂ iff T₁[i]⁺ ≤ T₂[i]⁺ for all i, and T₁[j]⁺ < T₂[j]⁺ for some j
    conversion of a base T₁ by a delta from T₂ to T₃:   T₄[i] = (T₁[i] \ T₂[i]) ∪ T₃[i],
         where for each i either T₁[i] = T₂[i] or T₂[i] = T₃[i]

(asynchronous scheduling, 2.1 and 2.4). An empty entry belongs to an input that was not propagated (3.3): it precedes
all others, and no time is lost or gained by it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kilonova.model.bound import reflected
from kilonova.model.version import Path, Validity, Version

PointSet = tuple[tuple[int, int], ...]
"""A set of points: the first and the last of each range."""

Provenance = tuple[PointSet, ...]

Newest = tuple[int, ...]
"""The newest point of each entry; −1 for an empty entry."""

EMPTY: PointSet = ()
ORIGIN: PointSet = ((0, 0),)
"""Point 0, the empty relation."""


@dataclass(frozen=True, slots=True)
class ArrivalTimes:
    """The points of a source channel, and when each of them became the newest.

    Point 0 needs no entry: it is valid from the beginning to the first of them.

    Attributes:
        points: numbers of the points, ascending.
        times: when each arrived, ascending.
    """

    points: tuple[int, ...] = ()
    times: tuple[datetime, ...] = ()

    def start(self, point: int) -> datetime | None:
        """Return when a point became the newest: that of the last listed point that is not after it."""
        place = bisect_right(self.points, point)
        return self.times[place - 1] if place else None

    def end(self, point: int) -> datetime | None:
        """Return when a point ceased to be the newest; None if it still is."""
        place = bisect_right(self.points, point)
        return self.times[place] if place < len(self.times) else None

    def validity(self, point: int) -> Validity:
        """Return the interval in which a point is the newest."""
        return Validity(self.start(point), self.end(point))


def provenance_of(version: Version, paths: Sequence[Path]) -> Provenance:
    """Return the temporal provenance of a version, for the paths of its channel.

    >>> version = Version.source("crawl", 4).through("join", 0)
    >>> provenance_of(version, [("crawl", "join"), ("clicks", "score", "join")])
    (((4, 4),), ((0, 0),))
    """
    return tuple(union(tuple((each.first, each.last) for each in reflected(version, path)), ()) for path in paths)


def newest(provenance: Provenance) -> Newest:
    """Return the newest point of each entry.

    >>> newest((((1, 3), (7, 7)), ()))
    (7, -1)
    """
    return tuple([entry[-1][1] if entry else -1 for entry in provenance])


def precedes(one: Newest, other: Newest) -> bool:
    """Return whether T₁ ≺ T₂, for the newest points of both.

    >>> precedes((1, 2), (1, 3)), precedes((1, 2), (1, 2)), precedes((1, 2), (0, 3))
    (True, False, False)
    """
    if one == other:
        return False
    for mine, theirs in zip(one, other, strict=True):  # noqa: SIM110 (a generator takes twice as long)
        if mine > theirs:
            return False
    return True


def converted(base: Provenance, start: Provenance, end: Provenance) -> Provenance | None:
    """Return the provenance of a base after a delta; None if the delta cannot be applied to the base.

    >>> converted((((8, 8),), ((1, 1),)), (((8, 8),), ((2, 2),)), (((9, 9),), ((2, 2),)))
    (((9, 9),), ((1, 2),))
    >>> converted((((7, 7),), ((1, 1),)), (((8, 8),), ((1, 1),)), (((9, 9),), ((1, 1),))) is None
    True
    """
    if base == start:
        return end
    entries: list[PointSet] = []
    for mine, old, new in zip(base, start, end, strict=True):
        if mine == old:
            entries.append(new)
        elif old == new:
            entries.append(union(mine, new))
        else:
            return None
    return tuple(entries)


def extent(
    provenance: Provenance, paths: Sequence[Path], times: Mapping[str, ArrivalTimes]
) -> tuple[datetime | None, datetime | None]:
    """Return T⁺ and T⁻: None is the beginning of time for T⁺, and *now* for T⁻."""
    latest: datetime | None = None
    earliest: datetime | None = None
    for entry, path in zip(provenance, paths, strict=True):
        if not entry:
            continue
        arrivals = times[path[0]]
        start, end = arrivals.start(entry[-1][1]), arrivals.end(entry[0][0])
        if start is not None and (latest is None or start > latest):
            latest = start
        if end is not None and (earliest is None or end < earliest):
            earliest = end
    return latest, earliest


def is_consistent(provenance: Provenance, paths: Sequence[Path], times: Mapping[str, ArrivalTimes]) -> bool:
    """Return whether T⁺ < T⁻."""
    latest, earliest = extent(provenance, paths, times)
    return latest is None or earliest is None or latest < earliest


def union(one: PointSet, other: PointSet) -> PointSet:
    """Return the union of two sets, adjoining ranges joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted((*one, *other)):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)
