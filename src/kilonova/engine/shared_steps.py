"""Steps shared by the runs of a merged batch: executed once, and their blocks placed in the channels of each run.

Two steps are the same if their definitions are equal to the byte, they read the same blocks, and their outputs are
declared alike and do not depend on the previous relation (Nova, section 4.2). So copies of a workflowette that read one
channel cost little more than one.

If a run waits for the step of another run, which then fails or is cancelled, it executes the step itself; likewise if
the other run's blocks no longer exist, because it has failed since.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import assert_never

from kilonova.errors import KilonovaError
from kilonova.model.block import Block
from kilonova.model.channel import Channel
from kilonova.model.check import Unique
from kilonova.model.encoding import Append, key_of
from kilonova.model.read_plan import ChangesRead, DeltaRead, DiffRead, ReadPlan, SnapshotRead
from kilonova.model.task import Variant

Blocks = tuple[Block | None, ...]
"""Blocks that a step has written, per output; None where nothing changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """Output of a step.

    Attributes:
        channel: the channel, with its current schema.
        rewritten: whether the whole relation is rewritten.
        empty: whether the relation was empty before.
    """

    channel: Channel
    rewritten: bool
    empty: bool

    @property
    def free(self) -> bool:
        """Return whether the output depends on nothing else, so that another channel may have the same block.

        A channel with several writers might be given one block twice, which its readers could not tell apart.
        """
        if self.channel.several_writers:
            return False
        added = isinstance(self.channel.encoding, Append)
        alone = added and not any(isinstance(one, Unique) for one in self.channel.checks)
        return self.rewritten or alone or (self.empty and bool(key_of(self.channel.encoding)))


class SharedSteps:
    """The finished and running steps of the runs of one batch; shared by their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: dict[str, Future[Blocks]] = {}

    def name(self, variant: Variant, readings: Sequence[ReadPlan], targets: Sequence[StepOutput]) -> str | None:
        """Return the name of a step, equal for steps that are the same; None if it cannot be shared.

        Args:
            variant: the variant that it executes.
            readings: the read plans of its ports, in order.
            targets: its outputs, in order.
        """
        if not variant.logic.shareable or not all(target.free for target in targets):
            return None
        ports = [
            (port.name, port.mode, _identity(reading)) for port, reading in zip(variant.ports, readings, strict=True)
        ]
        outputs = [
            (target.channel.schema, target.channel.encoding, target.channel.checks, target.rewritten, target.empty)
            for target in targets
        ]
        what = (variant.logic, variant.fingerprint, variant.productions, ports, outputs)
        return hashlib.sha256(repr(what).encode()).hexdigest()

    def done(
        self, name: str, do: Callable[[], Blocks], share: Callable[[Blocks], Blocks | None]
    ) -> tuple[Blocks, bool]:
        """Execute a step once: the first run that reaches it executes it, others share its blocks.

        Args:
            name: the step's name.
            do: executes the step.
            share: places the blocks of another run; returns None if they no longer exist.

        Returns:
            The blocks, and whether they are those of another run.
        """
        mine: Future[Blocks] = Future()
        with self._lock:
            first = self._steps.setdefault(name, mine)
        if first is not mine:
            with suppress(KilonovaError):
                if (shared := share(first.result())) is not None:
                    return shared, True
        try:
            blocks = do()
        except BaseException as error:
            known = isinstance(error, KilonovaError)
            mine.set_exception(
                error
                if known
                else KilonovaError(
                    f"the run that computed it ended: {error!r}", hint="It is computed again at the next run"
                )
            )
            raise
        mine.set_result(blocks)
        return blocks, False


def _identity(reading: ReadPlan) -> object:
    """Return a value that is equal for read plans of the same blocks, wherever they are placed."""
    match reading:
        case SnapshotRead():
            return "snapshot", reading.schema, reading.encoding, [block.number for block in reading.blocks]
        case DeltaRead(deltas=deltas):
            return "chain", reading.schema, reading.encoding, [block.number for block in deltas]
        case DiffRead(old=old, new=new):
            return "diff", reading.encoding, _identity(old), _identity(new)
        case ChangesRead(old=old, delta=delta):
            return "strong", _identity(old), _identity(delta)
        case _:
            assert_never(reading)
