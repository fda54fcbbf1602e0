"""Workflows as values: what a generated history declares, and what that becomes in Kilonova."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import kilonova as kn
from kilonova.model.column_rules import STRICT, ColumnRules, rules_of
from kilonova.model.encoding import (
    Append,
    Changes,
    Columns,
    Custom,
    Encoding,
    Increment,
    Upsert,
    delta_schema,
)
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production
from tests.generator import custom, native, ops

MODES: dict[Mode, Any] = {
    Mode.ALL: kn.All,
    Mode.NEW: kn.New,
    Mode.OLD: kn.Old,
    Mode.CHANGES: kn.Changes,
    Mode.INSERTS: kn.Inserts,
}
PRODUCTIONS: dict[Production, Any] = {Production.BASE: kn.Base, Production.DELTA: kn.Delta}

KEYED = ("upsert", "keyed", "increment", "columns")
"""Kinds whose key is unique in every relation."""

CUSTOM = {"stock": custom.Stock, "peak": custom.Peak}

TYPES = {"k": "bigint", "v": "bigint", "n": "bigint", "w": "string", "x": "bigint"}


@dataclass(frozen=True)
class ChannelSpec:
    """A channel: its kind is its encoding, its columns all but `k` in any order after it; `several` may write it.

    Of the rows of a key, that with the highest `v` counts if it is in sequence. One that takes rows of several shapes
    ignores columns that it does not have, and `w` may be called `old`, or be lacking.
    """

    name: str
    kind: str
    columns: tuple[tuple[str, str], ...]
    several: bool = False
    sequence: bool = False
    shapes: bool = False

    @property
    def defaults(self) -> dict[str, Any]:
        return {"w": "none"} if self.shapes and ("w", "string") in self.columns else {}

    @property
    def rules(self) -> ColumnRules:
        if not self.shapes:
            return STRICT
        return rules_of("ignore", dict.fromkeys(["old"] if self.defaults else [], "w"), self.defaults, self.schema)

    @property
    def schema(self) -> Schema:
        return Schema.of(*self.columns)

    @property
    def encoding(self) -> Encoding:
        match self.kind:
            case "append":
                return Append()
            case "upsert":
                return Upsert(("k",))
            case "changes":
                return Changes()
            case "keyed":
                return Changes(("k",))
            case "increment":
                return Increment(("k",), tuple(name for name, _ in self.columns if name != "k"))
            case "columns":
                return Columns(("k",))
            case _:
                return Custom(("k",), self.kind)

    def declare(self, workflow: kn.Workflow) -> None:
        ddl = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        key = None if self.kind in ("append", "changes") else "k"
        encoding: Any = {"keyed": "changes"}.get(self.kind, self.kind)
        if self.kind == "increment":
            encoding = kn.increment(*(name for name, _ in self.columns if name != "k"))
        elif self.kind in CUSTOM:
            encoding = kn.custom(CUSTOM[self.kind]())
        workflow.channel(
            self.name,
            ddl,
            key=key,
            encoding=encoding,
            several_writers=self.several,
            sequence_by="v" if self.sequence else None,
            on_new_column="ignore" if self.shapes else "quarantine",
            rename=dict(self.rules.rename),
            defaults=self.defaults,
        )

    def __str__(self) -> str:
        ddl = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        more = ", several writers" if self.several else ", in sequence" if self.sequence else ""
        more += ", of several shapes" if self.shapes else ""
        return f"channel({self.name!r}, {ddl!r}, {self.kind}{more})"


def standard(name: str, kind: str) -> ChannelSpec:
    """A channel with the columns that its kind has at first."""
    names = {"increment": ("k", "v", "n"), "stock": ("k", "v"), "peak": ("k", "v")}.get(kind, ("k", "v", "w"))
    return ChannelSpec(name, kind, tuple((column, TYPES[column]) for column in names))


@dataclass(frozen=True)
class TaskSpec:
    """A task: an operation of `tests.generator.ops` on channels, with a number that is part of its logic.

    Attributes:
        name: the task's.
        op: the operation's.
        inputs: the channels for the operation's inputs, in order.
        writes: the channels for its outputs, in order.
        constant: the number.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    writes: tuple[str, ...]
    constant: int

    @property
    def variants(self) -> tuple[VariantSpec, ...]:
        operation = ops.OPS[self.op]
        found = []
        for number, variant in enumerate(operation.variants):
            ports = []
            for port in variant.ports:
                channel = self.writes[0] if port.of is None else self.inputs[port.of]
                ports.append(Port(port.name, channel, port.mode))
            name = self.name if number == 0 else f"{self.name}_{number}"
            found.append(VariantSpec(name, tuple(ports), variant.productions, variant.function))
        return tuple(found)

    @property
    def reads(self) -> tuple[str, ...]:
        read = (port.channel for variant in self.variants for port in variant.ports)
        return tuple(dict.fromkeys(channel for channel in read if channel not in self.writes))

    def __str__(self) -> str:
        return f"task({self.name!r}, {self.op}, {', '.join(self.inputs)} -> {', '.join(self.writes)}, {self.constant})"


