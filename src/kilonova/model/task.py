"""A task is a processing step; its parameters are its ports, and its variants are ways to do it.

A *mode* says what a port is fed (Nova, section 2.2): ALL the snapshot at the newest readable point; NEW what
came since the cursor, in the channel's encoding; OLD the snapshot at the cursor, beside NEW; CHANGES what NEW
gives, as a strong delta; INSERTS the rows of CHANGES where none is taken away. A *production* says what a
variant writes: a whole new BASE, or a DELTA to what is there.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from kilonova.errors import DeclarationError
from kilonova.model.schedule import Schedule


class Mode(enum.Enum):
    """How a port reads."""

    ALL = "all"
    NEW = "new"
    OLD = "old"
    CHANGES = "changes"
    INSERTS = "inserts"

    @property
    def advances(self) -> bool:
        """Whether the port reads what came since the cursor, so that its cursor decides what it is fed."""
        return self in (Mode.NEW, Mode.CHANGES, Mode.INSERTS)


class Production(enum.Enum):
    """How a variant writes."""

    BASE = "base"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class Port:
    """A parameter of a variant, bound to a channel."""

    name: str
    channel: str
    mode: Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql:
    """What a variant does, as one Spark SQL query over its ports."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """Python function of a variant, or object of a custom encoding, kept by value beside its source.

    Attributes:
        pickled: the function or object.
        source: its source, for people.
        unseen: what its fingerprint does not cover, for people who plan it; the catalog does not keep it.
    """

    pickled: bytes
    source: str
    unseen: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a variant does, as the change of one Spark SQL query over channels; see `kilonova.query`."""

    text: str


Logic = Sql | Query | Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to do a task.

    Attributes:
        name: unique within the task.
        ports: what it reads, in the order of its parameters.
        productions: what it writes to each of the task's outputs, in their order.
        logic: what it does.
        fingerprint: equal for definitions that do the same, whatever their formatting.

    Raises:
        DeclarationError: OLD stands without NEW beside it, or a port occurs twice.
    """

    name: str
    ports: tuple[Port, ...]
    productions: tuple[Production, ...]
    logic: Logic
    fingerprint: str

    def __post_init__(self) -> None:
        for port in self.ports:
            if port.mode is Mode.OLD and not any(
                other.channel == port.channel and other.mode.advances for other in self.ports
            ):
                raise DeclarationError(
                    f"the port {port.name} reads OLD without a port beside it that reads the new rows",
                    channel=port.channel,
                    hint="Add a parameter for the same channel with mode New, Changes or Inserts",
                )
        names = [port.name for port in self.ports]
        if len(set(names)) < len(names):
            raise DeclarationError(f"a port occurs twice among {', '.join(names)}")
        if not self.ports:
            raise DeclarationError("a variant must read something", hint="Data from outside comes by ingest")

    @property
    def incremental(self) -> bool:
        """Whether some port reads only what is new."""
        return any(port.mode.advances for port in self.ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A processing step with the channels it writes and the variants that can do it.

    Attributes:
        name: unique within a catalog.
        writes: the channels that it writes.
        variants: the ways to do it, the preferred one first.
        schedule: when it may run by itself; None for whenever something is new.
        note: how it is kept up to date, for people who plan it; the catalog does not keep it.
        written: a view's query as its author wrote it, for people; empty for other tasks.

    Raises:
        DeclarationError: there is no variant, two have one name, a channel is written twice, or a variant does not say
            of each output what it writes there.
    """

    name: str
    writes: tuple[str, ...]
    variants: tuple[Variant, ...]
    schedule: Schedule | None = None
    note: str = field(default="", compare=False)
    written: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.variants:
            raise DeclarationError("the task has no variant", task=self.name)
        if len({variant.name for variant in self.variants}) < len(self.variants):
            raise DeclarationError("two variants have one name", task=self.name)
        if len(set(self.writes)) < len(self.writes) or not self.writes:
            raise DeclarationError("a task writes one or more channels, each once", task=self.name)
        for variant in self.variants:
            if len(variant.productions) != len(self.writes):
                raise DeclarationError(
                    f"the variant {variant.name} is annotated with {len(variant.productions)} results, but the task "
                    f"writes {len(self.writes)} channels",
                    task=self.name,
                    hint="Annotate it with a kn.Base or kn.Delta for each channel in its order, or with one for all",
                )

    @property
    def reads(self) -> tuple[str, ...]:
        """The channels that any variant reads, its own outputs left out."""
        channels = (port.channel for variant in self.variants for port in variant.ports)
        return tuple(dict.fromkeys(channel for channel in channels if channel not in self.writes))

    @property
    def loops(self) -> tuple[str, ...]:
        """The own outputs of which some variant reads what came since its cursor (bulk stages: loopback)."""
        ports = (port for variant in self.variants for port in variant.ports if port.mode.advances)
        return tuple(dict.fromkeys(port.channel for port in ports if port.channel in self.writes))

    @property
    def fingerprint(self) -> str:
        """Equal for tasks whose variants do the same to the same channels."""
        parts: Iterable[str] = (
            f"{variant.name}:{productions_to_text(variant.productions)}:{variant.fingerprint}:"
            + ",".join(f"{port.name}={port.channel}/{port.mode.value}" for port in variant.ports)
            for variant in sorted(self.variants, key=lambda variant: variant.name)
        )
        return "|".join((",".join(self.writes), *parts))


def productions_to_text(productions: tuple[Production, ...]) -> str:
    """Productions per output as the catalog keeps them, where one stands for all that are alike.

    >>> productions_to_text((Production.BASE, Production.DELTA)), productions_to_text((Production.BASE,) * 2)
    ('base,delta', 'base')
    """
    return ",".join(production.value for production in (productions[:1] if len(set(productions)) == 1 else productions))


def productions_from_text(text: str, outputs: int) -> tuple[Production, ...]:
    """Return what `productions_to_text` was made of, for so many outputs.

    >>> [production.value for production in productions_from_text("delta", 2)]
    ['delta', 'delta']
    """
    productions = tuple(map(Production, text.split(",")))
    return productions * outputs if len(productions) == 1 else productions
