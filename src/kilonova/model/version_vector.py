"""Version vector of a point: its version with one component per ancestor of the channel (logic evolution, 2.1).

The component of a source channel is the points that are reflected, that of a task its logic versions. Usually each is
one number; they are several where an ancestor is reached by paths of which one lags behind another, or where an
asynchronous lookup has combined rows of several versions. `s` and `e` stand before the first and after the last: of
ancestors that were inserted or attached later, and of those that were removed or detached (logic evolution, 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter

from kilonova.model.point_ranges import describe_points
from kilonova.model.version import Version, describe_logic


@dataclass(frozen=True, slots=True, order=True)
class Ancestor:
    """Source channel or task that rows of a channel come from or through."""

    name: str
    is_source: bool


def ancestors(versions: Iterable[Version]) -> tuple[Ancestor, ...]:
    """Return the ancestors that versions of a channel have, in topological order: sources first, its writer last.

    >>> version = Version.source("b", 1).through("t", 0).joined(Version.source("a", 2)).through("u", 0)
    >>> [each.name for each in ancestors([version])]
    ['a', 'b', 't', 'u']
    """
    sorter: TopologicalSorter[Ancestor] = TopologicalSorter()
    for path in sorted({path for version in versions for path, _ in version.entries}):
        last = Ancestor(path[0], True)
        sorter.add(last)
        for task in path[1:]:
            sorter.add(Ancestor(task, False), last)
            last = Ancestor(task, False)
    return tuple(sorter.static_order())


def component(version: Version, ancestor: Ancestor) -> str:
    """Return the component of a version for an ancestor; an empty text if the version has none.

    >>> version = Version.source("a", 1).through("t", 0).joined(Version.source("a", 3).through("t", 1))
    >>> component(version, Ancestor("a", True)), component(version, Ancestor("t", False))
    ('1 and 3', '0 and 1')
    """
    if ancestor.is_source:
        if points := version.points(ancestor.name):
            return describe_points(points)
        ends = {each.first for path, entry in version.entries if path[0] == ancestor.name for each in entry}
        return " and ".join(map(describe_logic, sorted(ends)))
    return " and ".join(map(describe_logic, version.logics(ancestor.name)))


def describe_vector(version: Version) -> str:
    """Return the version vector of a version as text.

    >>> describe_vector(Version.source("articles", 3).through("tags", 1))
    '[articles 3, tags 1]'
    """
    return f"[{', '.join(f'{each.name} {component(version, each)}' for each in ancestors([version]))}]"
