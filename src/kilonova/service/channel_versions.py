"""Version vectors of the points of a channel, with one component per ancestor (logic evolution, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kilonova.catalog import channel_store, registry
from kilonova.catalog.database import Transaction
from kilonova.catalog.read_models.point_history import point_records
from kilonova.model.channel import PointState
from kilonova.model.run import RunKind
from kilonova.model.version import frontier
from kilonova.model.version_vector import Ancestor, ancestors, component


@dataclass(frozen=True, slots=True, kw_only=True)
class PointVersion:
    """Version vector of a point.

    Attributes:
        point: its number.
        time: the time when it was filled.
        components: the component of each ancestor, in their order; empty where the version has none.
        blocks: the blocks that lead to it, without compactions: B for a base, Δ for a delta.
        frontier: whether no point of the channel has a version that this one precedes.
        retracted: the logic version that it reflects although it was retracted, as text; None if there is none.
    """

    point: int
    time: datetime
    components: tuple[str, ...]
    blocks: tuple[str, ...]
    frontier: bool
    retracted: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelVersions:
    """Version vectors of the filled points of a channel.

    Attributes:
        ancestors: the source channels and tasks that they have components for, in topological order.
        points: the points, newest first.
    """

    ancestors: tuple[Ancestor, ...]
    points: tuple[PointVersion, ...]


def channel_versions(tx: Transaction, channel: str, before: int | None, limit: int) -> ChannelVersions:
    """Return the version vectors of a channel's filled points.

    Args:
        tx: an open transaction.
        channel: the channel.
        before: only points before this number; None for all.
        limit: the maximum number of points.

    Raises:
        NotFound: there is no such channel.
    """
    records = point_records(tx, channel, before, limit, filled=True)
    points = channel_store.channel_state(tx, channel).points
    maximal = frontier(each.version for each in reversed(points) if each.state is PointState.FILLED)
    faulty = registry.retracted(tx)
    columns = ancestors(record.version for record in records)
    found = []
    for record in records:
        assert record.time is not None
        blocks = (block for block in record.blocks if block.kind is not None and block.made is not RunKind.COMPACTION)
        found.append(
            PointVersion(
                point=record.number,
                time=record.time,
                components=tuple(component(record.version, each) for each in columns),
                blocks=tuple(str(block.kind) for block in blocks),
                frontier=record.version in maximal,
                retracted=record.version.reflects_any(faulty),
            )
        )
    return ChannelVersions(ancestors=columns, points=tuple(found))
