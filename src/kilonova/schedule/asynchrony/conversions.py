"""The six conversions between the block types of a channel (asynchronous scheduling, 2.4, Figure 2).

Conversions between bases and strong deltas are built in. A weak representation brings its own: one into it, from a
base or from a strong delta, and one out of it, to either; the planner composes the others from these.
"""

from __future__ import annotations

from kilonova.errors import DeclarationError
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, weak
from kilonova.schedule.asynchrony.linear_model import LinearModel
from kilonova.schedule.asynchrony.workflow_model import Conversion


def built_in_conversions(
    *, merge: LinearModel, diff: LinearModel, growth: float = 1.0, difference: float = 0.01
) -> tuple[Conversion, ...]:
    """Return c^ΔB, for strong and for monotone deltas, and c^BΔ.

    Args:
        merge: the cost of applying a delta to a base.
        diff: the cost of comparing a new base with an old one.
        growth: by how many rows the base grows per row of a delta, between −1 and 1.
        difference: the share of the new base that a delta between two bases of one size has, in rows.
    """
    size, added = LinearModel(0.0, (1.0, growth)), LinearModel(0.0, (1.0, 1.0))
    changed = LinearModel(0.0, (-1.0, 1.0 + difference))
    return (
        Conversion(STRONG, BASE, merge, size),
        Conversion(MONOTONE, BASE, merge, added),
        Conversion(BASE, STRONG, diff, changed),
    )


def weak_conversions(
    representation: str,
    *,
    from_base: LinearModel | None = None,
    from_strong: LinearModel | None = None,
    to_base: LinearModel | None = None,
    to_strong: LinearModel | None = None,
    growth: float = 0.0,
    expansion: float = 2.0,
) -> tuple[Conversion, ...]:
    """Return the conversions of a weak representation: c^Bδ, c^Δδ, c^δB and c^δΔ, as far as they are given.

    Args:
        representation: its name.
        from_base: the cost of comparing a new base with an old one.
        from_strong: the cost of encoding a strong delta.
        to_base: the cost of applying a weak delta to a base.
        to_strong: the cost of decoding a weak delta with the help of the base.
        growth: by how many rows the base grows per row of a weak delta.
        expansion: rows of a strong delta per row of a weak one: 2 if most replace a row.

    Raises:
        DeclarationError: no conversion leads into the representation, or none out of it.
    """
    if (from_base is None and from_strong is None) or (to_base is None and to_strong is None):
        raise DeclarationError(
            f"the weak representation {representation} lacks a conversion",
            hint="Give one from a base or strong delta, and one to a base or strong delta",
        )
    kind: BlockType = weak(representation)
    given = (
        (BASE, kind, from_base, LinearModel(0.0, (-1.0, 1.01))),
        (STRONG, kind, from_strong, LinearModel(0.0, (1.0 / expansion,))),
        (kind, BASE, to_base, LinearModel(0.0, (1.0, growth))),
        (kind, STRONG, to_strong, LinearModel(0.0, (0.0, expansion))),
    )
    return tuple(Conversion(source, target, cost, rows) for source, target, cost, rows in given if cost is not None)
