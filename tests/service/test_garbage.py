"""Garbage collection in several transactions, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.catalog.database import Transaction
from kilonova.engine import garbage
from kilonova.model.schema import Schema
from tests.databases import Clock
from tests.generator.memory import GeneratedProject
from tests.generator.rows import Rows

SCHEMA = Schema.of(("k", "bigint"))
BLOCKS = 7


@pytest.fixture
def project(tmp_path: Path) -> Iterator[GeneratedProject]:
    with GeneratedProject(tmp_path, Clock(), tmp_path / "template.db") as opened:
        workflow = kn.Workflow("w")
        workflow.channel("source", "k bigint")
        opened.apply(workflow)
        for key in range(BLOCKS):
            ingest(opened, key)
        opened.compact("source")
        yield opened


def ingest(project: GeneratedProject, key: int) -> None:
    project.ingest("source", Rows(SCHEMA, ((key,),)))  # type: ignore[arg-type]


def keys(project: GeneratedProject, name: str) -> list[int]:
    with project.catalog.reading() as tx:
        channel = channel_store.channel_state(tx, name)
    rows = project.warehouse.open(channel.snapshot(channel.latest_readable)).rows
    return sorted(key for (key,) in rows)


def test_collection_continues_until_no_garbage_is_left(
    project: GeneratedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "AT_ONCE", 2)
    done = project.collect_garbage()
    assert sum(verdict.goes for verdict in done.verdicts) == done.swept == BLOCKS
    assert len(project.warehouse.blocks()) == 1
    assert keys(project, "source") == list(range(BLOCKS))


def test_changes_between_decision_and_lock_are_respected(
    project: GeneratedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "AT_ONCE", 2)
    writing = project.catalog.writing

    @contextmanager
    def late() -> Iterator[Transaction]:
        monkeypatch.setattr(project.catalog, "writing", writing)
        workflow = kn.Workflow("w")
        workflow.channel("source", "k bigint")

        def copied(source: kn.New) -> kn.Delta:
            return source

        workflow.channel("copied", "k bigint")
        workflow.task(copied)
        project.apply(workflow)
        project.run()
        ingest(project, BLOCKS)
        with writing() as tx:
            yield tx

    monkeypatch.setattr(project.catalog, "writing", late)
    done = project.collect_garbage()
    assert sum(verdict.goes for verdict in done.verdicts) == BLOCKS
    project.run()
    assert keys(project, "copied") == keys(project, "source") == list(range(BLOCKS + 1))
