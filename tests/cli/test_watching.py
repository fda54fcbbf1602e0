"""`kilonova run NAME --watch`, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import kilonova as kn
from kilonova.cli import run
from kilonova.model.schema import Schema
from kilonova.service.reports import RunsReport
from tests.databases import Clock
from tests.generator.memory import GeneratedProject
from tests.generator.rows import Rows

SCHEMA = Schema.of(("k", "bigint"))


@pytest.mark.parametrize("name", ["publish", "copied"])
def test_what_is_watched_may_be_a_binding_or_a_task(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = kn.Workflow("w")
    for channel in ("source", "copied", "other"):
        workflow.channel(channel, "k bigint")

    @workflow.task
    def copied(source: kn.New) -> kn.Delta:
        return source

    @workflow.task
    def other(source: kn.New) -> kn.Delta:
        return source

    workflow.workflowette("publish", [copied])
    with GeneratedProject(tmp_path, Clock(), tmp_path / "template.db") as project:
        project.apply(workflow)
        keys = iter((1, 2))

        def sleep(_seconds: float) -> None:
            key = next(keys, None)
            if key is None:
                raise KeyboardInterrupt
            project.ingest("source", Rows(SCHEMA, ((key,),)))  # type: ignore[arg-type]

        monkeypatch.setattr(run, "time", SimpleNamespace(sleep=sleep))  # not that of other threads
        run._watch(project, RunsReport(), [name], 0.0, all_or_nothing=False, json=False)
        assert [each.run.tasks for each in project.runs(10) if each.run.tasks] == [("copied",), ("copied",)]
        assert project.due().keys() == {"other"}
        assert not project.due([name])
