"""Compilation of a variant for one run: its logic as it is executed, and the columns that it reads of each port."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kilonova.model.channel import ChannelState
from kilonova.model.logic import Compilation, Compiled, LogicInput, RunScale
from kilonova.model.schema import Schema
from kilonova.schedule.layout import LayoutThresholds
from kilonova.schedule.planning import PortInput, VariantChoice, input_size, limit_channels


def compile_variant(
    choice: VariantChoice,
    inputs: tuple[PortInput, ...],
    channels: Mapping[str, ChannelState],
    sizes: LayoutThresholds,
    *,
    strong: bool,
    analyse: Callable[[str, Collection[str]], Schema] | None = None,
) -> Compiled | None:
    """Compile a variant to what is executed.

    Args:
        choice: the chosen variant and refresh method.
        inputs: the inputs of its ports.
        channels: the states of the channels that it reads or writes.
        sizes: the thresholds of physical strategies.
        strong: whether the changes of its output are read.
        analyse: returns the columns of a query over channels; needed for migrations.

    Returns:
        What is executed, with its inputs; None if nothing changes.
    """
    task = choice.state.task
    channels = limit_channels(channels, choice.ends, task.requires)
    reads = tuple(
        LogicInput(
            port=each.port.name,
            channel=each.port.channel,
            reading=each.reading,
            changed=each.port.mode.advances
            and (
                each.port.channel in choice.state.replaced
                or not channels[each.port.channel].is_equivalent(each.start, each.end)
            ),
        )
        for each in inputs
    )
    used = {*task.writes, *(port.channel for port in choice.variant.ports)}
    if sum(channels[name].size for name in used) <= sizes.single_task_max:
        scale = RunScale.SINGLE_PARTITION
    else:
        small = input_size(choice.state, channels).change <= sizes.broadcast_max
        scale = RunScale.BROADCAST if small else RunScale.SHUFFLE
    run = Compilation(
        writes=task.writes,
        reads=reads,
        states=channels,
        method=choice.method,
        scale=scale,
        strong=strong,
        analyse=analyse,
    )
    return choice.variant.logic.compile(run)
