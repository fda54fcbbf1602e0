"""The logs of runs in a warehouse's directory."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.errors import StorageFailed
from kilonova.warehouse.storage import Storage

NEW_YEAR = date(2026, 1, 1)


def test_a_log_is_what_was_kept_last_and_no_block(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "warehouse"))
    assert storage.log(1, NEW_YEAR) is None
    storage.delete_logs(NEW_YEAR)
    storage.keep_log(1, NEW_YEAR, "long ago")
    storage.keep_log(1, NEW_YEAR, "ö \udc80")
    assert storage.log(1, NEW_YEAR) == "ö \\udc80"
    assert storage.log(2, NEW_YEAR) is None
    assert storage.blocks() == []
    assert [file.name for file in tmp_path.rglob("*.*")] == ["run_1.log"]


@pytest.mark.parametrize("place", ["warehouse", "warehouse/_logs"])
def test_a_log_that_cannot_be_kept_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("a file where a directory should be")
    with pytest.raises(StorageFailed, match="log"):
        Storage(str(tmp_path / "warehouse")).keep_log(1, NEW_YEAR, "text")


@given(st.lists(st.integers(0, 400), unique=True, max_size=8), st.integers(0, 400))
def test_logs_go_by_the_day_of_their_runs(
    tmp_path_factory: pytest.TempPathFactory, days: list[int], limit: int
) -> None:
    place = tmp_path_factory.mktemp("warehouse")
    storage = Storage(str(place))
    (place / "_logs" / "notes").mkdir(parents=True)
    for number, day in enumerate(days):
        storage.keep_log(number, NEW_YEAR + timedelta(days=day), str(day))
    storage.delete_logs(NEW_YEAR + timedelta(days=limit))
    left = [storage.log(number, NEW_YEAR + timedelta(days=day)) for number, day in enumerate(days)]
    assert left == [str(day) if day >= limit else None for day in days]
    assert (place / "_logs" / "notes").exists()
