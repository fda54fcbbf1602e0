"""Which files are taken, and when: laws over any history of a file, and any files that do not go together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.errors import InputError, KeyViolation, KilonovaError, StorageFailed
from kilonova.model.watched_file import FileState, Fingerprint
from kilonova.schedule.file_selection import (
    MAX_CLOCK_SKEW,
    MAX_QUARANTINED,
    BatchOutcome,
    FileDecision,
    FileRecord,
    FilesChanged,
    bisect_batch,
    classify,
    is_hidden,
)

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
SETTLE = timedelta(seconds=5)


def seen(size: int, age: timedelta = timedelta()) -> Fingerprint:
    return Fingerprint(size, NOON - age)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 10)), min_size=1, max_size=12))
def test_a_file_is_complete_only_if_it_was_seen_to_stay_as_it_is(looks: list[tuple[int, int]]) -> None:
    """Each look sees the file with a size, some seconds after the one before."""
    known: FileRecord | None = None
    now, same_since, before = NOON, NOON, -1
    for size, seconds in looks:
        now += timedelta(seconds=seconds)
        same_since, before = (same_since if size == before else now), size
        verdict = classify(seen(size), known, now, SETTLE)
        stays = now - same_since >= SETTLE
        was_ready = known is not None and known.state is FileState.READY
        assert (verdict is FileDecision.READY) == (stays and not was_ready)
        if verdict is not None:
            state = FileState.READY if verdict is FileDecision.READY else FileState.SETTLING
            known = FileRecord(state=state, fingerprint=seen(size), since=now)


@given(
    st.sampled_from(FileState), st.booleans(), st.booleans(), st.booleans(), st.timedeltas(timedelta(), timedelta(1))
)
def test_only_changed_files_are_classified_again(
    state: FileState, changed: bool, reported: bool, held: bool, age: timedelta
) -> None:
    known = FileRecord(state=state, fingerprint=seen(1), since=NOON, reported=reported, held=held)
    verdict = classify(seen(2 if changed else 1), known, NOON + age, SETTLE)
    if state is FileState.INGESTED:
        assert verdict is (FileDecision.REPORT if changed and not reported else None)
    elif changed:
        assert verdict is (None if held else FileDecision.WAIT)
    else:
        assert verdict is (FileDecision.READY if state is FileState.SETTLING and age >= SETTLE else None)


def test_what_was_there_long_ago_is_taken_at_first_sight() -> None:
    assert classify(seen(1, SETTLE + MAX_CLOCK_SKEW), None, NOON, SETTLE) is FileDecision.READY
    assert classify(seen(1, MAX_CLOCK_SKEW), None, NOON, SETTLE) is FileDecision.WAIT
    assert classify(seen(1, -timedelta(days=400)), None, NOON, SETTLE) is FileDecision.WAIT
    assert classify(Fingerprint(1, None), None, NOON, SETTLE) is FileDecision.WAIT
    assert classify(seen(1), None, NOON, timedelta()) is FileDecision.READY


def test_what_programs_write_on_is_left_alone() -> None:
    names = ("a.csv", "day=1/a.csv", "_SUCCESS", ".a.csv.swp", "_tmp/a.csv", "a/.b/c.csv", "a.csv.part", "a.CSV.TMP")
    assert [name for name in names if not is_hidden(name)] == ["a.csv", "day=1/a.csv"]


FILES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["good", "bad", "moved"])), max_size=30)


def sift(
    items: list[tuple[int, int, str]], *, blames: bool, in_order: bool
) -> BatchOutcome[tuple[int, int, str], list[int]]:
    """Each file has a key, which may be there once in a block; bad ones fail alone."""

    def attempt(some: list[tuple[int, int, str]]) -> list[int]:
        if gone := [item for item in some if item[2] == "moved"]:
            raise FilesChanged(gone)
        for item in some:
            if item[2] == "bad":
                raise InputError("it is bad", path=str(item[0]) if blames else None)
        if len({item[1] for item in some}) < len(some):
            raise KeyViolation("a key occurs twice")
        return [item[0] for item in some]

    def blamed(error: KilonovaError) -> tuple[int, int, str] | None:
        return next((item for item in items if str(item[0]) == error.path), None)

    return bisect_batch(items, attempt, blamed, in_order=in_order)  # type: ignore[arg-type]


@given(FILES, st.booleans())
def test_all_that_can_be_taken_is_taken_in_order(files: list[tuple[int, str]], blames: bool) -> None:
    items = [(number, key, kind) for number, (key, kind) in enumerate(files)]
    blocks: list[list[int]] = []
    aside: list[int] = []
    moved: list[int] = []
    left = items
    while left:
        sifted = sift(left, blames=blames, in_order=False)
        assert len(sifted.ingested) + len(sifted.quarantined) + len(sifted.changed) + len(sifted.postponed) == len(left)
        assert len(sifted.postponed) < len(left)
        assert len(sifted.quarantined) <= MAX_QUARANTINED
        assert (sifted.result or []) == [item[0] for item in sifted.ingested]
        blocks.append([item[0] for item in sifted.ingested])
        aside += [item[0] for item, _ in sifted.quarantined]
        moved += [item[0] for item in sifted.changed]
        left = list(sifted.postponed)
    taken = [number for block in blocks for number in block]
    assert taken == [number for number, _, kind in items if kind == "good"]
    assert sorted(aside) == [number for number, _, kind in items if kind == "bad"]
    assert sorted(moved) == [number for number, _, kind in items if kind == "moved"]


@given(FILES, st.booleans())
def test_in_order_no_file_is_taken_past_one_that_cannot_be(files: list[tuple[int, str]], blames: bool) -> None:
    items = [(number, key, kind) for number, (key, kind) in enumerate(files)]
    taken: list[int] = []
    left = items
    while left:
        sifted = sift(left, blames=blames, in_order=True)
        pending = [number for number, _, _ in (*(item for item, _ in sifted.quarantined), *sifted.changed)]
        taken += [number for number, _, _ in sifted.ingested]
        assert (
            sorted((*sifted.ingested, *(i for i, _ in sifted.quarantined), *sifted.changed, *sifted.postponed)) == left
        )
        left = [item for item in sifted.postponed if not pending or item[0] < min(pending)]
    assert taken == list(range(next((number for number, _, kind in items if kind != "good"), len(items))))


def test_what_is_around_the_files_is_not_their_fault() -> None:
    def attempt(_: object) -> None:
        raise StorageFailed("the disk is full")

    with pytest.raises(StorageFailed):
        bisect_batch([1, 2], attempt, lambda _: None)


@given(st.integers(1, 300), st.data())
def test_one_bad_file_is_found_in_few_attempts(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, count - 1))
    attempts = []

    def attempt(some: list[int]) -> None:
        attempts.append(some)
        if bad in some:
            raise InputError("it is bad")

    sifted = bisect_batch(range(count), attempt, lambda _: None)  # type: ignore[arg-type]
    assert [item for item, _ in sifted.quarantined] == [bad]
    assert len(sifted.ingested) == count - 1
    assert len(attempts) <= count.bit_length() + 3
