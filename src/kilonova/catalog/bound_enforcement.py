"""Enforcement of bounds on inconsistency in the transaction that publishes the output of a run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kilonova.catalog.bounds import inconsistency_limits
from kilonova.catalog.channel_store import channel_states, extend_point
from kilonova.catalog.database import Transaction
from kilonova.catalog.temporal_provenance import TemporalProvenance, temporal_provenances
from kilonova.errors import BoundViolated
from kilonova.model.bound import InconsistencyBound, inconsistency_state
from kilonova.model.run import RunOutput
from kilonova.model.schedule import duration
from kilonova.model.workflow_path import describe_path


def require_kept(tx: Transaction, run: int, outputs: Iterable[RunOutput]) -> None:
    """Require that the points which a run has filled keep the bounds on the inconsistency of their channels.

    Args:
        tx: the transaction that publishes the outputs, after they were published.
        run: the run.
        outputs: its outputs.

    Raises:
        BoundViolated: one of them does not.
    """
    limits = inconsistency_limits(tx)
    bounded = [each for each in outputs if each.channel in limits and each.block is not None]
    if not bounded:
        return
    states = channel_states(tx, dict.fromkeys(each.channel for each in bounded))
    found = temporal_provenances(tx, states, ((each.channel, each.point) for each in bounded))
    for each in bounded:
        provenance = found[each.channel, each.point]
        bound = InconsistencyBound(channel=each.channel, limit=limits[each.channel])
        state = inconsistency_state(bound, provenance.start, provenance.end)
        if provenance.end != provenance.version.validity(provenance.of).end:  # so that the point is always judged alike
            extend_point(tx, each.channel, provenance.reflected, run, before=each.point + 1)
        if state.violated:
            limit = duration(round(bound.limit.total_seconds()))
            raise BoundViolated(
                f"the output would be inconsistent by {_rounded(state.amount)}, and its bound is {limit}: "
                f"{_furthest_apart(provenance)}",
                channel=each.channel,
                hint="Run first what brings the older source to the channel, or change the bound: kilonova bound "
                f"inconsistency {each.channel} LIMIT",
            )


def _furthest_apart(provenance: TemporalProvenance) -> str:
    """Return the source points that determine T⁺ and T⁻, as text."""
    of = provenance.of
    starts = {
        (start, path, one.last)
        for path, entry in provenance.version.entries
        for one in entry
        if (start := of(path[0], one.last).start) is not None
    }
    ends = {
        (end, path, one.first)
        for path, entry in provenance.reflected.entries
        for one in entry
        if (end := of(path[0], one.first).end) is not None
    }
    (start, late, newest), (end, early, oldest) = max(starts), min(ends)
    return (
        f"it reflects point {newest} of {late[0]}, which arrived at T⁺ = {_moment(start)}, and along the path "
        f"{describe_path(early)} only point {oldest}, which was replaced at T⁻ = {_moment(end)}"
    )


def _moment(time: datetime) -> str:
    return time.isoformat(" ", "seconds")


def _rounded(time: timedelta) -> timedelta:
    """Return a time without fractions of seconds, unless it is less than a second."""
    return timedelta(seconds=round(time.total_seconds())) if time >= timedelta(seconds=1) else time
