"""Actions of a plan on what a workflow declares."""

from __future__ import annotations

import enum


class Action(enum.Enum):
    """Action of a plan on a channel, a task, a binding or a bound."""

    ADD = "add"
    CHANGE = "change"
    KEEP = "keep"
    DROP = "drop"
