"""The state after some blocks have been written: which blocks there are, and what consumers have been given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import DataBlock, applied, key_of
from kilonova.schedule.asynchrony.provenance import Provenance, newest, precedes
from kilonova.schedule.asynchrony.scheduling_state import SchedulingState


def continuation(head: Provenance, start: Provenance | None, target: Provenance) -> Provenance | None:
    """Return the provenance of an output after a block; None if the block does not continue it monotonically."""
    result = applied(head, start, target)
    return result if result is not None and precedes(newest(head), newest(result)) else None


def with_blocks(state: SchedulingState, written: Iterable[DataBlock], declared: LimitCheck) -> SchedulingState:
    """Return a state with more blocks; those that continue an output within its limits are given to its consumers.

    Args:
        state: the state.
        written: the blocks, in the order in which they are written.
        declared: the check of the declared limits.
    """
    blocks = dict(state.blocks)
    outputs = {output.channel: output for output in state.outputs}
    for block in written:
        known = blocks.get(block.channel, ())
        key = key_of(block)
        if all(key_of(each) != key for each in known):
            blocks[block.channel] = (*known, block)
        output = outputs.get(block.channel)
        if output is not None and block.kind in output.accepts:
            result = continuation(output.head, block.start, block.target)
            if result is not None and declared.breach(block.channel, result, output.head) is None:
                outputs[block.channel] = replace(output, head=result)
    return replace(state, blocks=blocks, outputs=tuple(outputs.values()))
