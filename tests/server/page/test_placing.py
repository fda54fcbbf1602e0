"""Boxes, frames and the lines between them, for graphs at random."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.server.page.nesting import HEADING, PADDING, Nested, Rectangle, nested
from kilonova.server.page.placing import Edge, Placed, Size, placed

GAP = 60.0
NAMES = [f"n{number}" for number in range(14)]
SLACK = 1e-6

sizes = st.tuples(st.floats(1, 300), st.floats(1, 200))
boxes = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: sizes for name in names})
)


def edges_of(names: list[str], *, acyclic: bool) -> st.SearchStrategy[list[Edge]]:
    pairs = [
        (one, other)
        for at, one in enumerate(names)
        for to, other in enumerate(names)
        if (at < to if acyclic else at != to)
    ]
    return st.lists(st.sampled_from(pairs), max_size=30) if pairs else st.just([])


def graphs(*, acyclic: bool) -> st.SearchStrategy[tuple[dict[str, Size], list[Edge]]]:
    return boxes.flatmap(lambda found: st.tuples(st.just(found), edges_of(list(found), acyclic=acyclic)))


def overlap(one: Rectangle, other: Rectangle) -> bool:
    return (
        one.x < other.x + other.width - SLACK
        and other.x < one.x + one.width - SLACK
        and one.y < other.y + other.height - SLACK
        and other.y < one.y + one.height - SLACK
    )


def lies_within(one: Rectangle, other: Rectangle, margin: float = 0.0) -> bool:
    return (
        one.x >= other.x + margin - SLACK
        and one.y >= other.y + margin - SLACK
        and one.x + one.width <= other.x + other.width - margin + SLACK
        and one.y + one.height <= other.y + other.height - margin + SLACK
    )


def rectangles(found: Placed, given_sizes: Mapping[str, Size]) -> dict[str, Rectangle]:
    return {name: Rectangle(*corner, *given_sizes[name]) for name, corner in found.corners.items()}


@settings(max_examples=150, deadline=None)
@given(st.one_of(graphs(acyclic=True), graphs(acyclic=False)))
def test_every_box_has_a_place_of_its_own(graph: tuple[dict[str, Size], list[Edge]]) -> None:
    given_sizes, edges = graph
    found = placed(given_sizes, edges, GAP)
    places = rectangles(found, given_sizes)
    assert places.keys() == given_sizes.keys()
    whole = Rectangle(0, 0, found.width, found.height)
    assert all(lies_within(place, whole) for place in places.values())
    assert not any(overlap(one, other) for one, other in combinations(places.values(), 2))
    assert all(
        -SLACK <= x <= found.width + SLACK and -SLACK <= y <= found.height + SLACK
        for points in found.bends.values()
        for x, y in points
    )
    assert placed(given_sizes, edges, GAP) == found


@settings(max_examples=150, deadline=None)
@given(graphs(acyclic=True))
def test_edges_lead_to_the_right(graph: tuple[dict[str, Size], list[Edge]]) -> None:
    given_sizes, edges = graph
    found = placed(given_sizes, edges, GAP)
    places = rectangles(found, given_sizes)
    assert found.bends.keys() <= set(edges)
    for start, end in edges:
        right, left = places[start].x + places[start].width, places[end].x
        assert right + GAP <= left + SLACK, (start, end)
        along = [x for x, _ in found.bends.get((start, end), ())]
        assert along == sorted(along)
        assert all(right <= x + SLACK and x <= left + SLACK for x in along), (start, end)


@settings(max_examples=100, deadline=None)
@given(graphs(acyclic=True))
def test_lines_lead_past_boxes(graph: tuple[dict[str, Size], list[Edge]]) -> None:
    """Between the two bends in a layer a line is level, and no box of its part lies there."""
    given_sizes, edges = graph
    found = placed(given_sizes, edges, GAP)
    places = rectangles(found, given_sizes)
    for points in found.bends.values():
        assert len(points) % 2 == 0
        for (x, y), (to, level) in zip(points[::2], points[1::2], strict=True):
            assert y == level
            line = Rectangle(x, y - 1, to - x, 2)
            assert not any(overlap(line, place) for place in places.values())


def test_nothing_and_one_box_are_placed() -> None:
    assert placed({}, [], GAP) == Placed(0, 0, {})
    assert placed({"a": (7, 9)}, [], GAP) == Placed(7, 9, {"a": (0, 0)})


ACROSS = """
from kilonova.server.page.placing import placed
names = [f"n{number}" for number in range(40)]
edges = [(names[i], names[j]) for i in range(40) for j in range(i + 1, 40) if (i * 7 + j * 5) % 11 == 0]
print(placed({name: (10.0 + len(name), 10.0) for name in names}, edges, 20.0))
"""


def test_places_are_the_same_in_every_process() -> None:
    found = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        found.add(
            subprocess.run([sys.executable, "-c", ACROSS], env=environment, check=True, capture_output=True).stdout
        )
    assert len(found) == 1


frames = st.lists(st.sampled_from(("f", "g", "h")), max_size=2).map(tuple)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(graphs(acyclic=True), graphs(acyclic=False)).flatmap(
        lambda graph: st.tuples(st.just(graph), st.fixed_dictionaries({name: frames for name in graph[0]}))
    )
)
def test_frames_hold_what_is_theirs_and_nothing_else(
    given_graph: tuple[tuple[dict[str, Size], list[Edge]], dict[str, tuple[str, ...]]],
) -> None:
    (given_sizes, edges), around = given_graph
    every = [*edges, *((name, name) for name in list(given_sizes)[:1]), ("nowhere", next(iter(given_sizes)))]
    found: Nested = nested(given_sizes, around, every, GAP)
    assert found.boxes.keys() == given_sizes.keys()
    wanted = {inside[:depth] for inside in around.values() for depth in range(1, len(inside) + 1)}
    assert found.frames.keys() == wanted
    whole = Rectangle(0, 0, found.width, found.height)
    for name, box in found.boxes.items():
        assert (box.width, box.height) == given_sizes[name]
        assert lies_within(box, whole)
        for frame, place in found.frames.items():
            if around[name][: len(frame)] == frame:
                assert lies_within(box, place, PADDING)
                assert box.y >= place.y + PADDING + HEADING - SLACK
            else:
                assert not overlap(box, place)
    assert not any(overlap(one, other) for one, other in combinations(found.boxes.values(), 2))
    for (one, first), (other, second) in combinations(found.frames.items(), 2):
        if one == other[: len(one)]:
            assert lies_within(second, first, PADDING)
        elif other == one[: len(other)]:
            assert lies_within(first, second, PADDING)
        else:
            assert not overlap(first, second)
    outer_first = list(found.frames)
    assert all(outer_first.index(frame[:-1]) < outer_first.index(frame) for frame in outer_first if len(frame) > 1)
