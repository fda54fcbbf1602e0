"""The steps of a generated history: calls of the public API, each with what it has to do to what is expected."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kilonova.model.schema import Schema
from kilonova.testing.reference import Record
from tests.generator.declared import Spec
from tests.generator.expected import Expected

if TYPE_CHECKING:
    from tests.generator.history import History


class Step:
    """One call."""

    collects = False
    """Whether older points may be unreadable after it."""

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()

    def do(self, history: History) -> None:
        raise NotImplementedError

    def expect(self, expected: Expected) -> None:
        raise NotImplementedError

    def writes(self, expected: Expected) -> tuple[str, ...]:
        """The channels on which it reserves a point."""
        return ()

    def claims(self, expected: Expected) -> tuple[str, ...]:
        """The tasks that no other run may have meanwhile."""
        return ()

    def smaller(self) -> Iterator[Step]:
        """Steps that say less."""
        yield from ()


@dataclass(frozen=True)
class Apply(Step):
    """Declare a workflow in place of the one before."""

    spec: Spec

    def do(self, history: History) -> None:
        history.project.apply(self.spec.declare(history.flavour))

    def expect(self, expected: Expected) -> None:
        expected.apply(self.spec)

    def smaller(self) -> Iterator[Step]:
        yield from map(Apply, self.spec.smaller())

    def __str__(self) -> str:
        return f"project.apply(\n{self.spec}\n)"


@dataclass(frozen=True)
class Ingest(Step):
    """Insert rows: a delta in the channel's encoding, or the whole relation."""

    channel: str
    columns: Schema
    rows: tuple[tuple[Any, ...], ...]
    whole: bool = False

    @property
    def records(self) -> list[Record]:
        return [dict(zip(self.columns.names, row, strict=True)) for row in self.rows]

    @property
    def kind(self) -> str:
        return "replace" if self.whole else "ingest"

    def do(self, history: History) -> None:
        history.project.ingest(self.channel, history.frame(self.columns, self.rows), replace=self.whole)

    def expect(self, expected: Expected) -> None:
        expected.ingest(self.channel, self.columns, self.records, replace=self.whole)

    def writes(self, expected: Expected) -> tuple[str, ...]:
        return (self.channel,)

    def smaller(self) -> Iterator[Step]:
        for place in range(len(self.rows)):
            yield replace(self, rows=self.rows[:place] + self.rows[place + 1 :])

    def __str__(self) -> str:
        names = ", ".join(f"{column.name} {column.type}" for column in self.columns.columns)
        more = ", replace=True" if self.whole else ""
        return f"project.ingest({self.channel!r}, frame({names!r}, {list(self.rows)}){more})"


@dataclass(frozen=True)
class Run(Step):
    """Run tasks: those named, or all that are due, as one run or each binding by itself."""

    names: tuple[str, ...] | None = None
    each: bool = False

    @property
    def kind(self) -> str:
        return ("run" if self.names is None else "run named") + (" each" if self.each else "")

    def do(self, history: History) -> None:
        history.project.run(self.names, all_or_nothing=not self.each)

    def expect(self, expected: Expected) -> None:
        (expected.run_each if self.each else expected.run)(self.names)

    def writes(self, expected: Expected) -> tuple[str, ...]:
        return tuple(name for task in self.claims(expected) for name in expected.tasks[task].spec.writes)

    def claims(self, expected: Expected) -> tuple[str, ...]:
        return expected.selected(self.names)

    def __str__(self) -> str:
        names = "None" if self.names is None else list(self.names)
        return f"project.run({names}, all_or_nothing={not self.each})"


@dataclass(frozen=True)
class Compact(Step):
    """Write the newest snapshot of a channel as a base, or put neighbouring deltas together."""

    channel: str
    deltas: bool = False

    @property
    def kind(self) -> str:
        return "merge deltas" if self.deltas else "compact"

    def do(self, history: History) -> None:
        history.project.compact(self.channel, deltas=self.deltas)

    def expect(self, expected: Expected) -> None:
        expected.known(self.channel)

    def __str__(self) -> str:
        return f"project.compact({self.channel!r}, deltas={self.deltas})"


@dataclass(frozen=True)
class Collect(Step):
    """Collect garbage, of one channel or of all."""

    channel: str | None = None
    collects = True

    def do(self, history: History) -> None:
        history.project.collect_garbage(None if self.channel is None else [self.channel])

    def expect(self, expected: Expected) -> None:
        if self.channel is not None:
            expected.known(self.channel)

    def __str__(self) -> str:
        return f"project.collect_garbage({'' if self.channel is None else [self.channel]})"


@dataclass(frozen=True)
class Drop(Step):
    """Take a channel away."""

    channel: str

    def do(self, history: History) -> None:
        history.project.drop(self.channel)
        history.forget(self.channel)

    def expect(self, expected: Expected) -> None:
        expected.drop(self.channel)

    def __str__(self) -> str:
        return f"project.drop({self.channel!r})"


@dataclass(frozen=True)
class Turn(Step):
    """A server looks, after some time, and does what it finds to do until there is nothing more."""

    seconds: int

    def __str__(self) -> str:
        return f"turn(after={self.seconds})"


class Ending(enum.Enum):
    """How a run ends that is interrupted before it writes its first block."""

    COMMITS = "commits"
    FAILS = "fails"
    STUMBLES = "stumbles"
    """It fails in a way that may pass: tasks are tried again."""
    DIES = "dies"
    """Its process is killed; another takes the run over once its lease has run out."""


@dataclass(frozen=True)
class During(Step):
    """A run within which others happen: it has reserved its points by then, and written nothing."""

    outer: Step
    inner: tuple[Step, ...]
    ending: Ending

    @property
    def kind(self) -> str:
        return f"{self.outer.kind} {self.ending.value}"

    @property
    def commits(self) -> bool:
        """Whether it may commit."""
        passes = self.ending is Ending.STUMBLES and isinstance(self.outer, Run)
        return self.ending is Ending.COMMITS or passes

    @property
    def collects(self) -> bool:  # type: ignore[override]
        return any(step.collects for step in self.inner)

    def smaller(self) -> Iterator[Step]:
        yield self.outer
        for place, step in enumerate(self.inner):
            yield replace(self, inner=self.inner[:place] + self.inner[place + 1 :])
            for less in step.smaller():
                yield replace(self, inner=(*self.inner[:place], less, *self.inner[place + 1 :]))
        for less in self.outer.smaller():
            yield replace(self, outer=less)

    def __str__(self) -> str:
        inner = "".join(f"{step}\n" for step in self.inner)
        return f"with beginning({self.outer}):  # {self.ending.value} after this\n{textwrap.indent(inner, '    ')}"
