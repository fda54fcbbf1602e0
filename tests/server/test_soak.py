"""A minute of servers that are killed, with a seed; `python -m tests.soak_servers` goes on for longer."""

from __future__ import annotations

import pytest

from tests.soak_servers import soak


@pytest.mark.slow
def test_nothing_is_lost_or_done_twice_when_servers_are_killed() -> None:
    tally = soak(seconds=45, seed=3, pause=2.0)
    assert not tally.problems
    assert tally.servers_killed + tally.workers_killed + tally.restarts > 5
    assert tally.runs > 10
