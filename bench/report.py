"""What a benchmark found: a table, goals and a picture, kept as JSON, Markdown and SVG."""

from __future__ import annotations

import enum
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import psutil

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
PICTURES = PAGE.parent / "benchmarks"

Draw = Callable[[Any], None]
"""Draws on a tuple of axes, from left to right."""


class Scale(enum.Enum):
    """How much data to take: QUICK is for trying the benchmarks out, LARGE adds a table of 20 M rows."""

    QUICK = "quick"
    FULL = "full"
    LARGE = "large"


@dataclass(frozen=True, slots=True)
class Goal:
    """What was aimed at: a measured number at most, or at least, another."""

    what: str
    measured: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One benchmark's result.

    Attributes:
        name: names its files.
        title: one line for people.
        columns: of the table.
        rows: of the table; floats are shown with two digits.
        goals: what was aimed at.
        timings: the seconds behind the table, by what was measured.
        note: what else to know, in a sentence or two.
        panels: how many pictures stand side by side.
        draw: draws them.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    goals: Sequence[Goal] = ()
    timings: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    note: str = ""
    panels: int = 1
    draw: Draw | None = None


def save(report: Report, *, scale: Scale, java: int, python: int, took: float, directory: Path = RESULTS) -> str:
    """Write a report's files.

    Returns:
        Its text.
    """
    directory.mkdir(parents=True, exist_ok=True)
    text = _text(report, java, python)
    (directory / f"{report.name}.md").write_text(text)
    record = {
        "name": report.name,
        "title": report.title,
        "scale": scale.value,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "memory": psutil.virtual_memory().total,
            "python": platform.python_version(),
            "pyspark": version("pyspark"),
            "load": [round(load, 1) for load in os.getloadavg()],
        },
        "peak_memory": {"java": java, "python": python},
        "took": round(took, 1),
        "table": [dict(zip(report.columns, row, strict=True)) for row in report.rows],
        "goals": [asdict(goal) | {"met": goal.met} for goal in report.goals],
        "seconds": report.timings,
    }
    (directory / f"{report.name}.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    if report.draw is not None:
        _picture(report, directory / f"{report.name}.svg")
    return text


def publish(name: str) -> None:
    """Put a saved report's table and picture into the page in the docs."""
    text = (RESULTS / f"{name}.md").read_text()
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    page = PAGE.read_text()
    head, _, rest = page.partition(begin)
    _, _, tail = rest.partition(end)
    picture = RESULTS / f"{name}.svg"
    if picture.exists():
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / picture.name).write_text(picture.read_text())
        text = f"![{name}](benchmarks/{picture.name})\n\n{text}"
    PAGE.write_text(f"{head}{begin}\n\n{text}\n{end}{tail}")


def _text(report: Report, java: int, python: int) -> str:
    lines = [
        f"**{report.title}**",
        "",
        "| " + " | ".join(report.columns) + " |",
        "| --- " + "| ---: " * (len(report.columns) - 1) + "|",
        *("| " + " | ".join(map(_cell, row)) + " |" for row in report.rows),
        "",
    ]
    if report.goals:
        lines += ["| goal | aimed at | measured | |", "| --- | ---: | ---: | --- |"]
        for goal in report.goals:
            bound = f"{'≥' if goal.at_least else '≤'} {goal.limit:g}"
            lines.append(f"| {goal.what} | {bound} | {goal.measured:.2f} | {'met' if goal.met else '**missed**'} |")
        lines.append("")
    if report.note:
        lines += [report.note, ""]
    lines.append(f"Peak memory: Java {java / 2**30:.1f} GiB, Python {python / 2**30:.2f} GiB.")
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}".replace(",", " ")
    return str(value)


def _picture(report: Report, path: Path) -> None:
    style = {"svg.fonttype": "none", "svg.hashsalt": report.name, "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
    with plt.rc_context(style):
        figure, axes = plt.subplots(1, report.panels, figsize=(4.4 * report.panels, 3.2), squeeze=False)
        for axis in axes[0]:
            axis.spines[["top", "right"]].set_visible(False)
        assert report.draw is not None
        report.draw(axes[0])
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
