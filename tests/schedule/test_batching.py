from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kilonova.schedule.queueing import ObservedBinding, batch_bindings
from tests.schedule.queues import queued

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)

readings = st.frozensets(st.tuples(st.sampled_from("pqrs"), st.integers(0, 2)), max_size=3)
items = st.lists(st.tuples(st.integers(-5, 60), st.none() | st.integers(0, 60), readings), max_size=8)


@given(items)
def test_what_shares_readings_is_one_batch_that_waits_as_long_as_the_least_patient(
    some: list[tuple[int, int | None, frozenset[tuple[str, int]]]],
) -> None:
    waiting = [
        queued(
            ObservedBinding(name=f"b{number}", workflow="w", merge_window=window, reads=reads),
            NOW - timedelta(seconds=age),
        )
        for number, (age, window, reads) in enumerate(some)
    ]
    ready, next_check = batch_bindings(waiting, NOW)
    merged = {one.binding.name: one for one in waiting if one.merge_window is not None}
    group = {name: {name} for name in merged}  # by definition: what can be reached over shared readings
    for _ in waiting:
        for name, one in merged.items():
            for other, two in merged.items():
                if one.binding.reads & two.binding.reads:
                    group[name] = group[other] = group[name] | group[other]
    wanted = {frozenset({one.binding.name}) for one in waiting if one.merge_window is None}
    times = []
    for names in {frozenset(names) for names in group.values()}:
        up = min(merged[name].since + timedelta(seconds=merged[name].merge_window or 0) for name in names)
        if up <= NOW or any(merged[name].since > NOW for name in names):  # the clock was set back
            wanted.add(names)
        else:
            times.append(up)
    assert {frozenset(one.binding.name for one in batch) for batch in ready} == wanted
    assert next_check == min(times, default=None)
