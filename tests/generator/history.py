"""A history beside what it has to lead to, compared after each step; and the shortest one that still goes wrong."""

from __future__ import annotations

import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kilonova.catalog import bindings, channel_store, firings, servers
from kilonova.catalog.read_cache import ReadCache
from kilonova.engine import executor, run_order
from kilonova.engine.run_events import RunNotification, StepStarted
from kilonova.errors import BrokenInvariant, Conflict, KilonovaError, LeaseLost, NotFound, StorageFailed, TaskFailed
from kilonova.model.channel import ChannelState
from kilonova.model.encoding import Append, Custom
from kilonova.model.read_plan import ReadPlan
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Schema
from kilonova.model.task import Mode
from kilonova.service.reports import BindingsFailed
from kilonova.testing import reference
from kilonova.testing.reference import ReferenceChannel
from tests.catalog.building import claim_batches, fire_triggers
from tests.databases import Clock
from tests.generator.declared import BindingSpec
from tests.generator.expected import Expected, Pending
from tests.generator.memory import GeneratedProject, Killed
from tests.generator.proposing import Proposer
from tests.generator.rows import Rows
from tests.generator.steps import Apply, During, Ending, Run, Step, Turn

Answer = Rows | KilonovaError
Question = tuple[ReadPlan, Callable[[Answer], None]]
"""What is read, and what looks at the rows, or at why it cannot be."""

