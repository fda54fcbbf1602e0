"""Index of a workflow by channel and block type: what can be done with a block that the search has reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, accepted_types
from kilonova.schedule.asynchrony.execution_plan import ConversionStep, TaskStep
from kilonova.schedule.asynchrony.workflow_model import (
    ChannelModel,
    Conversion,
    PortForm,
    TaskModel,
    VariantModel,
    WorkflowModel,
)


@dataclass(frozen=True, slots=True, eq=False)
class BoundPort:
    """A port of a variant with the channel that it reads.

    Attributes:
        channel: the channel.
        form: the blocks that it reads together.
        deltas: the types of deltas that it reads.
        paths: number of paths of the channel.
        cursor: the task and the place of the port.
    """

    channel: str
    form: PortForm
    deltas: tuple[BlockType, ...]
    paths: int
    cursor: tuple[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class VariantUse:
    """A variant that may read a block by one of its ports.

    Attributes:
        task: the task.
        variant: the variant.
        step: its invocation in plans.
        ports: its ports.
        port: the place of the port that reads the block.
    """

    task: TaskModel
    variant: VariantModel
    step: TaskStep
    ports: tuple[BoundPort, ...]
    port: int


@dataclass(frozen=True, slots=True, eq=False)
class ConversionUse:
    """A conversion that may read a block: as what it converts, or as the old base beside it."""

    conversion: Conversion
    step: ConversionStep
    as_old_base: bool


@dataclass(frozen=True, slots=True, eq=False)
class SearchIndex:
    """Index of a workflow.

    Attributes:
        variants: the variants that may read a block, by its channel and type.
        conversions: the conversions that may.
        monotone_suffices: the channels of which whatever reads a strong delta also reads a monotone one.
    """

    variants: Mapping[tuple[str, BlockType], tuple[VariantUse, ...]]
    conversions: Mapping[tuple[str, BlockType], tuple[ConversionUse, ...]]
    monotone_suffices: frozenset[str]


def index_of(workflow: WorkflowModel) -> SearchIndex:
    """Return the index of a workflow."""
    variants: dict[tuple[str, BlockType], list[VariantUse]] = defaultdict(list)
    for task in workflow.tasks:
        for variant in task.variants:
            ports = tuple(
                BoundPort(
                    channel,
                    port.form,
                    () if port.delta == BASE else accepted_types(port.delta),
                    len(workflow.paths[channel]),
                    (task.name, place),
                )
                for place, (channel, port) in enumerate(zip(task.reads, variant.ports, strict=True))
            )
            step = TaskStep(task.name, variant.name)
            for place, port in enumerate(ports):
                bases = (BASE,) if port.form in (PortForm.BASE, PortForm.BASE_AND_DELTA) else ()
                for kind in (*bases, *port.deltas):
                    variants[port.channel, kind].append(VariantUse(task, variant, step, ports, place))
    conversions: dict[tuple[str, BlockType], list[ConversionUse]] = defaultdict(list)
    for channel in workflow.channels:
        for each in channel.conversions:
            known = ConversionStep(channel.name, each.source, each.target)
            conversions[channel.name, each.source].append(ConversionUse(each, known, as_old_base=False))
            if each.reads_base:
                conversions[channel.name, BASE].append(ConversionUse(each, known, as_old_base=True))
    return SearchIndex(
        {key: tuple(uses) for key, uses in variants.items()},
        {key: tuple(uses) for key, uses in conversions.items()},
        frozenset(
            channel.name for channel in workflow.channels if _targets(channel, STRONG) <= _targets(channel, MONOTONE)
        ),
    )


def _targets(channel: ChannelModel, source: BlockType) -> set[BlockType]:
    """Return the types to which blocks of a type can be converted."""
    return {each.target for each in channel.conversions if each.source == source}
