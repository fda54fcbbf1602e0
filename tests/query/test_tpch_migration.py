"""Edits of TPC-H's queries: most are migrated, and each migration equals recomputation."""

from __future__ import annotations

import random

import pytest

from examples.tpch.edits import EDITS
from tests.query.tpch_edits import edited, tpch_world
from tests.seeds import SEED, some

RECOMPUTED = {
    ("q02", "filter changed"),
    ("q07", "filter changed"),
    ("q20", "other nation"),
    ("q02", "column added"),
    ("q02", "column dropped"),
    ("q10", "aggregate added"),
    ("q11", "aggregate added"),
    ("q15", "column added"),
    ("q16", "threshold above groups"),
    ("q16", "aggregate added"),
    ("q18", "column dropped"),
    ("q18", "aggregate added"),
    ("q20", "column added"),
}
"""Edits after which some relation is recomputed."""


def test_each_query_has_at_least_four_edits_and_most_are_migrated() -> None:
    assert all(len(edits) >= 4 for edits in EDITS.values())
    assert len(EDITS) == 22
    every = {(name, kind): edited(name, *edit) for name, edits in EDITS.items() for kind, *edit in edits}
    assert {edit for edit, pair in every.items() if not pair.migrates} == RECOMPUTED
    assert sum(pair.from_output for pair in every.values()) >= 25


@pytest.mark.parametrize("name", some(EDITS, 4))
def test_a_migration_after_an_edit_equals_recomputation(name: str) -> None:
    worlds = [tpch_world(random.Random(SEED))]
    for _, before, after in EDITS[name]:
        edited(name, before, after).check(worlds)
