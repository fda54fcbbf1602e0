"""OpenLineage events of runs, written by the official client to files and HTTP endpoints."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import kilonova.scheduler
from kilonova.catalog import bindings, channel_registry, channel_store, registry, runs
from kilonova.errors import SettingsError
from kilonova.model.binding import Binding
from kilonova.model.block import Delta
from kilonova.model.run import RunFailure, RunInput, RunKind
from kilonova.model.task import Mode
from kilonova.scheduler.notifier import Notifier
from kilonova.service.project import Project, open_project
from tests.catalog.building import LEASE, a_block, a_channel, a_task, an_output, ingested
from tests.receiver import receiving, until


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with open_project(tmp_path, spark={"analyse": False}) as fresh:
        fresh.create()
        with fresh.catalog.writing() as tx:
            for name in ("clicks", "users", "totals"):
                channel_registry.add_channels(tx, [a_channel(name)], "w")
            registry.put_task(tx, a_task("users", {"clicks": Mode.NEW}, ("users",)), "w")
            registry.put_task(tx, a_task("totals", {"users": Mode.ALL}, ("totals",)), "w")
            bindings.put(tx, "w", [Binding(name="report", tasks=("users", "totals"), triggers=())])
        yield fresh


def deliver(project: Project, **transport: Any) -> None:
    """Tell all that has happened since lineage was configured."""
    with open_project(project.directory, lineage={"transport": transport}) as configured:
        deliverer = Notifier(configured, timedelta(seconds=5), "one")
        deliverer.start()
        deliverer.close(20)


def begin(project: Project, kind: RunKind = RunKind.TASKS, binding: str | None = None) -> tuple[int, dict[str, int]]:
    writes = ("users", "totals") if kind is RunKind.TASKS else ("clicks",)
    tasks = ("users", "totals") if kind is RunKind.TASKS else ()
    with project.catalog.writing() as tx:
        return runs.start(tx, kind=kind, tasks=tasks, writes=writes, owner="me", lease=LEASE, binding=binding)


def end(project: Project, run: int, points: dict[str, int]) -> None:
    """The task `users` has read point 1 of clicks and written three rows; `totals` has come to the same as before."""
    with project.catalog.writing() as tx:
        block = a_block(channel_store.new_block(tx, "users", run), Delta(points["users"] - 1, points["users"]), rows=3)
        runs.commit(
            tx,
            run,
            inputs=[
                RunInput(task="users", port="clicks", channel="clicks", start=0, end=1),
                RunInput(task="totals", port="users", channel="users", start=0, end=1),
            ],
            outputs=[
                an_output("users", points["users"], block, "users"),
                an_output("totals", points["totals"], None, "totals"),
            ],
            advances=(),
        )


def written(file: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    for event in found:
        refuse_invalid(event)
    return found


def refuse_invalid(event: dict[str, Any]) -> None:
    """What the specification asks of every event."""
    assert {"eventType", "eventTime", "producer", "schemaURL", "run", "job", "inputs", "outputs"} <= event.keys()
    assert event["schemaURL"].startswith("https://openlineage.io/spec/")
    assert uuid.UUID(event["run"]["runId"]).version == 7
    for data in (*event["inputs"], *event["outputs"]):
        assert data["namespace"].startswith("file:///")
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for holder in holders:
        for facet in (holder.get("facets") or {}).values():
            assert facet["_producer"].startswith("pkg:pypi/kilonova@")
            assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")


def by_job(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["job"]["name"], event["eventType"]) for event in events]


def test_each_task_of_a_run_is_reported_with_its_inputs_and_outputs(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "lineage.json"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    ingested(project.catalog, "clicks")
    deliver(project, **transport)
    assert not file.exists()  # what happened before lineage was configured is not told
    run, points = begin(project)
    end(project, run, points)
    deliver(project, **transport)
    events = written(file)
    assert by_job(events) == [
        ("by-hand", "START"),
        ("users", "START"),
        ("totals", "START"),
        ("users", "COMPLETE"),
        ("totals", "COMPLETE"),
        ("by-hand", "COMPLETE"),
    ]
    whole, started, _, users, totals, _ = events
    assert users["run"]["runId"] == started["run"]["runId"]
    parent = users["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == whole["run"]["runId"]
    assert parent["job"] == {"namespace": "kilonova", "name": "by-hand", "facets": {}}
    [read] = users["inputs"]
    [made] = users["outputs"]
    assert (read["name"], made["name"]) == ("clicks", "users")
    assert read["namespace"] == made["namespace"] == f"file://{project.directory.resolve()}/.kilonova/warehouse"
    assert read["facets"]["version"]["datasetVersion"] == made["facets"]["version"]["datasetVersion"] == "1"
    fields = [(field["name"], field["type"]) for field in made["facets"]["schema"]["fields"]]
    assert fields == [("id", "bigint"), ("note", "string")]
    statistics = made["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (3, 30)
    [same] = totals["outputs"]
    assert (same["name"], same["outputFacets"], "version" in same["facets"]) == ("totals", {}, False)
    assert [item["name"] for item in started["inputs"] + started["outputs"]] == ["clicks", "users"]


def test_runs_that_do_not_succeed_say_why(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "lineage.json"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    deliver(project, **transport)
    for ending in ("fail", "cancel", "abandon"):
        run, _ = begin(project)
        with project.catalog.writing() as tx:
            if ending == "fail":
                runs.fail(tx, run, "no luck")
            elif ending == "cancel":
                runs.cancel(tx, run, "ann")
            else:
                runs.abandon(tx, "me", "it exited", RunFailure.FINAL)
    deliver(project, **transport)
    ends = [event for event in written(file) if event["eventType"] != "START"]
    assert by_job(ends) == [(job, how) for how in ("FAIL", "ABORT", "ABORT") for job in ("users", "totals", "by-hand")]
    messages = [event["run"]["facets"]["errorMessage"]["message"] for event in ends]
    assert messages == ["no luck"] * 3 + ["cancelled by ann"] * 3 + ["it exited"] * 3
    assert [item["name"] for item in ends[0]["outputs"]] == ["users"]
    assert all("outputStatistics" not in item["outputFacets"] for event in ends for item in event["outputs"])


def test_bindings_are_parents_ingests_are_jobs_and_compactions_are_not_reported(
    project: Project, tmp_path: Path
) -> None:
    file = tmp_path / "lineage.json"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    deliver(project, **transport)
    ingested(project.catalog, "clicks")
    run, _ = begin(project, RunKind.COMPACTION)
    with project.catalog.writing() as tx:
        runs.fail(tx, run, "no luck")
    run, points = begin(project, binding="report")
    end(project, run, points)
    deliver(project, **transport)
    events = written(file)
    assert by_job(events)[:3] == [
        ("ingest:clicks", "START"),
        ("ingest:clicks", "COMPLETE"),
        ("binding:report", "START"),
    ]
    assert len(events) == 8
    [made] = events[1]["outputs"]
    assert (made["name"], made["outputFacets"]["outputStatistics"]["rowCount"]) == ("clicks", 1)


def test_telling_again_says_the_same(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "lineage.json"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    deliver(project, **transport)
    run, points = begin(project)
    end(project, run, points)
    deliver(project, **transport)
    first = file.read_text()
    with project.catalog.writing() as tx:
        tx.connection.exec_driver_sql("UPDATE subscription SET cursor = 0")
        registry.drop_task(tx, "totals")  # what has been read and written is known without it
    deliver(project, **transport)
    again = file.read_text().removeprefix(first)
    completes = [[line for line in text.splitlines() if "COMPLETE" in line] for text in (first, again)]
    assert completes[0] == completes[1]
    ids = [[json.loads(line)["run"]["runId"] for line in text.splitlines()] for text in (first, again)]
    assert ids[0] == ids[1]


def test_an_http_endpoint_that_fails_gets_all_of_it_later(project: Project) -> None:
    with receiving(lambda count: 400 if count == 1 else 201) as receiver:
        transport = {"type": "http", "url": receiver.url, "auth": {"type": "api_key", "apiKey": "k"}}
        deliver(project, **transport)
        run, points = begin(project)
        end(project, run, points)
        deliver(project, **transport)
        [known] = project.reader.subscriptions()
        assert known.standing.attempts == 1
        assert "400" in known.standing.problem
        with project.catalog.writing() as tx:
            tx.connection.exec_driver_sql("UPDATE subscription SET retry = NULL")
        deliver(project, **transport)
        until(lambda: len(receiver.taken) >= 7)
    assert {headers["authorization"] for _, headers, _ in receiver.came} == {"Bearer k"}
    told = by_job(receiver.taken)
    assert list(dict.fromkeys(told)) == [
        ("by-hand", "START"),
        ("users", "START"),
        ("totals", "START"),
        ("users", "COMPLETE"),
        ("totals", "COMPLETE"),
        ("by-hand", "COMPLETE"),
    ]


def test_a_server_without_the_section_leaves_lineage_to_others(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "lineage.json"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    deliver(project, **transport)
    ingested(project.catalog, "clicks")
    deliverer = Notifier(project, timedelta(seconds=5), "one")
    deliverer.start()
    deliverer.close(5)
    assert not file.exists()
    deliver(project, **transport)
    assert len(written(file)) == 2


@pytest.mark.parametrize("transport", [{}, {"type": "pigeon"}, {"type": "file"}, {"type": "http"}])
def test_a_transport_that_cannot_be_is_refused(project: Project, transport: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"lineage\.transport"):
        deliver(project, **transport)


def test_what_a_refused_transport_says_is_not_repeated(project: Project) -> None:
    auth = {"type": "api_key", "apiKey": "s3cr3t"}
    for transport in (
        {"type": "http", "url": "s3cr3t", "auth": auth},
        {"type": "http", "auth": auth, "url": ["s3cr3t"]},
    ):
        with pytest.raises(SettingsError, match=r"lineage\.transport") as found:
            deliver(project, **transport)
        assert "s3cr3t" not in str(found.value)


def test_what_to_install_is_said(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    monkeypatch.delitem(sys.modules, "kilonova.scheduler.openlineage", raising=False)
    monkeypatch.delattr(kilonova.scheduler, "openlineage", raising=False)
    with pytest.raises(SettingsError, match=r"pip install 'kilonova\[lineage\]'"):
        deliver(project, type="file", log_file_path="x")
