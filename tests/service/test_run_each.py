"""Runs of several bindings through a project, without Spark: what fails or is busy, and what the report says of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import kilonova as kn
from kilonova.catalog import runs
from kilonova.errors import TaskFailed
from kilonova.model.run import RunKind
from kilonova.model.schema import Schema
from kilonova.service.reports import BindingsFailed
from tests.databases import Clock
from tests.generator.memory import GeneratedProject
from tests.generator.rows import Rows

SCHEMA = Schema.of(("k", "bigint"))


def _workflow() -> kn.Workflow:
    workflow = kn.Workflow("w")
    for name in ("source", "copied", "followed", "other", "odd", "after_odd", "even"):
        workflow.channel(name, "k bigint")

    def copied(source: kn.New) -> kn.Delta:
        return source

    def followed(copied: kn.New) -> kn.Delta:
        return copied

    def other(source: kn.New) -> kn.Delta:
        return source

    def odd(source: kn.New) -> kn.Delta:
        if len(source.rows) > 1:  # type: ignore[attr-defined]
            raise ValueError("no luck")
        return source

    def after_odd(odd: kn.New, source: kn.New) -> kn.Delta:
        return source

    def even(source: kn.New) -> kn.Delta:
        if len(source.rows) > 2:  # type: ignore[attr-defined]
            raise ValueError("no luck either")
        return source

    for function in (copied, followed, other, odd, after_odd, even):
        workflow.task(function)
    return workflow


@pytest.fixture
def project(tmp_path: Path) -> Iterator[GeneratedProject]:
    with GeneratedProject(tmp_path, Clock(), tmp_path / "template.db") as opened:
        opened.apply(_workflow())
        yield opened


def _ingest(project: GeneratedProject, *keys: int) -> None:
    project.ingest("source", Rows(SCHEMA, tuple((key,) for key in keys)))  # type: ignore[arg-type]


def test_several_failures_come_with_the_report_of_what_was_done(project: GeneratedProject) -> None:
    _ingest(project, 1, 2, 3)
    with pytest.raises(BindingsFailed) as raised:
        project.run()
    report = raised.value.report
    assert {name: type(error) for name, error in report.failed.items()} == {"odd": TaskFailed, "even": TaskFailed}
    assert sorted(made.channel for made in report.made) == ["after_odd", "copied", "followed", "other"]
    assert all(name in str(raised.value) for name in ("odd", "even", "no luck", "no luck either"))
    assert project.due().keys() == {"odd", "even"}


def test_one_failure_is_raised_as_it_is_and_names_its_binding(project: GeneratedProject) -> None:
    _ingest(project, 1, 2)
    with pytest.raises(TaskFailed, match="no luck") as raised:
        project.run()
    assert raised.value.binding == "odd"
    assert project.due().keys() == {"odd"}, "what is after it has run on what was there"


def test_all_or_nothing_publishes_nothing_if_one_fails(project: GeneratedProject) -> None:
    _ingest(project, 1, 2)
    before = project.due().keys()
    with pytest.raises(TaskFailed):
        project.run(all_or_nothing=True)
    assert project.due().keys() == before


def test_what_follows_a_binding_that_was_busy_for_a_moment_sees_what_it_publishes(project: GeneratedProject) -> None:
    _ingest(project, 1)
    lease = timedelta(seconds=60)
    with project.catalog.writing() as tx:
        number, _ = runs.start(tx, kind=RunKind.TASKS, tasks=["copied"], writes=["copied"], owner="me", lease=lease)
    project.interrupt(lambda: project.cancel(number))
    done = project.run_each()
    assert done.failed == {}
    assert {"copied", "followed"} <= {made.channel for made in done.made}
    assert not project.due()
