"""The steps of a generated history: calls of the public API, each with what it has to do to what is expected."""

from __future__ import annotations

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

    def smaller(self) -> Iterator[Step]:
        for place in range(len(self.rows)):
            yield replace(self, rows=self.rows[:place] + self.rows[place + 1 :])

    def __str__(self) -> str:
        names = ", ".join(f"{column.name} {column.type}" for column in self.columns.columns)
        more = ", replace=True" if self.whole else ""
        return f"project.ingest({self.channel!r}, frame({names!r}, {list(self.rows)}){more})"


@dataclass(frozen=True)
class Run(Step):
    """Run tasks: those named, or all that are due."""

    names: tuple[str, ...] | None = None

    @property
    def kind(self) -> str:
        return "run" if self.names is None else "run named"

    def do(self, history: History) -> None:
        history.project.run(self.names)

    def expect(self, expected: Expected) -> None:
        expected.run(self.names)

    def __str__(self) -> str:
        return f"project.run({'' if self.names is None else list(self.names)})"


@dataclass(frozen=True)
class Compact(Step):
    """Write the newest snapshot of a channel as a base."""

    channel: str

    def do(self, history: History) -> None:
        history.project.compact(self.channel)

    def expect(self, expected: Expected) -> None:
        expected.known(self.channel)

    def __str__(self) -> str:
        return f"project.compact({self.channel!r})"


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