ROUNDS = 30
"""After how many rounds a server has to find nothing more to do."""

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
    bound: tuple[BindingSpec, ...] = ()
    _seen: dict[str, list[Seen]] = field(default_factory=dict)
    _turns: int = 0
    _compared: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.project.resources.listener = self._heard

    def _heard(self, notification: RunNotification) -> None:
        """Note how a task is done."""
        if isinstance(notification, StepStarted):
            method = next(
                (method for method in RefreshMethod if notification.reason.startswith(f"{method.value}:")), None
            )
            if method is not None:
                self.expected.methods[notification.step] = method

    def frame(self, columns: Schema, rows: Sequence[tuple[Any, ...]]) -> Any:
        """Rows as what the project takes."""
        if self.flavour == "spark":
            floats = [column.type == "double" for column in columns.columns]
            typed = [
                tuple(float(v) if f and v is not None else v for v, f in zip(r, floats, strict=True)) for r in rows
            ]
            return self.project.warehouse.spark.createDataFrame(typed, columns.ddl)
        return Rows(columns, tuple(rows))

    def forget(self, channel: str) -> None:
        """Forget the points of a channel."""
        self._seen.pop(channel, None)

    def step(self, step: Step) -> None:
        """Take a step, here and there, and compare.

        Raises:
            Mismatch: it does something else than it has to.
        """
        if isinstance(step, During):
            self._during(step)
            return
        if isinstance(step, Turn):
            self._turn(step)
            return
        self.expected.methods.clear()
        found = _refused(lambda: step.do(self))
        self._judge(step, _refused(lambda: step.expect(self.expected)), found)
        if isinstance(step, Apply) and found is None:
            self.bound = step.spec.bindings

    def _during(self, step: During) -> None:
        """Take a step in the middle of which others happen; if it does not come that far they do not."""
        begun: list[Pending] = []
        broken: list[BaseException] = []

        def interruption() -> None:
            outer, expected = step.outer, self.expected
            writes, claims = outer.writes(expected), outer.claims(expected)
            begun.append(expected.begin(lambda: outer.expect(expected), writes, claims))
            methods = dict(self.expected.methods)
            try:
                self.compare()
                for inner in step.inner:
                    self.step(inner)
                self.expected.methods = methods
            except BaseException as error:
                broken.append(error)
                raise
            match step.ending:
                case Ending.FAILS:
                    raise TaskFailed("it was made to fail")
                case Ending.STUMBLES:
                    raise StorageFailed("it was made to stumble")
                case Ending.DIES:
                    self.project.catalog.dead = True
                    raise Killed

        self.expected.methods.clear()
        self.project.interrupt(interruption)
        try:
            found = _refused(lambda: step.outer.do(self))
        except Killed:
            found = LeaseLost("killed")
            self.project.rise()
        self.project.interrupt(lambda: None)
        if broken:
            raise broken[0]
        if not begun:
            self._judge(step.outer, _refused(lambda: step.outer.expect(self.expected)), found)
            return
        wanted = _refused(lambda: self.expected.end(begun[0], commits=step.commits))
        self._judge(step, wanted if step.commits else found or wanted, found)

    def _turn(self, step: Turn) -> None:
        """Do what a server would, and see that it leaves nothing undone."""
        self.project.clock.forward(step.seconds)
        for _ in range(ROUNDS):
            self._turns += 1
            batches = self._claimed(f"server {self._turns}")
            for batch in batches:
                with self.project.runner.shared_batch(batch.claims) as shared_steps:
                    for part in batch.claims:
                        self._launch(step, part, shared_steps if len(batch.claims) > 1 else None)
            if not batches:
                break
        else:
            raise Mismatch("never quiet", str(step))
        bound = {name for binding in self.bound for name in binding.tasks}
        for name, task in self.expected.tasks.items():
            if name not in bound and name not in self.expected.failed and self.expected.due(task):
                raise Mismatch("not started", f"{name} is due, and nothing starts it")

    def _claimed(self, server: str) -> list[firings.Batch]:
        with self.project.catalog.writing() as tx:
            servers.register(tx, server, "tests", timedelta(hours=1))
            fire_triggers(tx)
            batches, _ = claim_batches(tx, server, 10)
            return batches

    def _launch(self, step: Turn, part: firings.Claim, shared_steps: Any) -> None:
        self.expected.methods.clear()
        with self.project.catalog.reading() as tx:
            names = bindings.tasks_of(tx, part.binding)
        found = _refused(lambda: self.project.runner.run_claim(part, shared_steps=shared_steps))
        try:
            wanted = _refused(lambda: self.expected.launched(names, complete=found is None))
        except AssertionError as error:
            raise Mismatch("left out", f"{part.binding}: {error}") from error
        self.expected.failed |= set(names) if found else set()
        self.expected.failed -= set() if found else set(self.expected.methods)
        self._judge(step, wanted, found)

    def _judge(self, step: Step, wanted: KilonovaError | None, found: KilonovaError | None) -> None:
        """Compare what was refused, and all that there is.

        Raises:
            Mismatch: something is not as it has to be.
        """
        self.happened[step.kind, wanted is None] += 1
        if (wanted is None) != (found is None):
            error = found or wanted
            assert error is not None
            shown = "".join(traceback.format_exception(error, limit=-6, chain=False)) if found else repr(error)
            raise Mismatch(f"refused {type(error).__name__}" if found else "accepted", shown)
        if isinstance(found, BrokenInvariant):
            raise Mismatch("broken invariant", "".join(traceback.format_exception(found, limit=-6, chain=False)))
        if wanted is not None and found is not None and not _alike(step, wanted, found):
            raise Mismatch("refused for another reason", f"{wanted!r} is due, not {found!r}")
        self.expected.collected |= step.collects
        self.compare()

    def compare(self) -> None:
        """Compare every channel by ALL, and every change since points seen before; channels that stay need it once.

        Raises:
            Mismatch: one is not as it has to be.
        """
        with self.project.catalog.reading() as tx:
            found = channel_store.channel_states(tx)
            anew = channel_store.channel_states(replace(tx, before=ReadCache(), read=ReadCache()))
        if found != anew:
            raise Mismatch("remembered", f"{found} is not {anew}, which another process reads")
        if set(found) != set(self.expected.channels):
            raise Mismatch("channels", f"{set(found)} are there, not {set(self.expected.channels)}")
        self._check_blocks(found)
        questions: list[Question] = []
        for name, channel in self.expected.channels.items():
            state = found[name], channel.schema, list(channel.points)
            if self._compared.get(name) != state:
                questions += self._questions(found[name], channel)
                self._compared[name] = state
        answers = self.project.look_up([reading for reading, _ in questions])
        for (_, check), answer in zip(questions, answers, strict=True):
            check(answer)

    def _check_blocks(self, found: dict[str, ChannelState]) -> None:
        """The blocks of the catalog are in the warehouse, and no others once garbage has been collected."""
        live = {block.name for state in found.values() for block in state.blocks}
        stored = set(self.project.warehouse.blocks())
        if not live <= stored:
            raise Mismatch("blocks", f"{live - stored} are not there")

    def _questions(self, state: ChannelState, channel: ReferenceChannel) -> Iterator[Question]:
        """What to ask of a channel that has changed."""
        end = state.latest_readable
        yield state.snapshot(end), partial(self._check_rows, channel, end)
        seen = self._seen.setdefault(channel.name, [Seen(0, 0)])
        kept = []
        for point in seen:
            about = f"{channel.name} from {point.number} to {end}"
            try:
                yield state.changes(point.number, end), partial(self._check_changes, about, channel, point)
                yield state.delta(point.number, end), partial(self._check_delta, about, channel, point)
            except NotFound as error:
                if not self.expected.collected and not channel.same(
                    0, point.expected
                ):  # of nothing only point 0 is kept
                    raise Mismatch("unreadable", f"{about}: {error}") from error
            else:
                kept.append(point)
        kept = [point for point in kept if point.number != end]
        self._seen[channel.name] = [*kept[-REMEMBERED:], Seen(end, channel.readable)]

    @staticmethod
    def _check_rows(channel: ReferenceChannel, end: int, found: Answer) -> None:
        if isinstance(found, KilonovaError):
            raise Mismatch("refused by ALL", f"{channel.name} at {end}: {found}")
        rows, now = Counter(found.rows), channel.at(channel.readable)
        if rows != now:
            raise Mismatch("rows by ALL", f"{channel.name} at {end} has {dict(rows)}, not {dict(now)}")

    @staticmethod
    def _check_changes(about: str, channel: ReferenceChannel, point: Seen, found: Answer) -> None:
        if isinstance(found, KilonovaError):
            raise Mismatch("refused by CHANGES", f"{about}: {found}")
        weights: Counter[Any] = Counter()
        for *row, weight in found.rows:
            weights[tuple(row)] += weight
        wanted = channel.read(Mode.CHANGES, point.expected, channel.readable)
        if weights != wanted or not all(weights.values()):
            raise Mismatch("rows by CHANGES", f"{about} changes by {dict(weights)}, not {wanted}")

    def _check_delta(self, about: str, channel: ReferenceChannel, point: Seen, found: Answer) -> None:
        encoding, schema = channel.encoding, channel.schema
        old, new = channel.at(point.expected), channel.at(channel.readable)
        if isinstance(found, KilonovaError):
            between = channel.points[point.expected : channel.readable]
            replaced = self.expected.collected or any(w.whole is not None for w in between)
            if isinstance(encoding, Append) and old - new:
                return
            if isinstance(encoding, Custom) and not hasattr(channel.function, "diff") and replaced:
                return
            raise Mismatch("refused by NEW", f"{about}: {found}")
        records = found.records
        try:
            delta = reference.delta_of(encoding, schema, records)
            merged = reference.merge(encoding, schema, old, delta, function=channel.function)
        except KilonovaError as error:
            raise Mismatch("malformed by NEW", f"{about}: {error}; {records}") from error
        if merged != new:
            raise Mismatch("rows by NEW", f"{about}: {records} leads to {dict(merged)}, not {dict(new)}")


