"""Steps that the runs of a merged batch have in common: done once, and their blocks copied (Nova, section 4.2).

Two steps are the same if one definition does both, to the byte, what they read is the same, and what they write is
declared alike and does not depend on what was there before. To read the same is to read the same blocks, or blocks that
were made by steps that are the same. So copies of a workflowette that read one channel cost little more than one.

A run that waits for the step of another, which then fails or is cancelled, does it itself; so does one whose copy went
wrong, as the other run's blocks go when it fails.
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
from kilonova.model.reading import Chain, Diff, Reading, Snapshot, Strong
from kilonova.model.task import Query, Variant

Blocks = tuple[Block | None, ...]
"""What a step has written, per output; None where nothing changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a step writes.

    Attributes:
        channel: the channel, with the schema that it has by now.
        anew: whether it is written as a whole.
        empty: whether nothing is there before.
    """

    channel: Channel
    anew: bool
    empty: bool

    @property
    def free(self) -> bool:
        """Whether what is written does not depend on what was there before."""
        added = isinstance(self.channel.encoding, Append)
        alone = added and not any(isinstance(one, Unique) for one in self.channel.checks)
        return self.anew or alone or (self.empty and bool(key_of(self.channel.encoding)))


class Joint:
    """The steps that the runs of one batch have done, or are doing; shared by their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: dict[str, Future[Blocks]] = {}
        self._origins: dict[int, str] = {}

    def name(self, variant: Variant, readings: Sequence[Reading], targets: Sequence[Target]) -> str | None:
        """What a step is called, the same for steps that are the same; None if it is nobody else's.

        Args:
            variant: what it does.
            readings: what its ports read, in their order.
            targets: where it writes, in order.
        """
        if isinstance(variant.logic, Query) or not all(target.free for target in targets):
            return None  # what views do is spelled for their own channels
        ports = [
            (port.name, port.mode, self._told(reading)) for port, reading in zip(variant.ports, readings, strict=True)
        ]
        outputs = [
            (target.channel.schema, target.channel.encoding, target.channel.checks, target.anew, target.empty)
            for target in targets
        ]
        what = (variant.logic, variant.fingerprint, variant.productions, ports, outputs)
        return hashlib.sha256(repr(what).encode()).hexdigest()

    def _told(self, reading: Reading) -> object:
        match reading:
            case Snapshot(base=base, deltas=deltas):
                blocks = [None if base is None else self._origin(base), *map(self._origin, deltas)]
                return "snapshot", reading.schema, reading.encoding, blocks
            case Chain(deltas=deltas):
                return "chain", reading.schema, reading.encoding, [self._origin(block) for block in deltas]
            case Diff(old=old, new=new):
                return "diff", reading.encoding, self._told(old), self._told(new)
            case Strong(old=old, delta=delta):
                return "strong", self._told(old), self._told(delta)
            case _:
                assert_never(reading)

    def _origin(self, block: Block) -> str:
        """Which block it is, or is a copy of."""
        with self._lock:
            return self._origins.get(block.number, str(block.number))

    def done(self, name: str, do: Callable[[], Blocks], copy: Callable[[Blocks], Blocks | None]) -> tuple[Blocks, bool]:
        """Have a step done, by whichever run comes to it first.

        Args:
            name: what it is called.
            do: does it.
            copy: makes blocks of one's own of those of another run; None if they have gone.

        Returns:
            The blocks, and whether they are copies.
        """
        with self._lock:
            theirs = self._steps.get(name)
            mine: Future[Blocks] = Future()
            if theirs is None:
                self._steps[name] = mine
        blocks, copied = None, False
        if theirs is not None:
            with suppress(KilonovaError):
                blocks = copy(theirs.result())
            copied = blocks is not None
        try:
            blocks = do() if blocks is None else blocks
        except BaseException as error:
            told = error if isinstance(error, KilonovaError) else KilonovaError(f"the run that did it ended: {error!r}")
            mine.set_exception(told)
            raise
        with self._lock:
            for index, block in enumerate(blocks):
                if block is not None:
                    self._origins[block.number] = f"{name} {index}"
        mine.set_result(blocks)
        return blocks, copied
