"""Circumstances of a run that determine how a materialized relation is best maintained in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kilonova.model.logic import RunScale


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceContext:
    """State of a materialized relation and its inputs at the start of a run.

    Attributes:
        moved: the channels that have changed.
        adding: those of them whose changes remove no rows.
        sizes: sizes of the channels, in bytes.
        layered: the channels, including the relation's own, that have strong deltas after their base.
        scale: the scale of the run.
        large: whether the relation has so many more rows than the changes that it is restricted to the touched keys.
        strong: whether the delta must include the rows it replaces, for readers of changes, whatever the encoding.
        again: whether groups that the change touches are recomputed, even where it could be added to their sums.
    """

    moved: frozenset[str]
    sizes: Mapping[str, int]
    layered: frozenset[str] = frozenset()
    scale: RunScale = RunScale.BROADCAST
    large: bool = False
    strong: bool = False
    again: bool = False
    adding: frozenset[str] = frozenset()
