"""What a run takes besides data grows with everything that its SQL consists of, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kilonova as kn
from kilonova.model.run import RefreshMethod
from kilonova.model.task import Task
from kilonova.schedule.query_shape import PLAIN, QueryShape, overhead, shape_of

WAYS = (RefreshMethod.INCREMENTAL, RefreshMethod.AFFECTED_GROUPS, RefreshMethod.FULL)
COUNTS = st.integers(0, 60)
SHAPES = st.builds(
    lambda relations, again, joins, stages: QueryShape(
        relations=relations, scans=relations + again, joins=joins, stages=stages
    ),
    st.integers(1, 60),
    COUNTS,
    COUNTS,
    COUNTS,
)


def view(query: str, relations: int = 4) -> Task:
    workflow = kn.Workflow("w")
    for number in range(relations):
        workflow.channel(f"t{number}", "id bigint, g int, x bigint", key="id")
    workflow.view("v", query)
    return workflow.declared().workflow.tasks[-1]


@given(SHAPES, st.integers(0, 60), st.sampled_from(WAYS), st.sampled_from(("scans", "joins", "stages")))
def test_more_of_anything_never_takes_less(shape: QueryShape, moved: int, method: RefreshMethod, what: str) -> None:
    more = replace(shape, **{what: getattr(shape, what) + 1})
    assert overhead(method, more, moved) >= overhead(method, shape, moved)


@given(SHAPES, st.integers(0, 60), st.sampled_from(WAYS))
def test_more_changed_relations_never_take_less(shape: QueryShape, moved: int, method: RefreshMethod) -> None:
    assert overhead(method, shape, moved + 1) >= overhead(method, shape, moved)


@settings(deadline=None)
@given(st.permutations(range(4)))
def test_the_order_in_which_relations_are_joined_does_not_count(order: list[int]) -> None:
    first, *others = (f"t{number}" for number in order)
    joined = " ".join(f"JOIN {other} ON {first}.id = {other}.id" for other in others)
    shape = shape_of(view(f"SELECT {first}.id, {', '.join(f'{o}.x AS {o}' for o in others)} FROM {first} {joined}"))
    assert shape == QueryShape(relations=4, scans=4, joins=3)


@pytest.mark.parametrize(
    ("query", "shape"),
    [
        ("SELECT id, x FROM t0 WHERE x > 3", PLAIN),
        ("SELECT g, MAX(x) AS m FROM t0 GROUP BY g", replace(PLAIN, stages=1)),
        ("SELECT id, x FROM t0 UNION ALL SELECT id, x FROM t1", QueryShape(relations=2, scans=2)),
        ("SELECT a.id, b.x FROM t0 a JOIN t0 b ON a.x = b.id", QueryShape(scans=2, joins=1)),
        (
            "SELECT t0.id, ROW_NUMBER() OVER (PARTITION BY t0.g ORDER BY t0.id) AS n FROM t0",
            replace(PLAIN, stages=2),
        ),
    ],
)
def test_counts_of_a_view(query: str, shape: QueryShape) -> None:
    assert shape_of(view(query)) == shape


def test_a_view_that_materializes_relations_has_the_shape_of_its_query_as_well() -> None:
    shape = shape_of(view("SELECT n, COUNT(*) AS m FROM (SELECT g, COUNT(*) AS n FROM t0 GROUP BY g) GROUP BY n"))
    assert shape == replace(PLAIN, stages=1, sources=replace(PLAIN, stages=2))
    plain = overhead(RefreshMethod.FROM_SOURCES, shape, 1)
    assert plain > overhead(RefreshMethod.FULL, shape, 1)


def test_over_many_small_relations_a_change_of_all_costs_more_than_a_full_refresh() -> None:
    """Measured on two cores: a chain of 16, of which 1 or all have changed, and a single relation."""
    chain = QueryShape(relations=16, scans=16, joins=15)
    assert overhead(RefreshMethod.FULL, chain, 16) == pytest.approx(3.3, rel=0.5)
    assert overhead(RefreshMethod.INCREMENTAL, chain, 1) == pytest.approx(2.7, rel=0.5)
    assert overhead(RefreshMethod.INCREMENTAL, chain, 16) > 5 * overhead(RefreshMethod.FULL, chain, 16)
    assert overhead(RefreshMethod.INCREMENTAL, PLAIN, 1) == pytest.approx(0.3, rel=0.5)
