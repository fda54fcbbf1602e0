"""`python -m tests.generator --seed 7 --steps 5000`: follow random histories, without Spark."""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.generator.history import Mismatch, generate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.generator", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--length", type=int, default=40, help="steps of one history")
    parser.add_argument("--shrink", type=float, default=60, help="seconds to look for a shorter script")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    began = time.monotonic()
    try:
        happened = generate(given.seed, given.steps, given.length, given.shrink)
    except Mismatch as error:
        print(error)
        return 1
    for (kind, accepted), times in sorted(happened.items()):
        print(f"{times:6} {kind} {'accepted' if accepted else 'refused'}")
    print(f"{happened.total()} steps in {time.monotonic() - began:.0f} s")
    return 0


sys.exit(main())
