"""What pages show of the workflow follows whatever changes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

import kilonova as kn
from kilonova.catalog import chains, firings, registry, runs, space
from kilonova.catalog.database import Transaction
from kilonova.catalog.firings import Claimed
from kilonova.catalog.overview import Overview
from kilonova.model.headway import Amount, Going, Headway
from kilonova.model.policy import Never
from kilonova.model.task import Mode
from kilonova.schedule.collection import Provenance, collect
from kilonova.server.page.glances import Glances, Standing, around, condition, part, standing
from kilonova.service.project import Project
from tests.catalog.building import LEASE, a_task, begin, commit, ingested
from tests.server.page.overviews import an_overview, channel_glance, task_glance


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
    going = (Going("per_user", Amount(1, 2)),)
    moved(shop, lambda tx: runs.note_progress(tx, 1, Headway(steps=1, ended=0, going=going)))


def committed(shop: Project) -> None:
    commit(shop.catalog, 1, {"per_user": 1})


def failed(shop: Project) -> None:
    moved(shop, lambda tx: runs.fail(tx, run_of_in(tx), "no luck"))


def run_of_in(tx: Transaction) -> int:
    number, _ = begin(tx, "per_user", tasks=("per_user",))
    return number


def beaten(shop: Project) -> None:
    run = run_of(shop)
    moved(shop, lambda tx: runs.beat(tx, run, LEASE))


def expired(shop: Project) -> None:
    now = shop.catalog.clock()
    shop.catalog.clock = lambda: now + timedelta(days=1)
    moved(shop, runs.expire)


def abandoned(shop: Project) -> None:
    run_of(shop)
    moved(shop, lambda tx: runs.abandon(tx, "me", "it went away", passing=False))


def taken_in(shop: Project) -> None:
    ingested(shop.catalog, "clicks")


def fired(shop: Project) -> None:
    shop.fire("per_user")


def claimed_and(end: Callable[[Transaction, Claimed], object]) -> Callable[[Project], None]:
    def change(shop: Project) -> None:
        shop.fire("per_user")
        with shop.catalog.writing() as tx:
            [batch], _ = firings.claim(tx, "gauss", 1, None)
        moved(shop, lambda tx: end(tx, batch.parts[0]))

    return change


def tried_in_vain(shop: Project) -> None:
    shop.fire("per_user")
    for _ in range(firings.ATTEMPTS):
        with shop.catalog.writing() as tx:
            [batch], _ = firings.claim(tx, "gauss", 1, None)
            firings.hand_back(tx, batch.parts[0], counted=True)


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
        holdings = space.holdings(tx, Provenance.LOGICAL)
        gone = [each.block.number for each in collect(holdings, None, Provenance.LOGICAL) if each.goes]
        chains.doom(tx, gone)

    moved(shop, collected)


def steered(shop: Project) -> None:
    shop.set_policy("clicks", Never())
    shop.create_token("ann", "read")
    shop.add_webhook("hook", "https://example.org", ["failed"])
    shop.forget(timedelta(0))


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
    claimed_and(firings.idle),
    claimed_and(lambda tx, claimed: firings.refuse(tx, claimed, "no luck")),
    claimed_and(lambda tx, claimed: firings.hand_back(tx, claimed, counted=False)),
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
    glances = Glances(shop)
    before = glances.overview()
    assert glances.overview() is before
    unseen = []
    for change in CHANGES:
        change(shop)
        found, fresh = glances.overview(), shop.overview()
        if replace(found, time=fresh.time) != fresh:
            unseen.append(getattr(change, "__name__", str(change)))
            glances = Glances(shop)
            glances.overview()
    assert unseen == []


def test_what_is_looked_at_anew_is_looked_at_once(shop: Project) -> None:
    glances = Glances(shop)
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
        (new, "due", "has not run"),
        (replace(new, started=True), "due", "1 point to read"),
        (task_glance("t", reads={"a": 3, "b": 2}, started=True), "due", "5 points to read"),
        (task_glance("t", reads={"a": 0}), "empty", "nothing to read yet"),
        (task_glance("t", reads={"a": 0}, started=True), "fresh", "up to date"),
        (replace(new, failed=3), "failed", "run 3 failed"),
        (replace(new, failed=3, running=4), "running", "running 1/2"),
        (replace(new, failed=3, running=5), "running", "running"),
    ]
    overview = an_overview([channel_glance("a"), channel_glance("b")], [new])
    going = Headway(steps=2, ended=0, going=(Going("other"), Going("t", Amount(1, 2))))
    overview = replace(overview, running={4: going, 5: None})
    for task, state, text in cases:
        assert standing(task, overview) == Standing(state, text)
    held = an_overview([channel_glance("a")], [new], paused={"t"})
    assert standing(new, held) == Standing("paused", "paused, 1 behind")
    assert standing(task_glance("t", reads={"a": 0}), held) == Standing("paused", "paused")


def test_a_lookup_table_makes_no_task_due() -> None:
    task = task_glance("t", reads={"a": 0, "b": 7}, started=True, lookups={"b"})
    assert standing(task, an_overview([channel_glance("a"), channel_glance("b")], [task])).state == "fresh"


def test_a_channel_is_written_fresh_or_empty() -> None:
    assert condition(channel_glance("a")) == "fresh"
    assert condition(channel_glance("a", point=0)) == "empty"
    assert condition(replace(channel_glance("a", point=0), writing=(3,))) == "writing"


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
    found = around(chain_of_tasks(), names, depth)
    assert set(found.channels) == channels
    assert all(set(task.writes) <= channels for task in found.tasks.values())
    assert set(found.tasks) == {n for n, t in chain_of_tasks().tasks.items() if set(t.writes) <= channels}


def test_a_part_has_the_tasks_that_write_nothing_else() -> None:
    every = chain_of_tasks()
    found = part(every, {"a", "b", "c"})
    assert (set(found.channels), set(found.tasks)) == ({"a", "b", "c"}, {"t2"})
    assert set(part(every, {"a"}, ("t3",)).tasks) == {"t3"}
    assert found.event == every.event


def test_a_task_that_reads_what_it_writes_is_no_neighbour_of_itself() -> None:
    overview = an_overview(
        [channel_glance("a"), channel_glance("sum")],
        [task_glance("sum", reads={"a": 0}, writes=("sum",), own=("sum",))],
    )
    assert set(around(overview, ["sum"], 1).channels) == {"a", "sum"}


def test_a_dropped_task_leaves_no_binding_behind(shop: Project) -> None:
    shop.apply(shop_workflow())
    with shop.catalog.writing() as tx:
        registry.put_task(tx, a_task("per_user", {"clicks": Mode.NEW}, ("per_user",)), "shop")
    shop.drop("per_user")
    assert Glances(shop).overview().bindings == {}
    assert shop.prospects() == []
