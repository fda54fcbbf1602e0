"""`kilonova simulate`, with and without a project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kilonova.cli import render
from kilonova.cli.main import main

WORKFLOW = """
import kilonova as kn

shop = kn.Workflow("shop")
shop.channel("orders", "id bigint, day date")
shop.view("daily", "SELECT day, count(*) AS orders FROM orders GROUP BY day")
shop.bound_staleness("daily", "orders", "1 hour")
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(WORKFLOW)
    return "shop.py"


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *words])
    captured = capsys.readouterr()
    assert (ended.value.code or 0) == code, captured
    return captured.err if code else captured.out


def test_a_table_of_bounds_and_one_of_tasks_are_printed(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render.out, "width", 140)
    found = printed(capsys, file, "--for", "1 day", "--arrive", "orders 5,000 rows every 20 minutes")
    assert found.startswith("Simulated 1 day: 5,000 rows of orders every 20 minutes")
    assert "staleness along orders›daily" in found
    assert "incremental" in found
    assert "█" in found


def test_json_has_the_same(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    arrive = ("--arrive", "orders 5000 rows every 20 minutes")
    found = json.loads(
        printed(capsys, file, *arrive, "--for", "1 day", "--set", "daily staleness orders 2 hours", "--json")
    )
    (bound,) = found["bounds"]
    assert (bound["channel"], bound["limit"]) == ("daily", 7200)
    assert 0 < bound["violations"] <= 12
    (invocation,) = [each for each in found["invocations"] if each["variant"] == "incremental"]
    assert invocation["count"] + 1 >= bound["violations"]
    assert found["unmet"] == 0


def test_a_bound_that_takes_too_long_is_reported(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, file, "--for", "1 day", "--arrive", "orders 1,000,000,000 rows every 4 hours")
    assert "Cannot be kept: daily is at most 1 hour behind orders›daily (it would take" in found
    few = printed(capsys, file, "--for", "1 day", "--arrive", "orders 1000 rows every 4 hours")
    assert "Cannot be kept" not in few


def test_without_a_project_arrivals_must_be_given(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "it is not known what arrives" in printed(capsys, file, code=1)
