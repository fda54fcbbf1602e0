"""Histories that once went wrong, as the generator shrunk them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.declare.ddl import parse_schema
from tests.generator.declared import Spec, standard
from tests.generator.history import projects, replay
from tests.generator.steps import Apply, During, Ending, Ingest, Step

ROWS = parse_schema("k bigint, v bigint, w string")

FOUND: dict[str, list[Step]] = {
    "a base above a reserved point does not uncover it": [
        Apply(Spec((standard("c1", "append"),), ())),
        During(
            Ingest("c1", ROWS, ((1, 1, "a"),)),
            (Ingest("c1", ROWS, ((2, 1, "a"),), whole=True),),
            Ending.COMMITS,
        ),
    ],
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, tmp_path: Path) -> None:
    with projects(tmp_path) as begin:
        failure = replay(begin(), FOUND[name])
    if failure is not None:
        raise failure[1]
