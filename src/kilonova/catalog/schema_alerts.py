"""Alerts of schemas that no logic version of a task accepts, so that it stops before data with them.

See `kilonova.model.required_columns`; logic evolution, section 3.3.1.
"""

from __future__ import annotations

from kilonova.catalog import channel_store, events, registry, task_graph
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import TaskVersion
from kilonova.model.event import EventKind
from kilonova.model.required_columns import describe_columns, missing_columns


def alert_readers(tx: Transaction, run: int, channel: str) -> None:
    """Record an event for each task of which no logic version accepts the newest point of a channel.

    Args:
        tx: the transaction that publishes the point, whose columns differ from those before.
        run: the run that has written it.
        channel: the channel.
    """
    state = channel_store.channel_state(tx, channel)
    versions: dict[str, list[TaskVersion]] = {}
    for each in task_graph.readers(tx, channel):
        versions.setdefault(each.task.name, []).append(each)
    for name, live in versions.items():
        running = registry.running_versions(live)
        missing = [missing_columns(each.task.requires, state, state.latest_readable) for each in running]
        if missing and all(missing):
            required = describe_columns(missing[0])
            text = f"{name} stops before point {state.latest_distinct} of {channel}: it requires {required}"
            events.record(tx, EventKind.INCOMPATIBLE_SCHEMA, run=run, channels=[channel], text=text)
