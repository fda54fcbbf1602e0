"""Prometheus metrics of a catalog: computed at each scrape, so that every server reports the same."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from kilonova.service.project import Project


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
    return generate_latest(registry)
