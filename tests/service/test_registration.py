"""Several workflows that are applied together."""

from __future__ import annotations

from pathlib import Path

import kilonova as kn
from kilonova.service.project import open_project


def test_workflows_and_their_values_may_be_mixed(tmp_path: Path) -> None:
    first, second, third = (kn.Workflow(name) for name in ("first", "second", "third"))
    for workflow in (first, second, third):
        workflow.channel(f"of_{workflow.name}", "id bigint")
    third.sql("copied", "SELECT * FROM {of_first}", reads={"of_first": kn.New}, produces=kn.Delta, schema="id bigint")
    with open_project(tmp_path) as project:
        project.create()
        plans = project.apply_all([first.declared(()), second, third])
        assert [plan.workflow for plan in plans] == ["first", "second", "third"]
        found = set(project.reader.status().channels)
    assert found == {"of_first", "of_second", "of_third", "copied"}
