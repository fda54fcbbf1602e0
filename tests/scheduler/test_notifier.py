"""Webhooks from a real deliverer to real endpoints, which fail, hang and come back."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from standardwebhooks import Webhook as Verifier

from kilonova.catalog import events, servers
from kilonova.catalog.subscriptions import RegisteredSubscription
from kilonova.errors import DeliveryError
from kilonova.model.event import EventKind
from kilonova.schedule.delivery import DeliveryRetries
from kilonova.scheduler import notifier as delivering_module
from kilonova.scheduler.notifier import Notifier
from kilonova.service.project import Project, open_project
from tests.receiver import receiving, until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HASTY = DeliveryRetries(first=timedelta(milliseconds=20), longest=timedelta(milliseconds=100))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with open_project(tmp_path, spark={"analyse": False}, serve={"webhooks": ["127.0.0.1"]}) as fresh:
        fresh.create()
        yield fresh


def tell(project: Project, *kinds: EventKind) -> list[int]:
    """Let something happen; the events' numbers."""
    numbers = []
    for kind in kinds:
        with project.catalog.writing() as tx:
            events.record(tx, kind, run=7, channels=["clicks"], text="no luck, ä")
            numbers.append(events.newest(tx))
    return numbers


def standing(project: Project, name: str = "w") -> RegisteredSubscription:
    return next(each for each in project.reader.subscriptions() if each.subscription.name == name)


@contextmanager
def delivering(project: Project, patience: DeliveryRetries = HASTY, lease: float = 1.0) -> Iterator[Notifier]:
    deliverer = Notifier(project, timedelta(seconds=lease), uuid.uuid4().hex, patience)
    deliverer.start()
    try:
        yield deliverer
    finally:
        deliverer.close(5)


def test_a_webhook_gets_its_events_in_order_and_signed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    tell(project, EventKind.FAILED)
    with receiving() as receiver, delivering(project) as deliverer:
        project.operator.add_webhook("w", f"{receiver.url}/hook", ["failed", "server-silent"], secret="HOOK_SECRET")
        numbers = tell(project, EventKind.FAILED, EventKind.SUCCEEDED, EventKind.SERVER_SILENT, EventKind.FAILED)
        deliverer.nudge()
        until(lambda: len(receiver.came) >= 3)
    assert receiver.numbers == [numbers[0], numbers[2], numbers[3]]
    path, headers, body = receiver.came[0]
    assert path == "/hook"
    told = Verifier(SECRET).verify(body, headers)
    identity = project.catalog.identity()
    assert headers["webhook-id"] == f"evt_{identity}_{numbers[0]}"
    assert told["type"] == "kilonova.failed"
    assert told["data"] == {
        "catalog": identity,
        "event": numbers[0],
        "kind": "failed",
        "run": 7,
        "binding": None,
        "channels": ["clicks"],
        "text": "no luck, ä",
    }
    assert receiver.taken[1]["type"] == "kilonova.server_silent"
    assert standing(project).standing.delivered is not None


def test_events_during_a_failure_of_an_endpoint_are_delivered_when_it_recovers(project: Project) -> None:
    with receiving(lambda count: 500 if count < 4 else 200) as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed"])
        numbers = tell(project, *[EventKind.FAILED] * 3)
        with delivering(project):
            until(lambda: receiver.numbers == numbers)
            until(lambda: standing(project).standing.attempts == 0)
        ids = [headers["webhook-id"] for _, headers, _ in receiver.came]
    assert ids[:5] == [ids[0]] * 5
    assert "webhook-signature" not in receiver.came[0][1]
    assert "HTTP status 500" in standing(project).standing.problem


def test_failures_outlive_a_restart(project: Project) -> None:
    with receiving(lambda count: 500) as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed"])
        tell(project, EventKind.FAILED)
        with delivering(project, DeliveryRetries(first=timedelta(hours=1))):
            until(lambda: standing(project).standing.attempts == 1)
        with delivering(project):
            time.sleep(0.3)
        assert receiver.entered == 1


