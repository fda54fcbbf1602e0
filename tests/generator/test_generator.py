"""The generator finds nothing, and would have found something."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.generator.history import Mismatch, generate
from tests.generator.memory import Memory
from tests.generator.proposing import NOT_ON_SPARK
from tests.seeds import SEED

TAKEN = {
    "apply",
    "ingest",
    "replace",
    "run",
    "run named",
    "compact",
    "merge deltas",
    "collect",
    "drop",
    "turn",
}
REFUSED = {"ingest", "replace", "run", "run named", "compact", "drop"}
"""Kinds of steps that are taken now and then, and that are refused now and then."""


def test_random_histories_agree_with_the_reference() -> None:
    happened: Counter[tuple[str, bool]] = Counter()
    for part in range(24):  # what is rare need not come among the first
        happened += generate(SEED + part, 200)
        taken, refused = ({kind for kind, taken in happened if taken is which} for which in (True, False))
        if part > 1 and taken >= TAKEN and refused >= REFUSED:
            break
    assert {kind for kind, taken in happened if taken} >= TAKEN
    assert {kind for kind, taken in happened if not taken} >= REFUSED
    assert sum(times for (_, taken), times in happened.items() if taken) > 0.7 * happened.total()


def test_random_histories_agree_with_the_reference_on_spark(spark: SparkSession) -> None:
    happened = generate(SEED, 16, length=16, seconds=120, session=spark, left_out=NOT_ON_SPARK)
    assert sum(times for (_, taken), times in happened.items() if taken) >= 8


def test_a_broken_merge_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    merged = Memory._merged

    def broken(self: Memory, encoding: Any, schema: Any, rows: Any, delta: Any) -> Any:
        """Loses the second row that a delta brings."""
        return merged(self, encoding, schema, rows, delta[:1])

    monkeypatch.setattr(Memory, "_merged", broken)
    with pytest.raises(Mismatch) as raised:
        generate(7, 400, seconds=60)
    assert len(str(raised.value)) < 1500
    assert "project.ingest" in str(raised.value)
