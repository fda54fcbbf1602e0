"""The state of registered channels as the planner sees it: blocks, cursors and outputs with their provenance.

A channel is a chain of points, so that a base at any readable point and a change between any two can be read. Listed
are those that a task may read next: the relation at the newest point and as the task has read it so far, and the change
from there to the newest point. A source is listed, too, at the points that other channels reflect, so that inputs that
came by different ways can be read as of the same time.

A channel whose task has not run yet has no blocks, so that what reads it runs after that.

The provenance of a port's cursor is the part of the output's provenance that came through the port. So a change starts
where the output stands, also if runs in between have found nothing to change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kilonova.model.version import Path, Version
from kilonova.model.workflow_path import declared_form
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, DataBlock
from kilonova.schedule.asynchrony.provenance import ORIGIN, PointSet, Provenance, newest, precedes, union
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel
from kilonova.schedule.bound_planning.bound_observation import BoundObservation
from kilonova.schedule.bound_planning.planned_task import PlannedTask, declared_path
from kilonova.schedule.reflected_versions import ReflectedVersion, reflected_versions

_ACCEPTED: Mapping[str | None, frozenset[BlockType]] = {
    "base": frozenset({BASE}),
    "delta": frozenset({STRONG, MONOTONE}),
    None: frozenset({BASE, STRONG, MONOTONE}),
}
"""Types of blocks that the readers of a channel accept, by what it declares."""


def scheduling_state(
    observed: BoundObservation,
    planned: Mapping[str, PlannedTask],
    workflow: WorkflowModel,
    outputs: Iterable[str],
) -> SchedulingState:
    """Return the state of the planned tasks' channels.

    Args:
        observed: the observation.
        planned: the planned tasks by the channel that they write.
        workflow: their model.
        outputs: the channels with bounds that start runs.
    """
    return _Stored(observed, planned, workflow).state(outputs)


@dataclass(frozen=True)
class _Stored:
    observed: BoundObservation
    planned: Mapping[str, PlannedTask]
    workflow: WorkflowModel
    _heads: dict[str, Provenance] = field(default_factory=dict)

    @cached_property
    def _newest(self) -> ReflectedVersion:
        return reflected_versions(self.observed.known)

    @cached_property
    def _views(self) -> Mapping[str, str | None]:
        return self.observed.views

    def state(self, outputs: Iterable[str]) -> SchedulingState:
        channels = self.observed.known.channels
        blocks: dict[str, list[DataBlock]] = defaultdict(list)
        cursors: dict[tuple[str, int], Provenance] = {}
        reflected = self._reflected()
        for name in self.workflow.channel:
            if name not in self.planned or self.planned[name].state.started:
                blocks[name] += self._bases(name, reflected.get(name, ()))
        for task in self.planned.values():
            for place, name in enumerate(task.reads):
                if not task.incremental:
                    continue
                cursors[task.name, place] = start = self._read_so_far(task, name)
                cursor, channel = task.cursor(name), channels[name]
                blocks[name].append(DataBlock(name, BASE, None, start, channel.size, (cursor, cursor)))
                ends = (*reflected.get(name, ()), channel.latest_kept)
                blocks[name] += (each for end in ends if (each := self._delta(name, cursor, end, start)) is not None)
        return SchedulingState(
            now=self.observed.now,
            times=self.observed.arrivals,
            blocks={name: _distinct(each) for name, each in blocks.items()},
            outputs=tuple(
                OutputState(name, _ACCEPTED[channels[name].channel.accepts], self._head(name)) for name in outputs
            ),
            cursors=cursors,
        )

    def _reflected(self) -> Mapping[str, tuple[int, ...]]:
        """Return the points of each source, before its newest, that are the newest in some written channel."""
        found: dict[str, set[int]] = defaultdict(set)
        for name in self.planned:
            for path, entry in zip(self.workflow.paths[name], self._head(name), strict=True):
                if entry:
                    found[path[0]].add(entry[-1][1])
        channels = self.observed.known.channels
        return {
            name: tuple(
                sorted(point for point in points if 0 < point < channels[name].settled(channels[name].latest_kept))
            )
            for name, points in found.items()
        }

    def _bases(self, name: str, points: Iterable[int]) -> Iterable[DataBlock]:
        channel = self.observed.known.channels[name]
        for point in (*points, channel.latest_kept):
            yield DataBlock(name, BASE, None, self._provenance(name, point), channel.size, (point, point))

    def _delta(self, name: str, cursor: int, end: int, start: Provenance) -> DataBlock | None:
        """Return the change of a channel from a task's cursor to a later point; None if it cannot be read."""
        channel = self.observed.known.channels[name]
        if channel.settled(end) <= channel.settled(cursor) or not channel.can_say(cursor, end):
            return None
        target = self._provenance(name, end)
        if not precedes(newest(start), newest(target)):
            return None
        path = channel.path(cursor, end)
        size = channel.size if path is None else sum(block.statistics.bytes for block in path)
        kind = STRONG if channel.may_remove(cursor, end) else MONOTONE
        return DataBlock(name, kind, start, target, size, (cursor, end))

    def _read_so_far(self, task: PlannedTask, name: str) -> Provenance:
        """Return the part of an output's provenance that came through the port for a channel."""
        places = {path: place for place, path in enumerate(self.workflow.paths[task.writes])}
        head = self._head(task.writes)
        return tuple(head[places[(*path, task.name)]] for path in self.workflow.paths[name])

    def _head(self, name: str) -> Provenance:
        """Return the provenance of what readers of a channel are given."""
        if name not in self._heads:
            self._heads[name] = self._provenance(name, self.observed.known.channels[name].latest_kept)
        return self._heads[name]

    def _provenance(self, name: str, point: int) -> Provenance:
        entries = entries_by_path(self._newest(name, point), self._views)
        return tuple(entries.get(declared_path(path), ORIGIN) for path in self.workflow.paths[name])


def entries_by_path(version: Version, views: Mapping[str, str | None]) -> Mapping[Path, PointSet]:
    """Return the source points of each path of a version, by the path's declared form."""
    found: dict[Path, PointSet] = {}
    for path, entry in version.entries:
        form = declared_form(path, views)
        found[form] = union(found.get(form, ()), tuple((each.first, each.last) for each in entry))
    return found


def _distinct(blocks: Iterable[DataBlock]) -> tuple[DataBlock, ...]:
    """Return blocks, of those of one type and provenance the last: several points may reflect the same."""
    return tuple({(block.kind, block.start, block.target): block for block in blocks}.values())
