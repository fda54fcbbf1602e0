"""Points that violate a bound are not read, neither by users nor by tasks, and what is read instead is retained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.catalog.database import Transaction
from kilonova.catalog.planner_input import load_planner_input
from kilonova.errors import BoundViolated, DeclarationError, KilonovaError
from kilonova.model.channel import BlockType
from kilonova.model.run import RefreshMethod
from kilonova.model.version import Reflection, Version
from kilonova.schedule.due import due_reason, read_ends
from kilonova.schedule.planning import choose
from kilonova.service.project import Project
from tests.service.writing import Writing, wrote
from tests.shop import shop, shop_as_made

__all__ = ["shop", "shop_as_made"]


def reflecting(*points: int) -> Version:
    return Version.of({("clicks", "per_user"): tuple(Reflection((0,), point, point) for point in points)})


def read_at(project: Project, at: int | None = None, since: int | None = None) -> int:
    """The point that a reader is given."""
    with project.row_reader.pinned_plan("per_user", at, since) as plan:
        return plan.at if since is None else plan.end  # type: ignore[union-attr]


@pytest.fixture
def written(shop: Project) -> Project:
    """A project with a consistent point of per_user, and one that lacks the clicks between two that it reflects."""
    for _ in range(3):
        wrote(shop.catalog, {"clicks": Writing()})
    wrote(shop.catalog, {"per_user": Writing(version=reflecting(1), base=True)}, task="per_user", read=[("clicks", 1)])
    wrote(shop.catalog, {"per_user": Writing(version=reflecting(1, 3))}, task="per_user", read=[("clicks", 3)])
    return shop


def test_a_point_that_violates_a_bound_is_not_read(written: Project) -> None:
    assert (read_at(written), read_at(written, 2), read_at(written, None, 1)) == (2, 2, 2)
    written.set_bound("per_user", "0")
    assert (read_at(written), read_at(written, 1)) == (1, 1)
    for at, since in ((2, None), (None, 2), (2, 1)):
        with pytest.raises(BoundViolated, match="Read point 1, or change the bound") as caught:
            read_at(written, at, since)
        assert (caught.value.channel, caught.value.point, caught.value.code) == ("per_user", 2, "bound")
    assert written.versions("per_user").points[0].withheld
    assert [each.consistent for each in written.versions("per_user").points] == [False, True]
    [found] = written.bounds(["per_user"])
    assert (found.point, found.kept) == (2, 1)
    written.remove_bound("per_user")
    assert read_at(written) == 2


def test_what_readers_are_given_is_retained(written: Project) -> None:
    wrote(written.catalog, {"per_user": Writing(version=reflecting(1, 3), base=True)}, task="per_user")
    written.set_bound("per_user", "0")
    assert read_at(written) == 1
    kept = {each.block.number: each.held_by for each in written.collect_garbage(["per_user"], dry_run=True).verdicts}
    first = min(kept)
    assert kept[first] == "readers are given point 1, because newer ones violate a bound"
    written.remove_bound("per_user")
    free = {each.block.number: each.held_by for each in written.collect_garbage(["per_user"], dry_run=True).verdicts}
    assert free[first] is None


def test_nothing_is_read_if_no_point_keeps_the_bound(shop: Project) -> None:
    for _ in range(3):
        wrote(shop.catalog, {"clicks": Writing()})
    wrote(shop.catalog, {"per_user": Writing(version=reflecting(1, 3), base=True)}, task="per_user")
    shop.set_bound("per_user", "0")
    with pytest.raises(BoundViolated, match="Change the bound"):
        read_at(shop)


def test_a_task_waits_for_a_point_that_keeps_the_bound(written: Project) -> None:
    workflow = kn.Workflow("more")

    @workflow.task(schema="user string")
    def copied(per_user: kn.New) -> kn.Delta:
        return per_user

    written.apply(workflow)

    def state() -> tuple[str | None, int]:
        with written.catalog.reading() as tx:
            known = load_planner_input(tx)
        task = known.newest["copied"]
        return due_reason(task, known.channels), read_ends(task, known.channels)["per_user"]

    assert state() == ("its logic has not run yet", 2)
    written.set_bound("per_user", "0")
    assert state() == ("its logic has not run yet", 1)
    wrote(written.catalog, {"copied": Writing()}, task="copied", read=[("per_user", 1)])
    assert state() == (None, 1)
    written.remove_bound("per_user")
    assert state() == ("per_user advanced from point 1 to 2", 2)
    wrote(written.catalog, {"copied": Writing()}, task="copied", read=[("per_user", 2)])
    wrote(written.catalog, {"clicks": Writing()})
    written.set_bound("per_user", "0")
    assert state() == (None, 2)  # what it has read is withheld by now
    wrote(written.catalog, {"per_user": Writing(version=reflecting(4), base=True)}, task="per_user")
    assert state() == ("per_user advanced from point 2 to 3", 3)
    assert read_at(written) == 3


def test_a_bound_that_is_refused_changes_nothing(written: Project) -> None:
    for channel, limit, path in (
        ("per_user", "-1 day", None),
        ("per_user", "1 day", "user"),
        ("clicks", "1 day", None),
    ):
        with pytest.raises(KilonovaError):
            written.set_bound(channel, limit, path)
    assert written.bounds() == ()
    with written.catalog.reading() as tx:
        assert channel_store.channel_state(tx, "per_user").latest_kept == 2


def test_a_task_writes_the_type_of_blocks_that_readers_accept(written: Project) -> None:
    def method(kind: BlockType | None) -> tuple[RefreshMethod, str]:
        workflow = kn.Workflow("shop")
        workflow.channel("clicks", "user string", watch=kn.watched_directory("inbox", settle_time="0 seconds"))
        workflow.view("per_user", "SELECT user, count(*) AS n FROM clicks GROUP BY user")
        if kind is not None:
            workflow.accept_blocks("per_user", kind)
        written.apply(workflow)
        with written.catalog.reading() as tx:
            known = load_planner_input(tx)
        choice = choose(replace(known.newest["per_user"], samples=()), known.channels)
        return choice.method, choice.reason

    assert method(None)[0] is RefreshMethod.INCREMENTAL
    assert method("base") == (
        RefreshMethod.FULL,
        "readers of per_user accept only bases, which incremental does not support",
    )
    chosen, reason = method("delta")
    assert chosen is RefreshMethod.INCREMENTAL
    assert "full refresh" not in reason


@pytest.mark.parametrize(
    ("channel", "kind", "said"),
    [
        ("copied", "base", "no variant of the task writes from whole relations"),
        ("clicks", "base", "rows are ingested into the channel"),
        ("clocks", "base", "no such channel. Did you mean clicks?"),
        ("copied", "bases", "no type of blocks 'bases'. Did you mean base?"),
    ],
)
def test_a_type_of_blocks_that_no_task_can_write_is_refused(channel: str, kind: BlockType, said: str) -> None:
    workflow = kn.Workflow("shop")
    workflow.channel("clicks", "user string")

    @workflow.task(schema="user string")
    def copied(clicks: kn.New) -> kn.Delta:
        return clicks

    def declared() -> None:
        workflow.accept_blocks(channel, kind)
        workflow.declared()

    with pytest.raises(DeclarationError) as caught:
        declared()
    assert said in str(caught.value)


def joined(*, recomputes: bool, inconsistency: str | None = "1 week") -> kn.Workflow:
    """New pages with all scores: what was joined stays as it is, unless a variant recomputes it."""
    workflow = kn.Workflow("join")
    for name in ("pages", "scores"):
        workflow.channel(name, "site int")
    workflow.channel("labelled", "site int")

    @workflow.task(writes="labelled")
    def label(pages: kn.New, scores: kn.All) -> kn.Delta:
        return pages

    if recomputes:

        @label.variant
        def label_all(pages: kn.All, scores: kn.All) -> kn.Base:
            return pages

    workflow.bound_staleness("labelled", "pages", "0 seconds")
    if inconsistency:
        workflow.bound_inconsistency("labelled", inconsistency)
    return workflow


def test_bounds_that_no_variant_keeps_are_refused_with_the_reason(shop: Project) -> None:
    refused = "no variant of the tasks before it can keep this.*at most 1 week inconsistent.*Add a variant that"
    for register in (shop.plan, shop.apply):
        with pytest.raises(DeclarationError, match=refused) as caught:
            register(joined(recomputes=False))
        assert caught.value.channel == "labelled"
        assert "labelled" not in shop.status().channels
    shop.apply(joined(recomputes=True))
    shop.apply(joined(recomputes=False, inconsistency=None))
    with pytest.raises(DeclarationError, match=refused):
        shop.set_bound("labelled", "1 week")
    with pytest.raises(DeclarationError, match="never behind scores"):
        shop.set_bound("labelled", "0 seconds", "scores")
    assert [each.bound.path for each in shop.bounds(["labelled"])] == [("pages", "label")]


def test_a_bound_is_checked_again_if_tasks_change_meanwhile(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.apply(joined(recomputes=True, inconsistency=None))
    writing = shop.catalog.writing

    @contextmanager
    def late() -> Iterator[Transaction]:
        monkeypatch.setattr(shop.catalog, "writing", writing)
        shop.apply(joined(recomputes=False, inconsistency=None))
        with writing() as tx:
            yield tx

    monkeypatch.setattr(shop.catalog, "writing", late)
    with pytest.raises(DeclarationError, match="no variant of the tasks before it can keep this"):
        shop.set_bound("labelled", "1 week")
    assert [each.bound.path for each in shop.bounds(["labelled"])] == [("pages", "label")]


def test_a_plan_says_which_bounds_are_not_compared_with_durations(shop: Project) -> None:
    details = [each.detail for each in shop.plan(joined(recomputes=True)).bounds]
    assert not any("fast enough" in each for each in details), "0 seconds, and inconsistency, need no durations"
    workflow = joined(recomputes=True)
    workflow.bound_staleness("labelled", "scores", "1 minute")
    (found,) = (each.detail for each in shop.plan(workflow).bounds if "scores" in each.path)
    assert found.endswith("whether runs are fast enough is known once each task has run 3 times")


def test_a_bound_that_cannot_be_kept_any_more_is_not_set_back(shop: Project) -> None:
    shop.apply(joined(recomputes=True))
    shop.remove_bound("labelled")
    shop.apply(joined(recomputes=False))
    with pytest.raises(DeclarationError, match="no variant of the tasks before it can keep this"):
        shop.reset_bound("labelled")
    assert [each.bound.path for each in shop.bounds(["labelled"])] == [("pages", "label")]


def test_bounds_below_a_billion_paths_are_not_checked(shop: Project) -> None:
    workflow = kn.Workflow("diamonds")
    workflow.channel("c0", "k int, v int")
    for number in range(30):
        workflow.view(f"l{number}", f"SELECT k, v FROM c{number} WHERE v > 1")
        workflow.view(f"r{number}", f"SELECT k, v FROM c{number} WHERE v < 1")
        workflow.view(f"c{number + 1}", f"SELECT a.k, b.v FROM l{number} a JOIN r{number} b ON a.k = b.k")
    workflow.bound_inconsistency("c30", "1 week")
    assert [each.bound.channel for each in shop.plan(workflow).bounds] == ["c30"]


def test_a_bound_that_runs_have_been_too_slow_for_is_refused(shop: Project) -> None:
    limit, method = timedelta(milliseconds=20), RefreshMethod.INCREMENTAL
    for number in range(1, 4):
        wrote(shop.catalog, {"clicks": Writing()})
        shop.set_bound("per_user", limit, "clicks")  # nothing is known yet
        shop.remove_bound("per_user", "clicks")
        read = [("clicks", number)]
        wrote(
            shop.catalog, {"per_user": Writing(version=reflecting(number))}, task="per_user", read=read, method=method
        )
    with pytest.raises(DeclarationError, match=r"only with a faster machine.*takes 1 second.*Raise the limit to 1 "):
        shop.set_bound("per_user", limit, "clicks")
    assert not shop.bounds(["per_user"])
    shop.set_bound("per_user", "5 seconds", "clicks")
    shop.set_bound("per_user", 0, "clicks")  # at once: as soon as possible
