"""Version vectors of the points of a channel, with one component per ancestor (logic evolution, section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kilonova.catalog import channel_store, registry
from kilonova.catalog.database import Transaction
from kilonova.catalog.read_models.point_history import PointRecord, point_records
from kilonova.catalog.temporal_provenance import TemporalProvenance, temporal_provenances
from kilonova.catalog.validity import validities
from kilonova.model.channel import ChannelState, PointState
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
        start: T⁺, when the newest source point arrived that it reflects; None if it reflects only empty relations.
        end: T⁻, when the first of the source points that it reflects was replaced; None if none was.
        consistent: whether T⁺ < T⁻ (asynchronous scheduling, 2.1).
        withheld: whether readers are not given it, because it violates a bound on inconsistency.
    """

    point: int
    time: datetime
    components: tuple[str, ...]
    blocks: tuple[str, ...]
    frontier: bool
    retracted: str | None
    start: datetime | None
    end: datetime | None
    consistent: bool
    withheld: bool


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
    state = channel_store.channel_state(tx, channel)
    maximal = frontier(each.version for each in reversed(state.points) if each.state is PointState.FILLED)
    provenances = _provenances(tx, state, records)
    faulty = registry.retracted(tx)
    columns = ancestors(record.version for record in records)
    found = []
    for record in records:
        assert record.time is not None
        provenance = provenances[record.number]
        blocks = (block for block in record.blocks if block.kind is not None and block.made is not RunKind.COMPACTION)
        found.append(
            PointVersion(
                point=record.number,
                time=record.time,
                components=tuple(component(record.version, each) for each in columns),
                blocks=tuple(str(block.kind) for block in blocks),
                frontier=record.version in maximal,
                retracted=record.version.reflects_any(faulty),
                start=provenance.start,
                end=provenance.end,
                consistent=provenance.consistent,
                withheld=record.withheld,
            )
        )
    return ChannelVersions(ancestors=columns, points=tuple(found))


def _provenances(tx: Transaction, state: ChannelState, records: Sequence[PointRecord]) -> dict[int, TemporalProvenance]:
    """Return the temporal provenance of points, by number: of the newest, as far as its inputs have not changed."""
    of = validities(tx, {pair for each in records for v in (each.version, each.reflected) for pair in v.extremes})
    found = {each.number: TemporalProvenance(version=each.version, reflected=each.reflected, of=of) for each in records}
    name, newest = state.channel.name, state.latest_distinct
    if newest in found:
        found[newest] = temporal_provenances(tx, {name: state}, [(name, newest)])[name, newest]
    return found
