"""Watched directories as they are declared, planned and registered."""

from __future__ import annotations

import pytest

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.catalog.database import Catalog
from kilonova.errors import DeclarationError
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.service import plan_application, workflow_plan
from kilonova.service.plan_action import Action
from tests.databases import Clock, empty_database


@pytest.fixture
def catalog() -> object:
    with empty_database("sqlite") as url:
        made = Catalog(url, Clock())
        made.create()
        yield made
        made.close()


def shop(watch: WatchedDirectory | None = None, name: str = "shop", channel: str = "orders") -> kn.Workflow:
    found = kn.Workflow(name)
    found.channel(channel, "id bigint", watch=watch)
    return found


def registered(catalog: Catalog, workflow: kn.Workflow) -> list[tuple[str, Action, str]]:
    with catalog.writing() as tx:
        declared = workflow.declared(workflow_plan.others(tx, workflow.name))
        plan = workflow_plan.plan_changes(tx, declared.workflow, declared.functions)
        plan_application.apply_plan(tx, plan)
    return [(item.channel.name, item.action, item.detail) for item in plan.channels]


def watch_of(catalog: Catalog) -> WatchedDirectory | None:
    with catalog.reading() as tx:
        return channel_store.channel(tx, "orders").watch


def test_a_directory_is_planned_and_registered(catalog: Catalog) -> None:
    inbox = kn.watched_directory("./inbox/", "*.csv", options={"sep": ";"}, poll_interval="1 minute")
    [(_, action, detail)] = registered(catalog, shop(inbox))
    assert (action, "ingests the files of inbox/*.csv every 1 minute" in detail) == (Action.ADD, True)
    assert watch_of(catalog) == inbox
    assert registered(catalog, shop(inbox))[0][1] is Action.KEEP
    other = kn.watched_directory("s3://bucket/inbox/", format="csv")
    detail = (
        "ingests the files of s3://bucket/inbox/* instead of inbox/*.csv, format csv instead of inferred, "
        "option sep: default instead of ';', scans every 30 seconds instead of every 1 minute"
    )
    assert registered(catalog, shop(other)) == [("orders", Action.CHANGE, detail)]
    assert watch_of(catalog) == other
    ordered = kn.watched_directory("s3://bucket/inbox/", format="csv", in_order=True)
    assert registered(catalog, shop(ordered)) == [("orders", Action.CHANGE, "ingests files in order")]
    assert watch_of(catalog) == ordered
    assert registered(catalog, shop()) == [("orders", Action.CHANGE, "ingests no more files")]
    assert watch_of(catalog) is None


def test_a_channel_that_is_declared_no_longer_takes_no_more_files(catalog: Catalog) -> None:
    registered(catalog, shop(kn.watched_directory("inbox")))
    gone = registered(catalog, shop(channel="clicks"))
    assert [(name, action) for name, action, _ in gone] == [("clicks", Action.ADD), ("orders", Action.CHANGE)]
    assert watch_of(catalog) is None
    assert len(registered(catalog, shop(channel="clicks"))) == 1


def test_only_the_workflow_of_a_channel_says_whose_files_it_takes(catalog: Catalog) -> None:
    inbox = kn.watched_directory("inbox")
    registered(catalog, shop(inbox))
    registered(catalog, shop(name="reader"))
    assert watch_of(catalog) == inbox
    with pytest.raises(DeclarationError, match="belongs to the workflow shop"):
        registered(catalog, shop(kn.watched_directory("elsewhere"), name="reader"))
    writer = shop(name="writer")
    writer.channel("numbers", "id bigint")

    @writer.task(writes="orders")
    def filled(numbers: kn.New) -> kn.Delta:
        return numbers

    with pytest.raises(DeclarationError):
        registered(catalog, writer)


def test_a_channel_that_a_task_writes_takes_no_files() -> None:
    workflow = shop(kn.watched_directory("inbox"))
    workflow.channel("numbers", "id bigint")

    @workflow.task(writes="orders")
    def filled(numbers: kn.New) -> kn.Delta:
        return numbers

    with pytest.raises(DeclarationError, match="ingests the files of a watched directory"):
        workflow.declared()


def test_a_port_takes_no_files() -> None:
    counting = kn.Workflowette("counting")
    counting.channel("incoming", "id bigint", watch=kn.watched_directory("inbox"))
    counting.view("n", "SELECT count(*) AS n FROM incoming")
    with pytest.raises(DeclarationError, match="the port incoming"):
        shop().bind("counted", counting, {"incoming": "orders"})


@pytest.mark.parametrize(
    "given",
    [
        {"path": " "},
        {"pattern": ""},
        {"pattern": "/etc/*"},
        {"pattern": "../*.csv"},
        {"pattern": "**.csv"},
        {"poll_interval": "0 seconds"},
        {"poll_interval": "soon"},
        {"settle_time": "-1 second"},
    ],
)
def test_a_directory_that_cannot_be_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(DeclarationError):
        kn.watched_directory(**{"path": "inbox", **given})
