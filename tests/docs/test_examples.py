"""The examples in the README and the docs are run as a reader would run them, page by page, from top to bottom.

A fence with a title is a file to write. A `python` fence is run, unless it is marked `notest`. In a `console`
fence every line after a `$` that begins with `kilonova` is run, and must succeed; what `kilonova show` prints must be
what the page says.
"""

from __future__ import annotations

import io
import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kilonova.cli import render
from kilonova.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page."""

    language: str
    title: str | None
    tested: bool
    body: str


def fences(page: Path) -> Iterator[Fence]:
    for found in FENCE.finditer(page.read_text()):
        title = re.search(r'title="([^"]+)"', found["rest"])
        yield Fence(found["language"], title and title[1], "notest" not in found["rest"], found["body"])


def commands(body: str) -> Iterator[tuple[list[str], list[str]]]:
    """The commands of a console fence, each with the lines that it is said to print."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, *output = part.rstrip("\n").split("\n")
        yield shlex.split(command), output


def squeezed(lines: list[str]) -> list[str]:
    timeless = (re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", line) for line in lines)
    return [" ".join(line.split()) for line in timeless if line.strip() and not set(line) <= set("─ ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_work(
    page: Path,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("KILONOVA_SERVE__PORT", "0")
    monkeypatch.setattr(render.out, "width", 140)
    for number, fence in enumerate(fences(page)):
        if fence.title is not None:
            (tmp_path / fence.title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / fence.title).write_text(fence.body)
        elif fence.language == "python" and fence.tested:
            script = tmp_path / f"example_{number}.py"
            script.write_text(fence.body)
            runpy.run_path(str(script), run_name=f"example_{number}")
        elif fence.language == "console":
            for words, expected in commands(fence.body):
                if words[0] != "kilonova":
                    continue
                if "<" in words:
                    *words, _, script = words
                    monkeypatch.setattr("sys.stdin", io.StringIO((tmp_path / script).read_text()))
                code = 0
                if words[-3:] == ["||", "echo", "exit code $?"]:
                    words, code = words[:-3], int(expected[-1].removeprefix("exit code "))
                with pytest.raises(SystemExit) as ended:
                    main(words[1:])
                printed = capsys.readouterr()
                assert (ended.value.code or 0) == code, f"{words}: {printed}"
                if "show" in words:
                    assert squeezed(printed.out.split("\n")) == squeezed(expected), words


def test_there_are_examples() -> None:
    """So that a change of the pages' form does not silently test nothing."""
    found = [fence for page in PAGES for fence in fences(page)]
    assert sum(fence.language == "python" and fence.tested for fence in found) >= 8
    assert sum(len(list(commands(fence.body))) for fence in found if fence.language == "console") >= 12