def test_the_delivery_of_an_event_is_given_up_after_a_time_and_reported(project: Project) -> None:
    patience = DeliveryRetries(first=timedelta(milliseconds=10), whole=timedelta(milliseconds=100))
    with receiving() as receiver, receiving() as watching:
        project.operator.add_webhook("w", receiver.url, ["failed", "delivery-failed"])
        project.operator.add_webhook("watch", watching.url, ["delivery-failed"])
        [bad, good] = tell(project, EventKind.FAILED, EventKind.FAILED)

        def answer(count: int) -> int:
            return 400 if not any(e.kind is EventKind.DELIVERY_FAILED for e in project.events()) else 200

        receiver.answers = answer
        with delivering(project, patience):
            until(lambda: bool(watching.came) and len(receiver.numbers) == 2)
    [told] = watching.taken
    assert f"w was not notified of event {bad}" in told["data"]["text"]
    assert receiver.numbers == [good, told["data"]["event"]]
    assert sum(event.kind is EventKind.DELIVERY_FAILED for event in project.events()) == 1


def test_a_dead_endpoint_holds_up_no_other(project: Project) -> None:
    released = threading.Event()

    def hang(count: int) -> int:
        released.wait(60)
        return 200

    with receiving(hang) as dead, receiving() as receiver:
        project.operator.add_webhook("a_dead", dead.url, ["failed"])
        project.operator.add_webhook("b_refused", "http://127.0.0.1:9", ["failed"])
        project.operator.add_webhook("w", receiver.url, ["failed"])
        numbers = tell(project, *[EventKind.FAILED] * 3)
        with delivering(project) as deliverer:
            until(lambda: receiver.numbers == numbers)
            numbers += tell(project, EventKind.FAILED)
            deliverer.nudge()
            until(lambda: receiver.numbers == numbers)
            assert dead.came == []
            until(lambda: standing(project, "b_refused").standing.attempts > 0)
            released.set()
            until(lambda: dead.numbers == numbers)
    assert "cannot be reached" in standing(project, "b_refused").standing.problem


def test_a_redirect_is_not_followed(project: Project) -> None:
    with receiving(lambda count: 307 if count < 1 else 200) as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed"])
        tell(project, EventKind.FAILED)
        with delivering(project, DeliveryRetries(first=timedelta(hours=1))):
            until(lambda: standing(project).standing.attempts == 1)
        assert [path for path, _, _ in receiver.came] == ["/"]
    assert "redirect (307)" in standing(project).standing.problem


def test_a_secret_that_is_missing_or_weak_sends_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed"], secret="HOOK_SECRET")
        monkeypatch.delenv("HOOK_SECRET", raising=False)
        with pytest.raises(DeliveryError, match="the environment variable HOOK_SECRET"):
            project.operator.try_webhook("w")
        for wrong in ("", "hunter2", "whsec_aGk="):
            monkeypatch.setenv("HOOK_SECRET", wrong)
            with pytest.raises(DeliveryError, match="is not base64 of 24 to 64 bytes"):
                project.operator.try_webhook("w")
        assert receiver.came == []
        monkeypatch.setenv("HOOK_SECRET", SECRET)
        project.operator.try_webhook("w")
        [(_, headers, body)] = receiver.came
    assert Verifier(SECRET).verify(body, headers)["type"] == "kilonova.test"


def test_of_several_servers_one_delivers(project: Project) -> None:
    with receiving() as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed"])
        with delivering(project) as one, delivering(project) as two, delivering(project) as three:
            numbers = []
            for _ in range(20):
                numbers += tell(project, EventKind.FAILED)
                for each in (one, two, three):
                    each.nudge()
            until(lambda: len(receiver.numbers) >= 20)
            time.sleep(0.1)
    assert receiver.numbers == numbers


KILLED = """
import sys, time
from datetime import timedelta
from pathlib import Path
from kilonova.scheduler.notifier import Notifier
from kilonova.service.project import open_project
deliverer = Notifier(open_project(Path(sys.argv[1]), serve={"webhooks": ["127.0.0.1"]}), timedelta(seconds=1), "one")
deliverer.start()
time.sleep(600)
"""


