"""Compilation of a variant for one run: its logic as it is executed, and the columns that it reads of each port."""

from __future__ import annotations

from collections.abc import Mapping

from kilonova.model.channel import ChannelState
from kilonova.model.logic import Compilation, Compiled, LogicInput, RunScale
from kilonova.schedule.layout import LayoutThresholds
from kilonova.schedule.planning import PortInput, TaskState, VariantChoice, input_size, limit_channels


def compile_variant(
    choice: VariantChoice,
    inputs: tuple[PortInput, ...],
    channels: Mapping[str, ChannelState],
    sizes: LayoutThresholds,
    *,
    strong: bool,
) -> Compiled | None:
    """Compile a variant to what is executed.

    Args:
        choice: the chosen variant and refresh method.
        inputs: the inputs of its ports.
        channels: the states of the channels that it reads or writes.
        sizes: the thresholds of physical strategies.
        strong: whether the changes of its output are read.

    Returns:
        What is executed, with its inputs; None if nothing changes.
    """
    channels = limit_channels(channels, choice.ends)
    reads = tuple(
        LogicInput(
            port=each.port.name,
            channel=each.port.channel,
            reading=each.reading,
            changed=each.port.mode.advances and not channels[each.port.channel].is_equivalent(each.start, each.end),
        )
        for each in inputs
    )
    run = Compilation(
        writes=choice.state.task.writes,
        reads=reads,
        states=channels,
        method=choice.method,
        scale=_scale(choice.state, channels, sizes),
        strong=strong,
    )
    return choice.variant.logic.compile(run)


def _scale(state: TaskState, channels: Mapping[str, ChannelState], sizes: LayoutThresholds) -> RunScale:
    if sum(channels[name].size for name in {*state.task.reads, *state.task.writes}) <= sizes.single_task_max:
        return RunScale.SINGLE_PARTITION
    return RunScale.BROADCAST if input_size(state, channels).change <= sizes.broadcast_max else RunScale.SHUFFLE
