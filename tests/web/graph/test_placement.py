"""Boxes, frames and the lines between them, for graphs at random."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.web.graph.geometry import Line, Path, PortPosition, Rectangle, Size
from kilonova.web.graph.layers import LayerItem
from kilonova.web.graph.nesting import HEADING, PADDING, NestedUnits, nest_workflowettes
from kilonova.web.graph.placement import place_units

GAP = 60.0
NAMES = [f"n{number}" for number in range(14)]
SLACK = 1e-6

sizes = st.tuples(st.floats(1, 300), st.floats(1, 200))
boxes = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: sizes for name in names})
)


def lines_of(found: dict[str, Size], *, acyclic: bool) -> st.SearchStrategy[list[Line]]:
    """Lines between boxes, each leaving and reaching its boxes somewhere at their sides."""
    names = list(found)
    pairs = [
        (one, other)
        for at, one in enumerate(names)
        for to, other in enumerate(names)
        if (at < to if acyclic else at != to)
    ]
    heights = st.sampled_from((0.25, 0.5, 0.75))
    ends = st.tuples(st.sampled_from(pairs), heights, heights) if pairs else st.nothing()
    return st.lists(
        ends.map(
            lambda at: Line(
                *(PortPosition(box, found[box][1] * share) for box, share in zip(*at[:1], at[1:], strict=True))
            )
        ),
        max_size=30 if pairs else 0,
    )


def graphs(*, acyclic: bool) -> st.SearchStrategy[tuple[dict[str, Size], list[Line]]]:
    return boxes.flatmap(lambda found: st.tuples(st.just(found), lines_of(found, acyclic=acyclic)))


def leads_past(path: Path, places: Iterable[Rectangle]) -> bool:
    """Whether no box lies between two points of a path, in whatever curve it leads from one to the other."""
    for (x, y), (a, b) in pairwise(path):
        span = Rectangle(min(x, a), min(y, b), abs(a - x), abs(b - y))
        if x != a and y != b and a < x:
            return False
        if any(overlap(span, place) for place in places):
            return False
    return True


def leads(line: Line, path: Path, places: Mapping[str, Rectangle]) -> bool:
    """Whether a path begins and ends where the line does."""
    start, end = line
    assert start is not None
    assert end is not None
    one, other = places[start.box], places[end.box]
    return path[0] == pytest.approx((one.x + one.width, one.y + start.down)) and path[-1] == pytest.approx(
        (other.x, other.y + end.down)
    )


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


def rectangles(found: LayerItem, given_sizes: Mapping[str, Size]) -> dict[str, Rectangle]:
    return {name: Rectangle(*corner, *given_sizes[name]) for name, corner in found.corners.items()}


@settings(max_examples=200, deadline=None)
@given(st.one_of(graphs(acyclic=True), graphs(acyclic=False)), st.booleans())
def test_every_box_has_a_place_of_its_own_and_lines_lead_past_all(
    graph: tuple[dict[str, Size], list[Line]], apart: bool
) -> None:
    given_sizes, lines = graph
    found = place_units(given_sizes, lines, GAP, apart=apart)
    places = rectangles(found, given_sizes)
    assert places.keys() == given_sizes.keys()
    whole = Rectangle(0, 0, found.width, found.height)
    assert all(lies_within(place, whole) for place in places.values())
    assert not any(overlap(one, other) for one, other in combinations(places.values(), 2))
    assert found.paths.keys() == set(lines)
    for line, path in found.paths.items():
        assert leads(line, path, places)
        assert leads_past(path, places.values()), (line, path)
        assert all(-SLACK <= x <= found.width + SLACK and -SLACK <= y <= found.height + SLACK for x, y in path)
    assert place_units(given_sizes, lines, GAP, apart=apart) == found


@settings(max_examples=100, deadline=None)
@given(graphs(acyclic=True), st.data())
def test_lines_from_and_to_outside_lead_past_all_boxes(
    graph: tuple[dict[str, Size], list[Line]], data: st.DataObject
) -> None:
    given_sizes, lines = graph
    ports = st.sampled_from(list(given_sizes)).map(lambda name: PortPosition(name, given_sizes[name][1] / 2))
    halves = data.draw(st.lists(st.one_of(ports.map(lambda p: Line(p, None)), ports.map(lambda p: Line(None, p)))))
    found = place_units(given_sizes, [*lines, *halves], GAP)
    places = rectangles(found, given_sizes)
    assert not any(overlap(one, other) for one, other in combinations(places.values(), 2))
    for line in halves:
        path = found.paths[line]
        assert leads_past(path, places.values()), (line, path)
        if line.start is None:
            assert path[0][0] == pytest.approx(0)
            assert path[-1][0] == pytest.approx(places[line.end.box].x)
        else:
            assert path[0][0] == pytest.approx(places[line.start.box].x + places[line.start.box].width)
            assert path[-1][0] == pytest.approx(found.width)


@settings(max_examples=150, deadline=None)
@given(graphs(acyclic=True))
def test_lines_lead_to_the_right(graph: tuple[dict[str, Size], list[Line]]) -> None:
    given_sizes, lines = graph
    found = place_units(given_sizes, lines, GAP)
    places = rectangles(found, given_sizes)
    for line in lines:
        assert line.start is not None
        assert line.end is not None
        one, other = places[line.start.box], places[line.end.box]
        assert one.x + one.width + GAP <= other.x + SLACK, line
        along = [x for x, _ in found.paths[line]]
        assert along == sorted(along)


def test_nothing_and_one_box_are_placed() -> None:
    assert place_units({}, [], GAP) == LayerItem(0, 0, {}, {})
    assert place_units({"a": (7, 9)}, [], GAP) == LayerItem(7, 9, {"a": (0, 0)}, {})


def test_lines_do_not_cross_where_they_need_not() -> None:
    pairs = ("ab", "bc", "dc", "ef", "fg", "fh", "dh", "id", "dj", "dk")
    lines = [Line(PortPosition(one, 5), PortPosition(other, 5)) for one, other in pairs]
    found = place_units({name: (10.0, 10.0) for name in "abcdefghijk"}, lines, GAP)
    segments = [(path[at], path[at + 1]) for path in found.paths.values() for at in range(len(path) - 1)]
    crossed = [
        (one, other)
        for one, other in combinations(segments, 2)
        if one[0][0] == other[0][0] and (one[0][1] - other[0][1]) * (one[1][1] - other[1][1]) < 0
    ]
    assert not crossed


ACROSS = """
from kilonova.web.graph.geometry import Line, PortPosition
from kilonova.web.graph.placement import place_units
names = [f"n{number}" for number in range(40)]
ports = [PortPosition(name, 5.0) for name in names]
lines = [Line(ports[i], ports[j]) for i in range(40) for j in range(i + 1, 40) if (i * 7 + j * 5) % 11 == 0]
print(place_units({name: (10.0 + len(name), 10.0) for name in names}, lines, 20.0))
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
    given_graph: tuple[tuple[dict[str, Size], list[Line]], dict[str, tuple[str, ...]]],
) -> None:
    (given_sizes, lines), around = given_graph
    found: NestedUnits = nest_workflowettes(given_sizes, around, lines, GAP)
    assert found.paths.keys() == set(lines)
    for line, path in found.paths.items():
        assert leads(line, path, found.boxes)
        assert leads_past(path, found.boxes.values()), (line, path)
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
