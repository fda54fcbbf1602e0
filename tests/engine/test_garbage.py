"""Garbage collection of many blocks, some in each transaction."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kilonova.catalog.database import Catalog
from kilonova.engine import garbage
from tests.databases import NOON, empty_database
from tests.engine.plain import Process, declare


def test_blocks_are_decided_about_once_while_time_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()

    def clock() -> datetime:
        return NOON + timedelta(seconds=next(seconds))

    decided: list[int] = []
    decide = garbage.decide_collection

    def counted(*arguments: object) -> object:
        decided.append(len(decided))
        return decide(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(garbage, "decide_collection", counted)
    monkeypatch.setattr(garbage, "AT_ONCE", 1)
    with empty_database("sqlite") as url:
        Catalog(url, clock).create()
        process = Process.started(url, tmp_path, clock)
        declare(process.catalog)
        for number in range(4):
            process.ingest(number)
            process.run()
        for channel in ("source", "copied", "counted"):
            process.compact(channel)
        report = process.collect()
        assert report.swept >= 8
        assert len(decided) <= 3  # a channel whose points go changes what refers to the others
        process.check_clean()
        process.end()
