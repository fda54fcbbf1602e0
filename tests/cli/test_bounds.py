"""Bounds on the command line: what is refused, and which runs keep them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kilonova.cli import render
from kilonova.cli.main import main

Command = Callable[..., tuple[str, str]]

_WORKFLOW = """
import kilonova as kn

search = kn.Workflow("search")
for name in ("pages", "scores"):
    search.channel(name, "site int")


@search.task(schema="site int")
def labelled(pages: kn.New, scores: kn.All) -> kn.Delta:
    return pages


@search.task(schema="site int")
def sites(pages: kn.New) -> kn.Delta:
    return pages


search.bound_staleness("labelled", "pages", "10 minutes")
"""


@pytest.fixture
def kilonova(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in the directory of a new project, and returns what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(render.out, "width", 200)
    (tmp_path / "search.py").write_text(_WORKFLOW)

    def command(*words: str, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main(words)
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == code, f"{words}: {printed}"
        return printed.out, printed.err

    command("init")
    return command


def test_a_plan_says_that_nothing_is_known_about_durations(kilonova: Command) -> None:
    out, _ = kilonova("plan", "search.py")
    assert "labelled is at most 10 minutes behind pages" in out
    assert "whether runs are fast enough is known once each task has run 3 times" in " ".join(out.split())


def test_a_bound_that_no_plan_keeps_is_refused_with_the_reason(kilonova: Command, tmp_path: Path) -> None:
    kilonova("apply", "search.py")
    before, _ = kilonova("bounds")
    _, refused = kilonova("bound", "inconsistency", "labelled", "1 week", code=1)
    assert "no variant of the tasks before it can keep this" in refused
    assert "Add a variant that recomputes its output" in refused
    with (tmp_path / "search.py").open("a") as file:
        file.write('search.bound_inconsistency("labelled", "1 week")\n')
    for command in ("plan", "apply"):
        _, refused = kilonova(command, "search.py", code=1)
        assert "labelled is at most 1 week inconsistent" in refused
    assert kilonova("bounds")[0] == before


def test_explain_says_if_a_channel_has_no_bounds(kilonova: Command) -> None:
    kilonova("apply", "search.py")
    text = "sites has no bounds; the plan keeps those of other channels."
    assert kilonova("explain", "sites", "--bounds")[0].startswith(text)
    assert text not in kilonova("explain", "labelled", "--bounds")[0]
