"""What pages show of the workflow follows whatever changes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

import kilonova as kn
from kilonova.catalog import channel_store, firings, gc_roots, registry, runs
from kilonova.catalog.database import Transaction
from kilonova.catalog.firings import Claim
from kilonova.catalog.read_models.overview import Overview
from kilonova.model.compaction_policy import Manual
from kilonova.model.progress import RunProgress, StepProgress, TaskCount
from kilonova.model.run import RunFailure
from kilonova.model.task import Mode
from kilonova.schedule.garbage import Provenance, decide_collection
from kilonova.service.project import Project
from kilonova.web.overview_cache import (
    OverviewCache,
    StatusBadge,
    channel_status,
    neighbourhood,
    select_part,
    task_status,
)
from tests.catalog.building import LEASE, a_task, begin, claim_batches, commit, ingested
from tests.web.overviews import an_overview, channel_glance, task_glance


def run_of(shop: Project) -> int:
    with shop.catalog.writing() as tx:
        number, _ = begin(tx, "per_user", tasks=("per_user",))
    return number


def moved(shop: Project, change: Callable[[Transaction], object]) -> None:
    with shop.catalog.writing() as tx:
        change(tx)


def launched(shop: Project) -> None:
    run_of(shop)


def progressed(shop: Project) -> None:
    going = (StepProgress("per_user", TaskCount(1, 2)),)
    moved(shop, lambda tx: runs.note_progress(tx, 1, RunProgress(steps=1, ended=0, going=going)))


def committed(shop: Project) -> None:
    commit(shop.catalog, 1, {"per_user": 1})


def failed(shop: Project) -> None:
    moved(shop, lambda tx: runs.fail(tx, run_of_in(tx), "no luck"))


def run_of_in(tx: Transaction) -> int:
    number, _ = begin(tx, "per_user", tasks=("per_user",))
    return number


def beaten(shop: Project) -> None:
    run = run_of(shop)
    moved(shop, lambda tx: runs.renew_lease(tx, run, LEASE))


def expired(shop: Project) -> None:
    now = shop.catalog.clock()
    shop.catalog.clock = lambda: now + timedelta(days=1)
    moved(shop, runs.expire)


def abandoned(shop: Project) -> None:
    run_of(shop)
    moved(shop, lambda tx: runs.abandon(tx, "me", "it went away", RunFailure.FINAL))


def taken_in(shop: Project) -> None:
    ingested(shop.catalog, "clicks")


def fired(shop: Project) -> None:
    shop.fire("per_user")


def claimed_and(end: Callable[[Transaction, Claim], object]) -> Callable[[Project], None]:
    def change(shop: Project) -> None:
        shop.fire("per_user")
        with shop.catalog.writing() as tx:
            [batch], _ = claim_batches(tx, "gauss", 1)
        moved(shop, lambda tx: end(tx, batch.claims[0]))

    return change


def tried_in_vain(shop: Project) -> None:
    shop.fire("per_user")
    for _ in range(firings.ATTEMPTS):
        with shop.catalog.writing() as tx:
            [batch], _ = claim_batches(tx, "gauss", 1)
            firings.requeue(tx, batch.claims[0], counted=True)


def shop_workflow(text: str = "SELECT user, count(*) AS n FROM clicks GROUP BY user", **channels: str) -> kn.Workflow:
    workflow = kn.Workflow("shop")
    workflow.channel("clicks", "user string")
    for name, columns in channels.items():
        workflow.channel(name, columns)
    workflow.view("per_user", text)
    return workflow


def unwatched(shop: Project) -> None:
    shop.apply(shop_workflow())


def with_a_channel(shop: Project) -> None:
    shop.apply(shop_workflow(prices="price int"))


def with_new_logic(shop: Project) -> None:
    shop.apply(
        shop_workflow("SELECT user, count(*) AS n FROM clicks WHERE user <> '' GROUP BY user", prices="price int")
    )


def with_another_workflow(shop: Project) -> None:
    workflow = kn.Workflow("other")
    workflow.view("users", "SELECT user FROM clicks")
    workflow.workflowette("together", ["users"])
    shop.apply(workflow)


def without_it(shop: Project) -> None:
    shop.apply(kn.Workflow("other"))


def dropped(shop: Project) -> None:
    with_another_workflow(shop)
    without_it(shop)
    shop.drop("users")


def compacted(shop: Project) -> None:
    ingested(shop.catalog, "clicks", base=True)


def garbage_collected(shop: Project) -> None:
    def collected(tx: Transaction) -> None:
        for each in decide_collection(gc_roots.gc_roots(tx, Provenance.LOGICAL), None, Provenance.LOGICAL):
            if each.goes:
                channel_store.remove_blocks(tx, each.channel, [each.block.number])

    moved(shop, collected)


def steered(shop: Project) -> None:
    shop.operator.set_policy("clicks", Manual())
    shop.operator.create_token("ann", "read")
    shop.operator.add_webhook("hook", "https://example.org", ["failed"])
    shop.maintenance.forget(timedelta(0))


CHANGES: tuple[Callable[[Project], None], ...] = (
    launched,
    progressed,
    committed,
    failed,
    beaten,
    expired,
    abandoned,
    taken_in,
    taken_in,
    compacted,
    garbage_collected,
    fired,
    claimed_and(lambda tx, claimed: firings.skip(tx, claimed, "no new input")),
    claimed_and(lambda tx, claimed: firings.fail(tx, claimed, "no luck")),
    claimed_and(lambda tx, claimed: firings.requeue(tx, claimed, counted=False)),
    tried_in_vain,
    lambda shop: shop.pause("per_user"),
    lambda shop: shop.resume("per_user"),
    unwatched,
    with_a_channel,
    with_new_logic,
    with_another_workflow,
    without_it,
    dropped,
    steered,
)


def test_whatever_changes_is_seen(shop: Project) -> None:
    glances = OverviewCache(shop.reader)
    before = glances.overview()
    assert glances.overview() is before
    unseen = []
    for change in CHANGES:
        change(shop)
        found, fresh = glances.overview(), shop.reader.overview()
        if replace(found, time=fresh.time) != fresh:
            unseen.append(getattr(change, "__name__", str(change)))
            glances = OverviewCache(shop.reader)
            glances.overview()
    assert unseen == []


def test_concurrent_refreshes_query_once(shop: Project) -> None:
    glances = OverviewCache(shop.reader)
    run = run_of(shop)
    first = glances.overview()
    progressed(shop)
    second = glances.overview()
    assert second.tasks is first.tasks
    assert first.running[run] is None
    assert second.running[run] is not None


def test_a_task_is_known_by_the_first_word_that_holds() -> None:
    new = task_glance("t", reads={"a": 1})
    cases = [
        (new, "due", "not run yet"),
        (replace(new, started=True), "due", "1 point to read"),
        (task_glance("t", reads={"a": 3, "b": 2}, started=True), "due", "5 points to read"),
        (task_glance("t", reads={"a": 0}), "empty", "no input yet"),
        (task_glance("t", reads={"a": 0}, started=True), "fresh", "up to date"),
        (replace(new, failed=3), "failed", "run 3 failed"),
        (replace(new, failed=3, running=4), "running", "running 1/2"),
        (replace(new, failed=3, running=5), "running", "running"),
    ]
    overview = an_overview([channel_glance("a"), channel_glance("b")], [new])
    going = RunProgress(steps=2, ended=0, going=(StepProgress("other"), StepProgress("t", TaskCount(1, 2))))
    overview = replace(overview, running={4: going, 5: None})
    for task, state, text in cases:
        assert task_status(task, overview) == StatusBadge(state, text)
    held = an_overview([channel_glance("a")], [new], paused={"t"})
    assert task_status(new, held) == StatusBadge("paused", "paused, 1 behind")
    assert task_status(task_glance("t", reads={"a": 0}), held) == StatusBadge("paused", "paused")


def test_a_lookup_table_makes_no_task_due() -> None:
    task = task_glance("t", reads={"a": 0, "b": 7}, started=True, lookups={"b"})
    assert task_status(task, an_overview([channel_glance("a"), channel_glance("b")], [task])).state == "fresh"


def test_a_channel_is_written_fresh_or_empty() -> None:
    assert channel_status(channel_glance("a")) == "fresh"
    assert channel_status(channel_glance("a", point=0)) == "empty"
    assert channel_status(replace(channel_glance("a", point=0), writing=(3,))) == "writing"


def chain_of_tasks() -> Overview:
    """a → t1 → b, b2 → t2 → c → t3 → d, and b2 → side → s; alone is tied to nothing."""
    return an_overview(
        [channel_glance(name) for name in ("a", "b", "b2", "c", "d", "s", "alone")],
        [
            task_glance("t1", reads={"a": 0}, writes=("b", "b2")),
            task_glance("t2", reads={"b": 0}, writes=("c",)),
            task_glance("t3", reads={"c": 0}, writes=("d",)),
            task_glance("side", reads={"b2": 0}, writes=("s",)),
        ],
    )


@pytest.mark.parametrize(
    ("names", "depth", "channels"),
    [
        (["a"], 1, {"a", "b", "b2"}),
        (["a"], 2, {"a", "b", "b2", "c", "s"}),
        (["b"], 1, {"a", "b", "b2", "c", "s"}),
        (["c"], 1, {"b", "b2", "c", "d"}),
        (["c"], 2, {"a", "b", "b2", "c", "d"}),
        (["s"], 1, {"b", "b2", "s"}),
        (["alone"], 5, {"alone"}),
        (["a", "alone"], 9, {"a", "b", "b2", "c", "d", "s", "alone"}),
        (["nowhere"], 2, set()),
        ([], 2, set()),
    ],
)
def test_around_channels_lies_what_so_many_tasks_tie_to_them(names: list[str], depth: int, channels: set[str]) -> None:
    found = neighbourhood(chain_of_tasks(), names, depth)
    assert set(found.channels) == channels
    assert all(set(task.writes) <= channels for task in found.tasks.values())
    assert set(found.tasks) == {n for n, t in chain_of_tasks().tasks.items() if set(t.writes) <= channels}


def test_a_part_has_the_tasks_that_write_nothing_else() -> None:
    every = chain_of_tasks()
    found = select_part(every, {"a", "b", "c"})
    assert (set(found.channels), set(found.tasks)) == ({"a", "b", "c"}, {"t2"})
    assert set(select_part(every, {"a"}, ("t3",)).tasks) == {"t3"}
    assert found.event == every.event


def test_a_task_that_reads_what_it_writes_is_no_neighbour_of_itself() -> None:
    overview = an_overview(
        [channel_glance("a"), channel_glance("sum")],
        [task_glance("sum", reads={"a": 0}, writes=("sum",), own=("sum",))],
    )
    assert set(neighbourhood(overview, ["sum"], 1).channels) == {"a", "sum"}


def test_a_dropped_task_leaves_no_binding_behind(shop: Project) -> None:
    shop.apply(shop_workflow())
    with shop.catalog.writing() as tx:
        registry.put_task(tx, a_task("per_user", {"clicks": Mode.NEW}, ("per_user",)), "shop")
    shop.drop("per_user")
    assert OverviewCache(shop.reader).overview().bindings == {}
    assert shop.reader.binding_statuses() == []
