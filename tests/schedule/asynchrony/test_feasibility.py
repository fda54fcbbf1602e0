from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kilonova.errors import DeclarationError
from kilonova.model.bound import ZERO, Bound, InconsistencyBound, StalenessBound
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.data_block import STRONG
from kilonova.schedule.asynchrony.feasibility import (
    Deadline,
    ExpectedArrival,
    infeasible_bounds,
    next_deadline,
    unkeepable_reason,
)
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel
from tests.schedule.asynchrony.test_pruning import CLICKS, CRAWL, HOUR, SCORED, START, scored_state


def behind(limit: timedelta) -> StalenessBound:
    return StalenessBound(channel="labelled", path=CRAWL, limit=limit)


def reasons(*bounds: Bound, workflow: WorkflowModel = SCORED, rows: float = 10) -> list[str]:
    scheduler = AsynchronousScheduler(workflow, bounds)
    found = infeasible_bounds(scheduler, scored_state(5, 5, 5), {"crawl": ExpectedArrival(STRONG, rows)}, HOUR / 10)
    assert all(each.bound in bounds for each in found)
    return [each.reason for each in found]


def with_variants(*names: str) -> WorkflowModel:
    """Return the workflow with some variants of the join only."""
    label = SCORED.writer["labelled"]
    kept = replace(label, variants=tuple(each for each in label.variants if each.name in names))
    return replace(SCORED, tasks=tuple(kept if task is label else task for task in SCORED.tasks))


def test_a_bound_that_plans_keep_is_feasible() -> None:
    assert reasons(behind(20 * HOUR)) == []


def test_a_bound_that_takes_too_long_is_not() -> None:
    """11 rows are digested for 1 + 11 · 2, and labelled for 1 + 11 · 2 + 10 · 0.1: a tenth of an hour each."""
    assert reasons(behind(HOUR)) == ["it would take 4.7 h, the bound is 1 h"]
    assert reasons(behind(HOUR * 2), rows=1) == []


def test_a_bound_of_zero_means_at_once() -> None:
    assert reasons(behind(ZERO)) == []


def test_the_task_that_lacks_a_variant_is_named() -> None:
    """The incremental join reads new clicks too, and there are none."""
    found = reasons(behind(HOUR), workflow=with_variants("incremental"))
    assert found == ["no variant of label can write labelled from the blocks of digests"]


def test_a_limit_that_would_be_broken_is_named() -> None:
    """Only the one-sided join is left, which keeps the old scores."""
    bounds = (behind(ZERO), InconsistencyBound(channel="labelled", limit=HOUR))
    workflow = with_variants("asynchronous left")
    state = scored_state(5, 5, 1)
    plan = AsynchronousScheduler(workflow, bounds).plan(state)
    assert [each.channel for each in plan.unmet] == ["labelled"]
    assert plan.unmet[0].reason == "what can be written now would be 3:00:00 inconsistent, the limit is 1:00:00"


@pytest.mark.parametrize(
    ("bound", "problem"),
    [
        (StalenessBound(channel="labelled", path=("crawl", "label"), limit=ZERO), "no path crawl›label leads to"),
        (StalenessBound(channel="label", path=CRAWL, limit=ZERO), "there is no such channel"),
        (InconsistencyBound(channel="label", limit=ZERO), "there is no such channel"),
    ],
)
def test_bounds_on_what_does_not_exist_are_refused(bound: StalenessBound, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        AsynchronousScheduler(SCORED, (bound,))


def test_the_next_run_is_due_because_of_the_first_bound() -> None:
    state = replace(scored_state(5, 3, 2), now=START + 5 * HOUR)
    crawl = behind(10 * HOUR)
    clicks = StalenessBound(channel="labelled", path=CLICKS, limit=15 * HOUR)
    found = next_deadline(AsynchronousScheduler(SCORED, (crawl, clicks)), state, HOUR / 10)
    assert isinstance(found, Deadline)
    # the fifth crawl came after four hours, the third clicks after two
    assert (found.bound, found.violated) == (crawl, START + 14 * HOUR + timedelta.resolution)
    assert START + 5 * HOUR < found.start < START + 14 * HOUR
    assert next_deadline(AsynchronousScheduler(SCORED, ()), state, HOUR) is None


@pytest.mark.parametrize("limit", [ZERO, HOUR, 1000 * HOUR])
def test_no_machine_keeps_rows_consistent_that_no_variant_writes_again(limit: timedelta) -> None:
    """New pages get the newest scores, and old ones keep theirs."""
    inconsistent = InconsistencyBound(channel="labelled", limit=limit)
    one_sided = with_variants("asynchronous left")
    reason = unkeepable_reason("labelled", one_sided, (behind(ZERO), inconsistent))
    assert reason is not None
    assert "inconsistent, the limit is" in reason
    assert unkeepable_reason("labelled", one_sided, (inconsistent,)) is not None
    assert unkeepable_reason("labelled", one_sided, (behind(limit),)) is None
    for other in ("batch", "incremental"):
        both = with_variants("asynchronous left", other)
        assert unkeepable_reason("labelled", both, (behind(ZERO), inconsistent)) is None