def _refused(call: Callable[[], object]) -> KilonovaError | None:
    """The error that a call raises."""
    try:
        call()
    except KilonovaError as error:
        return error
    except AssertionError:
        raise
    except Exception as error:  # what a task raises
        return TaskFailed(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    return None


def _alike(step: Step, one: KilonovaError, other: KilonovaError) -> bool:
    """Whether two errors say the same; of the tasks of a run, another may be the first that fails."""
    step = step.outer if isinstance(step, During) else step
    if isinstance(step, Run) and step.each and not isinstance(other, NotFound):
        return _failures(one) == _failures(other)
    if isinstance(step, Run | Turn) and not isinstance(other, NotFound):
        return not isinstance(one, NotFound)
    return type(one) is type(other)


def _failures(error: KilonovaError) -> dict[str | None, bool]:
    """The bindings that an error is about, and whether each was busy."""
    failed = error.report.failed if isinstance(error, BindingsFailed) else {error.binding: error}
    return {name: isinstance(each, Conflict) for name, each in failed.items()}


@contextmanager
def projects(place: Path, session: SparkSession | None = None) -> Iterator[Callable[[], History]]:
    """Makes histories, each with a project of its own; without Spark unless there is a session."""
    executor.AT_ONCE = run_order.AT_ONCE = 1  # or histories could not be repeated
    number = iter(range(1 << 30))
    last: list[GeneratedProject] = []

    def begin() -> History:
        folder = place / str(next(number))
        folder.mkdir(parents=True)
        for project in last:
            project.close()
        last[:] = [GeneratedProject(folder, Clock(), place / "template.db", session)]
        return History(last[0], "pure" if session is None else "spark")

    yield begin
    for project in last:
        project.close()


def replay(history: History, steps: Sequence[Step]) -> tuple[int, Mismatch] | None:
    """Take steps; the place of the first that goes wrong, and how."""
    for place, step in enumerate(steps):
        try:
            history.step(step)
        except Mismatch as error:
            return place, error
        except Exception as error:
            shown = "".join(traceback.format_exception(error, limit=-8, chain=False))
            return place, Mismatch(f"crash {type(error).__name__}", shown)
    return None


def follow(
    history: History, chance: random.Random, length: int, left_out: Sequence[str] = ()
) -> tuple[list[Step], Mismatch | None]:
    """Make up a history as it goes, until it ends or goes wrong."""
    proposer = Proposer(chance, history.expected, left_out)
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


def generate(
    seed: int,
    steps: int,
    *,
    length: int = 40,
    seconds: float = 60,
    session: SparkSession | None = None,
    left_out: Sequence[str] = (),
) -> Counter[tuple[str, bool]]:
    """Follow histories until so many steps have been taken.

    Args:
        seed: where chance begins.
        steps: how many steps.
        length: how many of them are one history.
        seconds: for how long a failure is shrunk.
        session: a Spark session; None for histories without Spark.
        left_out: kinds of source channels and operations that are left out.

    Raises:
        Mismatch: one goes wrong; the message is the shortest script that was found.
    """
    happened: Counter[tuple[str, bool]] = Counter()
    with tempfile.TemporaryDirectory(prefix="kilonova-generator-") as place, projects(Path(place), session) as begin:
        number = 0
        while happened.total() < steps:
            history = begin()
            taken, failure = follow(history, random.Random(f"{seed}/{number}"), length, left_out)
            happened += history.happened
            if failure is not None:
                script = explained(*shrunk(begin, taken, failure, seconds))
                raise Mismatch(failure.what, f"seed {seed}, history {number}\n{script}")
            number += 1
    return happened
