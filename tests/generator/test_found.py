"""Histories that once went wrong, as the generator shrunk them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.declare.ddl import parse_schema
from tests.generator.declared import Spec, TaskSpec, standard
from tests.generator.history import projects, replay
from tests.generator.steps import Apply, Drop, During, Ending, Ingest, Run, Step

ROWS = parse_schema("k bigint, v bigint, w string")

COPIED = Spec((standard("c1", "upsert"), standard("t2_0", "upsert")), (TaskSpec("t2", "copy", ("c1",), ("t2_0",), 0),))
OTHERWISE = Spec(
    (standard("c1", "changes"), standard("t2_0", "changes")), (TaskSpec("t2", "copy", ("c1",), ("t2_0",), 0),)
)
TWICE = [Ingest("c1", ROWS, ((number, 1, "a"),)) for number in range(3)]

FOUND: dict[str, list[Step]] = {
    "a base above a reserved point does not uncover it": [
        Apply(Spec((standard("c1", "append"),), ())),
        During(
            Ingest("c1", ROWS, ((1, 1, "a"),)),
            (Ingest("c1", ROWS, ((2, 1, "a"),), whole=True),),
            Ending.COMMITS,
        ),
    ],
    "a source that is dropped and declared again": [
        Apply(COPIED),
        *TWICE,
        Run(),
        Apply(Spec((), ())),
        Drop("c1"),
        Apply(COPIED),
        Run(),
        TWICE[0],
        Run(),
        TWICE[2],
        Run(),
    ],
    "a source that is dropped before it is read, and declared in another encoding": [
        Apply(COPIED),
        TWICE[0],
        Run(),
        *TWICE[1:],
        Apply(Spec((), ())),
        Drop("c1"),
        Apply(OTHERWISE),
        TWICE[1],
        Run(),
        *TWICE,
        Run(),
    ],
    "a derived channel that is dropped with its task and declared again": [
        Apply(COPIED),
        *TWICE,
        Run(),
        Drop("t2_0"),
        Apply(COPIED),
        Run(),
        TWICE[1],
        Run(),
    ],
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, tmp_path: Path) -> None:
    with projects(tmp_path) as begin:
        failure = replay(begin(), FOUND[name])
    if failure is not None:
        raise failure[1]
