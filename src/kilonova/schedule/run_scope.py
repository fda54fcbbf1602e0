"""Scope of a run: what it executes and how far it reads, where that is not everything that is due and new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """Scope of a run.

    Attributes:
        until: the points up to which it reads channels that it does not write; it reads the others to the newest point.
        tasks: the tasks that run even if they are not due.
        variants: the variants by which tasks run; the others choose.
    """

    until: Mapping[str, int] = field(default_factory=dict, hash=False)
    tasks: tuple[str, ...] = ()
    variants: Mapping[str, str] = field(default_factory=dict, hash=False)


ALL_DUE = RunScope()
"""Everything that is due, read to the newest points."""
