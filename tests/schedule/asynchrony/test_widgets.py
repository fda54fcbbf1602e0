"""Widgets have the variants of the paper's figures, and conversions those of Figure 2."""

from __future__ import annotations

import pytest

from kilonova.errors import DeclarationError
from kilonova.schedule.asynchrony.conversions import built_in_conversions, weak_conversions
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, weak
from kilonova.schedule.asynchrony.linear_model import LinearModel
from kilonova.schedule.asynchrony.widgets import (
    INCREMENTS,
    UnitCosts,
    Widget,
    algebraic_aggregation,
    bag_union,
    channel_model,
    distinct,
    distributive_aggregation,
    join,
    stateless,
    workflow_of,
)
from kilonova.schedule.asynchrony.workflow_model import (
    ChannelModel,
    PortForm,
    PortSignature,
    TaskModel,
    VariantModel,
    WorkflowModel,
)

COSTS = UnitCosts(fixed=1.0, read=2.0, probe=0.1, write=3.0)
DELTAS = {BASE: "B", STRONG: "Δ", MONOTONE: "Δ⁺", weak(INCREMENTS): "δ"}


def signature(variant: VariantModel) -> str:
    """Return a signature as in the paper, without provenance; ! for consistency constraints."""
    texts = {
        PortForm.NOTHING: lambda port: "–",
        PortForm.BASE: lambda port: "B",
        PortForm.DELTA: lambda port: DELTAS[port.delta],
        PortForm.BASE_AND_DELTA: lambda port: f"B,{DELTAS[port.delta]}",
    }
    ports = ";".join(texts[port.form](port) for port in variant.ports)
    return f"{ports} → {DELTAS[variant.produces]}{'!' if variant.synchronous else ''}"


def signatures(widget: Widget) -> dict[str, list[str]]:
    return {task.name: [signature(variant) for variant in task.variants] for task in widget.tasks}


def channel(name: str) -> ChannelModel:
    return channel_model(name, COSTS)


@pytest.mark.parametrize(
    ("widget", "expected"),
    [
        (
            distributive_aggregation("count", "in", "out", COSTS, groups=0.1, touched=0.2),
            {"count": ["B → B", "Δ → δ"]},
        ),
        (
            algebraic_aggregation("average", "in", "out", COSTS, groups=0.1, touched=0.2),
            {"average_parts": ["B → B", "Δ → δ"], "average": ["B → B", "Δ → Δ"]},
        ),
        (
            distinct("unique", "in", "out", COSTS, kept=0.5),
            {"unique_counts": ["B → B", "Δ → δ"], "unique": ["B → B", "Δ → Δ"]},
        ),
        (
            join("meet", "in", "other", channel("out"), COSTS, per_left=1.0, per_right=2.0),
            {"meet": ["B;B → B!", "B,Δ;B,Δ → Δ!", "Δ;B → Δ", "B;Δ → Δ"]},
        ),
        (
            bag_union("merge", "in", "other", channel("out"), COSTS),
            {"merge": ["B;B → B!", "Δ;Δ → Δ!", "Δ;– → Δ", "–;Δ → Δ"]},
        ),
    ],
    ids=["aggregation", "algebraic", "distinct", "join", "union"],
)
def test_widgets_have_the_signatures_of_the_paper(widget: Widget, expected: dict[str, list[str]]) -> None:
    assert signatures(widget) == expected
    workflow_of([channel("in"), channel("other")], [widget])


def test_internal_channels_are_part_of_paths() -> None:
    workflow = workflow_of([channel("in")], [distinct("unique", "in", "out", COSTS, kept=0.5)])
    assert workflow.paths["out"] == (("in", "unique_counts", "unique"),)


def test_paths_that_join_again_are_told_apart_by_their_tasks() -> None:
    workflow = workflow_of(
        [channel("log")],
        [
            stateless("news", "log", channel("n"), COSTS),
            stateless("other", "log", channel("o"), COSTS),
            bag_union("merge", "n", "o", channel("out"), COSTS),
        ],
    )
    assert workflow.paths["out"] == (("log", "news", "merge"), ("log", "other", "merge"))


def test_there_are_six_conversions() -> None:
    model, kind = LinearModel(1.0, (1.0, 1.0)), weak("upserts")
    built_in = built_in_conversions(merge=model, diff=model)
    weaker = weak_conversions("upserts", from_base=model, from_strong=model, to_base=model, to_strong=model)
    found = {(each.source, each.target): each.reads_base for each in (*built_in, *weaker) if each.source != MONOTONE}
    assert found == {
        (BASE, STRONG): True,
        (STRONG, BASE): True,
        (BASE, kind): True,
        (kind, BASE): True,
        (kind, STRONG): True,
        (STRONG, kind): False,
    }


@pytest.mark.parametrize("given", [{"from_base": 1}, {"to_strong": 1}, {}])
def test_a_weak_representation_needs_a_way_in_and_out(given: dict[str, int]) -> None:
    model = LinearModel(1.0, (1.0, 1.0))
    with pytest.raises(DeclarationError, match="the weak representation upserts lacks a conversion"):
        weak_conversions("upserts", **dict.fromkeys(given, model))


def test_sizes_agree_whether_groups_are_counted_at_once_or_added_up() -> None:
    widget = distributive_aggregation("count", "in", "out", COSTS, groups=0.1, touched=0.5)
    batch, incremental = widget.tasks[0].variants
    merge = {(each.source, each.target): each for each in widget.channels[0].conversions}
    to_strong, strong_to_base = merge[weak(INCREMENTS), STRONG], merge[STRONG, BASE]
    added = merge[weak(INCREMENTS), BASE].rows((batch.rows((1000,)), incremental.rows((500,))))
    assert added == pytest.approx(batch.rows((1500,)))
    base = batch.rows((1000,))
    assert strong_to_base.rows((base, to_strong.rows((base, incremental.rows((500,)))))) == pytest.approx(added)


def variant(*ports: PortSignature, produces: BlockType = BASE) -> VariantModel:
    model = LinearModel(0.0, (0.0,) * sum(port.block_count for port in ports))
    return VariantModel(name="v", ports=ports, produces=produces, cost=model, rows=model)


ONE = PortSignature(PortForm.BASE)
NONE = PortSignature(PortForm.NOTHING)
IN, OUT = ChannelModel("in"), ChannelModel("out")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: WorkflowModel((IN, IN), ()), r"declared twice.*\[channel in\]"),
        (lambda: WorkflowModel((IN, OUT), (task("t"), task("t"))), r"declared twice.*\[task t\]"),
        (lambda: WorkflowModel((IN, OUT), (task("t"), task("u"))), r"two tasks write.*\[channel out\]"),
        (lambda: WorkflowModel((IN,), (task("t"),)), r"no such channel.*\[.*channel out"),
        (lambda: WorkflowModel((IN,), (TaskModel("t", ("in",), "in", ()),)), r"reads what it writes.*\[task t\]"),
        (lambda: TaskModel("t", ("in", "in"), "out", (variant(ONE),)), r"has 1 ports.*\[task t\]"),
        (lambda: variant(NONE), "reads nothing"),
        (lambda: variant(ONE, produces=STRONG), "writes a delta, and reads none"),
        (
            lambda: VariantModel(
                name="v", ports=(ONE,), produces=BASE, cost=LinearModel(0, ()), rows=LinearModel(0, (1,))
            ),
            "reads 1 blocks",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: type[WorkflowModel], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        make()


def task(name: str) -> TaskModel:
    return TaskModel(name, ("in",), "out", (variant(ONE),))
