r"""Schema function: the columns of a channel at a version (logic evolution, section 3.3).

Each logic version λ of a task T has a *schema transformation* τ_T(λ), which gives the columns of an output from those
of its inputs. Source channels have columns of their own at each point. The schema function follows from them:

    S(C, V) = τ_W(C)(V_last) (S(C⟨1⟩, V⟨1⟩), S(C⟨2⟩, V⟨2⟩), …)

where W(C) is the task that writes C, V_last its logic version in V, and V⟨i⟩ the part of V that comes from the i-th
input of W(C). Here V is a `Version`; where it has several logic versions or points of one ancestor, the newest counts.
Columns are given by name with their types, None for a type that is not known; None for all where no column is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kilonova.model.version import Version

ColumnTypes = Mapping[str, str | None]
"""The types of columns by their names, None where a type is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaTransformation:
    """Schema transformation of a logic version of a task, for one of its outputs.

    Attributes:
        reads: the channels whose columns it takes.
        columns: returns the columns of the output; None if they are not known.
    """

    reads: tuple[str, ...]
    columns: Callable[[tuple[ColumnTypes | None, ...]], ColumnTypes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFunction:
    """Schema function of a catalog's channels.

    Attributes:
        sources: returns the columns of a source channel at a point.
        writers: the task that writes each derived channel.
        transformations: the transformations by channel and logic version of its writer.

    >>> function = SchemaFunction(
    ...     sources=lambda channel, point: {"url": None} if point < 3 else {"url": None, "time": None},
    ...     writers={"pages": "copy"},
    ...     transformations={("pages", 0): SchemaTransformation(reads=("crawl",), columns=lambda read: read[0])},
    ... )
    >>> list(function.columns("pages", Version.source("crawl", 3).through("copy", 0)))
    ['url', 'time']
    """

    sources: Callable[[str, int], ColumnTypes | None]
    writers: Mapping[str, str]
    transformations: Mapping[tuple[str, int], SchemaTransformation]

    def columns(self, channel: str, version: Version) -> ColumnTypes | None:
        """Return the columns of a channel at a version; None if they are not known."""
        if channel not in self.writers:
            points = version.points(channel)
            return self.sources(channel, points[-1][1]) if points else None
        last = version.by(self.writers[channel])
        logics = {reflection.logic[-1] for _, entry in last.entries for reflection in entry}
        found = self.transformations.get((channel, max(logics))) if logics else None
        if found is None:
            return None
        return found.columns(tuple(self.columns(name, self._part(last, name)) for name in found.reads))

    def _part(self, version: Version, channel: str) -> Version:
        """Return the part of a version that comes from an input of the last task on its paths: V⟨i⟩."""
        writer = self.writers.get(channel)
        before = version.before()
        if writer is not None:
            return before.by(writer)
        return Version(tuple((path, entry) for path, entry in before.entries if path == (channel,)))
