"""Feedback on news is processed before other feedback (asynchronous scheduling, 4.1, Figure 6).

              ┌── news ── news_feedback ────┐
    searches ─┤                             merge ── feedback
              └── other ── other_feedback ──┘

The split is two tasks, because a path is named by its tasks.
"""

from __future__ import annotations

from datetime import timedelta

from kilonova.model.bound import StalenessBound
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG
from kilonova.schedule.asynchrony.scenario import Feed, Scenario
from kilonova.schedule.asynchrony.widgets import UnitCosts, bag_union, channel_model, stateless, workflow_of

SPLIT = UnitCosts(fixed=0.002, read=0.0003, probe=0.0, write=0.01)
"""The split reads one flag of each record."""

MERGE = UnitCosts(fixed=0.002, read=0.1, probe=0.0, write=0.1)

NEWS = 0.02
"""Share of the searches whose results have news."""


def scenario() -> Scenario:
    """Return the workflow with its bounds."""
    workflow = workflow_of(
        [channel_model("searches", SPLIT)],
        [
            stateless("news", "searches", channel_model("news_feedback", SPLIT), SPLIT, ratio=NEWS),
            stateless("other", "searches", channel_model("other_feedback", SPLIT), SPLIT, ratio=1 - NEWS),
            bag_union("merge", "news_feedback", "other_feedback", channel_model("feedback", MERGE), MERGE),
        ],
    )
    return Scenario(
        workflow=workflow,
        bounds=(
            StalenessBound(channel="feedback", path=("searches", "news", "merge"), limit=timedelta()),
            StalenessBound(channel="feedback", path=("searches", "other", "merge"), limit=timedelta(days=1)),
        ),
        accepts={"feedback": frozenset({BASE, STRONG, MONOTONE})},
        feeds=(Feed("searches", MONOTONE, 10.0, timedelta(minutes=30)),),
    )
