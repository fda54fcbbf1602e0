"""The workflow model of a declared workflow, with costs and sizes that its runs have shown, or assumed ones.

A variant's modes become the forms of its ports: a snapshot is a base, new input a delta, and both together a base and
its delta. A run needs no new input on every port. So a variant that reads several deltas is also modelled for some of
them only, as a server runs it: the other channels are read as the task has read them so far (`PortForm.HELD`), so that
a view equals its query over some points of its inputs. A channel is a chain of blocks, of which any base can be read.

A channel has as many rows per row of the inputs of its task as its *ratio* says; so has a delta. If the ratio is not
given, it is what runs have shown, or 1. A row is 100 bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kilonova.errors import DeclarationError
from kilonova.model.bound import Bound, StalenessBound
from kilonova.model.task import FROM_SOURCES, Mode, Production, Task, Variant
from kilonova.model.version import Path
from kilonova.model.workflow import WorkflowDefinition
from kilonova.model.workflow_path import declared_form
from kilonova.schedule.asynchrony.conversions import built_in_conversions
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG
from kilonova.schedule.asynchrony.linear_model import LinearModel
from kilonova.schedule.asynchrony.widgets import UnitCosts
from kilonova.schedule.asynchrony.workflow_model import (
    ChannelModel,
    PortForm,
    PortSignature,
    TaskModel,
    VariantModel,
    WorkflowModel,
)

if TYPE_CHECKING:  # numpy takes a while
    from kilonova.schedule.costs import LinearCost

ROW_BYTES = 100
"""Bytes of Parquet that count as a row."""

ASSUMED_COSTS = UnitCosts(fixed=0.35 / 3600, read=5e-6 / 3600, probe=1e-6 / 3600, write=5e-6 / 3600)
"""Hours of a small machine, per run and per row of 100 bytes."""

MERGED = LinearModel(0.0, (0.0, 0.0))
"""Cost of reading a base and the deltas after it as one, beside that of reading them."""

_OUTPUT = "→"
"""Stands between the name of a task and that of an output, in the names of tasks for all outputs but the first."""

_MOST_SUBSETS = 4
"""Number of deltas of a variant up to which all combinations of them are modelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedTask:
    """Costs and sizes of a task, as its runs have shown them.

    Attributes:
        changes: the cost of processing the changes of one relation, of two, and so on: seconds, and seconds per byte.
        whole: the cost of recomputing the output, if it can be.
        delta_share: bytes of a change that are written per byte of a change that is read.
        base_share: bytes of the whole output per byte of the inputs.
        sizes: bytes of each channel that it reads.
    """

    changes: tuple[LinearCost, ...]
    whole: LinearCost
    delta_share: float
    base_share: float
    sizes: tuple[int, ...]

    def cost(self, ports: Sequence[PortSignature]) -> LinearModel:
        """Return the cost of a run in hours, per row of each block that it reads."""
        moved = sum(port.delta != BASE for port in ports)
        own = self.changes[min(moved, len(self.changes)) - 1] if moved else self.whole
        hours = ROW_BYTES / 3600
        per_input: list[float] = []
        beside = 0.0
        for port, size in zip(ports, self.sizes, strict=True):
            if port.form in (PortForm.BASE, PortForm.BASE_AND_DELTA):
                per_input.append(own.whole * hours)
            if port.delta != BASE:
                per_input.append(own.change * hours)
            if port.form in (PortForm.HELD, PortForm.DELTA):
                beside += own.whole * size
        return LinearModel((own.fixed + beside) / 3600, tuple(per_input))


def model_of(
    workflow: WorkflowDefinition,
    ratios: Mapping[str, float],
    costs: UnitCosts = ASSUMED_COSTS,
    learned: Mapping[str, LearnedTask] | None = None,
) -> WorkflowModel:
    """Return the model of a workflow.

    Args:
        workflow: the workflow.
        ratios: rows of a channel per row of its task's inputs.
        costs: the costs of a run, in hours, of tasks of which nothing was learned.
        learned: the costs and sizes of tasks of which something was.

    Raises:
        DeclarationError: a channel has several writers, which the model does not have.
    """
    for channel in workflow.channels:
        if channel.several_writers and workflow.writers(channel.name):
            raise DeclarationError(
                "channels with several writers cannot be simulated",
                channel=channel.name,
                hint="Give each writer a channel of its own",
            )
    converted = built_in_conversions(merge=MERGED, diff=LinearModel(0.0, (costs.read, costs.read)))
    channels = tuple(ChannelModel(channel.name, converted) for channel in workflow.channels)
    tasks = tuple(
        _task_model(task, place, ratios.get(output), costs, (learned or {}).get(task.name))
        for task in workflow.order()
        for place, output in enumerate(task.writes)
    )
    return WorkflowModel(channels, tasks)


