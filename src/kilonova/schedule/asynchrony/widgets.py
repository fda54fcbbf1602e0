"""Widgets: library operations with several variants, as parts of a workflow model (asynchronous scheduling, section 3).

A widget is a sub-workflow: tasks, and the channels that they write, internal ones included. The planner chooses a
variant each time, by cost and by what the bounds allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kilonova.schedule.asynchrony.conversions import built_in_conversions, weak_conversions
from kilonova.schedule.asynchrony.data_block import BASE, STRONG, weak
from kilonova.schedule.asynchrony.linear_model import LinearModel
from kilonova.schedule.asynchrony.workflow_model import (
    ChannelModel,
    PortForm,
    PortSignature,
    TaskModel,
    VariantModel,
    WorkflowModel,
)

NOT_READ = PortSignature(PortForm.NOTHING)
ONE_BASE = PortSignature(PortForm.BASE)
ONE_DELTA = PortSignature(PortForm.DELTA, STRONG)
BASE_AND_DELTA = PortSignature(PortForm.BASE_AND_DELTA, STRONG)

INCREMENTS = "increments"


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Costs from which those of the variants are made.

    Attributes:
        fixed: the cost of any invocation.
        read: the cost of processing a row.
        probe: the cost per row of a base in which only matching rows are looked up.
        write: the cost of writing a row.
    """

    fixed: float
    read: float
    probe: float
    write: float

    def model(self, *inputs: float) -> LinearModel:
        """Return a cost model with a coefficient for each input."""
        return LinearModel(self.fixed, inputs, self.write)


@dataclass(frozen=True, slots=True)
class Widget:
    """Part of a workflow model."""

    channels: tuple[ChannelModel, ...]
    tasks: tuple[TaskModel, ...]


def workflow_of(sources: Sequence[ChannelModel], widgets: Sequence[Widget]) -> WorkflowModel:
    """Return the workflow that consists of source channels and widgets."""
    return WorkflowModel(
        (*sources, *(channel for widget in widgets for channel in widget.channels)),
        tuple(task for widget in widgets for task in widget.tasks),
    )


def channel_model(
    name: str, costs: UnitCosts, *, growth: float = 1.0, rewritten: float = 0.0, difference: float = 0.01
) -> ChannelModel:
    """Return a channel with the built-in conversions.

    Args:
        name: its name.
        costs: the unit costs.
        growth: by how many rows its base grows per row of a delta.
        rewritten: the share of the base that is rewritten where a delta is applied: 0 for appended rows.
        difference: the size of a delta between two bases of one size, as a share of the new one.
    """
    merge = costs.model(rewritten * costs.read, costs.read)
    diff = costs.model(costs.read, costs.read)
    # the output of a merge is the whole base, of which only the rewritten share is written
    merge = replace(merge, per_output=rewritten * costs.write)
    return ChannelModel(name, built_in_conversions(merge=merge, diff=diff, growth=growth, difference=difference))


def stateless(
    name: str, read: str, writes: ChannelModel, costs: UnitCosts, *, ratio: float = 1.0, base_ratio: float | None = None
) -> Widget:
    """Return a step that processes each row by itself, such as a filter or a projection.

    Args:
        name: the task.
        read: the channel that it reads.
        writes: the channel that it writes.
        costs: the unit costs.
        ratio: rows written per row of a delta.
        base_ratio: rows written per row of a base; as for deltas by default.
    """
    whole = LinearModel(0.0, (ratio if base_ratio is None else base_ratio,))
    variants = (
        VariantModel(name="batch", ports=(ONE_BASE,), produces=BASE, cost=costs.model(costs.read), rows=whole),
        VariantModel(
            name="incremental",
            ports=(ONE_DELTA,),
            produces=STRONG,
            keeps_monotone=True,
            cost=costs.model(costs.read),
            rows=LinearModel(0.0, (ratio,)),
        ),
    )
    return Widget((writes,), (TaskModel(name, (read,), writes.name, variants),))


def batch_only(
    name: str, reads: Sequence[str], writes: ChannelModel, costs: UnitCosts, *, rows: float, synchronous: bool = False
) -> Widget:
    """Return a step that has no incremental variant.

    Args:
        name: the task.
        reads: the channels that it reads.
        writes: the channel that it writes.
        costs: the unit costs.
        rows: the rows that it writes, whatever it reads.
        synchronous: whether its inputs must be consistent.
    """
    variant = VariantModel(
        name="batch",
        ports=(ONE_BASE,) * len(reads),
        produces=BASE,
        synchronous=synchronous,
        cost=costs.model(*(costs.read for _ in reads)),
        rows=LinearModel(rows, (0.0,) * len(reads)),
    )
    return Widget((writes,), (TaskModel(name, tuple(reads), writes.name, (variant,)),))


