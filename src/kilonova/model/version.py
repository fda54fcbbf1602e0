r"""A version says which source points and which logic versions the relation at a point reflects.

It has one entry per *path* from a source channel, `(source, task, …, task)`. An entry is a set of
reflections: which snapshots of the source, seen through which logic version of each task on the path.
A point is *consistent* where every entry is a single reflection, and all entries that start at one source
agree on its point; an asynchronous lookup makes an entry grow to several.

    base:   V[path·t] = { (p, l·λ) : (p, l) ∈ V_input[path] }
    delta:  V₄ = (V₁ \ V₂) ∪ V₃   for a delta from V₂ to V₃ applied to V₁
            (asynchronous scheduling, 2.4, the relaxed converter cᐩᴮ)

where λ is the logic version of task t. Logic versions grow, `START < 0 < 1 < … < END` (logic evolution,
sections 2.1 and 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

Path = tuple[str, ...]

START: Final = -1
"""The logic version `s` of a task that has not begun to exist: a no-op."""
END: Final = 2**31 - 1
"""The logic version `e` of a task that has ceased to exist: a no-op."""


@dataclass(frozen=True, slots=True, order=True)
class Reflection:
    """Source snapshots `first` to `last`, seen through the logic versions along a path."""

    logic: tuple[int, ...]
    first: int
    last: int


Entry = tuple[Reflection, ...]


def _entry(points: Iterable[tuple[tuple[int, ...], int, int]]) -> Entry:
    """A sorted entry with adjoining ranges joined."""
    joined: list[Reflection] = []
    for logic, first, last in sorted(points):
        if joined and joined[-1].logic == logic and first <= joined[-1].last + 1:
            joined[-1] = Reflection(logic, joined[-1].first, max(last, joined[-1].last))
        else:
            joined.append(Reflection(logic, first, last))
    return tuple(joined)


def _minus(left: Entry, right: Entry) -> Entry:
    """The reflections of `left` that are not in `right`."""
    rest = [(item.logic, item.first, item.last) for item in left]
    for gone in right:
        cut: list[tuple[tuple[int, ...], int, int]] = []
        for logic, first, last in rest:
            if logic != gone.logic or gone.last < first or last < gone.first:
                cut.append((logic, first, last))
                continue
            if first < gone.first:
                cut.append((logic, first, gone.first - 1))
            if gone.last < last:
                cut.append((logic, gone.last + 1, last))
        rest = cut
    return _entry(rest)


@dataclass(frozen=True, slots=True)
class Version:
    """What a point reflects: reflections per path, sorted by path."""

    entries: tuple[tuple[Path, Entry], ...] = ()

    @classmethod
    def of(cls, entries: Mapping[Path, Entry]) -> Version:
        """A version from its entries by path."""
        return cls(tuple(sorted(entries.items())))

    @classmethod
    def source(cls, channel: str, point: int) -> Version:
        """The version of a point of a source channel."""
        return cls.of({(channel,): (Reflection((), point, point),)})

    def through(self, task: str, logic: int) -> Version:
        """This version as a base block sees it that `task` makes of it."""
        return Version.of(
            {
                (*path, task): tuple(Reflection((*r.logic, logic), r.first, r.last) for r in entry)
                for path, entry in self.entries
            }
        )

    def joined(self, other: Version) -> Version:
        """The version of a relation that is made from two inputs (their ⊕)."""
        mine = dict(self.entries)
        for path, entry in other.entries:
            mine[path] = _entry((r.logic, r.first, r.last) for r in (*mine.get(path, ()), *entry))
        return Version.of(mine)

    def advanced(self, start: Version, end: Version) -> Version:
        r"""The version after a delta from `start` to `end` was applied to this one: (V₁ \ V₂) ∪ V₃.

        Paths that the delta does not speak of stay as they are.
        """
        mine, old, new = dict(self.entries), dict(start.entries), dict(end.entries)
        for path, entry in new.items():
            kept = _minus(mine.get(path, ()), old.get(path, ()))
            mine[path] = _entry((r.logic, r.first, r.last) for r in (*kept, *entry))
        return Version.of(mine)

    @property
    def consistent(self) -> bool:
        """Whether every path reflects one snapshot of its source, and the same one on all paths."""
        points: dict[str, int] = {}
        for path, entry in self.entries:
            if len(entry) != 1 or entry[0].first != entry[0].last:
                return False
            if points.setdefault(path[0], entry[0].first) != entry[0].first:
                return False
        return True

    def is_behind(self, frontier: Version) -> bool:
        """Whether publishing this version after `frontier` would go back (logic evolution, 4.1).

        True if some path's newest reflection is older than that of the same path in `frontier`.
        """
        mine = dict(self.entries)
        return any(
            max(r.last for r in mine[path]) < max(r.last for r in entry)
            or max(r.logic for r in mine[path]) < max(r.logic for r in entry)
            for path, entry in frontier.entries
            if mine.get(path) and entry
        )

    def __str__(self) -> str:
        return "; ".join(
            f"{'›'.join(path)} " + " ".join(_shown(reflection) for reflection in entry) for path, entry in self.entries
        )


def _shown(reflection: Reflection) -> str:
    points = str(reflection.first)
    if reflection.last != reflection.first:
        points += f"–{reflection.last}"
    names = {START: "s", END: "e"}
    logic = ",".join(names.get(number, str(number)) for number in reflection.logic)
    return f"{points}[{logic}]" if logic else points
