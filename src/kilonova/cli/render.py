"""Output of results: as tables for people, or as JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kilonova.service.formatting import plain

WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140
"""Width of tables where the output is not a terminal: wide enough to be readable."""

out = Console(highlight=False, width=WIDTH)
err = Console(stderr=True, highlight=False)


def number(count: int | None) -> str:
    """Format a count with separators; empty for None."""
    return "" if count is None else f"{count:,}"


def moment(time: datetime | None) -> str:
    """Format a time, to the second; empty for None."""
    return "" if time is None else time.strftime("%Y-%m-%d %H:%M:%S")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> None:
    """Print a table."""
    shown = Table(title=title or None, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    shown.show_edge, shown.pad_edge = False, False
    for name in columns:
        shown.add_column(name, justify="right" if name in set(right) else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(cell if isinstance(cell, Text) else Text("" if cell is None else str(cell)) for cell in row))
    out.print(shown)


_LINES = {"+": "green", "-": "red", "@": "dim"}
"""Styles of the lines of a diff, by their first character."""


def diff(text: str) -> None:
    """Print a diff in unified format."""
    for line in text.splitlines():
        out.print(Text(line, style=_LINES.get(line[:1], "")), soft_wrap=True)


def as_json(value: Any) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n")


def as_json_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows as JSON objects, one a line."""
    for row in rows:
        record = {name: plain(cell) for name, cell in zip(columns, row, strict=True)}
        sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows as CSV with a header."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = (plain(cell) for cell in row)
        writer.writerow([json.dumps(cell) if isinstance(cell, dict | list) else cell for cell in cells])
