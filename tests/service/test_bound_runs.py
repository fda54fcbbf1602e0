"""Runs that keep bounds, on a real catalog: what starts when, by which variant, and how far it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.model.firing import FiringState
from kilonova.schedule import costs
from kilonova.schedule.bound_planning import task_models
from tests.service.bounded_search import CLICKS, PAGES, World, workflow

HOUR, DAY = 3600, 86_400


@pytest.fixture(autouse=True)
def usual_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates as before the first run: in memory all runs take as long."""
    monkeypatch.setattr(task_models, "fit", lambda _taken, shape, idle: costs.fit((), shape, idle))


def test_new_pages_are_joined_with_scores_as_they_are(tmp_path: Path) -> None:
    world = World(tmp_path, workflow())
    world.arrive("clicks", CLICKS, [(1, 1), (1, 2)])
    world.arrive("pages", PAGES, [(10, 1)])
    world.serve()
    assert world.rows("scored_pages") == {(10, 1, 2): 1}
    world.clock.forward(HOUR)
    world.arrive("clicks", CLICKS, [(1, 3)])
    world.arrive("pages", PAGES, [(11, 1)])
    world.started.clear()
    world.serve()
    assert [run.binding for run in world.started] == ["join_new"], "the scores may be a day old"
    assert world.last("join_new").variants == {"join_new": "join_new"}
    assert world.rows("scored_pages") == {(10, 1, 2): 1, (11, 1, 2): 1}


def test_three_weeks_keep_all_bounds_with_few_runs(tmp_path: Path) -> None:
    world = World(tmp_path, workflow())
    world.arrive("clicks", CLICKS, [(1, 0)])
    world.arrive("pages", PAGES, [(0, 1)])
    world.serve()
    world.started.clear()
    for step in range(1, 85):
        world.advance(DAY / 4)
        world.arrive("clicks", CLICKS, [(1, step)])
        world.arrive("pages", PAGES, [(step, 1)])
        world.serve()
        assert world.violated() == [], "with a page that has just arrived it is at once as fresh as its bound says"
        scores = [score for (_, _, score) in world.rows("scored_pages")]
        assert len(scores) == step + 1, "every page is there"
        assert max(scores) - min(scores) <= 4 * 8, "no score is more than a week and a day behind another"
    assert len(set(scores)) > 1, "pages are not joined again each time"
    joined = [run.variants["join_new"] for run in world.started if run.binding == "join_new"]
    assert 1 <= joined.count("join_all") <= 5, "once a week"
    assert 18 <= sum(run.binding == "count_people" for run in world.started) <= 30, "once a day"


def test_the_schedule_says_what_runs_next_and_why(tmp_path: Path) -> None:
    world = World(tmp_path, workflow(staleness="10 minutes", scores="1 day"))
    assert world.project.bound_schedule().steps == ()
    world.arrive("clicks", CLICKS, [(1, 1)])
    world.arrive("pages", PAGES, [(10, 1)])
    found = world.project.bound_schedule()
    assert found.bounds == ("scored_pages is at most 10 minutes behind pages›join_new",)
    assert [(each.task, each.binding) for each in found.steps] == [
        ("count_people", "count_people"),
        ("join_new", "join_new"),
    ]
    assert found.due is not None
    assert found.starting == ()
    world.clock.now = found.due
    assert world.project.bound_schedule().starting == ("count_people",), "the join waits for the scores"
    world.serve()
    world.advance(60)
    assert world.violated() == []
    world.arrive("pages", PAGES, [(11, 1)])
    later = world.project.bound_schedule()
    assert [(each.task, each.variant) for each in later.steps] == [("join_new", "join_new")]
    assert {each.channel for each in later.alternatives} <= {"scored_pages"}
    assert later.started_by_bounds == ("count_people", "join_new")
    assert world.project.bound_schedule(["scores"]).alternatives == ()


def test_the_schedule_says_what_is_not_repeated(tmp_path: Path) -> None:
    world = World(tmp_path, workflow())
    world.arrive("clicks", CLICKS, [(1, 1)])
    world.arrive("pages", PAGES, [(10, 1)])
    assert world.project.bound_schedule().not_repeated == ()
    world.lost = 20
    world.serve()
    fired = world.fired("count_people")
    assert fired.state is FiringState.FAILED
    found = world.project.bound_schedule()
    assert (found.starting, found.not_repeated) == ((), ("count_people",))
    world.lost = 0
    world.arrive("clicks", CLICKS, [(1, 2)])
    found = world.project.bound_schedule()
    assert (found.starting, found.not_repeated) == (("count_people",), ())


def test_a_run_by_hand_recomputes_what_would_be_too_inconsistent(tmp_path: Path) -> None:
    world = World(tmp_path, workflow())
    world.arrive("clicks", CLICKS, [(1, 0)])
    world.arrive("pages", PAGES, [(0, 1)])
    world.project.run()
    for step, days in enumerate((4, 4, 4), start=1):
        world.clock.forward(days * DAY)
        world.arrive("clicks", CLICKS, [(1, step)])
        world.arrive("pages", PAGES, [(step, 1)])
        world.project.run()
    assert world.rows("scored_pages") == {(page, 1, 4): 1 for page in range(4)}, (
        "the first score was replaced eight days before"
    )
    assert "inconsistent" in world.project.runs(1)[0].made[0].reason


@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_run_is_retried_as_it_was_planned(tmp_path: Path, times: int) -> None:
    world = World(tmp_path, workflow())
    world.arrive("clicks", CLICKS, [(1, 1), (1, 2)])
    world.arrive("pages", PAGES, [(10, 1)])
    world.serve()
    world.clock.forward(HOUR)
    world.arrive("clicks", CLICKS, [(1, 3)])
    world.arrive("pages", PAGES, [(11, 1)])
    world.lost = times
    world.started.clear()
    world.serve()
    assert [run.binding for run in world.started] == ["join_new"], "it is not planned a second time"
    assert world.rows("scored_pages") == {(10, 1, 2): 1, (11, 1, 2): 1}, "by the same variant, up to the same points"
    fired = world.fired("join_new")
    assert (fired.state, world.violated()) == (FiringState.SUCCEEDED, [])


def _with_lost_run(directory: Path) -> World:
    """The run that was to join a new page is lost, and another page arrives."""
    world = World(directory, workflow())
    world.arrive("clicks", CLICKS, [(1, 1)])
    world.arrive("pages", PAGES, [(10, 1)])
    world.serve()
    world.clock.forward(HOUR)
    world.arrive("pages", PAGES, [(11, 1)])
    world.lost = 1
    world.start()
    world.arrive("pages", PAGES, [(12, 1)])
    return world


def test_new_input_waits_for_a_lost_run(tmp_path: Path) -> None:
    world = _with_lost_run(tmp_path)
    world.started.clear()
    world.serve()
    assert [run.until["pages"] for run in world.started] == [3], "only what has arrived since is planned"
    assert world.rows("scored_pages") == {(page, 1, 1): 1 for page in (10, 11, 12)}


def test_a_lost_run_whose_input_was_read_meanwhile_is_skipped(tmp_path: Path) -> None:
    world = _with_lost_run(tmp_path)
    world.project.run(["join_new"])
    world.serve()
    fired = world.fired("join_new")
    assert (fired.state, fired.reason) == (FiringState.SKIPPED, "none of its tasks has new input")
    assert world.rows("scored_pages") == {(page, 1, 1): 1 for page in (10, 11, 12)}
