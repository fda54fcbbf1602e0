"""Overviews that no catalog has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kilonova.catalog.read_models.overview import BindingSummary, ChannelSummary, InputSummary, Overview, TaskSummary
from kilonova.model.row_count import RowCount
from kilonova.model.task import Mode, Production
from tests.databases import NOON


def channel_glance(name: str, *, point: int = 1, workflow: str = "w") -> ChannelSummary:
    return ChannelSummary(
        name=name,
        workflow=workflow,
        point=point,
        time=NOON if point else None,
        rows=RowCount(7 * point, 7 * point),
        bytes=70 * point,
        writing=(),
        watched=False,
        quarantined=0,
    )


def task_glance(
    name: str,
    *,
    reads: Mapping[str, int],
    writes: tuple[str, ...] = (),
    own: tuple[str, ...] = (),
    workflow: str = "w",
    binding: str = "",
    started: bool = False,
    lookups: Collection[str] = (),
) -> TaskSummary:
    """A task; `reads` says how far it is behind in each channel."""
    return TaskSummary(
        name=name,
        workflow=workflow,
        binding=binding or name,
        view=False,
        logic=0,
        started=started,
        succeeds=False,
        reads=tuple(
            InputSummary(
                channel=channel,
                modes=(Mode.ALL if channel in lookups else Mode.NEW,),
                cursor=0,
                behind=behind,
                drives=channel not in lookups,
            )
            for channel, behind in reads.items()
        ),
        writes=writes or (name,),
        own=own,
        productions=(Production.DELTA,),
        running=None,
        failed=None,
    )


def an_overview(
    channels: Iterable[ChannelSummary], tasks: Iterable[TaskSummary], *, paused: Collection[str] = ()
) -> Overview:
    """Channels and tasks; bindings that are not named as their task bind several."""
    every = {task.name: task for task in tasks}
    alone = {task.binding: task.binding == task.name for task in every.values()}
    return Overview(
        channels={channel.name: channel for channel in channels},
        tasks=every,
        bindings={
            name: BindingSummary(name=name, workflowette="", implicit=by_itself, paused=name in paused, due=0)
            for name, by_itself in alone.items()
        },
        running={},
        event=1,
        time=NOON,
    )
