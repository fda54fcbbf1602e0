"""Prometheus metrics of a catalog: computed at each scrape, so that every server reports the same."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from kilonova.service.project import Project


class _Collector:
    def __init__(self, project: Project) -> None:
        self._project = project

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        counts = self._project.reader.metrics()
        for name, what, label, values in (
            ("kilonova_runs", "Runs by state", "state", counts.runs),
            ("kilonova_firings", "Firings by state", "state", counts.firings),
            ("kilonova_servers", "Servers by state", "state", counts.servers),
            ("kilonova_channel_rows", "Rows in the live blocks of a channel", "channel", counts.rows),
            ("kilonova_channel_bytes", "Bytes in the live blocks of a channel", "channel", counts.bytes),
            ("kilonova_channel_point", "Latest filled point of a channel", "channel", counts.points),
        ):
            metric = GaugeMetricFamily(name, what, labels=[label])
            for key, value in values.items():
                metric.add_metric([key], value)
            yield metric


def exposition(project: Project) -> bytes:
    """Return the metrics in Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(_Collector(project))
    return generate_latest(registry)