def distributive_aggregation(
    name: str, read: str, writes: str, costs: UnitCosts, *, groups: float, touched: float
) -> Widget:
    """Return an aggregation such as a count, which new data can be added to (Figure 3).

    Its incremental variant writes weak deltas: increments by key.

    Args:
        name: the task.
        read: the channel that it reads.
        writes: the channel that it writes.
        costs: the unit costs.
        groups: number of groups per row of the input's base.
        touched: number of groups per row of a delta.
    """
    kind = weak(INCREMENTS)
    variants = (
        VariantModel(
            name="batch",
            ports=(ONE_BASE,),
            produces=BASE,
            cost=costs.model(costs.read),
            rows=LinearModel(0.0, (groups,)),
        ),
        VariantModel(
            name="incremental",
            ports=(ONE_DELTA,),
            produces=kind,
            cost=costs.model(costs.read),
            rows=LinearModel(0.0, (touched,)),
        ),
    )
    # groups are as many whether they are counted at once or added up; a strong delta has a row removed and one added
    growth = groups / touched
    plain = channel_model(writes, costs, growth=growth / 2, rewritten=0.1)
    weaker = weak_conversions(
        INCREMENTS,
        growth=growth,
        from_strong=costs.model(costs.read),
        to_base=replace(costs.model(costs.probe, costs.read), per_output=costs.probe),
        to_strong=costs.model(costs.probe, costs.read),
    )
    channel = replace(plain, conversions=(*plain.conversions, *weaker))
    return Widget((channel,), (TaskModel(name, (read,), writes, variants),))


def algebraic_aggregation(
    name: str, read: str, writes: str, costs: UnitCosts, *, groups: float, touched: float
) -> Widget:
    """Return an aggregation that is a function of distributive ones, such as an average of sum and count.

    The distributive parts stand on an internal channel, `{writes}_parts`.
    """
    parts = distributive_aggregation(f"{name}_parts", read, f"{writes}_parts", costs, groups=groups, touched=touched)
    finish = stateless(name, f"{writes}_parts", channel_model(writes, costs, growth=0.0, rewritten=0.1), costs)
    return Widget(parts.channels + finish.channels, parts.tasks + finish.tasks)


def distinct(name: str, read: str, writes: str, costs: UnitCosts, *, kept: float) -> Widget:
    """Return the removal of duplicates: a count of each row on an internal channel, and the rows with a count above 0.

    Args:
        name: the task; `{name}_counts` is that which counts.
        read: the channel that it reads.
        writes: the channel that it writes.
        costs: the unit costs.
        kept: the share of rows that are no duplicates.
    """
    counts = distributive_aggregation(
        f"{name}_counts", read, f"{writes}_counts", costs, groups=kept, touched=max(kept, 0.5)
    )
    keep = stateless(name, f"{writes}_counts", channel_model(writes, costs), costs, ratio=kept, base_ratio=1.0)
    return Widget(counts.channels + keep.channels, counts.tasks + keep.tasks)


def join(
    name: str, left: str, right: str, writes: ChannelModel, costs: UnitCosts, *, per_left: float, per_right: float
) -> Widget:
    """Return a join: batch, incremental, and two asynchronous variants (Figure 4).

    Args:
        name: the task.
        left: the channel of its left input.
        right: the channel of its right input.
        writes: the channel that it writes.
        costs: the unit costs.
        per_left: rows written per row of the left input.
        per_right: rows written per row of the right input.
    """
    read, probe = costs.read, costs.probe
    variants = (
        VariantModel(
            name="batch",
            ports=(ONE_BASE, ONE_BASE),
            produces=BASE,
            synchronous=True,
            cost=costs.model(read, read),
            rows=LinearModel(0.0, (per_left, 0.0)),
        ),
        VariantModel(
            name="incremental",
            ports=(BASE_AND_DELTA, BASE_AND_DELTA),
            produces=STRONG,
            synchronous=True,
            keeps_monotone=True,
            cost=costs.model(probe, read, probe, read),
            rows=LinearModel(0.0, (0.0, per_left, 0.0, per_right)),
        ),
        VariantModel(
            name="asynchronous left",
            ports=(ONE_DELTA, ONE_BASE),
            produces=STRONG,
            keeps_monotone=True,
            cost=costs.model(read, probe),
            rows=LinearModel(0.0, (per_left, 0.0)),
        ),
        VariantModel(
            name="asynchronous right",
            ports=(ONE_BASE, ONE_DELTA),
            produces=STRONG,
            keeps_monotone=True,
            cost=costs.model(probe, read),
            rows=LinearModel(0.0, (0.0, per_right)),
        ),
    )
    return Widget((writes,), (TaskModel(name, (left, right), writes.name, variants),))


def bag_union(name: str, left: str, right: str, writes: ChannelModel, costs: UnitCosts) -> Widget:
    """Return a bag union: batch, incremental, and one-sided asynchronous variants (Figure 5)."""
    read = costs.read
    forms = (
        ("batch", (ONE_BASE, ONE_BASE), BASE, True),
        ("incremental", (ONE_DELTA, ONE_DELTA), STRONG, True),
        ("asynchronous left", (ONE_DELTA, NOT_READ), STRONG, False),
        ("asynchronous right", (NOT_READ, ONE_DELTA), STRONG, False),
    )
    variants = tuple(
        VariantModel(
            name=variant,
            ports=ports,
            produces=produces,
            synchronous=synchronous,
            keeps_monotone=True,
            cost=costs.model(*(read for port in ports if port != NOT_READ)),
            rows=LinearModel(0.0, tuple(1.0 for port in ports if port != NOT_READ)),
        )
        for variant, ports, produces, synchronous in forms
    )
    return Widget((writes,), (TaskModel(name, (left, right), writes.name, variants),))
