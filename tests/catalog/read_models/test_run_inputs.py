from __future__ import annotations

from dataclasses import replace

from kilonova.catalog import channel_store, pins, registry, run_records, runs
from kilonova.catalog.database import Catalog
from kilonova.catalog.read_models.run_inputs import BlockRead, PortRead, port_reads
from kilonova.model.block import Base, Delta
from kilonova.model.run import RunInput, RunKind
from kilonova.model.task import Mode, Port
from tests.catalog.building import LEASE, a_block, a_task, an_output, begin, commit, ingested, with_channels
from tests.databases import Clock


def test_inputs_of_a_run_are_listed_block_by_block(catalog: Catalog, clock: Clock) -> None:
    with_channels(catalog, "clicks", "users", "late", "early")
    early = a_task("early_task", {"clicks": Mode.NEW, "users": Mode.ALL}, ("early",))
    older = replace(early.variants[0], name="older", ports=(Port("clicks", "clicks", Mode.ALL),), fingerprint="x")
    late = a_task("late_task", {"clicks": Mode.CHANGES}, ("late",))
    with catalog.writing() as tx:
        registry.put_tasks(tx, [replace(early, variants=(*early.variants, older)), late], "w")
    _, base = ingested(catalog, "clicks", base=True)
    _, delta = ingested(catalog, "clicks")
    _, user = ingested(catalog, "users", base=True)
    clock.forward(1)
    with catalog.writing() as tx:
        run, points = begin(tx, "late", "early", tasks=("late_task", "early_task"), kind=RunKind.TASKS)
        pins.pin(tx, pins.holder_of(run), [base, delta], LEASE)
    with catalog.reading() as tx:
        assert port_reads(tx, runs.find_run(tx, run)) == []
        holdings = run_records.run_holdings(tx, run)
    assert holdings == run_records.RunHoldings(
        reserved={"early": 1, "late": 1}, tasks=("early_task", "late_task"), blocks=(base, delta)
    )
    clock.forward(1)
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("late_task", {"clicks": Mode.ALL}, ("late",), text="SELECT 2"), "w")
        blocks = {name: a_block(channel_store.new_block(tx, name, run), Delta(0, 1)) for name in points}
        runs.commit(
            tx,
            run,
            inputs=[
                RunInput(task="early_task", port="users", channel="users", start=0, end=1, blocks=(user,)),
                RunInput(task="early_task", port="clicks", channel="clicks", start=1, end=2, blocks=(delta,)),
                RunInput(task="late_task", port="clicks", channel="clicks", start=1, end=2, blocks=(base, delta)),
            ],
            outputs=[an_output(name, points[name], blocks[name]) for name in points],
            advances=(),
        )
        channel_store.remove_blocks(tx, "clicks", [base])
        found = port_reads(tx, runs.find_run(tx, run))
        kinds = {made.channel: made.kind for made in run_records.outputs(tx, [run])}
        assert run_records.run_holdings(tx, run) == run_records.RunHoldings(reserved={}, tasks=(), blocks=())
    whole = BlockRead(number=base, kind=Base(1), rows=1, bytes=10, live=False)
    news = BlockRead(number=delta, kind=Delta(1, 2), rows=1, bytes=10, live=True)
    people = BlockRead(number=user, kind=Base(1), rows=1, bytes=10, live=True)

    def read(task: str, channel: str, start: int, mode: Mode | None, *pieces: BlockRead) -> PortRead:
        end = 1 if channel == "users" else 2
        return PortRead(task=task, port=channel, channel=channel, start=start, end=end, mode=mode, blocks=pieces)

    assert found == [
        read("late_task", "clicks", 1, Mode.CHANGES, whole, news),
        read("early_task", "clicks", 1, None, news),
        read("early_task", "users", 0, Mode.ALL, people),
    ]
    assert kinds == {"early": Delta(0, 1), "late": Delta(0, 1)}


def test_what_a_run_made_without_a_block_leads_nowhere(catalog: Catalog) -> None:
    with_channels(catalog, "clicks")
    with catalog.writing() as tx:
        run, points = begin(tx, "clicks")
    commit(catalog, run, points, empty=True)
    with catalog.reading() as tx:
        [made] = run_records.outputs(tx, [run])
    assert (made.block, made.kind) == (None, None)