def model_bounds(bounds: Iterable[Bound], workflow: WorkflowDefinition, model: WorkflowModel) -> tuple[Bound, ...]:
    """Return bounds with the paths of the model: a declared path can stand for several.

    Args:
        bounds: the bounds, with complete declared paths.
        workflow: the workflow.
        model: its model.
    """
    views = {task.name: task.view for task in workflow.tasks}

    def declared(path: Path) -> Path:
        return declared_form((path[0], *(name.split(_OUTPUT)[0] for name in path[1:])), views)

    found: list[Bound] = []
    for bound in bounds:
        if isinstance(bound, StalenessBound):
            paths = (path for path in model.paths[bound.channel] if declared(path) == bound.path)
            found += (replace(bound, path=path) for path in paths)
        else:
            found.append(bound)
    return tuple(found)


def _task_model(
    task: Task, place: int, ratio: float | None, costs: UnitCosts, learned: LearnedTask | None
) -> TaskModel:
    """Return the model of a task as far as it writes one of its outputs."""
    name = f"{task.name}{_OUTPUT}{task.writes[place]}" if place else task.name
    variants = tuple(
        model
        for variant in task.variants
        if variant.name != FROM_SOURCES
        for model in _variant_models(task, variant, variant.productions[place], ratio, costs, learned)
    )
    return TaskModel(name, task.reads, task.writes[place], variants)


def _variant_models(
    task: Task,
    variant: Variant,
    production: Production,
    ratio: float | None,
    costs: UnitCosts,
    learned: LearnedTask | None,
) -> Iterator[VariantModel]:
    """Yield a variant with all of its deltas, and with fewer of them."""
    ports = tuple(_signature(variant, channel) for channel in task.reads)
    deltas = [place for place, port in enumerate(ports) if port.delta != BASE]
    if not deltas:
        yield _variant_model(task, variant.name, ports, production, ratio, costs, learned)
        return
    counts = range(1, len(deltas) + 1) if len(deltas) <= _MOST_SUBSETS else (1, len(deltas))
    for chosen in itertools.chain.from_iterable(itertools.combinations(deltas, count) for count in counts):
        some = tuple(
            port if place in chosen or port.delta == BASE else PortSignature(PortForm.HELD)
            for place, port in enumerate(ports)
        )
        names = ", ".join(task.reads[place] for place in chosen)
        name = variant.name if len(chosen) == len(deltas) else f"{variant.name}: {names}"
        yield _variant_model(task, name, some, production, ratio, costs, learned)


def _signature(variant: Variant, channel: str) -> PortSignature:
    """Return what a variant reads of a channel."""
    modes = {port.mode for port in variant.ports if port.channel == channel}
    delta = MONOTONE if Mode.INSERTS in modes else STRONG
    if not any(mode.advances for mode in modes):
        return PortSignature(PortForm.BASE if modes else PortForm.NOTHING)
    return PortSignature(PortForm.BASE_AND_DELTA if modes & {Mode.OLD, Mode.ALL} else PortForm.DELTA, delta)


def _variant_model(
    task: Task,
    name: str,
    ports: tuple[PortSignature, ...],
    production: Production,
    ratio: float | None,
    costs: UnitCosts,
    learned: LearnedTask | None,
) -> VariantModel:
    """Return the model of a variant with the given ports."""
    incremental = any(port.delta != BASE for port in ports)
    if ratio is None:
        ratio = 1.0 if learned is None else learned.delta_share if incremental else learned.base_share
    cost: list[float] = []
    rows: list[float] = []
    for port in ports:
        if port.form in (PortForm.BASE, PortForm.BASE_AND_DELTA):
            cost.append(costs.probe if incremental else costs.read)
            rows.append(0.0 if incremental and production is Production.DELTA else ratio)
        if port.delta != BASE:
            cost.append(costs.read)
            rows.append(ratio)
    return VariantModel(
        name=name,
        ports=ports,
        produces=BASE if production is Production.BASE or not incremental else STRONG,
        keeps_monotone=True,
        cost=costs.model(*cost) if learned is None else learned.cost(ports),
        rows=LinearModel(0.0, tuple(rows)),
    )
