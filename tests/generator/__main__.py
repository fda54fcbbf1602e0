"""`python -m tests.generator --seed 7 --steps 5000`: follow random histories, without Spark."""

from __future__ import annotations

import argparse
import random
import sys
import time

from pyspark.sql import SparkSession

from kilonova.warehouse.session import SparkSettings, open_session
from tests.generator.history import Mismatch, generate
from tests.generator.proposing import NOT_ON_SPARK


def _session() -> SparkSession:
    conf = (("spark.sql.shuffle.partitions", "3"), ("spark.ui.enabled", "false"))
    session, _ = open_session(SparkSettings(master="local[2]", conf=conf))
    session.sparkContext.setLogLevel("OFF")
    return session


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.generator", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--length", type=int, default=40, help="steps of one history")
    parser.add_argument("--shrink", type=float, default=60, help="seconds to look for a shorter script")
    parser.add_argument("--spark", action="store_true", help="on Spark, far more slowly")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    began = time.monotonic()
    try:
        happened = generate(
            given.seed,
            given.steps,
            length=given.length,
            seconds=given.shrink,
            session=_session() if given.spark else None,
            left_out=NOT_ON_SPARK if given.spark else (),
        )
    except Mismatch as error:
        print(error)
        return 1
    for (kind, accepted), times in sorted(happened.items()):
        print(f"{times:6} {kind} {'accepted' if accepted else 'refused'}")
    print(f"{happened.total()} steps in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
