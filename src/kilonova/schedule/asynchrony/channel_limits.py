"""The limits that bounds set for the blocks of each channel, by path, and their check on a provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kilonova.errors import DeclarationError
from kilonova.model.bound import Bound, InconsistencyBound, StalenessBound
from kilonova.model.version import Path
from kilonova.schedule.asynchrony.provenance import ArrivalTimes, Provenance, extent
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """The limits of a channel.

    Attributes:
        staleness: the limit of each path; None for none.
        inconsistency: the limit; None for none.
    """

    staleness: tuple[timedelta | None, ...]
    inconsistency: timedelta | None = None


Limits = Mapping[str, ChannelLimits]
"""The limits of each channel that has any."""


def least(one: timedelta | None, other: timedelta | None) -> timedelta | None:
    """Return the stricter of two limits."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def declared_limits(workflow: WorkflowModel, bounds: Iterable[Bound]) -> Limits:
    """Return the limits that bounds set for their own channels.

    Raises:
        DeclarationError: a bound names a channel or a path that does not exist.
    """
    staleness: dict[str, list[timedelta | None]] = {}
    inconsistency: dict[str, timedelta | None] = {}
    for bound in bounds:
        paths = require_channel(workflow, bound)
        limits = staleness.setdefault(bound.channel, [None] * len(paths))
        if isinstance(bound, InconsistencyBound):
            inconsistency[bound.channel] = least(inconsistency.get(bound.channel), bound.limit)
        else:
            place = paths.index(bound.path)
            limits[place] = least(limits[place], bound.limit)
    return {name: ChannelLimits(tuple(limits), inconsistency.get(name)) for name, limits in staleness.items()}


def require_channel(workflow: WorkflowModel, bound: Bound) -> tuple[Path, ...]:
    """Return the paths of a bound's channel.

    Raises:
        DeclarationError: the channel does not exist, or has no path as the bound names it.
    """
    paths = workflow.paths.get(bound.channel)
    if paths is None:
        raise DeclarationError("there is no such channel", channel=bound.channel, hint="Correct the bound")
    if isinstance(bound, StalenessBound) and bound.path not in paths:
        listed = ", ".join("›".join(path) for path in paths)
        raise DeclarationError(
            f"no path {'›'.join(bound.path)} leads to the channel", channel=bound.channel, hint=f"There are: {listed}"
        )
    return paths


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that a provenance does not keep.

    Attributes:
        path: the path of a staleness limit; None for the inconsistency limit.
        limit: the limit.
        amount: the staleness or inconsistency.
    """

    path: Path | None
    limit: timedelta
    amount: timedelta

    def __str__(self) -> str:
        what = "inconsistent" if self.path is None else f"behind {'›'.join(self.path)}"
        return f"{self.amount} {what}, the limit is {self.limit}"


class LimitCheck:
    """Check of the provenance of blocks against limits, at one moment."""

    def __init__(
        self, paths: Mapping[str, Sequence[Path]], times: Mapping[str, ArrivalTimes], now: datetime, limits: Limits
    ) -> None:
        self._paths, self._times, self._now = paths, times, now
        self._limits = limits
        self._known: dict[tuple[str, Provenance], bool] = {}

    def holds(self, channel: str, provenance: Provenance) -> bool:
        """Return whether a provenance keeps all limits of a channel."""
        if channel not in self._limits:
            return True
        key = (channel, provenance)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self.breach(channel, provenance) is None
        return known

    def breach(self, channel: str, provenance: Provenance, head: Provenance | None = None) -> Breach | None:
        """Return the first limit that a provenance does not keep.

        Args:
            channel: the channel.
            provenance: the provenance.
            head: what the channel reflects already. The staleness of entries that stay as they are is not looked at.
        """
        limits = self._limits.get(channel)
        if limits is None:
            return None
        paths = self._paths[channel]
        for place, limit in enumerate(limits.staleness):
            entry = provenance[place]
            if limit is None or not entry or (head is not None and head[place] == entry):
                continue
            path = paths[place]
            end = self._times[path[0]].end(entry[0][0])
            if end is not None and end + limit < self._now:
                return Breach(path, limit, self._now - end)
        if limits.inconsistency is not None:
            latest, earliest = extent(provenance, paths, self._times)
            if latest is not None and earliest is not None and latest >= earliest + limits.inconsistency:
                return Breach(None, limits.inconsistency, latest - earliest)
        return None
