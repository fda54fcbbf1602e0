"""The picture of a workflow shows each channel and task once, and who reads what."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.catalog.read_models.overview import Overview
from kilonova.web.graph.drawing import Drawing, draw_graph
from kilonova.web.graph.geometry import Point, Rectangle
from kilonova.web.overview_cache import neighbourhood, select_part
from tests.web.graph.test_placement import overlap
from tests.web.overviews import an_overview, channel_glance, task_glance


@st.composite
def overviews(draw: st.DrawFn) -> Overview:
    """Workflows at random, whose tasks read channels that are there before them."""
    count = draw(st.integers(0, 4))
    channels = [channel_glance(f"s{n}", workflow=draw(st.sampled_from("vw"))) for n in range(count)]
    tasks = []
    for number in range(draw(st.integers(0, 6)) if channels else 0):
        reads = draw(st.lists(st.sampled_from([each.name for each in channels]), min_size=1, max_size=6, unique=True))
        workflow = draw(st.sampled_from("vw"))
        writes = (f"t{number}",) if draw(st.booleans()) else (f"t{number}_a", f"t{number}_b")
        own = writes[:1] if draw(st.booleans()) else ()
        among = draw(st.sampled_from([(), (), ("shared",), ("shared", *writes)])) if "shared" not in reads else ()
        writes, own = (among, ()) if among else (writes, own)
        tasks.append(
            task_glance(
                f"t{number}",
                reads=dict.fromkeys(reads, 0),
                writes=writes,
                own=own,
                workflow=workflow,
                binding=draw(st.sampled_from(["", f"{workflow}_f", f"{workflow}_g"])),
            )
        )
        known = [channel.name for channel in channels]
        channels += [channel_glance(name, workflow=workflow) for name in writes if name not in known]
    return an_overview(channels, tasks)


def along(path: str) -> list[Point]:
    """Points of a line as SVG has it."""
    found: list[Point] = []
    for kind, numbers in re.findall(r"([MLCQ])([-\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        points = [*found[-1:], *zip(values[::2], values[1::2], strict=True)]
        for step in range(13) if kind != "M" else ():
            level, share = points, step / 12
            while len(level) > 1:
                level = [(a + (c - a) * share, b + (d - b) * share) for (a, b), (c, d) in pairwise(level)]
            found += level
        found += points[-1:]
    return found


def check(overview: Overview) -> Drawing:
    found = draw_graph(overview)
    assert found.channels.keys() == overview.channels.keys()
    assert found.tasks.keys() == overview.tasks.keys()
    boxes = [*found.channels.values(), *found.tasks.values()]
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert all(box.x >= 0 and box.x + box.width <= found.width + 1e-6 for box in boxes)
    assert all(box.y >= 0 and box.y + box.height <= found.height + 1e-6 for box in boxes)
    links = [(link.task, link.following) for link in found.links]
    assert links == [
        (task.name, each)
        for task in overview.tasks.values()
        for each in task.reads
        if each.channel in overview.channels
    ]
    writings = [(each.task, each.channel, bool(each.back)) for each in found.writings]
    assert writings == [
        (task.name, channel, channel in task.own) for task in overview.tasks.values() for channel in task.writes
    ]
    assert all(each.path.startswith("M") and "nan" not in each.path for each in (*found.links, *found.writings))
    backs = [along(each.back) for each in found.writings if each.back]
    assert not [box for points in backs for box in boxes for x, y in points if within(x, y, box)]
    for link in found.links:
        points = along(link.path)
        hit = [box for box in boxes for x, y in points if within(x, y, box)]
        assert not hit, (link, hit)
        box = found.tasks[link.task]
        assert points[-1][0] == pytest.approx(box.x, abs=1)
        assert box.y < points[-1][1] < box.y + box.height
    for name in found.tasks:
        heights = sorted(link.label[1] for link in found.links if link.task == name)
        assert all(below - above >= 13 for above, below in pairwise(heights)), "what is written at lines overlaps"
    return found


def within(x: float, y: float, box: Rectangle, slack: float = 2) -> bool:
    """Whether a point lies in a box, by more than what comes of whole pixels."""
    return box.x + slack < x < box.x + box.width - slack and box.y + slack < y < box.y + box.height - slack


@settings(max_examples=100, deadline=None)
@given(overviews(), st.data())
def test_everything_is_drawn_once(overview: Overview, data: st.DataObject) -> None:
    check(overview)
    assert draw_graph(overview) == draw_graph(overview)
    names = sorted(overview.channels)
    if names:
        check(neighbourhood(overview, [data.draw(st.sampled_from(names))], data.draw(st.integers(1, 3))))
        check(select_part(overview, data.draw(st.sets(st.sampled_from(names)))))


@pytest.mark.parametrize("reads", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("workflow", ["w", "v"])
def test_lines_meet_a_task_in_the_order_in_which_they_come(reads: tuple[str, str], workflow: str) -> None:
    """Whether the task lies beside what it reads, or in a frame of its own."""
    channels = [channel_glance(name, workflow=workflow) for name in "ab"]
    task = task_glance("t", reads=dict.fromkeys(reads, 0), writes=("c",), workflow="w")
    found = check(an_overview([*channels, channel_glance("c", workflow="w")], [task]))
    one, other = (
        along(link.path) for link in sorted(found.links, key=lambda link: found.channels[link.following.channel].y)
    )
    heights = {x: y for x, y in one}
    assert all(heights[x] < y for x, y in other if x in heights)
    assert one[-1][1] < other[-1][1]


def test_a_line_back_leads_past_the_other_channels_of_its_task() -> None:
    channels = [channel_glance(name) for name in ("s", "a", "b", "c")]
    for own in "abc":
        task = task_glance("t", reads={"s": 0}, writes=("a", "b", "c"), own=(own,))
        backs = [each for each in check(an_overview(channels, [task])).writings if each.back]
        assert [each.channel for each in backs] == [own]


def test_nothing_is_drawn_of_nothing() -> None:
    found = draw_graph(an_overview([], []))
    assert (found.width, found.height, found.channels, found.tasks, found.frames) == (0, 0, {}, {}, ())


def test_tasks_may_be_named_as_channels_are() -> None:
    """A task `a` that writes `b`, a task `b` that writes `c`, and a source `a`."""
    overview = an_overview(
        [channel_glance(name) for name in "abc"],
        [task_glance("a", reads={"a": 0}, writes=("b",)), task_glance("b", reads={"b": 0}, writes=("c",))],
    )
    found = check(overview)
    assert found.channels["a"].x < found.tasks["a"].x < found.channels["b"].x < found.tasks["b"].x


def test_frames_are_those_of_workflowettes_and_of_several_workflows() -> None:
    channels = [channel_glance(name) for name in ("s", "t", "u")]
    tasks = [task_glance("t", reads={"s": 0}, binding="daily"), task_glance("u", reads={"s": 0})]
    [daily] = check(an_overview(channels, tasks)).frames
    assert (daily.name, daily.binding) == ("daily", True)
    elsewhere = [replace(channels[0], workflow="v"), *channels[1:]]
    found = {each.name: each.binding for each in check(an_overview(elsewhere, tasks)).frames}
    assert found == {"v": False, "w": False, "daily": True}


def test_a_workflow_may_be_named_as_a_binding_is() -> None:
    """Its tasks are of one workflow, and a channel is of another."""
    channels = [channel_glance("s", workflow="v"), channel_glance("t"), channel_glance("u")]
    tasks = [task_glance("t", reads={"s": 0}, binding="w"), task_glance("u", reads={"s": 0})]
    found = check(an_overview(channels, tasks)).frames
    assert [(each.name, each.binding) for each in found] == [("v", False), ("w", False), ("w", True)]


def test_workflowettes_that_read_each_other_are_drawn() -> None:
    tasks = [
        task_glance("a", reads={"s": 0}, binding="f"),
        task_glance("b", reads={"a": 0}, binding="g"),
        task_glance("c", reads={"b": 0}, binding="f"),
    ]
    check(an_overview([channel_glance(name) for name in "sabc"], tasks))
