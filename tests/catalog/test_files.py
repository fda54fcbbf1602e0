"""Files of watched directories: each is taken once, whoever looks, runs, dies or asks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kilonova.catalog import channel_registry, events, files, runs
from kilonova.catalog.database import Catalog
from kilonova.errors import BrokenInvariant
from kilonova.model.event import EventKind
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.model.watched_file import FileOutcome, FileState, Fingerprint, key_of
from kilonova.schedule.file_selection import FileDecision
from tests.catalog.building import LEASE, a_channel, begin
from tests.databases import NOON, Clock

INBOX = WatchedDirectory(location="inbox", poll_interval=30, settle_time=5)
MARK = Fingerprint(3, NOON, "x")


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [replace(a_channel("orders"), watch=INBOX)], "w")
        channel_registry.add_channels(tx, [a_channel("other")], "w")
    return catalog


def noted(catalog: Catalog, *paths: str, verdict: FileDecision = FileDecision.READY, mark: Fingerprint = MARK) -> None:
    with catalog.writing() as tx:
        files.record(tx, "orders", {path: (mark, verdict) for path in paths})


def ready(catalog: Catalog) -> list[str]:
    with catalog.reading() as tx:
        return [one.path for one in files.ready_files(tx, "orders", 100)]


def started(catalog: Catalog, *paths: str) -> int:
    with catalog.writing() as tx:
        run, _ = begin(tx, "orders")
        files.claim_files(tx, run, "orders", paths)
    return run


def states(catalog: Catalog) -> dict[str, FileState]:
    with catalog.reading() as tx:
        return {file.path: file.state for state in FileState for file in files.files(tx, "orders", state, 100)}


def said(catalog: Catalog, kind: EventKind) -> list[str]:
    with catalog.reading() as tx:
        return [event.text for event in events.since(tx, 0) if event.kind is kind]


def test_files_come_in_the_order_in_which_they_were_modified(catalog: Catalog) -> None:
    noted(catalog, "c", "b")
    noted(catalog, "a", mark=Fingerprint(3, NOON + timedelta(seconds=1)))
    noted(catalog, "w", verdict=FileDecision.WAIT)
    assert ready(catalog) == ["b", "c", "a"]
    with catalog.reading() as tx:
        assert files.known(tx, "orders", ["a", "w", "never"]).keys() == {"a", "w"}
        assert files.known(tx, "orders", ["b"])["b"].fingerprint == MARK


def test_only_one_run_has_a_file(catalog: Catalog) -> None:
    noted(catalog, "a", "b", "c")
    run = started(catalog, "a", "b")
    assert ready(catalog) == []
    with catalog.writing() as tx:
        file_outcomes = [FileOutcome("a", FileState.INGESTED), FileOutcome("b", FileState.QUARANTINED, "it is bad")]
        runs.commit(tx, run, inputs=(), outputs=(), advances=())
        files.resolve_files(tx, run, "orders", file_outcomes)
    assert states(catalog) == {"a": FileState.INGESTED, "b": FileState.QUARANTINED, "c": FileState.READY}
    assert ready(catalog) == ["c"]
    assert said(catalog, EventKind.FILE_QUARANTINED) == ["orders: b: it is bad"]
    with catalog.reading() as tx:
        assert (found := files.file_record(tx, "orders", "b"))
        assert (found.error, found.run) == ("it is bad", run)


def test_what_a_run_had_that_did_not_publish_is_anybodys_again(catalog: Catalog, clock: Clock) -> None:
    noted(catalog, "a")
    failed = started(catalog, "a")
    with catalog.writing() as tx:
        runs.fail(tx, failed, "no luck")
    assert ready(catalog) == ["a"]
    cancelled = started(catalog, "a")
    with catalog.writing() as tx:
        runs.cancel(tx, cancelled, "ann")
    assert ready(catalog) == ["a"]
    silent = started(catalog, "a")
    assert ready(catalog) == []
    clock.forward(2 * LEASE.total_seconds())
    with catalog.writing() as tx:
        assert [run.number for run in runs.expire(tx)] == [silent]
    assert ready(catalog) == ["a"]


def test_a_run_cannot_take_what_it_has_not(catalog: Catalog) -> None:
    noted(catalog, "a", "b")
    first = started(catalog, "a")
    with pytest.raises(BrokenInvariant), catalog.writing() as tx:
        files.resolve_files(tx, first, "orders", [FileOutcome("b", FileState.INGESTED)])
    with catalog.writing() as tx:
        files.resolve_files(tx, first, "orders", [FileOutcome("a", FileState.INGESTED)])
    with pytest.raises(BrokenInvariant), catalog.writing() as tx:
        files.resolve_files(tx, first, "orders", [FileOutcome("a", FileState.INGESTED)])
    assert states(catalog) == {"a": FileState.INGESTED, "b": FileState.READY}


def test_a_file_that_changed_after_its_ingest_is_reported_once_and_stays(catalog: Catalog) -> None:
    noted(catalog, "a")
    run = started(catalog, "a")
    with catalog.writing() as tx:
        runs.commit(tx, run, inputs=(), outputs=(), advances=())
        files.resolve_files(tx, run, "orders", [FileOutcome("a", FileState.INGESTED)])
        files.record(tx, "orders", {"a": (Fingerprint(9, NOON), FileDecision.REPORT)})
    with catalog.reading() as tx:
        known = files.known(tx, "orders", ["a"])["a"]
    assert (known.state, known.fingerprint, known.reported) == (FileState.INGESTED, MARK, True)
    assert len(said(catalog, EventKind.FILE_CHANGED)) == 1
    with catalog.writing() as tx:
        files.forget(tx, "orders", files.uningested(tx, "orders"))
        channel_registry.update_channel_metadata(
            tx, replace(a_channel("orders"), watch=replace(INBOX, pattern="*.csv"))
        )
    assert states(catalog) == {"a": FileState.INGESTED}


def test_quarantined_files_are_retried_on_request(catalog: Catalog) -> None:
    noted(catalog, "a", "b")
    run = started(catalog, "a", "b")
    with catalog.writing() as tx:
        runs.commit(tx, run, inputs=(), outputs=(), advances=())
        files.resolve_files(tx, run, "orders", [FileOutcome(path, FileState.QUARANTINED, "bad") for path in "ab"])
    with catalog.writing() as tx:
        assert files.retry_files(tx, "orders", "never") == 0
        assert files.retry_files(tx, "orders", "b") == 1
    assert ready(catalog) == ["b"]
    with catalog.writing() as tx:
        assert files.retry_files(tx, "orders", None) == 1
    assert ready(catalog) == ["a", "b"]
    assert said(catalog, EventKind.FILE_RELEASED) == [
        f"orders: {path}: retried, no longer quarantined" for path in ("b", "a")
    ]


def test_a_quarantined_file_that_changes_or_is_removed_is_reported(catalog: Catalog) -> None:
    noted(catalog, "a", "b", "c")
    noted(catalog, "w", verdict=FileDecision.WAIT)
    run = started(catalog, "a", "b", "c")
    with catalog.writing() as tx:
        runs.commit(tx, run, inputs=(), outputs=(), advances=())
        files.resolve_files(tx, run, "orders", [FileOutcome(path, FileState.QUARANTINED, "bad") for path in "abc"])
    noted(catalog, "a", mark=Fingerprint(9, NOON), verdict=FileDecision.WAIT)
    with catalog.writing() as tx:
        files.forget(tx, "orders", map(key_of, ("b", "c", "w")))
    assert states(catalog) == {"a": FileState.SETTLING}
    assert said(catalog, EventKind.FILE_RELEASED) == [
        "orders: a: changed, no longer quarantined",
        "orders: b, and 1 more: removed, no longer quarantined",
    ]


def quarantined(catalog: Catalog, *paths: str) -> None:
    run = started(catalog, *paths)
    with catalog.writing() as tx:
        runs.commit(tx, run, inputs=(), outputs=(), advances=())
        files.resolve_files(tx, run, "orders", [FileOutcome(path, FileState.QUARANTINED, "bad") for path in paths])


def test_in_order_a_file_waits_for_those_before_it_even_while_they_are_corrected(catalog: Catalog) -> None:
    with catalog.writing() as tx:
        channel_registry.update_channel_metadata(tx, replace(a_channel("orders"), watch=replace(INBOX, in_order=True)))
    for second, path in enumerate("dcba"):
        noted(catalog, path, mark=Fingerprint(3, NOON + timedelta(seconds=second)))
    noted(catalog, "bb", mark=Fingerprint(3, NOON + timedelta(seconds=2)))
    assert ready(catalog) == ["d", "c", "b", "bb", "a"]
    quarantined(catalog, "b")
    assert ready(catalog) == ["d", "c"]
    later = Fingerprint(4, NOON + timedelta(hours=1))
    noted(catalog, "b", verdict=FileDecision.WAIT, mark=later)
    assert ready(catalog) == ["d", "c"]
    noted(catalog, "b", mark=later)
    assert ready(catalog) == ["d", "c", "b", "bb", "a"]
    run = started(catalog, "d")
    with catalog.writing() as tx:
        runs.commit(tx, run, inputs=(), outputs=(), advances=())
        files.resolve_files(tx, run, "orders", [FileOutcome("d", FileState.SETTLING)])
    assert ready(catalog) == []
    with catalog.writing() as tx:
        files.forget(tx, "orders", [key_of("d")])
    assert ready(catalog) == ["c", "b", "bb", "a"]


def test_another_directory_forgets_what_was_not_taken_and_no_run_has(catalog: Catalog) -> None:
    noted(catalog, "a", "b")
    noted(catalog, "w", verdict=FileDecision.WAIT)
    started(catalog, "a")
    with catalog.writing() as tx:
        channel_registry.update_channel_metadata(
            tx, replace(a_channel("orders"), watch=INBOX, description="the same directory")
        )
    assert states(catalog).keys() == {"a", "b", "w"}
    with catalog.writing() as tx:
        channel_registry.update_channel_metadata(tx, a_channel("orders"))
        assert files.watched_directories(tx) == []
        assert files.next_scan(tx) is None
    assert states(catalog).keys() == {"a"}


def test_one_process_scans_at_a_time_unless_its_lease_expires(catalog: Catalog, clock: Clock) -> None:
    def begun(*, early: bool = False) -> WatchedDirectory | None:
        with catalog.writing() as tx:
            return files.begin_scan(tx, "orders", LEASE, early=early)

    def due() -> list[str]:
        with catalog.reading() as tx:
            return files.due_for_scan(tx)

    assert due() == ["orders"]
    assert begun() == INBOX
    assert due() == []
    assert begun() is None
    assert begun(early=True) == INBOX
    clock.forward(LEASE.total_seconds())
    assert due() == ["orders"]
    assert begun() == INBOX
    noted(catalog, "w", verdict=FileDecision.WAIT)
    with catalog.writing() as tx:
        looked = files.end_scan(tx, "orders", INBOX, tx.now, "no such directory")
        assert files.next_scan(tx) == looked.settles == clock.now + timedelta(seconds=5)
        files.end_scan(tx, "orders", INBOX, tx.now, "no such directory")
        assert not files.end_scan(tx, "orders", INBOX, tx.now - timedelta(seconds=40), None).ready
        assert files.next_scan(tx) == clock.now + timedelta(seconds=40)
        files.forget(tx, "orders", files.uningested(tx, "orders"))
        files.end_scan(tx, "orders", INBOX, tx.now, None)
        assert files.next_scan(tx) == clock.now + timedelta(seconds=30)
    assert said(catalog, EventKind.DIRECTORY_UNREADABLE) == ["orders: no such directory"]


def test_paths_may_be_longer_than_a_key_of_a_database(catalog: Catalog) -> None:
    long = "inbox/" + "é/" * 2000 + "a.csv"
    noted(catalog, long)
    assert ready(catalog) == [long]
