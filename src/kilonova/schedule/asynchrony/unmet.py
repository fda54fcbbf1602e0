"""Explanation of why no plan keeps the bounds of an output."""

from __future__ import annotations

from kilonova.schedule.asynchrony.block_search import BlockSearch
from kilonova.schedule.asynchrony.execution_plan import UnmetOutput
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState


def explain_unmet(search: BlockSearch, output: OutputState, state: SchedulingState) -> UnmetOutput:
    """Return why a search found no block that an output can be continued with.

    Either all blocks that it found would break a limit, or data did not get through: then the first channel on the way
    is named where no block with newer data can be written.
    """
    refused = search.refused.get(output.channel)
    if refused is not None:
        breach = search.rules.kept.breach(output.channel, refused, output.head)
        return UnmetOutput(output.channel, f"what can be written now would be {breach}")
    reached: dict[str, int] = {}
    for entry in search.best.values():
        for path, number in zip(search.workflow.paths[entry.channel], entry.newest, strict=True):
            reached[f"{entry.channel} {path}"] = max(number, reached.get(f"{entry.channel} {path}", -1))
    for path in search.workflow.paths[output.channel]:
        newest = state.times[path[0]].points[-1:] or (0,)
        channel = path[0]
        for place, task in enumerate(path[1:], start=2):
            before, channel = channel, next(t.writes for t in search.workflow.readers[channel] if t.name == task)
            if reached.get(f"{before} {path[: place - 1]}", -1) < newest[0]:
                break
            if reached.get(f"{channel} {path[:place]}", -1) < newest[0]:
                reason = f"no variant of {task} can write {channel} from the blocks of {before}"
                return UnmetOutput(output.channel, reason)
    kinds = ", ".join(sorted(output.accepts))
    return UnmetOutput(output.channel, f"no block is of an accepted type ({kinds}) and continues what was written")
