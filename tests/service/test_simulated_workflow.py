"""Simulations of declared workflows, which need no Spark, and no catalog unless they are to learn from one."""

from __future__ import annotations

from datetime import timedelta

import pytest

import kilonova as kn
from kilonova.errors import DeclarationError
from kilonova.model.bound import InconsistencyBound, StalenessBound
from kilonova.model.run import RefreshMethod
from kilonova.schedule.asynchrony.declared_workflow import model_bounds, model_of
from kilonova.schedule.asynchrony.workflow_model import PortForm
from kilonova.service.project import Project
from kilonova.service.queries import ProjectReader
from kilonova.service.simulated_workflow import WorkflowSimulation, simulate_workflows
from tests.service.writing import Writing, wrote
from tests.shop import shop, shop_as_made

__all__ = ["shop", "shop_as_made"]

HOUR = timedelta(hours=1)
PAGES, CLICKS = "pages 1000 rows every 10 minutes", "clicks 100,000 rows every 7 minutes"


def search() -> kn.Workflow:
    found = kn.Workflow("search")
    found.channel("pages", "url string, site string")
    found.channel("clicks", "site string, visitor string")
    found.view("scores", "SELECT site, count(*) AS clicks FROM clicks GROUP BY site")
    found.view("labelled", "SELECT p.url, s.clicks FROM pages p JOIN scores s ON p.site = s.site")
    found.bound_staleness("labelled", "pages", "30 minutes")
    found.bound_inconsistency("labelled", 0)
    return found


def asynchronous() -> kn.Workflow:
    """Return the same with a task that labels new pages with the scores that are there."""
    found = kn.Workflow("search")
    found.channel("pages", "url string, site string")
    found.channel("clicks", "site string, visitor string")
    found.view("scores", "SELECT site, count(*) AS clicks FROM clicks GROUP BY site")
    found.sql(
        "labelled",
        "SELECT p.url, s.clicks FROM {pages} p JOIN {scores} s ON p.site = s.site",
        reads={"pages": kn.New, "scores": kn.All},
        produces=kn.Delta,
        schema="url string, clicks bigint",
    )
    found.bound_staleness("labelled", "pages", 0)
    return found


def simulated(workflow: kn.Workflow, *bounds: str, hours: float = 12) -> WorkflowSimulation:
    arrivals = (PAGES, CLICKS)
    return simulate_workflows([workflow], hours * HOUR, arrivals=arrivals, bounds=bounds, ratios=["scores=0.01"])


def counts(result: WorkflowSimulation) -> dict[str, int]:
    found: dict[str, int] = {}
    for step, (count, _) in result.invocations.items():
        found[step.task] = found.get(step.task, 0) + count
    return found


def test_modes_become_signatures() -> None:
    whole = search().declared().workflow
    model = model_of(whole, {})
    (full, *incremental) = model.writer["labelled"].variants
    assert [port.form for port in full.ports] == [PortForm.BASE] * 2
    assert {variant.name: [port.form for port in variant.ports] for variant in incremental} == {
        "incremental: pages": [PortForm.BASE_AND_DELTA, PortForm.HELD],
        "incremental: scores": [PortForm.HELD, PortForm.BASE_AND_DELTA],
        "incremental": [PortForm.BASE_AND_DELTA] * 2,
    }
    (label,) = model_of(asynchronous().declared().workflow, {}).writer["labelled"].variants
    assert [port.form for port in label.ports] == [PortForm.DELTA, PortForm.BASE]


def test_a_declared_path_stands_for_all_tasks_of_a_view() -> None:
    workflow = kn.Workflow("w")
    workflow.channel("a", "x int, y int")
    workflow.view("v", "SELECT x, count(*) AS n FROM (SELECT x, y, count(*) AS m FROM a GROUP BY x, y) GROUP BY x")
    whole = workflow.declared().workflow
    model = model_of(whole, {})
    bound = StalenessBound(channel="v", path=("a", "v"), limit=HOUR)
    found = model_bounds([bound, InconsistencyBound(channel="v", limit=HOUR)], whole, model)
    assert len(whole.tasks) > 1
    assert [each.path for each in found if isinstance(each, StalenessBound)] == list(model.paths["v"])


def test_a_view_is_refreshed_as_often_as_its_bound_demands() -> None:
    """Pages come every 10 minutes, and may wait for 30 after others have come."""
    result = simulated(search())
    assert 12 <= counts(result)["labelled"] <= 18
    assert counts(result)["scores"] >= 12
    assert {each.bound.limit: each.violations > 0 for each in result.bounds} == {HOUR / 2: True, 0 * HOUR: False}


def test_a_tighter_bound_costs_more() -> None:
    loose, tight = simulated(search()), simulated(search(), "labelled staleness pages 0")
    assert counts(tight)["labelled"] > 2 * counts(loose)["labelled"]
    assert tight.result.cost > loose.result.cost
    worst = [{each.bound.limit: each.worst for each in result.bounds} for result in (loose, tight)]
    assert worst[1][0 * HOUR] < worst[0][HOUR / 2]


