"""Views kept up to date by changes equal their recomputation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.query.histories import lived

QUERIES = [text.strip() for text in (Path(__file__).parent / "queries.sql").read_text().split(";") if text.strip()]


@pytest.mark.parametrize("text", QUERIES)
def test_a_view_equals_its_recomputation_through_any_history(text: str) -> None:
    for seed in range(2):
        lived(text, seed)
