"""Pages are labelled with the click scores of their sites (asynchronous scheduling, 1.1, Figure 1).

    crawl ── shingle ── digests ─────────────────────────────┐
                                                             label ── labelled
    clicks ── visitors ── visits ── count ── log ── scores ──┘

New pages matter at once, their scores less: a score is at most a day old, and a label at most a week.
"""

from __future__ import annotations

from datetime import timedelta

from kilonova.model.bound import InconsistencyBound, StalenessBound
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG
from kilonova.schedule.asynchrony.scenario import Feed, Scenario
from kilonova.schedule.asynchrony.widgets import (
    UnitCosts,
    channel_model,
    distinct,
    distributive_aggregation,
    join,
    stateless,
    workflow_of,
)

PAGES = UnitCosts(fixed=0.002, read=1.0, probe=0.0, write=0.02)
"""Shingling reads whole pages: 3.6 ms each."""

CLICKS = UnitCosts(fixed=0.002, read=0.05, probe=0.002, write=0.02)

LABELS = UnitCosts(fixed=0.002, read=0.1, probe=0.002, write=1.0)
"""Labelled pages are replaced in the index: 3.6 ms each."""

CHANGES_PER_SITE = 80.0
"""40 pages of a site, each removed and added."""


def scenario() -> Scenario:
    """Return the workflow with its bounds."""
    workflow = workflow_of(
        [channel_model("crawl", CLICKS), channel_model("clicks", CLICKS)],
        [
            stateless("shingle", "crawl", channel_model("digests", CLICKS), PAGES),
            distinct("visitors", "clicks", "visits", CLICKS, kept=0.3),
            distributive_aggregation("count", "visits", "visitors_per_site", CLICKS, groups=0.001, touched=0.07),
            stateless(
                "log",
                "visitors_per_site",
                channel_model("scores", CLICKS, growth=0.007, rewritten=1.0, difference=0.15),
                CLICKS,
            ),
            join(
                "label",
                "digests",
                "scores",
                channel_model("labelled", LABELS, growth=0.5),
                LABELS,
                per_left=1.0,
                per_right=CHANGES_PER_SITE,
            ),
        ],
    )
    half_hour, quarter = timedelta(minutes=30), timedelta(minutes=15)
    return Scenario(
        workflow=workflow,
        bounds=(
            StalenessBound(channel="labelled", path=("crawl", "shingle", "label"), limit=timedelta()),
            StalenessBound(
                channel="scores",
                path=("clicks", "visitors_counts", "visitors", "count", "log"),
                limit=timedelta(days=1),
            ),
            InconsistencyBound(channel="labelled", limit=timedelta(weeks=1)),
        ),
        accepts={"labelled": frozenset({BASE, STRONG, MONOTONE})},
        feeds=(
            Feed("crawl", MONOTONE, 0.04, half_hour, initial=500.0),
            Feed("clicks", MONOTONE, 10.0, half_hour, first=quarter, initial=5_000.0),
        ),
    )
