"""Restrictions of a workflow to which the full model is compared (asynchronous scheduling, 7.2, Table 5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from kilonova.model.bound import InconsistencyBound
from kilonova.schedule.asynchrony.data_block import BASE
from kilonova.schedule.asynchrony.scenario import Scenario
from kilonova.schedule.asynchrony.workflow_model import PortForm


def only_consistent_blocks(scenario: Scenario) -> Scenario:
    """Return a scenario in which every block must be consistent (Sync)."""
    strict = (InconsistencyBound(channel=each.name, limit=timedelta()) for each in scenario.workflow.channels)
    return replace(scenario, bounds=(*scenario.bounds, *strict))


def only_base_blocks(scenario: Scenario) -> Scenario:
    """Return a scenario in which tasks read and write bases only (Batch); deltas that arrive are applied to bases.

    Batch variants need no consistent inputs then: asynchronous variants read deltas, so that nothing else would be left
    to be asynchronous.
    """
    workflow = scenario.workflow
    tasks = tuple(
        replace(
            task,
            variants=tuple(
                replace(variant, synchronous=False)
                for variant in task.variants
                if variant.produces == BASE and all(port.form is PortForm.BASE for port in variant.ports)
            ),
        )
        for task in workflow.tasks
    )
    channels = tuple(
        replace(channel, conversions=tuple(each for each in channel.conversions if each.target == BASE))
        for channel in workflow.channels
    )
    return replace(scenario, workflow=replace(workflow, channels=channels, tasks=tasks))
