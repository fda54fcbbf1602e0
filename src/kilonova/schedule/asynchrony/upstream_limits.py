"""Pruning: limits propagated from channels to those that they are computed from (asynchronous scheduling, 6.2.3).

A block that does not keep the limits of the channels downstream is unlikely to lead to one that does.
"""

from __future__ import annotations

from kilonova.schedule.asynchrony.channel_limits import ChannelLimits, Limits, least
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel


def propagated_limits(workflow: WorkflowModel, declared: Limits) -> Limits:
    """Return the limits of each channel, with those of the channels downstream of it.

    A staleness limit applies to the part of its path that leads to the channel, an inconsistency limit is copied, and
    of several the strictest counts. What a channel is read for must not be staler than the inconsistency limit either.
    """
    found: dict[str, ChannelLimits] = dict(declared)
    for name in reversed(workflow.order):
        task, limits = workflow.writer.get(name), found.get(name)
        if task is None or limits is None:
            continue
        by_path = dict(zip(workflow.paths[name], limits.staleness, strict=True))
        for read in dict.fromkeys(task.reads):
            paths = workflow.paths[read]
            own = found.get(read) or ChannelLimits((None,) * len(paths))
            inconsistency = least(own.inconsistency, limits.inconsistency)
            staleness = tuple(
                least(least(limit, by_path[(*path, task.name)]), inconsistency)
                for path, limit in zip(paths, own.staleness, strict=True)
            )
            if inconsistency is not None or any(limit is not None for limit in staleness):
                found[read] = ChannelLimits(staleness, inconsistency)
    return found
