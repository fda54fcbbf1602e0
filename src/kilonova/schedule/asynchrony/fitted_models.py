"""Workflow models whose costs and sizes are fitted to what earlier invocations took and wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kilonova.schedule.asynchrony.execution_plan import ConversionStep, Step, TaskStep
from kilonova.schedule.asynchrony.linear_model import LinearModel, Measurement, fit_linear
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel


@dataclass(frozen=True, slots=True)
class MeasuredInvocation:
    """What an invocation took.

    Attributes:
        inputs: rows of the blocks that it read, a base before its delta.
        output: rows of the block that it wrote.
        cost: its cost.
    """

    inputs: tuple[float, ...]
    output: float
    cost: float


def fitted_workflow(workflow: WorkflowModel, measured: Mapping[Step, Sequence[MeasuredInvocation]]) -> WorkflowModel:
    """Return a workflow with fitted models.

    Args:
        workflow: the workflow; its models are those that fits start from.
        measured: the invocations of each step, newest first; steps without any stay as they are.
    """
    tasks = tuple(
        replace(
            task,
            variants=tuple(
                replace(variant, cost=cost, rows=rows)
                for variant in task.variants
                for cost, rows in [
                    _fitted(variant.cost, variant.rows, measured.get(TaskStep(task.name, variant.name), ()))
                ]
            ),
        )
        for task in workflow.tasks
    )
    channels = tuple(
        replace(
            channel,
            conversions=tuple(
                replace(each, cost=cost, rows=rows)
                for each in channel.conversions
                for cost, rows in [
                    _fitted(
                        each.cost, each.rows, measured.get(ConversionStep(channel.name, each.source, each.target), ())
                    )
                ]
            ),
        )
        for channel in workflow.channels
    )
    return WorkflowModel(channels, tasks)


def _fitted(
    cost: LinearModel, rows: LinearModel, measured: Sequence[MeasuredInvocation]
) -> tuple[LinearModel, LinearModel]:
    """Return the cost and size models that fit some invocations."""
    if not measured:
        return cost, rows
    return (
        fit_linear(cost, [Measurement(each.inputs, each.output, each.cost) for each in measured]),
        fit_linear(rows, [Measurement(each.inputs, 0.0, each.output) for each in measured]),
    )