@dataclass(frozen=True)
class VariantSpec:
    """One way to do a task."""

    name: str
    ports: tuple[Port, ...]
    productions: tuple[Production, ...]
    function: Callable[..., Any]

    def declare(self, outputs: tuple[ChannelSpec, ...], constant: int, flavour: str) -> Callable[..., Any]:
        """The user's function, ready to be declared."""
        schemas = tuple(map(self.columns, outputs, self.productions))
        body = (native.body_of if flavour == "spark" else _pure)(self.function, constant, schemas)
        body.__name__ = self.name
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
        body.__signature__ = inspect.Signature([inspect.Parameter(port.name, kinds) for port in self.ports])
        marks = {port.name: MODES[port.mode] for port in self.ports}
        produced = tuple(PRODUCTIONS[production] for production in self.productions)
        returned = produced[0] if len(produced) == 1 else tuple[produced]
        body.__annotations__ = {**marks, "return": returned}
        return body

    @staticmethod
    def columns(channel: ChannelSpec, production: Production) -> Schema:
        """What is written for a channel."""
        if production is Production.BASE:
            return channel.schema
        return delta_schema(channel.encoding, channel.schema)


def _pure(function: Callable[..., Any], constant: int, schemas: tuple[Schema, ...]) -> Any:
    def body(**frames):  # type: ignore[no-untyped-def]
        made = function(constant, **{name: frame.records for name, frame in frames.items()})
        one = next(iter(frames.values()))
        return tuple(one.of(schema, records) for schema, records in zip(schemas, made, strict=True))

    return body


@dataclass(frozen=True)
class BindingSpec:
    """Tasks that run as one, and what starts them.

    Attributes:
        name: the binding's.
        tasks: those of them that are there.
        on: what starts it: `arrival` of a channel, `every` so many seconds, `after` another binding.
        together: whether all of `on` must have happened, or any.
        mergeable: whether it waits for others that read the same.
    """

    name: str
    tasks: tuple[str, ...]
    on: tuple[tuple[str, str], ...]
    together: bool = False
    mergeable: bool = False

    def declare(
        self, workflow: kn.Workflow, sources: Iterable[str], tasks: Iterable[str], others: Iterable[str]
    ) -> bool:
        """Declare it, as far as what it names is there."""
        members = [name for name in self.tasks if name in tasks]
        triggers: list[Any] = []
        for kind, what in self.on:
            if kind == "arrival" and what in sources:  # or triggers might start each other
                triggers.append(kn.arrival(what))
            elif kind == "every":
                triggers.append(kn.every(f"{what} seconds"))
            elif kind == "after" and what in others:
                triggers.append(kn.after(what))
        if not members:
            return False
        on = [kn.all_of(*triggers)] if self.together and len(triggers) > 1 else triggers
        workflow.workflowette(self.name, members, on=on, merge_window="5 seconds" if self.mergeable else None)
        return True

    def __str__(self) -> str:
        joined = (" and " if self.together else " or ").join(" ".join(item) for item in self.on)
        return f"workflowette({self.name!r}, {list(self.tasks)}, on {joined}{', mergeable' if self.mergeable else ''})"


@dataclass(frozen=True)
class Spec:
    """A workflow."""

    channels: tuple[ChannelSpec, ...]
    tasks: tuple[TaskSpec, ...]
    bindings: tuple[BindingSpec, ...] = ()

    def channel(self, name: str) -> ChannelSpec:
        return next(channel for channel in self.channels if channel.name == name)

    @property
    def sources(self) -> tuple[ChannelSpec, ...]:
        written = {name for task in self.tasks for name in task.writes}
        return tuple(channel for channel in self.channels if channel.name not in written)

    def order(self) -> tuple[TaskSpec, ...]:
        """The tasks, each after those whose output it reads; they are made in such an order."""
        return self.tasks

    def declare(self, flavour: str) -> kn.Workflow:
        workflow = kn.Workflow("generated")
        for channel in self.channels:
            channel.declare(workflow)
        for task in self.tasks:
            outputs = tuple(self.channel(name) for name in task.writes)
            declared = None
            for variant in task.variants:
                body = variant.declare(outputs, task.constant, flavour)
                reads = {port.name: port.channel for port in variant.ports}
                if declared is None:
                    declared = workflow.task(body, reads=reads, writes=task.writes)
                else:
                    declared.variant(body)
        bound: list[str] = []
        sources = [channel.name for channel in self.sources]
        for binding in self.bindings:
            if binding.declare(workflow, sources, [task.name for task in self.tasks], bound):
                bound.append(binding.name)
        return workflow

    def smaller(self) -> Iterable[Spec]:
        """Workflows with less in them."""
        for binding in self.bindings:
            yield replace(self, bindings=tuple(other for other in self.bindings if other != binding))
        read = {name for task in self.tasks for name in task.reads}
        for task in self.tasks:
            if read.isdisjoint(task.writes):
                rest = tuple(other for other in self.tasks if other != task)
                kept = {name for other in rest for name in other.writes}
                channels = tuple(c for c in self.channels if c.name not in task.writes or c.name in kept)
                yield Spec(channels, rest, self.bindings)
        used = read | {name for task in self.tasks for name in task.writes}
        for channel in self.channels:
            if channel.name not in used:
                yield replace(self, channels=tuple(other for other in self.channels if other != channel))

    def __str__(self) -> str:
        return "\n".join(f"    {item}" for item in (*self.channels, *self.tasks, *self.bindings))
