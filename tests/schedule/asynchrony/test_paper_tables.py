"""Tables 1 to 4 of the paper: planned by the scheduler, executed on rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kilonova.model.bound import Bound, InconsistencyBound, StalenessBound
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import BASE, STRONG, DataBlock
from kilonova.schedule.asynchrony.execution_plan import ExecutionPlan, Invocation, TaskStep
from kilonova.schedule.asynchrony.provenance import ArrivalTimes, Provenance, extent, is_consistent
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.state_changes import with_blocks
from kilonova.schedule.asynchrony.widgets import UnitCosts, channel_model, join, workflow_of
from tests.schedule.asynchrony.relations import Bag, Database, Join

COSTS = UnitCosts(fixed=1.0, read=1.0, probe=0.1, write=1.0)
WORKFLOW = workflow_of(
    [channel_model("crawl", COSTS), channel_model("scores", COSTS)],
    [join("label", "crawl", "scores", channel_model("labelled", COSTS), COSTS, per_left=1.0, per_right=2.0)],
)
PATHS = WORKFLOW.paths["labelled"]
CRAWL, SCORES = PATHS

SUNDAY = datetime(2026, 1, 4, tzinfo=UTC)


def at(day: int, hour: int) -> datetime:
    return SUNDAY + timedelta(days=day, hours=hour)


# point 1 is the crawl of Sunday 3pm and the score table before Monday 1am, both of other sites
TIMES = {
    "crawl": ArrivalTimes((1, 2, 3, 4, 5), (at(0, 15), at(1, 8), at(2, 11), at(2, 17), at(3, 14))),
    "scores": ArrivalTimes((1, 2, 3), (at(1, 1), at(2, 1), at(3, 1))),
}
MON_8AM, TUE_11AM, TUE_5PM, WED_2PM = 2, 3, 4, 5
MON_1AM, TUE_1AM, WED_1AM = 1, 2, 3

D = {"x": "d1", "y": "d2", "r": "d3", "z": "d4", "s": "d5"}
CRAWLED = {MON_8AM: ("a/x",), TUE_11AM: ("a/y",), TUE_5PM: ("b/r",), WED_2PM: ("a/z", "b/s")}
SCORED = {MON_1AM: {"a": 18}, TUE_1AM: {"a": 21, "b": 7}, WED_1AM: {"a": 22, "b": 14}}


def point(number: int) -> Provenance:
    return (((number, number),),)


def reflects(crawl: int, *scores: int) -> Provenance:
    return (((crawl, crawl),), ((scores[0], scores[-1]),))


def score_rows(number: int) -> Bag:
    return {(site, score): 1 for site, score in SCORED.get(number, {}).items()}


def labelled(*rows: str) -> Bag:
    """Return rows such as '+a/x 18', or without a sign."""
    found: Bag = {}
    for row in rows:
        page, score = row.lstrip("+-").split()
        found[(page, D[page[-1]], int(score))] = -1 if row.startswith("-") else 1
    return found


def match(page: tuple[str, str], score: tuple[str, int]) -> tuple[str, str, int] | None:
    return (*page, score[1]) if page[0].split("/")[0] == score[0] else None


class Table1:
    """The blocks of Table 1 as they arrive, and a scheduler that is asked after each crawl."""

    def __init__(self, *bounds: Bound) -> None:
        self.scheduler = AsynchronousScheduler(WORKFLOW, bounds)
        self.database = Database({"label": Join(match)})
        head = reflects(1, MON_1AM)
        self.state = SchedulingState(
            now=SUNDAY,
            times={"crawl": ArrivalTimes((1,), (at(0, 15),)), "scores": ArrivalTimes((1,), (at(1, 1),))},
            blocks={},
            outputs=(OutputState("labelled", frozenset({STRONG}), head),),
        )
        self._arrive(DataBlock("crawl", BASE, None, point(1), 0.0), {})
        self._arrive(DataBlock("scores", BASE, None, point(1), 1.0), score_rows(1))
        self._arrive(DataBlock("labelled", BASE, None, head, 0.0), {})

    def _arrive(self, block: DataBlock, rows: Bag) -> None:
        self.database.put(block, rows)
        self.state = with_blocks(self.state, [block], LimitCheck({}, {}, SUNDAY, {}))

    def crawl(self, number: int, scores: int) -> ExecutionPlan:
        """Let everything arrive up to a crawl, plan and execute."""
        for each in range(2, scores + 1):
            if each not in self.state.times["scores"].points:
                rows = dict(score_rows(each))
                for row in score_rows(each - 1):
                    rows[row] = rows.get(row, 0) - 1
                rows = {row: weight for row, weight in rows.items() if weight}
                self._arrive(DataBlock("scores", STRONG, point(each - 1), point(each), float(len(rows))), rows)
                self._arrive(DataBlock("scores", BASE, None, point(each), 2.0), score_rows(each))
        pages: Bag = {(page, D[page[-1]]): 1 for page in CRAWLED[number]}
        before = self.state.blocks["crawl"][-1]
        self._arrive(DataBlock("crawl", STRONG, point(number - 1), point(number), float(len(pages))), pages)
        whole = {**self.database.get(before), **pages}
        self._arrive(DataBlock("crawl", BASE, None, point(number), float(len(whole))), whole)
        times = {
            "crawl": ArrivalTimes(TIMES["crawl"].points[:number], TIMES["crawl"].times[:number]),
            "scores": ArrivalTimes(TIMES["scores"].points[:scores], TIMES["scores"].times[:scores]),
        }
        now = times["crawl"].times[-1] + timedelta.resolution
        self.state = replace(self.state, now=now, times=times)
        plan = self.scheduler.plan(self.state)
        for invocation in plan.invocations:
            self.database.execute(invocation)
        check = LimitCheck(WORKFLOW.paths, times, now, self.scheduler.declared)
        self.state = with_blocks(self.state, (each.writes for each in plan.invocations), check)
        return plan

    @property
    def head(self) -> Provenance:
        return self.state.outputs[0].head


FRESH = StalenessBound(channel="labelled", path=CRAWL, limit=timedelta())
ARRIVALS = [(MON_8AM, MON_1AM), (TUE_11AM, TUE_1AM), (TUE_5PM, TUE_1AM), (WED_2PM, WED_1AM)]


def only_join(plan: ExecutionPlan) -> Invocation:
    (invocation,) = plan.invocations
    assert isinstance(invocation.step, TaskStep)
    return invocation


def test_table_2_consistency_demands_the_synchronous_join() -> None:
    expected = [
        labelled("+a/x 18"),
        labelled("-a/x 18", "+a/x 21", "+a/y 21"),
        labelled("+b/r 7"),
        labelled("-a/x 21", "+a/x 22", "-a/y 21", "+a/y 22", "-b/r 7", "+b/r 14", "+a/z 22", "+b/s 14"),
    ]
    world = Table1(FRESH, InconsistencyBound(channel="labelled", limit=timedelta()))
    variants = []
    for (crawl, scores), rows in zip(ARRIVALS, expected, strict=True):
        invocation = only_join(world.crawl(crawl, scores))
        assert world.database.get(invocation.writes) == rows
        assert world.head == reflects(crawl, scores)
        variants.append(str(invocation.step))
    # where the scores have not changed, the one-sided join is consistent too
    assert variants == ["label (asynchronous left)", "label (incremental)"] * 2


def test_table_3_the_asynchronous_join_leaves_old_scores() -> None:
    world = Table1(FRESH, InconsistencyBound(channel="labelled", limit=timedelta(weeks=1)))
    expected = [labelled("+a/x 18"), labelled("+a/y 21"), labelled("+b/r 7"), labelled("+a/z 22", "+b/s 14")]
    starts = [reflects(1, 1), reflects(2, 2), reflects(3, 2), reflects(4, 3)]
    heads = [reflects(2, 1), reflects(3, 1, 2), reflects(4, 1, 2), reflects(5, 1, 2, 3)]
    for (crawl, scores), rows, start, head in zip(ARRIVALS, expected, starts, heads, strict=True):
        invocation = only_join(world.crawl(crawl, scores))
        assert str(invocation.step) == "label (asynchronous left)"
        assert world.database.get(invocation.writes) == rows
        assert (invocation.writes.start, invocation.writes.target) == (start, reflects(crawl, scores))
        assert world.head == head
    assert [is_consistent(each, PATHS, TIMES) for each in heads] == [True, False, False, False]


def test_the_inconsistency_bound_forces_a_full_join() -> None:
    """Two days after Monday the scores of Tuesday may not be mixed with newer ones any more."""
    world = Table1(FRESH, InconsistencyBound(channel="labelled", limit=timedelta(days=1)))
    world.state = replace(world.state, outputs=(replace(world.state.outputs[0], accepts=frozenset({BASE, STRONG})),))
    steps = [[str(each.step) for each in world.crawl(*each).invocations] for each in ARRIVALS]
    assert steps == [*[["label (asynchronous left)"]] * 3, ["label (batch)"]]
    assert world.head == reflects(WED_2PM, WED_1AM)


@pytest.mark.parametrize(
    ("provenance", "latest", "earliest", "consistent"),
    [
        (reflects(MON_8AM, MON_1AM), at(1, 8), at(2, 1), True),
        (reflects(MON_8AM, TUE_1AM), at(2, 1), at(2, 11), True),
        (reflects(TUE_11AM, MON_1AM), at(2, 11), at(2, 1), False),
        (reflects(WED_2PM, MON_1AM, TUE_1AM, WED_1AM), at(3, 14), at(2, 1), False),
    ],
)
def test_table_4(provenance: Provenance, latest: datetime, earliest: datetime, consistent: bool) -> None:
    assert extent(provenance, PATHS, TIMES) == (latest, earliest)
    assert is_consistent(provenance, PATHS, TIMES) is consistent
