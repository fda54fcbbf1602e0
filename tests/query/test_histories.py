"""Views kept up to date by changes equal their recomputation."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.query.syntax import Beyond
from tests.query.generator import Generator
from tests.query.histories import lived

QUERIES = [text.strip() for text in (Path(__file__).parent / "queries.sql").read_text().split(";") if text.strip()]


@pytest.mark.parametrize("text", QUERIES)
def test_a_view_equals_its_recomputation_through_any_history(text: str) -> None:
    for seed in range(2):
        lived(text, seed)


@pytest.mark.parametrize("seed", range(30))
def test_any_view_equals_its_recomputation(seed: int) -> None:
    """`python -m tests.query.generator 0 10000` tries more."""
    try:
        lived(Generator(seed).query(), seed, steps=3)
    except Beyond:
        pytest.skip("beyond the tree")
