"""An ingest that is asked for again and again under one key, by processes that die or come at once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kilonova.catalog import channel_store
from kilonova.catalog.database import Catalog
from kilonova.catalog.read_models import run_queries
from kilonova.engine.ingest import IngestAcknowledgement, IngestSource, ingest
from kilonova.engine.run_events import no_listener
from kilonova.engine.run_protocol import RunEnvironment
from kilonova.errors import Conflict, KeyReused, KilonovaError, LeaseLost
from kilonova.model.idempotency import IdempotencyKey
from kilonova.model.run import RunState
from kilonova.model.task import Production
from tests.databases import DIALECTS, Clock, emptied, empty_database
from tests.engine.plain import LEASE, SCHEMA, Fuse, Killed, MortalCatalog, declare
from tests.generator.memory import Memory
from tests.generator.rows import Rows

KEY = IdempotencyKey("monday", "one and two")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow if name != "sqlite" else ()) for name in DIALECTS])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with empty_database(request.param) as found:
        owner = Catalog(found)
        owner.create()
        declare(owner)
        owner.close()
        yield found


def stride(url: str) -> int:
    """Every how many steps something happens; they are the same on both databases, which differ in speed."""
    return 1 if url.startswith("sqlite") else 3


def begun_again(url: str) -> Memory:
    owner = Catalog(url)
    emptied(owner)
    declare(owner)
    owner.close()
    return Memory(lambda name: None)


def asked(catalog: Catalog, memory: Memory, key: IdempotencyKey = KEY) -> IngestAcknowledgement:
    frame = Rows(SCHEMA, ((1,), (2,)))
    source = IngestSource(rows=lambda _: frame, production=Production.DELTA, bytes=None, description="two rows")
    environment = RunEnvironment(catalog=catalog, files=memory, owner="me", lease=LEASE, listener=no_listener)
    return ingest(environment, memory, "source", source, key)


def mortal(url: str, clock: Clock, fuse: Fuse) -> MortalCatalog:
    catalog = MortalCatalog(url, clock)
    catalog.fuse = fuse
    return catalog


def points(catalog: Catalog) -> tuple[int, ...]:
    """The points of the channel whose blocks are to be read."""
    with catalog.reading() as tx:
        state = channel_store.channel_state(tx, "source")
        return tuple(block.end for block in state.snapshot(state.latest_readable).blocks)


def test_a_crash_at_any_step_never_inserts_twice_nor_takes_the_key_away(url: str) -> None:
    for moment in itertools.count(step=stride(url)):
        memory, clock, fuse = begun_again(url), Clock(), Fuse(moment)
        catalog = mortal(url, clock, fuse)
        try:
            asked(catalog, memory)
        except Killed:
            pass
        finally:
            catalog.close()
        heir = Catalog(url, clock)
        try:
            done = asked(heir, memory)
        except Conflict:
            clock.forward(2 * LEASE.total_seconds())
            done = asked(heir, memory)
            assert not done.repeated
        assert asked(heir, memory) == IngestAcknowledgement(done.run, True)
        assert len(points(heir)) == 1
        with heir.reading() as tx:
            succeeded = [run.number for run in run_queries.runs(tx) if run.state is RunState.SUCCEEDED]
        assert succeeded == [done.run]
        heir.close()
        if not fuse.burnt:
            assert moment > 5
            return


@pytest.mark.parametrize("expired", [False, True], ids=["beside it", "after its lease"])
def test_another_process_may_ask_for_the_same_at_any_step(url: str, expired: bool) -> None:
    for moment in itertools.count(step=stride(url)):
        memory, clock = begun_again(url), Clock()
        answers: list[IngestAcknowledgement | KilonovaError] = []

        def other(memory: Memory = memory, clock: Clock = clock, answers: list[Any] = answers) -> None:
            if expired:
                clock.forward(2 * LEASE.total_seconds())
            catalog = Catalog(url, clock)
            try:
                answers.append(asked(catalog, memory))
            except Conflict as error:
                assert not expired
                answers.append(error)
            finally:
                catalog.close()

        fuse = Fuse(moment, other)
        catalog = mortal(url, clock, fuse)
        try:
            answers.append(asked(catalog, memory))
        except LeaseLost as error:
            assert expired
            answers.append(error)
        done = {answer.run for answer in answers if isinstance(answer, IngestAcknowledgement)}
        assert done == {asked(catalog, memory).run}
        assert sum(isinstance(answer, IngestAcknowledgement) and not answer.repeated for answer in answers) == 1
        assert len(points(catalog)) == 1
        catalog.close()
        if not fuse.burnt:
            assert moment > 5
            return


def test_of_those_who_ask_at_once_one_inserts(url: str) -> None:
    memory = begun_again(url)
    answers: list[IngestAcknowledgement | Conflict] = []
    together = threading.Barrier(6)

    def ask() -> None:
        catalog = Catalog(url)
        together.wait()
        try:
            answers.append(asked(catalog, memory))
        except Conflict as error:
            answers.append(error)
        finally:
            catalog.close()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert sum(isinstance(answer, IngestAcknowledgement) and not answer.repeated for answer in answers) == 1
    catalog = Catalog(url)
    assert len(points(catalog)) == 1
    catalog.close()


def test_a_key_is_good_for_one_ingest_only(url: str) -> None:
    memory, catalog = begun_again(url), Catalog(url)
    done = asked(catalog, memory)
    with pytest.raises(
        KeyReused, match=rf"the idempotency key 'monday' belongs to another ingest.* \[channel source, run {done.run}\]"
    ):
        asked(catalog, memory, IdempotencyKey("monday", "three"))
    assert not asked(catalog, memory, IdempotencyKey("tuesday", "three")).repeated
    assert points(catalog) == (1, 2)
    catalog.close()


def test_a_key_whose_ingest_failed_may_come_again_with_other_rows(url: str) -> None:
    memory, catalog = begun_again(url), Catalog(url)

    def fail() -> None:
        raise OSError("the disk is full")

    memory.pause = fail
    with pytest.raises(OSError, match="full"):
        asked(catalog, memory)
    memory.pause = lambda: None
    assert not asked(catalog, memory, IdempotencyKey("monday", "three")).repeated
    assert len(points(catalog)) == 1
    catalog.close()
