r"""A version records the source points and the logic versions that the relation at a point reflects.

It has one entry per *path* from a source channel, `(source, task, …, task)`. An entry is a set of
reflections: snapshots of the source, seen through a logic version of each task on the path;
an asynchronous lookup makes an entry grow to several.

A snapshot of a source is valid from the time at which it could first be read until the next one could. With T⁺ the
latest of those beginnings and T⁻ the earliest of those ends, over all snapshots that a version reflects, its temporal
provenance is *consistent* iff T⁺ < T⁻: then it reflects the newest snapshot of every source as of any time in [T⁺, T⁻)
(asynchronous scheduling, 2.1).

    base:   V[path·t] = { (p, l·λ) : (p, l) ∈ V_input[path] }
    delta:  V₄ = (V₁ \ V₂) ∪ V₃   for a delta from V₂ to V₃ applied to V₁
            (asynchronous scheduling, 2.4, the relaxed converter cᐩᴮ)

where λ is the logic version of task t. Logic versions grow, `START < 0 < 1 < … < END` (logic evolution,
sections 2.1 and 3.2).

Changes of the workflow's structure are changes of logic versions (logic evolution, 3.2): a task that is inserted has
always been there as a no-op of the version `START`; a path through an input that is attached reflects the point `START`
of its source before, one through an input that is detached the point `END` afterwards. So the versions before and after
a change have the same paths, and can be compared.

Versions are partially ordered by ≺. No point is filled with a version that precedes one of the channel's *frontier*,
its maximal versions (logic evolution, 4.1). Two versions are incomparable if each is less in some component.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

Path = tuple[str, ...]

START: Final = -1
"""The logic version `s` of a task that does not exist yet: a no-op."""
END: Final = 2**31 - 1
"""The logic version `e` of a task that no longer exists: a no-op."""


@dataclass(frozen=True, slots=True, order=True)
class Reflection:
    """Source snapshots `first` to `last`, seen through the logic versions along a path."""

    logic: tuple[int, ...]
    first: int
    last: int

    @property
    def is_structural(self) -> bool:
        """Return whether it reflects no snapshot: the path did not exist yet, or does not any more."""
        return self.first in (START, END)


Entry = tuple[Reflection, ...]


@dataclass(frozen=True, slots=True)
class Validity:
    """Interval in which a snapshot is the newest, its end excluded.

    Attributes:
        start: the beginning; None for the empty relation, which has no beginning.
        end: the end; None if it has not ended, which is later than every time (the paper's *now*).
    """

    start: datetime | None
    end: datetime | None

    @property
    def empty(self) -> bool:
        """Return whether the interval is empty."""
        return self.start is not None and self.end is not None and self.start >= self.end


def _entry(points: Iterable[tuple[tuple[int, ...], int, int]]) -> Entry:
    """Return a sorted entry with adjoining ranges joined; `START` only stands for an entry without snapshots."""
    joined: list[Reflection] = []
    every = sorted(points)
    for logic, first, last in [each for each in every if each[1] != START] or every:
        if joined and joined[-1].logic == logic and first <= joined[-1].last + 1:
            joined[-1] = Reflection(logic, joined[-1].first, max(last, joined[-1].last))
        else:
            joined.append(Reflection(logic, first, last))
    return tuple(joined)


def _minus(left: Entry, right: Entry) -> Entry:
    """Return the reflections of `left` that are not in `right`."""
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
    """The version of a point: reflections per path, sorted by path."""

    entries: tuple[tuple[Path, Entry], ...] = ()

    @classmethod
    def of(cls, entries: Mapping[Path, Entry]) -> Version:
        """Return a version from its entries by path."""
        return cls(tuple(sorted(entries.items())))

    @classmethod
    def source(cls, channel: str, point: int) -> Version:
        """Return the version of a point of a source channel."""
        return cls.of({(channel,): (Reflection((), point, point),)})

    def begins(self, source: str, point: int) -> bool:
        """Return whether the newest rows ingested into a source channel are those of a point."""
        return any(path == (source,) and entry[-1].last == point for path, entry in self.entries)

    def by(self, task: str) -> Version:
        """Return the part of this version that a task contributed: the paths that end in it."""
        return Version(tuple((path, entry) for path, entry in self.entries if len(path) > 1 and path[-1] == task))

    @property
    def extremes(self) -> frozenset[tuple[str, int]]:
        """The first and the last source point of each range that is reflected, whose validities `validity` looks up."""
        return frozenset((source, number) for source, one in self._snapshots for number in (one.first, one.last))

    @property
    def _snapshots(self) -> list[tuple[str, Reflection]]:
        """The ranges of source points that are reflected, each with its source channel."""
        each = ((path[0], reflection) for path, entry in self.entries for reflection in entry)
        return [(source, reflection) for source, reflection in each if not reflection.is_structural]

    def points(self, source: str) -> tuple[tuple[int, int], ...]:
        """Return the points of a source channel that are reflected, as ranges: the first and last point of each."""
        every = (each for path, entry in self.entries if path[0] == source for each in entry)
        points = (((), each.first, each.last) for each in every if not each.is_structural)
        return tuple((each.first, each.last) for each in _entry(points))

    def logics(self, task: str) -> tuple[int, ...]:
        """Return the logic versions of a task through which points are reflected, in order."""
        places = ((path.index(task, 1) - 1, entry) for path, entry in self.entries if task in path[1:])
        return tuple(sorted({each.logic[place] for place, entry in places for each in entry}))

    def reflects_any(self, logics: Mapping[str, Collection[int]]) -> str | None:
        """Return the first task of which one of the given logic versions is reflected, as text; None if there is none.

        >>> Version.source("a", 1).through("t", 0).reflects_any({"t": {0, 2}})
        'logic version 0 of t'
        """
        found = ((task, n) for task, some in sorted(logics.items()) for n in self.logics(task) if n in some)
        return next((f"logic version {number} of {task}" for task, number in found), None)

    def beside(self, other: Version) -> Version:
        """Return the version of a channel that reflects the output of two writers: per path, the more advanced entry.

        >>> print(Version.source("a", 3).beside(Version.source("b", 2)).beside(Version.source("a", 1)))
        a 3; b 2
        """
        mine = dict(self.entries)
        further = {path: entry for path, entry in other.entries if not _newest(entry) < _newest(mine.get(path, entry))}
        return Version.of(mine | further)

    def through(self, task: str, logic: int) -> Version:
        """Return the version of a base block that `task` computes from a relation of this version."""
        return Version.of(
            {
                (*path, task): tuple(Reflection((*r.logic, logic), r.first, r.last) for r in entry)
                for path, entry in self.entries
            }
        )

    def inputs(self) -> tuple[Version, ...]:
        """Return the versions of the inputs that this version of a task's output reflects: V⟨1⟩, V⟨2⟩, … (A.1).

        Inputs that one task writes are one version, in which paths of all of them are.

        >>> version = Version.source("a", 1).through("t", 0).joined(Version.source("b", 2)).through("u", 0)
        >>> [str(each) for each in version.inputs()]
        ['b 2', 'a›t 1[0]']
        """
        found: dict[str, dict[Path, Entry]] = {}
        for path, entry in self.entries:
            if len(path) > 1:
                before = _entry((each.logic[:-1], each.first, each.last) for each in entry)
                found.setdefault(path[-2], {})[path[:-1]] = before
        return tuple(Version.of(entries) for _, entries in sorted(found.items()))

    def with_logic(self, task: str, old: int, new: int) -> Version:
        """Return this version with a logic version of a task instead of another one.

        >>> print(Version.source("a", 1).through("t", 0).through("u", 0).with_logic("t", 0, 2))
        a›t›u 1[2,0]
        """

        def replaced(path: Path, logic: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(new if (t, n) == (task, old) else n for t, n in zip(path[1:], logic, strict=True))

        return Version.of(
            {path: _entry((replaced(path, r.logic), r.first, r.last) for r in entry) for path, entry in self.entries}
        )

    def before(self) -> Version:
        """Return the version of all inputs together of the tasks in which the paths end.

        >>> print(Version.source("a", 1).through("t", 0).through("u", 1).before())
        a›t 1[0]
        """
        found = Version()
        for path, entry in self.entries:
            above = tuple(Reflection(r.logic[:-1], r.first, r.last) for r in entry)
            found = found.joined(Version.of({path[:-1]: above}))
        return found

    def joined(self, other: Version) -> Version:
        """Return the version of a relation that is computed from two inputs (their ⊕)."""
        mine = dict(self.entries)
        for path, entry in other.entries:
            mine[path] = _entry((r.logic, r.first, r.last) for r in (*mine.get(path, ()), *entry))
        return Version.of(mine)

    def advanced(self, start: Version, end: Version, computed: Version | None = None) -> Version:
        r"""Return the version after a delta from `start` to `end` was applied to this one: (V₁ \ V₂) ∪ V₃.

        Paths that the delta does not contain stay as they are.

        Args:
            start: the version from which the delta leads.
            end: the version to which it leads.
            computed: this version before it was found to reflect later points, too, because nothing had changed. What
                the delta replaces may be named by an earlier point in `start` than here.

        >>> computed, unchanged = Version.source("a", 3), Version.source("a", 4)
        >>> print(unchanged.advanced(computed, Version.source("a", 5), computed))
        a 5
        """
        mine, old, new = dict(self.entries), dict(start.entries), dict(end.entries)
        before = mine if computed is None else dict(computed.entries)
        for path, entry in new.items():
            kept = _minus(mine.get(path, ()), old.get(path, ()))
            if before is not mine:
                kept = _minus(kept, _minus(kept, _minus(before.get(path, ()), old.get(path, ()))))
            mine[path] = _entry((r.logic, r.first, r.last) for r in (*kept, *entry))
        return Version.of(mine)

    def with_inserted(self, task: str, after: Collection[str], before: Collection[str]) -> Version:
        """Return this version as if a task had always been a no-op between others (logic evolution, 3.2.1).

        Args:
            task: the task.
            after: the writers of its input: tasks, or the source channel itself.
            before: the tasks that read its output from now on.

        >>> print(Version.source("crawled", 0).through("extract", 0).with_inserted("filter", ["crawled"], ["extract"]))
        crawled›filter›extract 0[s,0]
        """
        entries: dict[Path, Entry] = {}
        for path, entry in self.entries:
            place = next(
                (n for n, (one, next_) in enumerate(pairwise(path), 1) if one in after and next_ in before), None
            )
            if place is None:
                entries[path] = entry
                continue
            entries[*path[:place], task, *path[place:]] = tuple(
                replace(each, logic=(*each.logic[: place - 1], START, *each.logic[place - 1 :])) for each in entry
            )
        return Version.of(entries)

    def written_by(self, task: str) -> Version:
        """Return this version of a task's output as if another task had written it, at the logic version `START`.

        >>> print(Version.source("crawled", 3).through("counts", 2).written_by("groups"))
        crawled›groups 3[s]
        """
        return Version.of(
            {
                (*path[:-1], task): _entry(((*each.logic[:-1], START), each.first, each.last) for each in entry)
                for path, entry in self.entries
            }
        )

    def with_attached(self, task: str, paths: Iterable[Path]) -> Version:
        """Return this version as if a task had always had an input that it has not read yet (logic evolution, 3.2.3).

        Args:
            task: the task.
            paths: the paths of the input's version.

        >>> print(Version.source("a", 1).through("t", 0).through("u", 2).with_attached("t", [("b", "s")]))
        a›t›u 1[0,2]; b›s›t›u s[s,0,2]
        """
        mine = dict(self.entries)
        for path, entry in self.entries:
            if task not in path[1:] or not entry:
                continue
            place = path.index(task, 1)
            logic = _newest(entry)[place:]
            for each in paths:
                begun = Reflection(((START,) * (len(each) - 1) + logic), START, START)
                mine.setdefault((*each, *path[place:]), (begun,))
        return Version.of(mine)

    def with_detached(self, before: Version, inputs: Iterable[Version]) -> Version:
        """Return this version of a task's output with an end of the paths that it had before (logic evolution, 3.2.4).

        Args:
            before: the version of the output before.
            inputs: the versions of all inputs of the task: paths through the writer of none of them end.

        >>> before = Version.source("a", 1).joined(Version.source("b", 1)).through("t", 0)
        >>> print(Version.source("a", 1).through("t", 1).with_detached(before, [Version.source("a", 1)]))
        a›t 1[1]; b›t e[1]
        """
        read = {path[-1] for each in inputs for path, _ in each.entries}
        mine = dict(self.entries)
        gone = [path for path, entry in before.entries if len(path) > 1 and entry and path[-2] not in read]
        for path in gone:
            logic = max(each.logic[-1] for _, entry in (self if self.entries else before).entries for each in entry)
            mine[path] = (Reflection((*(END,) * (len(path) - 2), logic), END, END),)
        return Version.of(mine)

    def without_ended(self, kept: Iterable[Version]) -> Version:
        """Return this version without paths that have ended in all of the versions that are kept of the channel.

        >>> ended = Version.of({("b", "t"): (Reflection((1,), END, END),)})
        >>> ended.without_ended([ended]).entries, ended.without_ended([Version.source("b", 1).through("t", 0)]) == ended
        ((), True)
        """
        over = {path for path, entry in self.entries if all(each.first == END for each in entry)}
        for each in kept if over else ():
            over -= {path for path, entry in each.entries if any(one.first != END for one in entry)}
        return Version(tuple((path, entry) for path, entry in self.entries if path not in over)) if over else self

    def relabelled(self, old: Version, new: Version) -> Version:
        """Return this version where a relation that it was computed from reflects another version as well.

        Args:
            old: the version of that relation from which this one was computed; paths that do not have it are as before.
            new: the other version of the same relation.

        >>> computed = Version.source("a", 3).through("t", 0)
        >>> print(computed.relabelled(computed, Version.source("a", 5).through("t", 0)))
        a›t 5[0]
        """
        mine, before, after = dict(self.entries), dict(old.entries), dict(new.entries)
        for path, entry in after.items():
            rest = _minus(mine.get(path, ()), before.get(path, ()))
            if rest != mine.get(path, ()):
                mine[path] = _entry((r.logic, r.first, r.last) for r in (*rest, *entry))
        return Version.of(mine)

    def validity(self, of: Callable[[str, int], Validity]) -> Validity:
        """Return [T⁺, T⁻): the intersection of the validities of all snapshots that this version reflects.

        Args:
            of: the validity of each point of each source channel; those of a channel abut, so that only the first and
                the last point of each range are looked up.
        """
        starts = [start for source, one in self._snapshots if (start := of(source, one.last).start) is not None]
        ends = [end for source, one in self._snapshots if (end := of(source, one.first).end) is not None]
        return Validity(max(starts, default=None), min(ends, default=None))

    def is_consistent(self, of: Callable[[str, int], Validity]) -> bool:
        """Return whether T⁺ < T⁻, and each path was seen through one logic version of its tasks.

        Args:
            of: the validity of each point of each source channel.
        """
        one_logic = all(len({reflection.logic for reflection in entry}) == 1 for _, entry in self.entries if entry)
        return one_logic and not self.validity(of).empty

    def reaches(self, other: Version) -> bool:
        """Return whether no component of this version is less than that of another.

        The components are, for each path that both versions have, the newest source point and the newest logic version
        of each task on the path.
        """
        mine = dict(self.entries)
        return not any(
            newest < reached
            for path, entry in other.entries
            if mine.get(path) and entry
            for newest, reached in zip(_newest(mine[path]), _newest(entry), strict=True)
        )

    def precedes(self, other: Version) -> bool:
        """Return whether this version ≺ another: no component is greater, and one is less (logic evolution, 2.4).

        >>> first, second = Version.source("a", 1).through("t", 0), Version.source("a", 2).through("t", 0)
        >>> first.precedes(second), second.precedes(first), first.precedes(first)
        (True, False, False)
        >>> upgraded = Version.source("a", 1).through("t", 1)
        >>> upgraded.precedes(second) or second.precedes(upgraded)
        False
        """
        return other.reaches(self) and not self.reaches(other)

    def __str__(self) -> str:
        return "; ".join(
            f"{'›'.join(path)} " + " ".join(_shown(reflection) for reflection in entry) for path, entry in self.entries
        )


def frontier(versions: Iterable[Version]) -> tuple[Version, ...]:
    r"""Return the maximal versions among some: those that precede no other (logic evolution, 4.1).

    >>> points = (Version.source("a", point).through("t", logic) for point, logic in ((1, 0), (2, 0), (1, 1)))
    >>> print(*frontier(points), sep="\n")
    a›t 2[0]
    a›t 1[1]
    """
    found: list[Version] = []
    for each in dict.fromkeys(versions):
        if not any(each.precedes(other) for other in found):
            found = [*(other for other in found if not other.precedes(each)), each]
    return tuple(found)


def _newest(entry: Entry) -> tuple[int, ...]:
    """Return the newest point of an entry, and the newest logic version of each task on its path."""
    logics = zip(*(reflection.logic for reflection in entry), strict=True)
    return (max(reflection.last for reflection in entry), *map(max, logics))


def describe_logic(number: int) -> str:
    """Return the number of a logic version as text, `s` and `e` for the extremes."""
    return {START: "s", END: "e"}.get(number, str(number))


def _shown(reflection: Reflection) -> str:
    points = describe_logic(reflection.first)
    if reflection.last != reflection.first:
        points += f"–{reflection.last}"
    logic = ",".join(map(describe_logic, reflection.logic))
    return f"{points}[{logic}]" if logic else points
