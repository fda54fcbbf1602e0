"""What invocations took changes which variants plans choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.data_block import BASE, DataBlock
from kilonova.schedule.asynchrony.execution_plan import TaskStep
from kilonova.schedule.asynchrony.fitted_models import MeasuredInvocation, fitted_workflow
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel
from tests.schedule.asynchrony.test_channel_observation import FRESH, WORKFLOW, present

LEFT, BATCH = TaskStep("label", "asynchronous left"), TaskStep("label", "batch")


def chosen(workflow: WorkflowModel) -> str:
    """Return how new pages are labelled where either a base or a delta can be written."""
    state = present()
    one = ((1, 1),)
    # the scores are consistent with the new pages, so that a batch join is allowed, too
    scores = (DataBlock("scores", BASE, None, (((2, 2),),), 90.0, (2, 2)),)
    state = replace(state, blocks={**state.blocks, "scores": scores})
    assert state.outputs[0].head == (one, one)
    (invocation,) = AsynchronousScheduler(workflow, (FRESH,)).plan(state).invocations
    return str(invocation.step)


def took(cost: float, inputs: Sequence[tuple[float, float]]) -> list[MeasuredInvocation]:
    return [MeasuredInvocation(each, each[0], cost) for each in inputs]


def test_the_variant_that_proves_cheaper_is_chosen() -> None:
    assert chosen(WORKFLOW) == str(LEFT)
    slow = took(400.0, [(5, 90), (6, 90), (4, 90)])
    assert chosen(fitted_workflow(WORKFLOW, {LEFT: slow})) == str(BATCH)
    fast = took(5.0, [(5, 90), (7, 90)] * 20)
    assert chosen(fitted_workflow(WORKFLOW, {LEFT: fast + slow})) == str(LEFT)


def test_sizes_are_fitted_too() -> None:
    found = fitted_workflow(
        WORKFLOW, {LEFT: [MeasuredInvocation((size, 90.0), 3 * size, 10.0) for size in (5.0, 50.0)]}
    )
    variant = next(each for each in found.writer["labelled"].variants if each.name == LEFT.variant)
    assert abs(variant.rows((100.0, 90.0)) - 300) < 3


def test_without_measurements_nothing_changes() -> None:
    assert fitted_workflow(WORKFLOW, {}) == WORKFLOW
