"""Histories that once went wrong, as the generator shrunk them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kilonova.declare.ddl import parse_schema
from kilonova.model.encoding import DELETED, SET, WEIGHT
from tests.generator.declared import Spec, TaskSpec, standard
from tests.generator.history import projects, replay
from tests.generator.steps import Apply, Collect, Compact, Drop, During, Ending, Ingest, Run, Step, Turn
from tests.seeds import SEED

ROWS = parse_schema("k bigint, v bigint, w string")

COPIED = Spec((standard("c1", "upsert"), standard("t2_0", "upsert")), (TaskSpec("t2", "copy", ("c1",), ("t2_0",), 0),))
OTHERWISE = Spec(
    (standard("c1", "changes"), standard("t2_0", "changes")), (TaskSpec("t2", "copy", ("c1",), ("t2_0",), 0),)
)
TWICE = [Ingest("c1", ROWS, ((number, 1, "a"),)) for number in range(3)]

AMOUNTS = parse_schema("k bigint, v bigint, n bigint")


def declared(*kinds: str) -> Step:
    """Source channels `c1`, `c2`, and so on."""
    return Apply(Spec(tuple(standard(f"c{number}", kind) for number, kind in enumerate(kinds, 1)), ()))


CHANGED = replace(COPIED, tasks=(TaskSpec("t2", "copy", ("c1",), ("t2_0",), 1),))
NARROWED = replace(
    COPIED, channels=(COPIED.channels[0], replace(COPIED.channels[1], columns=COPIED.channels[1].columns[:2]))
)

FOLLOWED = Spec(
    (standard("c1", "columns"), standard("c2", "increment"), standard("t3_0", "columns")),
    (TaskSpec("t3", "copy", ("c1",), ("t3_0",), 2), TaskSpec("t4", "sums", ("c1",), ("c2",), 1)),
)
FOLLOWED_LESS = replace(
    FOLLOWED, channels=(replace(FOLLOWED.channels[0], columns=FOLLOWED.channels[0].columns[:2]), *FOLLOWED.channels[1:])
)

WEIGHTED = ROWS.plus(WEIGHT)
FORKED = Spec(
    (standard("c1", "keyed"), standard("t3_0", "append"), standard("t3_1", "changes")),
    (TaskSpec("t3", "forked", ("c1",), ("t3_0", "t3_1"), 0),),
)
FED_LESS = replace(
    FORKED, channels=(replace(FORKED.channels[0], columns=FORKED.channels[0].columns[:2]), *FORKED.channels[1:])
)

HEARD = Spec(
    (
        replace(standard("c1", "upsert"), sequence=True),
        *(standard(name, "append") for name in ("t3_0", "t3_1")),
        standard("t4_0", "changes"),
    ),
    (TaskSpec("t3", "forked", ("c1",), ("t3_0", "t3_1"), 0), TaskSpec("t4", "heard", ("t3_0",), ("t4_0",), 2)),
)

SHARED = Spec(
    (
        standard("c1", "changes"),
        standard("t2_0", "changes"),
        standard("t2_1", "append"),
        replace(standard("t3_0", "append"), several=True),
    ),
    (TaskSpec("t2", "noted", ("c1",), ("t2_0", "t2_1"), 1), TaskSpec("t3", "above", ("t2_1",), ("t3_0",), 3)),
)

SET_ROWS = ROWS.plus(SET)
SOURCES = Spec(tuple(standard(name, "columns") for name in ("c1", "t3_0", "t7_0")), ())
DERIVED = replace(
    SOURCES,
    tasks=(TaskSpec("t3", "copy", ("c1",), ("t3_0",), 1), TaskSpec("t7", "patched", ("t3_0",), ("t7_0",), 2)),
)


def overtaken(ending: Ending) -> list[Step]:
    """An ingest beside which a task begins to write its channel."""
    beside = (Apply(DERIVED), Run())
    return [
        Apply(SOURCES),
        Ingest("c1", SET_ROWS, ((0, 1, "a", ("v", "w")),)),
        During(Ingest("t3_0", SET_ROWS, ((3, 1, None, None),)), beside, ending),
        Run(),
        Ingest("c1", SET_ROWS, ((2, 1, "b", None),)),
        Run(each=True),
    ]


FOUND: dict[str, list[Step]] = {
    "an ingest is refused if a task has begun to write its channel, and its reader has passed the point": overtaken(
        Ending.COMMITS
    ),
    "points of an ingest that fails do not hold back those of a task that has begun to write": overtaken(Ending.FAILS),
    "a task that has found nothing to write contributes to what another writer has filled meanwhile": [
        Apply(SHARED),
        Ingest("c1", ROWS, ((1, 2, "a"),)),
        During(Run(("t2", "t3")), (Ingest("t3_0", ROWS, ((3, 1, "a"),)),), Ending.COMMITS),
        Run(("t2", "t3")),
    ],
    "deltas of columns are new rows to one reader although another one reads the rows that they replace": [
        Apply(FOLLOWED),
        Ingest("c1", ROWS, ((3, 1, "b"),)),
        Ingest("c1", ROWS, ((2, 1, "a"),)),
        Run(),
        Ingest("c1", ROWS, ((0, 1, "c"),)),
        Apply(FOLLOWED_LESS),
        Run(("t3",)),
    ],
    "rows without a key may cancel each other": [
        declared("keyed"),
        Ingest("c1", WEIGHTED, ((None, 1, "a", 1), (None, 1, "a", -1))),
    ],
    "a row that was added is replaced before it is read, so that its reader replaces what it has inserted": [
        Apply(HEARD),
        Ingest("c1", ROWS, ((1, 1, "a"),)),
        Run(),
        Ingest("c1", ROWS, ((0, 1, "a"),)),
        Run(),
        Ingest("c1", ROWS, ((2, 1, "b"),)),
        Ingest("c1", ROWS, ((2, 2, "a"),)),
        Turn(10),
    ],
    "rows that were removed are the same as others without a column that was dropped": [
        Apply(FORKED),
        Ingest("c1", WEIGHTED, ((1, 1, "a", 1),)),
        Run(),
        Ingest("c1", WEIGHTED, ((1, 1, "b", 1), (1, 1, "a", -1))),
        Apply(FED_LESS),
        Run(),
    ],
    "a task that was dropped is started by servers once it is declared again": [
        Apply(COPIED),
        Drop("t2_0"),
        TWICE[0],
        Turn(1),
        Apply(COPIED),
        Turn(1),
    ],
    "a task whose logic changes is started by servers though no data come": [
        Apply(COPIED),
        TWICE[0],
        Turn(1),
        Apply(CHANGED),
        Turn(1),
        Apply(NARROWED),
        Turn(1),
    ],
    "a base above a reserved point does not uncover it": [
        declared("append"),
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
    "a source is written as a whole when what a reader has read was collected": [
        Apply(COPIED),
        TWICE[0],
        Run(),
        TWICE[1],
        Run(),
        TWICE[2],
        Compact("t2_0"),
        Compact("c1"),
        Collect(),
        Ingest("c1", ROWS, ((5, 1, "b"),), whole=True),
        Run(),
    ],
    "a relation of amounts has each key once": [
        declared("increment"),
        Ingest("c1", AMOUNTS, ((1, 1, 1), (1, 2, 2)), whole=True),
    ],
    "a relation of amounts has no null and no key without any": [
        declared("increment"),
        Ingest("c1", AMOUNTS, ((1, 0, None), (2, None, 2)), whole=True),
        Ingest("c1", AMOUNTS, ((1, 1, 1), (2, 0, 1))),
    ],
    "a first delta has each key once, tombstones included": [
        declared("upsert"),
        Ingest("c1", ROWS.plus(DELETED), ((1, 1, "a", True), (1, 2, "b", False))),
        Ingest("c1", ROWS.plus(DELETED), ((None, 1, "a", True),)),
        Ingest("c1", ROWS.plus(DELETED), ((1, 1, "a", False), (2, 1, "a", True))),
    ],
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, tmp_path: Path) -> None:
    with projects(tmp_path) as begin:
        failure = replay(begin(), FOUND[name])
    if failure is not None:
        raise failure[1]


def test_found_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    with projects(tmp_path, spark) as begin:
        for name in random.Random(SEED).sample(list(FOUND), len(FOUND) // 3):
            failure = replay(begin(), FOUND[name])
            assert failure is None, (name, failure)
