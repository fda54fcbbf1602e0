"""Steps that merged runs have in common."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.catalog.firings import Claim
from kilonova.engine.run_request import shared_reads
from kilonova.engine.shared_steps import Blocks, SharedSteps, StepOutput
from kilonova.errors import TaskFailed
from kilonova.model.block import Base, Block, Delta, Statistics
from kilonova.model.channel import Channel
from kilonova.model.check import Unique
from kilonova.model.encoding import Append, Upsert
from kilonova.model.logic import Sql
from kilonova.model.read_plan import DeltaRead, SnapshotRead
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production, Variant
from kilonova.query.view_tasks import ViewChange
from kilonova.service.project import Project
from kilonova.testing import count_differences, recompute
from tests.catalog.building import claim_batches

SCHEMA = Schema.of(("id", "bigint"))
VARIANT = Variant(
    name="v",
    ports=(Port("rows", "one", Mode.ALL),),
    productions=(Production.BASE,),
    logic=Sql(text="SELECT * FROM {rows}"),
    fingerprint="f",
)


def a_block(number: int, at: int = 1) -> Block:
    return Block(
        number=number,
        kind=Base(at),
        schema=SCHEMA,
        encoding=Append(),
        columns=SCHEMA,
        buckets=0,
        statistics=Statistics(rows=1, bytes=1, files=1, removals=0, net_rows=1),
    )


def a_snapshot(*numbers: int, at: int = 1) -> SnapshotRead:
    return SnapshotRead(
        at=at,
        schema=SCHEMA,
        encoding=Append(),
        base=a_block(numbers[0], at),
        deltas=tuple(replace(a_block(number), kind=Delta(number - 1, number)) for number in numbers[1:]),
    )


TARGET = StepOutput(channel=Channel(name="out", schema=SCHEMA, encoding=Append()), rewritten=True, empty=False)


def test_steps_are_the_same_if_they_do_the_same_to_the_same() -> None:
    shared_steps = SharedSteps()
    name = shared_steps.name(VARIANT, [a_snapshot(1, 2)], [TARGET])
    elsewhere = replace(VARIANT, name="w", ports=(Port("rows", "two", Mode.ALL),))
    out = replace(TARGET, channel=replace(TARGET.channel, name="other"))
    assert name is not None
    assert shared_steps.name(elsewhere, [a_snapshot(1, 2, at=5)], [out]) == name
    chain = DeltaRead(start=0, end=1, schema=SCHEMA, encoding=Append(), deltas=(a_block(1), a_block(2)))
    other = [
        shared_steps.name(replace(VARIANT, fingerprint="g"), [a_snapshot(1, 2)], [TARGET]),
        shared_steps.name(replace(VARIANT, logic=Sql(text="SELECT id FROM {rows}")), [a_snapshot(1, 2)], [TARGET]),
        shared_steps.name(replace(VARIANT, productions=(Production.DELTA,)), [a_snapshot(1, 2)], [TARGET]),
        shared_steps.name(replace(VARIANT, ports=(Port("rows", "one", Mode.NEW),)), [a_snapshot(1, 2)], [TARGET]),
        shared_steps.name(replace(VARIANT, ports=(Port("lines", "one", Mode.ALL),)), [a_snapshot(1, 2)], [TARGET]),
        shared_steps.name(VARIANT, [a_snapshot(1)], [TARGET]),
        shared_steps.name(VARIANT, [a_snapshot(2, 1)], [TARGET]),
        shared_steps.name(VARIANT, [chain], [TARGET]),
        shared_steps.name(VARIANT, [a_snapshot(1, 2)], [replace(TARGET, channel=keyed())]),
        shared_steps.name(VARIANT, [a_snapshot(1, 2)], [TARGET, TARGET]),
    ]
    assert name not in other
    assert len(set(other)) == len(other)
    assert (
        shared_steps.name(
            replace(VARIANT, logic=ViewChange(text="SELECT 1", stored="{}")), [a_snapshot(1, 2)], [TARGET]
        )
        is None
    )


def keyed(*checks: Unique) -> Channel:
    return Channel(name="out", schema=SCHEMA, encoding=Upsert(("id",)), checks=checks)


@pytest.mark.parametrize(
    ("target", "free"),
    [
        (StepOutput(channel=keyed(), rewritten=True, empty=False), True),
        (StepOutput(channel=keyed(), rewritten=False, empty=True), True),
        (StepOutput(channel=keyed(), rewritten=False, empty=False), False),
        (StepOutput(channel=TARGET.channel, rewritten=False, empty=False), True),
        (
            StepOutput(channel=replace(TARGET.channel, checks=(Unique(("id",)),)), rewritten=False, empty=False),
            False,
        ),
        (
            StepOutput(channel=replace(TARGET.channel, several_writers=True), rewritten=False, empty=False),
            False,
        ),
    ],
)
def test_what_depends_on_what_was_there_before_is_not_shared(target: StepOutput, free: bool) -> None:
    assert target.free is free
    assert (SharedSteps().name(VARIANT, [a_snapshot(1)], [target]) is not None) is free


def placed(blocks: Blocks) -> Blocks:
    return tuple(None if block is None else replace(block, kind=Base(9)) for block in blocks)


def test_one_does_it_and_the_others_share_its_blocks() -> None:
    shared_steps, began, go_on = SharedSteps(), threading.Event(), threading.Event()

    def slowly() -> Blocks:
        began.set()
        go_on.wait()
        return a_block(7), None

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shared_steps.done, "step", slowly, placed)
        began.wait()
        second = pool.submit(shared_steps.done, "step", pytest.fail, placed)
        go_on.set()
        assert first.result() == ((a_block(7), None), False)
        assert second.result() == ((a_block(7, 9), None), True)
    reads = [shared_steps.name(VARIANT, [a_snapshot(block, at=at)], [TARGET]) for block, at in ((7, 1), (7, 9), (8, 1))]
    assert reads[0] == reads[1] != reads[2]


def test_what_another_run_could_not_do_is_done_by_oneself() -> None:
    shared_steps = SharedSteps()

    def fail() -> Blocks:
        raise TaskFailed("no luck")

    with pytest.raises(TaskFailed):
        shared_steps.done("step", fail, placed)
    assert shared_steps.done("step", lambda: (a_block(1),), placed) == ((a_block(1),), False)
    assert shared_steps.done("other", lambda: (a_block(2),), placed) == ((a_block(2),), False)
    assert shared_steps.done("other", lambda: (a_block(3),), lambda blocks: None) == ((a_block(3),), False)


copies = kn.Workflowette("copies")
copies.channel("articles", "id bigint, site string")


@copies.task(schema="site string, n bigint", key="site")
def per_site(articles: kn.All) -> kn.Base:
    return articles.where("site IS NOT NULL").groupBy("site").agg({"id": "count"}).withColumnRenamed("count(id)", "n")


@copies.task(schema="site string")
def sites(per_site: kn.All) -> kn.Base:
    return per_site.select("site")


@copies.task(schema="id bigint, site string")
def known(articles: kn.New) -> kn.Delta:
    return articles.where("site IS NOT NULL")


def launched(project: Project, *names: str) -> None:
    """Let bindings run merged."""
    for name in names:
        project.fire(name)
    with project.catalog.writing() as tx:
        batches, _ = claim_batches(tx, "server", len(names))
    parts: list[Claim] = [part for batch in batches for part in batch.claims]
    with project.runner.shared_batch(parts) as shared_steps, ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(partial(project.runner.run_claim, shared_steps=shared_steps), parts))


def test_copies_of_a_workflowette_do_once_what_they_have_in_common(project: Project) -> None:
    workflow = kn.Workflow("all_of_them")
    workflow.channel("articles", "id bigint, site string")
    for name in ("one", "two", "three"):
        workflow.bind(name, copies, {"articles": "articles"})
    project.apply(workflow)
    spark = project.warehouse.spark
    for batch in range(3):
        rows = [(10 * batch + number, f"s{number % 3}" if number else None) for number in range(5)]
        project.ingest("articles", spark.createDataFrame(rows, "id long, site string"))
        launched(project, "one", "two", "three")
        made = [item for each in project.runs(3) for item in each.made]
        for task in ("per_site", "sites", "known"):
            assert (
                sum(
                    "computed by another run of the batch" in each.reason
                    for each in made
                    if str(each.task).endswith(
                        task,
                    )
                )
                == 2
            )
        for channel in ("per_site", "sites", "known"):
            found = [sorted(map(str, project.rows(f"{name}__{channel}")[1])) for name in ("one", "two", "three")]
            assert found[0] == found[1] == found[2]
        assert [
            made.channel for made in recompute(project) if count_differences(project.read(made.channel), made.rows)
        ] == []
        with project.catalog.reading() as tx:
            states = channel_store.channel_states(tx)
        for channel in ("per_site", "sites", "known"):
            blocks = [states[f"{name}__{channel}"].blocks[-1] for name in ("one", "two", "three")]
            assert len({block.number for block in blocks}) == 1
            assert {block.end for block in blocks} == {batch + 1}
    found = project.fsck(checksums=True)
    assert (found.damaged, found.unmarked) == ((), ())
    project.collect_garbage()
    assert project.fsck(checksums=True).is_whole
    assert [sorted(project.rows(f"{name}__known")[1]) for name in ("one", "two")] == [
        sorted(project.rows("three__known")[1])
    ] * 2


def test_what_several_definitions_read_is_kept_and_what_one_reads_is_not(project: Project) -> None:
    other = kn.Workflowette("other")
    other.channel("articles", "id bigint, site string")

    @other.task(schema="id bigint")
    def ids(articles: kn.All) -> kn.Base:
        return articles.select("id")

    workflow = kn.Workflow("several")
    workflow.channel("articles", "id bigint, site string")
    for name, bound in (("one", copies), ("two", copies), ("three", other)):
        workflow.bind(name, bound, {"articles": "articles"})
    project.apply(workflow)
    project.ingest("articles", project.warehouse.spark.createDataFrame([(1, "a")], "id long, site string"))
    parts = {name: Claim(binding=name, firings=(), server="server") for name in ("one", "two", "three")}
    with project.catalog.reading() as tx:
        whole = channel_store.channel_state(tx, "articles").snapshot(1)
        assert shared_reads(tx, [parts["one"], parts["two"]]) == ()
        assert shared_reads(tx, [parts["one"], parts["three"]]) == (whole,)
        assert shared_reads(tx, [parts["three"]]) == ()