def test_a_view_holds_an_input_back_as_long_as_its_bounds_allow() -> None:
    loose = simulated(search(), "labelled inconsistency 4 hours")
    assert counts(loose)["labelled"] >= 12
    assert 1 <= counts(loose)["scores"] <= 4
    assert max(each.worst for each in loose.bounds) <= 4 * HOUR


def test_an_asynchronous_task_leaves_the_scores_alone() -> None:
    assert "scores" not in counts(simulated(asynchronous()))
    bounded = simulated(asynchronous(), "scores staleness clicks 2 hours")
    assert 4 <= counts(bounded)["scores"] <= 6
    assert counts(bounded)["labelled"] >= 70


def test_data_that_wait_for_a_plan_are_as_stale_as_it_takes() -> None:
    strict = simulated(search(), "labelled staleness pages 0")
    pages = next(each for each in strict.bounds if isinstance(each.bound, StalenessBound))
    assert timedelta() < pages.median_lag <= pages.worst < timedelta(minutes=1)
    assert max(pages.amounts) == 1.0
    assert min(pages.amounts) < 0.9


def test_amounts_are_shares_of_the_limit() -> None:
    result = simulated(search())
    pages = next(each for each in result.bounds if each.bound.limit)
    assert 0.9 < max(pages.amounts) < 1.2
    assert len(pages.amounts) == 40


def test_arrivals_are_like_those_of_the_past(project: Project) -> None:
    workflow = kn.Workflow("shop")
    workflow.channel("orders", "id bigint")
    workflow.view("daily", "SELECT count(*) AS orders FROM orders")
    workflow.bound_staleness("daily", "orders", 0)
    project.apply(workflow)
    for rows in (3, 5):
        project.ingest("orders", project.warehouse.spark.range(rows))
    result = simulate_workflows([workflow], timedelta(minutes=1), history=project.reader)
    (feed,) = result.feeds
    assert (feed.channel, feed.rows) == ("orders", 4.0)
    assert timedelta(seconds=1) <= feed.every <= timedelta(minutes=5)


def test_costs_and_sizes_are_those_of_past_runs(shop: Project) -> None:
    workflow = kn.Workflow("copies")
    workflow.channel("orders", "id bigint, note string")

    @workflow.task(schema="id bigint, note string")
    def copied(orders: kn.New) -> kn.Delta:
        return orders

    @copied.variant
    def copied_again(orders: kn.All) -> kn.Base:
        return orders

    workflow.bound_staleness("copied", "orders", "10 minutes")
    shop.apply(workflow)
    for number in range(1, 9):
        wrote(shop.catalog, {"orders": Writing(rows=1000)})
        read = [("orders", number)]
        if number < 4:
            whole = Writing(rows=250 * number, base=True)
            wrote(shop.catalog, {"copied": whole}, task="copied", read=read, method=RefreshMethod.FULL, seconds=4.0)
            continue
        method = RefreshMethod.INCREMENTAL
        wrote(shop.catalog, {"copied": Writing(rows=250)}, task="copied", read=read, method=method)

    def simulated_day(history: ProjectReader | None) -> WorkflowSimulation:
        arrivals = ["orders 1000 rows every 1 hour"]
        return simulate_workflows([workflow], 24 * HOUR, arrivals=arrivals, history=history)

    past, assumed = simulated_day(shop.reader), simulated_day(None)
    assert (past.learned, assumed.learned) == (("copied",), ())
    assert past.feeds == assumed.feeds
    ((step, (count, hours)),) = past.invocations.items()
    assert (step.variant, count) == ("copied", 23), "the rows that are there have been copied"
    assert 0.35 < 3600 * hours < 0.65
    sizes = [block.rows for block in past.result.final.blocks["copied"]]
    assert max(sizes) > 8 * 2500 / 100, "what is stored, in rows of 100 bytes"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"arrivals": [PAGES]}, r"not known what arrives.*clicks 1000 rows.*\[channel clicks\]"),
        ({"arrivals": ["pages often"]}, "'pages often' is no arrival"),
        ({"arrivals": ["scores 10 rows every 1 hour"]}, r"no source channel.*pages, clicks.*\[channel scores\]"),
        ({"arrivals": [PAGES, CLICKS], "bounds": ["labelled fast"]}, "'labelled fast' is no bound"),
        ({"arrivals": [PAGES, CLICKS], "bounds": ["labelled staleness news 1 hour"]}, "no path from news"),
        ({"arrivals": [PAGES, CLICKS], "ratios": ["scores"]}, "'scores' is no ratio"),
    ],
)
def test_what_cannot_be_simulated_is_refused(options: dict[str, list[str]], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        simulate_workflows([search()], HOUR, **options)


def test_a_workflow_without_bounds_has_nothing_to_keep() -> None:
    workflow = kn.Workflow("w")
    workflow.channel("a", "x int")
    workflow.view("v", "SELECT x FROM a")
    with pytest.raises(DeclarationError, match="has no bounds"):
        simulate_workflows([workflow], HOUR, arrivals=["a 10 rows every 1 hour"])
