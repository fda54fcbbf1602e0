r"""A bound is a promise about a channel: how stale or how inconsistent its newest point may be.

With T the temporal provenance of the channel's newest point (`kilonova.model.version`), T[i] its entry of path i, t⁺
the beginning and t⁻ the end of the validity of a source point, and *now* the end of a validity that has not ended:

    bound_staleness(C, i, t):      T[i]⁻ + t ≥ now     with T[i]⁻ = min over T[i] of t⁻
    bound_inconsistency(C, t):     T⁺ < T⁻ + t         with T⁺ = max over all T[i] of t⁺, T⁻ = min over i of T[i]⁻

(asynchronous scheduling, section 5). A staleness bound of 0 demands that the newest data of its source are reflected;
an inconsistency bound of 0 demands that the point is consistent. A bound that holds is violated in two ways: a
staleness bound by time that passes, both kinds by a new point of the channel. A path that a version does not have
reflects point 0 of its source, the empty relation.

Now is later than every time at which a source point became readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from kilonova.errors import DeclarationError
from kilonova.model.schedule import duration
from kilonova.model.version import Entry, Path, Reflection, Validity, Version

ZERO = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class StalenessBound:
    """Bound on how long data of one path may be missing from a channel.

    Attributes:
        channel: the channel.
        path: the source channel, then the tasks up to the one that writes the channel, as in its versions.
        limit: the longest time for which the channel may lack newer data of the source.

    Raises:
        DeclarationError: the limit is negative, or the path has no source channel.
    """

    channel: str
    path: Path
    limit: timedelta

    def __post_init__(self) -> None:
        _require_limit(self.channel, self.limit)
        if not self.path:
            raise DeclarationError(
                "a staleness bound needs a path",
                channel=self.channel,
                hint="Name the source channel, then the tasks that lead to the channel",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InconsistencyBound:
    """Bound on how far apart in time the source points that a channel reflects may be.

    Attributes:
        channel: the channel.
        limit: the longest time from the end of one point's validity to the beginning of another's; 0 demands
            consistency.

    Raises:
        DeclarationError: the limit is negative.
    """

    channel: str
    limit: timedelta

    def __post_init__(self) -> None:
        _require_limit(self.channel, self.limit)


Bound = StalenessBound | InconsistencyBound


@dataclass(frozen=True, slots=True)
class BoundState:
    """State of a bound at one moment.

    Attributes:
        bound: the bound.
        amount: the present staleness or inconsistency.
        violated: whether the bound is violated.
        due: the first moment at which the bound is violated if no new point is written: for a violated bound, when that
            began; None if time alone does not violate it.
    """

    bound: Bound
    amount: timedelta
    violated: bool
    due: datetime | None

    @property
    def slack(self) -> timedelta:
        """The limit minus the present amount: negative where a staleness bound is violated."""
        return self.bound.limit - self.amount


def place_of(bound: Bound) -> tuple[str, Path]:
    """Return the channel that a bound limits, and its path; an empty one if it limits inconsistency."""
    return bound.channel, bound.path if isinstance(bound, StalenessBound) else ()


def reflected(version: Version, path: Path) -> Entry:
    """Return the entry of a path; point 0 of its source if the version does not have it.

    >>> reflected(Version(), ("articles", "tagged"))
    (Reflection(logic=(), first=0, last=0),)
    """
    return next((entry for own, entry in version.entries if own == path), (Reflection((), 0, 0),))


def path_validity(version: Version, path: Path, of: Callable[[str, int], Validity]) -> Validity:
    """Return [T[i]⁺, T[i]⁻) of a path: from the latest beginning to the earliest end of the points it reflects.

    Args:
        version: the version of a point.
        path: the path.
        of: the validity of each point of each source channel; those of a channel abut, so that only the oldest and the
            newest point are looked up.
    """
    entry = reflected(version, path)
    if not entry:
        return Validity(None, None)
    newest, oldest = max(each.last for each in entry), min(each.first for each in entry)
    return Validity(of(path[0], newest).start, of(path[0], oldest).end)


def staleness(version: Version, path: Path, of: Callable[[str, int], Validity], now: datetime) -> timedelta:
    """Return now − T[i]⁻: for how long newer data of the source have been missing; 0 if none are.

    Args:
        version: the version of a point.
        path: the path.
        of: the validity of each point of each source channel.
        now: the present time.
    """
    end = path_validity(version, path, of).end
    return ZERO if end is None else max(now - end, ZERO)


def inconsistency(version: Version, of: Callable[[str, int], Validity]) -> timedelta:
    """Return T⁺ − T⁻: how far apart the source points are that a version reflects; 0 if it is consistent in time.

    Args:
        version: the version of a point.
        of: the validity of each point of each source channel.
    """
    start, end = _extremes(version, of)
    return ZERO if start is None or end is None else max(start - end, ZERO)


def evaluate_bound(bound: Bound, version: Version, of: Callable[[str, int], Validity], now: datetime) -> BoundState:
    """Return the state of a bound.

    Args:
        bound: the bound.
        version: the version of its channel's newest point.
        of: the validity of each point of each source channel.
        now: the present time.
    """
    match bound:
        case StalenessBound(path=path):
            return staleness_state(bound, path_validity(version, path, of).end, now)
        case InconsistencyBound():
            return inconsistency_state(bound, *_extremes(version, of))
        case _:
            assert_never(bound)


def staleness_state(bound: StalenessBound, end: datetime | None, now: datetime) -> BoundState:
    """Return the state of a staleness bound.

    Args:
        bound: the bound.
        end: T[i]⁻; None for now.
        now: the present time.
    """
    if end is None:
        return BoundState(bound, ZERO, False, None)
    due = end + bound.limit + timedelta.resolution
    return BoundState(bound, max(now - end, ZERO), due <= now, due)


def inconsistency_state(bound: InconsistencyBound, start: datetime | None, end: datetime | None) -> BoundState:
    """Return the state of an inconsistency bound.

    Args:
        bound: the bound.
        start: T⁺; None for the beginning of time.
        end: T⁻; None for now.
    """
    if start is None or end is None:
        return BoundState(bound, ZERO, False, None)
    violated = start >= end + bound.limit
    return BoundState(bound, max(start - end, ZERO), violated, start if violated else None)


def next_due(states: Iterable[BoundState]) -> BoundState | None:
    """Return the state of the bound that is violated first if nothing runs; None if time alone violates none."""
    dated = [(state.due, number, state) for number, state in enumerate(states) if state.due is not None]
    return min(dated)[2] if dated else None


def describe_bound(bound: Bound) -> str:
    """Return a bound as text.

    >>> describe_bound(StalenessBound(channel="tagged", path=("articles", "tagged"), limit=timedelta(minutes=90)))
    'tagged is at most 90 minutes behind articles›tagged'
    >>> describe_bound(StalenessBound(channel="tagged", path=("articles", "tagged"), limit=ZERO))
    'tagged is never behind articles›tagged'
    >>> describe_bound(InconsistencyBound(channel="tagged", limit=timedelta(days=7)))
    'tagged is at most 1 week inconsistent'
    >>> describe_bound(InconsistencyBound(channel="tagged", limit=ZERO))
    'tagged is always consistent'
    """
    limit = duration(int(bound.limit.total_seconds()))
    match bound:
        case StalenessBound(channel=channel, path=path, limit=amount):
            how = f"at most {limit} behind" if amount else "never behind"
            return f"{channel} is {how} {'›'.join(path)}"
        case InconsistencyBound(channel=channel, limit=amount):
            return f"{channel} is at most {limit} inconsistent" if amount else f"{channel} is always consistent"
        case _:
            assert_never(bound)


def _extremes(version: Version, of: Callable[[str, int], Validity]) -> tuple[datetime | None, datetime | None]:
    """Return T⁺ and T⁻."""
    each = [path_validity(version, path, of) for path, _ in version.entries]
    starts = [one.start for one in each if one.start is not None]
    ends = [one.end for one in each if one.end is not None]
    return max(starts, default=None), min(ends, default=None)


def _require_limit(channel: str, limit: timedelta) -> None:
    """Require that a limit is not negative."""
    if limit < ZERO:
        raise DeclarationError("the limit of a bound is negative", channel=channel, hint="Give 0 or a positive time")
