"""A history beside what it has to lead to, compared after each step; and the shortest one that still goes wrong."""

from __future__ import annotations

import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kilonova.catalog import chains
from kilonova.errors import BrokenInvariant, EncodingError, KilonovaError, TaskFailed, UnknownName
from kilonova.model.channel import Chronicle
from kilonova.model.encoding import Append, Custom
from kilonova.model.schema import Schema
from kilonova.model.task import Mode
from kilonova.testing import reference
from kilonova.testing.reference import ReferenceChannel
from tests.databases import Clock
from tests.generator.expected import Expected
from tests.generator.memory import MemoryProject, Rows
from tests.generator.proposing import Proposer
from tests.generator.steps import Step

REMEMBERED = 4
"""How many earlier points of a channel are compared with."""


class Mismatch(AssertionError):
    """What is there is not what has to be.

    Args:
        what: which comparison failed: failures of one kind have the same.
        details: what it compared.
    """

    def __init__(self, what: str, details: str) -> None:
        super().__init__(f"{what}: {details}")
        self.what = what


@dataclass(frozen=True)
class Seen:
    """A point that has been read: its number in the catalog, and that in the reference."""

    number: int
    expected: int


@dataclass
class History:
    """A project, and what is expected of it.

    Attributes:
        project: the project.
        flavour: for which warehouse functions are declared.
        happened: how often each kind of step was accepted and refused.
    """

    project: Any
    flavour: str
    expected: Expected = field(default_factory=Expected)
    happened: Counter[tuple[str, bool]] = field(default_factory=Counter)
    _seen: dict[str, list[Seen]] = field(default_factory=dict)
    _compared: dict[str, Any] = field(default_factory=dict)
    _collected: bool = False

    def frame(self, columns: Schema, rows: Sequence[tuple[Any, ...]]) -> Any:
        """Rows as what the project takes."""
        return Rows(columns, tuple(rows))

    def forget(self, channel: str) -> None:
        """Forget the points of a channel."""
        self._seen.pop(channel, None)

    def step(self, step: Step) -> None:
        """Take a step, here and there, and compare.

        Raises:
            Mismatch: it does something else than it has to.
        """
        wanted, found = _refused(lambda: step.expect(self.expected)), _refused(lambda: step.do(self))
        self.happened[step.kind, wanted is None] += 1
        if (wanted is None) != (found is None):
            error = found or wanted
            assert error is not None
            shown = "".join(traceback.format_exception(error, limit=-6)) if found else repr(error)
            raise Mismatch(f"refused {type(error).__name__}" if found else "accepted", shown)
        if isinstance(found, BrokenInvariant):
            raise Mismatch("broken invariant", "".join(traceback.format_exception(found)))
        if wanted is not None and found is not None and not _alike(wanted, found):
            raise Mismatch("refused for another reason", f"{wanted!r} is due, not {found!r}")
        self._collected |= step.collects
        self.compare()

    def compare(self) -> None:
        """Compare every channel by ALL, and every change since points seen before; channels that stay need it once.

        Raises:
            Mismatch: one is not as it has to be.
        """
        with self.project.catalog.reading() as tx:
            found = chains.chronicles(tx)
        if set(found) != set(self.expected.channels):
            raise Mismatch("channels", f"{set(found)} are there, not {set(self.expected.channels)}")
        self._check_blocks(found)
        for name, channel in self.expected.channels.items():
            state = found[name], channel.schema, list(channel.points)
            if self._compared.get(name) != state:
                self._compare(found[name], channel)
                self._compared[name] = state

    def _check_blocks(self, found: dict[str, Chronicle]) -> None:
        """The blocks of the catalog are in the warehouse, and no others once garbage has been collected."""
        live = {block.number for chronicle in found.values() for block in chronicle.blocks}
        stored = set(self.project.warehouse.blocks())
        if not live <= stored:
            raise Mismatch("blocks", f"{live - stored} are not there")

    def _compare(self, chronicle: Chronicle, channel: ReferenceChannel) -> None:
        now, end = channel.at(channel.readable), chronicle.readable
        rows = Counter(self._read(chronicle.snapshot(end)).rows)
        if rows != now:
            raise Mismatch("rows by ALL", f"{channel.name} at {end} has {dict(rows)}, not {dict(now)}")
        seen = self._seen.setdefault(channel.name, [Seen(0, 0)])
        kept = [point for point in seen if self._compare_since(point, chronicle, channel)]
        kept = [point for point in kept if point.number != end]
        self._seen[channel.name] = [*kept[-REMEMBERED:], Seen(end, channel.readable)]

    def _compare_since(self, point: Seen, chronicle: Chronicle, channel: ReferenceChannel) -> bool:
        """Compare the change since a point; tells whether it can still be read."""
        old, new = channel.at(point.expected), channel.at(channel.readable)
        about = f"{channel.name} from {point.number} to {chronicle.readable}"
        try:
            changes = chronicle.changes(point.number, chronicle.readable)
            delta = chronicle.delta(point.number, chronicle.readable)
        except UnknownName as error:
            if self._collected or channel.same(0, point.expected):  # of the empty relation only point 0 is kept
                return False
            raise Mismatch("unreadable", f"{about}: {error}") from error
        weights: Counter[Any] = Counter()
        for *row, weight in self._read(changes).rows:
            weights[tuple(row)] += weight
        wanted = channel.read(Mode.CHANGES, point.expected, channel.readable)
        if weights != wanted or not all(weights.values()):
            raise Mismatch("rows by CHANGES", f"{about} changes by {dict(weights)}, not {wanted}")
        self._compare_delta(point, about, delta, channel, old, new)
        return True

    def _compare_delta(
        self, point: Seen, about: str, delta: Any, channel: ReferenceChannel, old: Any, new: Any
    ) -> None:
        encoding, schema = channel.encoding, channel.schema
        try:
            frame = self._read(delta)
        except EncodingError as error:
            between = channel.points[point.expected : channel.readable]
            replaced = (
                self._collected
                or channel.same(0, point.expected)
                or any(written.whole is not None for written in between)
            )
            if isinstance(encoding, Append) and old - new:
                return
            if isinstance(encoding, Custom) and not hasattr(channel.function, "diff") and replaced:
                return
            raise Mismatch("refused by NEW", f"{about}: {error}") from error
        records = frame.records
        try:
            merged = reference.merge(
                encoding, schema, old, reference.delta_of(encoding, schema, records), function=channel.function
            )
        except KilonovaError as error:
            raise Mismatch("malformed by NEW", f"{about}: {error}; {records}") from error
        if merged != new:
            raise Mismatch("rows by NEW", f"{about}: {records} leads to {dict(merged)}, not {dict(new)}")

    def _read(self, reading: Any) -> Rows:
        return self.project.warehouse.open(reading)


