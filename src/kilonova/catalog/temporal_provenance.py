"""Temporal provenance of points: since when and until when the source points that they reflect are valid.

    T⁺ = max over all paths of the beginning of the newest source point     (from the version of the point)
    T⁻ = min over all paths of the end of the oldest source point           (from the newest version that it reflects)

(asynchronous scheduling, section 2.1; for the two versions see `kilonova.schedule.reflected_versions`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kilonova.catalog.database import Transaction
from kilonova.catalog.planner_input import load_planner_input
from kilonova.catalog.task_graph import upstream_tasks
from kilonova.catalog.validity import validities
from kilonova.model.channel import ChannelState
from kilonova.model.version import START, Path, Reflection, Validity, Version
from kilonova.schedule.reflected_versions import reflected_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalProvenance:
    """Temporal provenance of a point.

    Attributes:
        version: the version from which the point was computed.
        reflected: the newest version that it reflects.
        of: the validity of each source point that they reflect.
    """

    version: Version
    reflected: Version
    of: Callable[[str, int], Validity]

    @property
    def start(self) -> datetime | None:
        """T⁺; None if only empty relations are reflected."""
        return self.version.validity(self.of).start

    @property
    def end(self) -> datetime | None:
        """T⁻; None if it is now."""
        return self.reflected.validity(self.of).end

    @property
    def consistent(self) -> bool:
        """Return whether T⁺ < T⁻."""
        return self.start is None or self.end is None or self.start < self.end

    def along(self, paths: Collection[Path]) -> TemporalProvenance:
        """Return the part along some paths; those that it does not have, or has not read yet, reflect point 0."""
        return TemporalProvenance(
            version=_part(self.version, paths), reflected=_part(self.reflected, paths), of=self.of
        )


def _part(version: Version, paths: Collection[Path]) -> Version:
    every, empty = dict(version.entries), (Reflection((), 0, 0),)
    return Version.of(
        {path: tuple(empty[0] if each.first == START else each for each in every.get(path, empty)) for path in paths}
    )


def temporal_provenances(
    tx: Transaction,
    states: Mapping[str, ChannelState],
    points: Iterable[tuple[str, int]],
    sources: Collection[str] = (),
) -> dict[tuple[str, int], TemporalProvenance]:
    """Return the temporal provenance of points of channels, by channel and point.

    Args:
        tx: an open transaction.
        states: the channels.
        points: the points, each with its channel.
        sources: the channels along whose paths `along` will be called.
    """
    wanted = list(dict.fromkeys(points))
    versions = {(name, point): states[name].version(point) for name, point in wanted}
    known = load_planner_input(tx, upstream_tasks(tx, {name for name, _ in wanted}))
    reflects = reflected_versions(known)
    reflected = {(name, point): reflects(name, point) for name, point in wanted}
    ends = {pair for version in (*versions.values(), *reflected.values()) for pair in version.extremes}
    of = validities(tx, ends | {(source, 0) for source in sources})
    return {key: TemporalProvenance(version=versions[key], reflected=reflected[key], of=of) for key in wanted}
