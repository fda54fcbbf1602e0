"""An execution plan is a sequence of invocations that repairs bounds, with its cost and what else was considered."""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.model.bound import Bound
from kilonova.schedule.asynchrony.data_block import BlockType, DataBlock


@dataclass(frozen=True, slots=True)
class TaskStep:
    """Invocation of a variant of a task."""

    task: str
    variant: str

    def __str__(self) -> str:
        return f"{self.task} ({self.variant})"


@dataclass(frozen=True, slots=True)
class ConversionStep:
    """Conversion of a block of a channel to another type."""

    channel: str
    source: BlockType
    target: BlockType

    def __str__(self) -> str:
        return f"convert {self.channel} from {self.source} to {self.target}"


@dataclass(frozen=True, slots=True)
class ChainStep:
    """Combination of two abutting deltas of a channel, which costs nothing until the result is read."""

    channel: str

    def __str__(self) -> str:
        return f"chain deltas of {self.channel}"


Step = TaskStep | ConversionStep | ChainStep


@dataclass(frozen=True, slots=True)
class Invocation:
    """One step of a plan.

    Attributes:
        step: what runs.
        reads: the blocks that each port reads, a base before its delta; none for a port that is not read. Those without
            points are written by earlier invocations of the plan.
        writes: the block that is written, with its estimated size.
        cost: the estimated cost.
    """

    step: Step
    reads: tuple[tuple[DataBlock, ...], ...]
    writes: DataBlock
    cost: float

    def __str__(self) -> str:
        return f"{self.step}: {self.cost:.3g}"


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to write an output that keeps all bounds.

    Attributes:
        channel: the output channel.
        steps: its steps.
        cost: its cost.
    """

    channel: str
    steps: tuple[Step, ...]
    cost: float


@dataclass(frozen=True, slots=True)
class UnmetOutput:
    """An output whose bounds no plan keeps.

    Attributes:
        channel: the output channel.
        reason: why, as text.
    """

    channel: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPlan:
    """Plan of what runs now.

    Attributes:
        invocations: the invocations, each after those whose blocks it reads.
        cost: the sum of their costs.
        violated: the bounds that are violated now, for which it was made.
        alternatives: other ways to write the outputs, the cheapest first, for each output.
        unmet: the outputs for which there is no plan.
        relaxed: the pruning passes that had to be left out to find a plan.
    """

    invocations: tuple[Invocation, ...] = ()
    cost: float = 0.0
    violated: tuple[Bound, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    unmet: tuple[UnmetOutput, ...] = ()
    relaxed: tuple[str, ...] = ()
