"""Tables of a preview: the rows that differ, those of a key together, with the values that differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

_LETTERS = 200
"""Maximum number of characters shown of a value."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Value of a row as text, None for null, and whether it differs from that of the row of the same key."""

    text: str | None
    differs: bool


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """Row that is added (`+`) or removed (`-`), and whether the row of the same key is the other one."""

    sign: str
    cells: tuple[Cell, ...]
    paired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTable:
    """Difference in the rows of a channel.

    Attributes:
        channel: the difference as `kilonova.service.preview.ChannelPreview.to_dict` returns it.
        columns: the columns of the example rows.
        rows: the example rows.
        numeric: whether each column has only numbers.
    """

    channel: Mapping[str, Any]
    columns: tuple[str, ...]
    rows: tuple[ExampleRow, ...]
    numeric: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewTables:
    """Preview as tables.

    Attributes:
        preview: the preview as `kilonova.service.preview.Preview.to_dict` returns it.
        channels: the differences of its channels.
        wrong: the number of rows in which migrated channels differ from recomputed ones, by channel.
    """

    preview: Mapping[str, Any]
    channels: tuple[ChannelTable, ...]
    wrong: Mapping[str, int]


def preview_tables(preview: Mapping[str, Any]) -> PreviewTables:
    """Return a preview, as a worker returns it, as tables."""
    return PreviewTables(
        preview=preview,
        channels=tuple(map(_channel_table, preview["channels"])),
        wrong={each["channel"]: each["rows"] for each in preview["wrong"]},
    )


def _channel_table(channel: Mapping[str, Any]) -> ChannelTable:
    examples: Sequence[Mapping[str, Any]] = channel["examples"]
    columns = tuple(examples[0]["row"]) if examples else ()
    return ChannelTable(
        channel=channel,
        columns=columns,
        rows=tuple(_rows(examples, channel["key"])),
        numeric=tuple(all(_is_number(each["row"][name]) for each in examples) for name in columns),
    )


def _rows(examples: Iterable[Mapping[str, Any]], key: Sequence[str]) -> Iterable[ExampleRow]:
    """Yield example rows, which are ordered by their key if they have one."""

    def key_of(example: Mapping[str, Any]) -> list[Any]:
        return [example["row"][name] for name in key]

    for _, group in groupby(examples, key_of):
        same = list(group)
        paired = bool(key) and len(same) == 2
        for place, example in enumerate(same):
            other = same[1 - place]["row"] if paired else example["row"]
            cells = (Cell(_text(value), value != other[name]) for name, value in example["row"].items())
            yield ExampleRow(example["sign"], tuple(cells), paired)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _text(value: object) -> str | None:
    """Return a value as text, shortened if it is long."""
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= _LETTERS else text[:_LETTERS] + "…"
