"""The workflow model of planned tasks: the variants of each with their signatures, costs and sizes.

Sizes are bytes. A variant that processes changes may do so for some of its inputs only, and read the others as it has
read them so far (`PortForm.HELD`). For a view that gives one asynchronous variant per set of inputs; its result is that
of its query over the inputs as of the points up to which each was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from kilonova.model.channel import ChannelState
from kilonova.model.encoding import Append
from kilonova.model.run import RefreshMethod
from kilonova.model.task import Mode, Production, Variant
from kilonova.schedule.asynchrony.conversions import built_in_conversions
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG
from kilonova.schedule.asynchrony.declared_workflow import MERGED, LearnedTask
from kilonova.schedule.asynchrony.linear_model import LinearModel, Measurement, fit_linear
from kilonova.schedule.asynchrony.workflow_model import (
    ChannelModel,
    PortForm,
    PortSignature,
    TaskModel,
    VariantModel,
    WorkflowModel,
)
from kilonova.schedule.bound_planning.planned_task import PlannedTask
from kilonova.schedule.costs import LinearCost, fit
from kilonova.schedule.due import TaskState
from kilonova.schedule.query_shape import shape_of

FULL, SEPARATOR = "full", " of "
"""Name of a full refresh, and the text between a variant and the inputs whose changes it processes, if not all."""

_SUBSETS = 3
"""Number of inputs up to which every set of them is a variant; beyond, all of them and each alone."""

_COMPARED = 1 / 25e6
"""Seconds per byte of two bases that are compared."""

_USUAL_SHARE = 0.5
"""Bytes written per byte read of tasks that have not written anything yet."""


def workflow_model(planned: Mapping[str, PlannedTask], channels: Mapping[str, ChannelState]) -> WorkflowModel:
    """Return the workflow model of planned tasks.

    Args:
        planned: the tasks by the channel that they write.
        channels: the channels that they read and write.
    """
    names = dict.fromkeys((*planned, *(name for task in planned.values() for name in task.reads)))
    converted = built_in_conversions(merge=MERGED, diff=LinearModel(0.0, (_COMPARED, _COMPARED)))
    return WorkflowModel(
        tuple(ChannelModel(name, converted) for name in names),
        tuple(_task_model(each, channels) for each in planned.values()),
    )


def _task_model(task: PlannedTask, channels: Mapping[str, ChannelState]) -> TaskModel:
    variants: Iterable[VariantModel]
    if task.incremental:
        given = (each for each in task.state.task.variants if each is not task.state.task.from_sources)
        variants = (model for each in given for model in _variant_models(task, each, channels))
    else:
        variants = (_full(task, FULL, channels),)
    return TaskModel(task.name, task.reads, task.writes, tuple(variants))


def _variant_models(
    task: PlannedTask, variant: Variant, channels: Mapping[str, ChannelState]
) -> Iterable[VariantModel]:
    """Return the models of a variant: for all inputs whose changes it processes, and for some of them."""
    forms = [_form(task, variant, name) for name in task.reads]
    advancing = [name for name, form in zip(task.reads, forms, strict=True) if form.delta != BASE]
    if not advancing:
        yield _full(task, variant.name, channels)
        return
    count = len(advancing)
    sizes = range(1, count + 1) if count <= _SUBSETS else (1, count)
    for chosen in (set(names) for size in sizes for names in combinations(advancing, size)):
        ports = tuple(
            form if form.delta == BASE or name in chosen else PortSignature(PortForm.HELD)
            for name, form in zip(task.reads, forms, strict=True)
        )
        name = variant.name if len(chosen) == count else f"{variant.name}{SEPARATOR}{', '.join(sorted(chosen))}"
        writes_base = variant.productions[task.state.task.writes.index(task.writes)] is Production.BASE
        cost, beside = _cost(task, RefreshMethod.INCREMENTAL, len(chosen)), 0.0
        for read, port in zip(task.reads, ports, strict=True):
            beside += channels[read].size if port.form in (PortForm.HELD, PortForm.DELTA) else 0.0
        share = _delta_share(task.state, _base_share(task.reads, task.writes, channels))
        yield VariantModel(
            name=name,
            ports=ports,
            produces=BASE if writes_base else STRONG,
            keeps_monotone=isinstance(channels[task.writes].channel.encoding, Append),
            cost=LinearModel(cost.fixed + cost.whole * beside, _per_block(ports, cost.whole, cost.change), 0.0),
            rows=LinearModel(0.0, _per_block(ports, 0.0, share)),
        )


def _full(task: PlannedTask, name: str, channels: Mapping[str, ChannelState]) -> VariantModel:
    ports = tuple(PortSignature(PortForm.BASE) for _ in task.reads)
    method = RefreshMethod.FROM_SOURCES if task.parts else RefreshMethod.FULL
    cost = _cost(task, method, len(ports))
    share = _base_share(task.reads, task.writes, channels)
    return VariantModel(
        name=name,
        ports=ports,
        produces=BASE,
        cost=LinearModel(cost.fixed, (cost.whole,) * len(ports)),
        rows=LinearModel(0.0, (share,) * len(ports)),
    )


def _form(task: PlannedTask, variant: Variant, channel: str) -> PortSignature:
    """Return what a variant reads of a channel; of a view that is computed from other relations, as if from it."""
    modes = {port.mode for port in variant.ports if port.channel == channel}
    if not modes and task.parts:
        whole = all(port.mode is Mode.ALL for port in variant.ports)
        return PortSignature(PortForm.BASE) if whole else PortSignature(PortForm.BASE_AND_DELTA, STRONG)
    if not modes:
        return PortSignature(PortForm.NOTHING)
    if not any(mode.advances for mode in modes):
        return PortSignature(PortForm.BASE)
    both = not modes.isdisjoint({Mode.ALL, Mode.OLD})
    form = PortForm.BASE_AND_DELTA if both else PortForm.DELTA
    return PortSignature(form, MONOTONE if Mode.INSERTS in modes else STRONG)


def _per_block(ports: Sequence[PortSignature], base: float, delta: float) -> tuple[float, ...]:
    """Return a coefficient for each block that some ports read."""
    by_form = {
        PortForm.BASE: (base,),
        PortForm.DELTA: (delta,),
        PortForm.BASE_AND_DELTA: (base, delta),
    }
    return tuple(each for port in ports for each in by_form.get(port.form, ()))


def _cost(task: PlannedTask, method: RefreshMethod, moved: int) -> LinearCost:
    """Return the cost of refreshing a planned task: that of all of its tasks, or of the view from its sources."""
    states = (task.state,) if method is RefreshMethod.FROM_SOURCES else task.states
    costs = [fit(state.samples, shape_of(state.task), state.idle).linear(method, moved) for state in states]
    return LinearCost(*map(sum, zip(*costs, strict=True)))


def learned_task(state: TaskState, channels: Mapping[str, ChannelState]) -> LearnedTask:
    """Return the costs and sizes of a task as its runs have shown them.

    Args:
        state: the task.
        channels: the channels that it reads and writes.
    """
    costs = fit(state.samples, shape_of(state.task), state.idle)
    base = _base_share(state.task.reads, state.task.writes[0], channels)
    return LearnedTask(
        changes=tuple(
            costs.linear(RefreshMethod.INCREMENTAL, moved) for moved in range(1, 1 + max(1, len(state.task.reads)))
        ),
        whole=costs.linear(RefreshMethod.FULL, len(state.task.reads)),
        delta_share=_delta_share(state, base),
        base_share=base,
        sizes=tuple(channels[name].size for name in state.task.reads),
    )


def _delta_share(state: TaskState, base_share: float) -> float:
    """Return the bytes of a change that are written per byte of a change that is read."""
    samples = [
        Measurement((float(each.input_size.change),), 0.0, float(each.written))
        for each in state.samples
        if not each.method.renews and each.written and each.input_size.change
    ]
    return fit_linear(LinearModel(0.0, (base_share,)), samples).per_input[0]


def _base_share(reads: Iterable[str], writes: str, channels: Mapping[str, ChannelState]) -> float:
    """Return the bytes of the whole output per byte of the inputs."""
    whole = sum(channels[name].size for name in reads)
    written = channels[writes].size
    return written / whole if whole and written else _USUAL_SHARE
