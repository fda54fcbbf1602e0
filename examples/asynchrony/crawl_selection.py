"""Three jobs choose the pages to fetch next (asynchronous scheduling, 4.2, Figure 7).

              ┌── successful ── fetched ────┬── top_unfetched ──────┐
    fetches ──┼── links ── indegree ────────┼── periodic_recrawl ───┼── first_union, union ── queue
              └── shingle ── digests ───────┴── adaptive_recrawl ───┘

The paper numbers the paths to the queue: 0 and 1 through the top unfetched, 2 and 3 through the periodic recrawl, 4 and
5 through the adaptive recrawl, the odd ones through the indegrees.
"""

from __future__ import annotations

from datetime import timedelta

from kilonova.model.bound import InconsistencyBound, StalenessBound
from kilonova.model.version import Path
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG
from kilonova.schedule.asynchrony.scenario import Feed, Scenario
from kilonova.schedule.asynchrony.widgets import (
    UnitCosts,
    bag_union,
    batch_only,
    channel_model,
    distributive_aggregation,
    stateless,
    workflow_of,
)
from kilonova.schedule.asynchrony.workflow_model import ChannelModel

FETCHES = UnitCosts(fixed=0.002, read=0.5, probe=0.01, write=0.02)
"""A fetch is read with its page."""

LINKS = UnitCosts(fixed=0.002, read=0.05, probe=0.01, write=0.02)

TOP = UnitCosts(fixed=0.1, read=0.03, probe=0.0, write=0.02)
PERIODIC = UnitCosts(fixed=0.1, read=0.1, probe=0.0, write=0.02)
ADAPTIVE = UnitCosts(fixed=0.1, read=0.15, probe=0.0, write=0.02)

QUEUE = UnitCosts(fixed=0.002, read=0.02, probe=0.0, write=0.02)


def _through(*tasks: str) -> Path:
    return ("fetches", *tasks)


def scenario() -> Scenario:
    """Return the workflow with its bounds."""
    workflow = workflow_of(
        [channel_model("fetches", LINKS)],
        [
            stateless("successful", "fetches", channel_model("fetched", LINKS, growth=0.3), LINKS, ratio=0.9),
            stateless("shingle", "fetches", channel_model("digests", LINKS, growth=0.3), FETCHES, ratio=0.9),
            stateless("extract", "fetches", channel_model("links", LINKS, growth=0.2), FETCHES, ratio=20.0),
            distributive_aggregation("count", "links", "indegree", LINKS, groups=0.2, touched=0.5),
            batch_only("top_unfetched", ("fetched", "indegree"), _selected("top"), TOP, rows=1.0),
            batch_only("periodic_recrawl", ("fetched", "indegree"), _selected("periodic"), PERIODIC, rows=5.0),
            batch_only("adaptive_recrawl", ("digests", "indegree"), _selected("adaptive"), ADAPTIVE, rows=2.0),
            bag_union("first_union", "top", "periodic", channel_model("regular", QUEUE, growth=0.0), QUEUE),
            bag_union("union", "regular", "adaptive", channel_model("queue", QUEUE, growth=0.0), QUEUE),
        ],
    )
    hour = timedelta(hours=1)
    return Scenario(
        workflow=workflow,
        bounds=(
            StalenessBound(channel="fetched", path=_through("successful"), limit=timedelta()),
            StalenessBound(channel="digests", path=_through("shingle"), limit=timedelta()),
            StalenessBound(
                channel="queue", path=_through("successful", "top_unfetched", "first_union", "union"), limit=hour
            ),
            StalenessBound(
                channel="queue",
                path=_through("successful", "periodic_recrawl", "first_union", "union"),
                limit=24 * hour,
            ),
            StalenessBound(channel="queue", path=_through("shingle", "adaptive_recrawl", "union"), limit=4 * hour),
            InconsistencyBound(channel="queue", limit=timedelta(weeks=1)),
        ),
        accepts={"queue": frozenset({BASE, STRONG, MONOTONE})},
        feeds=(Feed("fetches", MONOTONE, 0.2, timedelta(minutes=30), initial=500.0),),
    )


def _selected(name: str) -> ChannelModel:
    """Return a channel of selected pages."""
    return channel_model(name, QUEUE, growth=0.0, rewritten=1.0, difference=0.2)