def test_another_takes_over_from_a_deliverer_that_was_killed(project: Project) -> None:
    hanging = threading.Event()

    def answer(count: int) -> int:
        if count == 2:  # the first deliverer is killed while it waits for this answer
            hanging.wait(60)
        return 200

    with receiving(answer) as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed"])
        numbers = tell(project, *[EventKind.FAILED] * 5)
        first = subprocess.Popen([sys.executable, "-c", KILLED, str(project.directory)])
        try:
            until(lambda: receiver.entered == 3)
            with delivering(project):
                time.sleep(1.5)  # more than its lease, which it renews
                assert receiver.entered == 3
                first.kill()
                first.wait()
                until(lambda: numbers[-1] in receiver.numbers)
                assert receiver.numbers == numbers
        finally:
            first.kill()
            hanging.set()
    assert standing(project).standing.cursor == numbers[-1]


def test_events_before_the_shutdown_are_delivered_at_shutdown(project: Project) -> None:
    with receiving() as receiver:
        project.operator.add_webhook("w", receiver.url, ["server-stopped"])
        with delivering(project):
            until(lambda: standing(project).holder is None)
            numbers = tell(project, EventKind.SERVER_STOPPED)
        assert receiver.numbers == numbers
    assert standing(project).holder is None


def test_a_server_says_which_outlets_it_serves(project: Project) -> None:
    with project.catalog.writing() as tx:
        servers.register(tx, "one", "1", timedelta(seconds=10))
    answered = threading.Event()
    with receiving(lambda count: 204 if answered.wait(10) else 500) as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed"])
        tell(project, EventKind.FAILED)
        deliverer = Notifier(project, timedelta(seconds=10), "one")
        deliverer.start()
        try:
            until(lambda: receiver.entered == 1)
            assert project.reader.servers(1)[0].subscriptions == ("w",)
        finally:
            answered.set()
            deliverer.close(5)
    assert project.reader.servers(1)[0].subscriptions == ()


def test_times_are_those_of_the_events(project: Project) -> None:
    with receiving() as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed"])
        tell(project, EventKind.FAILED)
        with delivering(project):
            until(lambda: bool(receiver.came))
    [event] = [event for event in project.events() if event.kind is EventKind.FAILED]
    assert datetime.fromisoformat(receiver.taken[0]["timestamp"]).astimezone(UTC) == event.time


def test_unwanted_events_are_not_read_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering_module, "_PAGE", 5)
    with receiving() as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed"])
        unwanted = tell(project, *[EventKind.SUCCEEDED] * 12)
        with delivering(project) as deliverer:
            until(lambda: standing(project).standing.cursor == unwanted[-1])
            until(lambda: standing(project).holder is None)
            numbers = tell(project, EventKind.SUCCEEDED, EventKind.FAILED)
            deliverer.nudge()
            until(lambda: receiver.numbers == numbers[1:])


def test_giving_up_a_failed_delivery_event_is_not_reported(project: Project) -> None:
    patience = DeliveryRetries(first=timedelta(milliseconds=10), whole=timedelta(milliseconds=50))
    with receiving(lambda count: 400) as receiver:
        project.operator.add_webhook("w", receiver.url, ["failed", "delivery-failed"])
        [number] = tell(project, EventKind.FAILED)
        with delivering(project, patience):
            until(lambda: standing(project).standing.cursor >= number + 1)
    assert [event.kind for event in project.events()] == [EventKind.FAILED, EventKind.DELIVERY_FAILED]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]"])
def test_addresses_of_this_machine_are_notified_only_if_listed(project: Project, host: str) -> None:
    project.operator.add_webhook("w", f"http://{host}:9/x", ["failed"])
    with open_project(project.directory) as unlisted, pytest.raises(DeliveryError, match=r"serve\.webhooks"):
        unlisted.operator.try_webhook("w")


def test_a_message_is_sent_to_the_address_that_was_checked(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        port = int(receiver.url.rpartition(":")[2])
        project.operator.add_webhook("w", f"http://pager.example:{port}/hook?a=1", ["failed"])
        asked: list[str] = []

        def resolve(host: str, *_: object, **__: object) -> list[object]:
            asked.append(host)
            address = "127.0.0.1" if asked == ["pager.example"] else host
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        with open_project(project.directory, serve={"webhooks": ["pager.example"]}) as listed:
            listed.operator.try_webhook("w")
    [(path, headers, _)] = receiver.came
    assert (path, headers["host"]) == ("/hook?a=1", f"pager.example:{port}")
    assert asked.count("pager.example") == 1