def _refused(call: Callable[[], object]) -> KilonovaError | None:
    """The error that a call raises."""
    try:
        call()
    except KilonovaError as error:
        return error
    except Exception as error:  # what a task raises
        return TaskFailed(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    return None


def _alike(one: KilonovaError, other: KilonovaError) -> bool:
    return type(one) is type(other)


@contextmanager
def in_memory(place: Path) -> Iterator[Callable[[], History]]:
    """Makes histories without Spark, each with a project of its own."""
    number = iter(range(1 << 30))
    projects: list[MemoryProject] = []

    def begin() -> History:
        folder = place / str(next(number))
        folder.mkdir(parents=True)
        for project in projects:
            project.close()
        projects[:] = [MemoryProject(folder, Clock(), place / "template.db")]
        return History(projects[0], "pure")

    yield begin
    for project in projects:
        project.close()


def replay(history: History, steps: Sequence[Step]) -> tuple[int, Mismatch] | None:
    """Take steps; the place of the first that goes wrong, and how."""
    for place, step in enumerate(steps):
        try:
            history.step(step)
        except Mismatch as error:
            return place, error
        except Exception as error:
            shown = "".join(traceback.format_exception(error, limit=-8))
            return place, Mismatch(f"crash {type(error).__name__}", shown)
    return None


def follow(history: History, chance: random.Random, length: int) -> tuple[list[Step], Mismatch | None]:
    """Make up a history as it goes, until it ends or goes wrong."""
    proposer = Proposer(chance, history.expected)
    steps: list[Step] = []
    for number in range(length):
        steps.append(proposer.first() if number == 0 else proposer.next())
        if (failure := replay(history, steps[-1:])) is not None:
            return steps, failure[1]
    return steps, None


def shrunk(
    begin: Callable[[], History], steps: Sequence[Step], failure: Mismatch, seconds: float
) -> tuple[list[Step], Mismatch]:
    """A shorter history, with smaller steps, that goes wrong in the same way."""
    best, end = list(steps), time.monotonic() + seconds

    def still(some: Sequence[Step]) -> bool:
        nonlocal best, failure
        found = replay(begin(), some) if time.monotonic() < end else None
        if found is None or found[1].what != failure.what:
            return False
        best, failure = list(some[: found[0] + 1]), found[1]
        return True

    size = len(best) // 2
    while size:
        place = len(best) - size
        while place >= 0:
            still(best[:place] + best[place + size :])
            place -= size
        size //= 2
    again = True
    while again and time.monotonic() < end:
        again = False
        for place in reversed(range(len(best))):
            if place < len(best):
                again |= still(best[:place] + best[place + 1 :]) or any(
                    still([*best[:place], smaller, *best[place + 1 :]]) for smaller in best[place].smaller()
                )
    return best, failure


def explained(steps: Sequence[Step], failure: Mismatch) -> str:
    """A failure as a script of calls."""
    return "\n".join([*map(str, steps), f"# {failure}"])


def generate(seed: int, steps: int, length: int = 40, seconds: float = 60) -> Counter[tuple[str, bool]]:
    """Follow histories until so many steps have been taken.

    Raises:
        Mismatch: one goes wrong; the message is the shortest script that was found.
    """
    happened: Counter[tuple[str, bool]] = Counter()
    with tempfile.TemporaryDirectory(prefix="kilonova-generator-") as place, in_memory(Path(place)) as begin:
        number = 0
        while happened.total() < steps:
            history = begin()
            taken, failure = follow(history, random.Random(f"{seed}/{number}"), length)
            happened += history.happened
            if failure is not None:
                script = explained(*shrunk(begin, taken, failure, seconds))
                raise Mismatch(failure.what, f"seed {seed}, history {number}\n{script}")
            number += 1
    return happened
