"""Prometheus metrics of a catalog: computed at each scrape, so that every server reports the same."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from kilonova.catalog.bound_status import BoundStatus
from kilonova.model.bound_phase import BoundPhase
from kilonova.model.workflow_path import describe_path
from kilonova.service.project import Project


def _add_bounds(registry: CollectorRegistry, bounds: Iterable[BoundStatus]) -> None:
    """Add the limit, the slack and the violation of each bound; one on inconsistency has an empty path."""
    labels = ("channel", "bound", "path")
    limit = Gauge("kilonova_bound_limit_seconds", "Limit of a bound", labels, registry=registry)
    slack = Gauge("kilonova_bound_slack_seconds", "Time left of a bound's limit", labels, registry=registry)
    violated = Gauge("kilonova_bound_violated", "1 if a bound is violated, else 0", labels, registry=registry)
    for each in bounds:
        path = each.registered.path
        key = each.registered.channel, "staleness" if path else "inconsistency", describe_path(path)
        limit.labels(*key).set(each.bound.limit.total_seconds())
        slack.labels(*key).set(each.slack.total_seconds())
        violated.labels(*key).set(each.phase is BoundPhase.VIOLATED)


def exposition(project: Project) -> bytes:
    """Return the metrics in Prometheus's text format."""
    counts = project.reader.metrics()
    registry = CollectorRegistry()
    for name, what, label, values in (
        ("kilonova_runs", "Runs by state", "state", counts.runs),
        ("kilonova_firings", "Firings by state", "state", counts.firings),
        ("kilonova_servers", "Servers by state", "state", counts.servers),
        ("kilonova_channel_rows", "Rows of a channel, if their number is known", "channel", counts.rows),
        ("kilonova_channel_rows_max", "Upper bound of the rows of a channel", "channel", counts.most_rows),
        ("kilonova_channel_bytes", "Bytes in the latest snapshot of a channel", "channel", counts.bytes),
        ("kilonova_channel_stored_bytes", "Bytes in all blocks of a channel", "channel", counts.stored_bytes),
        ("kilonova_channel_point", "Latest filled point of a channel", "channel", counts.points),
    ):
        gauge = Gauge(name, what, [label], registry=registry)
        for key, value in values.items():
            gauge.labels(key).set(value)
    _add_bounds(registry, counts.bounds)
    return generate_latest(registry)
