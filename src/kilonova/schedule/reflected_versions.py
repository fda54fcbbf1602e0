"""Newest version that a point reflects, although the data that it was computed from went on without changing it.

A point has the version from which it was computed. Often it reflects newer source points as well: where a run reads new
input and changes nothing (a filter that no new row passes), the point keeps its place, and where nothing changes in a
channel, the tasks that read it do not even run. So each version of an input is replaced by the newest version that the
same relation reflects, recursively:

    reflected(C, n) = V[ version(I, k) → reflected(I, k) ]     for each input I of the task that writes C, read up to k

with V the version of n, or that of the last run that changed nothing. The source points that the point reflects are
therefore valid from the beginning of those in `version` until the end of those in `reflected`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kilonova.model.channel import ChannelState
from kilonova.model.version import Version
from kilonova.schedule.due import PlannerInput, TaskState

ReflectedVersion = Callable[[str, int], Version]
"""Newest version that a point of a channel reflects."""


def reflected_versions(known: PlannerInput) -> ReflectedVersion:
    """Return a function of a channel and a point: the newest version that the point reflects.

    Args:
        known: the tasks on the paths to the channels, and their channels; other tasks are taken to have read nothing.
    """
    newest = {name: state.reflected(state.latest_readable) for name, state in known.channels.items()}

    def reflected(channel: str, point: int) -> Version:
        state = known.channels.get(channel)
        if state is None:
            return Version()
        return newest[channel] if state.is_equivalent(point, state.latest_readable) else state.reflected(point)

    for task in known.workflow.order():  # inputs first
        for output in task.writes:
            if output in newest:
                newest[output] = _of_newest(known, known.channels[output], reflected)
    return reflected


def _of_newest(known: PlannerInput, state: ChannelState, reflected: ReflectedVersion) -> Version:
    """Return the newest version that the newest readable point of a channel reflects, given those of its inputs."""
    version = state.reflected(state.latest_readable)
    for writer in known.workflow.writers(state.channel.name):
        versions = known.versions.get(writer.name, ())
        ran = next((each for each in versions if each.started or _has_no_input(each, known.channels)), None)
        if ran is not None:
            version = _with_inputs(known, ran, state, version, reflected)
    return version


def _has_no_input(writer: TaskState, channels: Mapping[str, ChannelState]) -> bool:
    """Return whether all inputs of a task are empty, so that its empty output is as new as they are."""
    inputs = [name for name in writer.task.reads if name not in writer.task.writes]
    return all(name in channels and channels[name].latest_distinct == 0 for name in inputs)


def _with_inputs(
    known: PlannerInput, writer: TaskState, output: ChannelState, version: Version, reflected: ReflectedVersion
) -> Version:
    """Return the version of the newest point of a channel with the newest versions of what its writer has read."""
    name, logic = writer.task.name, writer.logic
    for read in dict.fromkeys(writer.task.sources if writer.detached else writer.task.reads):
        if read in writer.task.writes or read not in known.channels:
            continue
        channel, cursor = known.channels[read], writer.cursor(read)
        newest = reflected(read, cursor).through(name, logic)
        if output.latest_distinct == 0:  # nothing that the task has read so far gives a row
            version = version.joined(newest)
        else:
            version = version.relabelled(channel.version(cursor).through(name, logic), newest)
    return version
