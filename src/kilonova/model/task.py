"""A task is a processing step; its parameters are its ports, and its variants are alternative implementations.

A *mode* defines the input of a port (Nova, section 2.2): ALL is the snapshot at the newest readable point; NEW the
change since the cursor, in the channel's encoding; OLD the snapshot at the cursor, together with NEW; CHANGES the
change of NEW as a strong delta; INSERTS the rows of CHANGES where none is removed. A *production* defines what a
variant writes: a whole new BASE, or a DELTA to the existing relation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from kilonova.errors import DeclarationError
from kilonova.model.logic import Logic
from kilonova.model.required_columns import RequiredColumn
from kilonova.model.schedule import Schedule

FROM_SOURCES = "from sources"
"""Name of the variant that recomputes a view from the channels that its query names, not from what it materializes."""


class Mode(enum.Enum):
    """Mode in which a port reads its channel."""

    ALL = "all"
    NEW = "new"
    OLD = "old"
    CHANGES = "changes"
    INSERTS = "inserts"

    @property
    def advances(self) -> bool:
        """Return whether the port reads the change since the cursor, so that its cursor determines its input."""
        return self in (Mode.NEW, Mode.CHANGES, Mode.INSERTS)


class Production(enum.Enum):
    """Kind of block that a variant writes."""

    BASE = "base"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class Port:
    """A parameter of a variant, bound to a channel."""

    name: str
    channel: str
    mode: Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One implementation of a task.

    Attributes:
        name: the name, unique within the task.
        ports: its ports, in the order of its parameters.
        productions: the kind of block that it writes to each of the task's outputs, in their order.
        logic: its logic.
        fingerprint: a text that is equal for definitions that do the same, whatever their formatting.
        from_version: of a migration, the logic version whose output it changes to that of its own (logic evolution,
            2.6); None for other variants.

    Raises:
        DeclarationError: OLD is used without NEW, a port occurs twice, or a migration reads anything but snapshots.
    """

    name: str
    ports: tuple[Port, ...]
    productions: tuple[Production, ...]
    logic: Logic
    fingerprint: str
    from_version: int | None = None

    def __post_init__(self) -> None:
        for port in self.ports:
            if self.from_version is not None and port.mode is not Mode.ALL:
                raise DeclarationError(
                    f"the port {port.name} of a migration has the mode {port.mode.name.title()}",
                    channel=port.channel,
                    hint="Use kn.All: it is the input as the earlier version has read it, and there is no newer one",
                )
            if port.mode is Mode.OLD and not any(
                other.channel == port.channel and other.mode.advances for other in self.ports
            ):
                raise DeclarationError(
                    f"the port {port.name} has the mode Old, but no other port reads the new rows of its channel",
                    channel=port.channel,
                    hint="Add a parameter for the same channel with mode New, Changes or Inserts",
                )
        names = [port.name for port in self.ports]
        if len(set(names)) < len(names):
            raise DeclarationError(f"a port occurs twice among {', '.join(names)}", hint="Name each once")
        if not self.ports:
            raise DeclarationError(
                "a variant must have at least one port",
                hint="Write data from outside with an ingest",
            )

    @property
    def incremental(self) -> bool:
        """Return whether some port reads only new input."""
        return any(port.mode.advances for port in self.ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A processing step with the channels it writes and its variants.

    Attributes:
        name: the name, unique within a catalog.
        writes: the channels that it writes.
        variants: its variants, the preferred one first.
        schedule: the times at which it may run automatically; None for whenever there is new input.
        note: how it is kept up to date, for display in a plan; not stored in the catalog.
        view: the view that it maintains, or for which it maintains a materialized relation; None for other tasks.
        written: a view's query as its author wrote it, for display; empty for other tasks.
        migrations: the variants that change the output of earlier logic versions to that of this one.
        requires: the columns of inputs on which it relies.

    Raises:
        DeclarationError: there is no variant, two variants have the same name, a channel is written twice, or a variant
            does not declare a production for each output.
    """

    name: str
    writes: tuple[str, ...]
    variants: tuple[Variant, ...]
    schedule: Schedule | None = None
    view: str | None = None
    note: str = field(default="", compare=False)
    written: str = field(default="", compare=False)
    migrations: tuple[Variant, ...] = field(default=(), compare=False)
    requires: tuple[RequiredColumn, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.variants:
            raise DeclarationError("the task has no variant", task=self.name, hint="Declare one")
        every = (*self.variants, *self.migrations)
        if len({variant.name for variant in every}) < len(every):
            raise DeclarationError("two variants have the same name", task=self.name, hint="Rename one of them")
        if len(set(self.writes)) < len(self.writes) or not self.writes:
            raise DeclarationError(
                "a task must write at least one channel, and each only once", task=self.name, hint="Correct writes=…"
            )
        for variant in every:
            if len(variant.productions) != len(self.writes):
                raise DeclarationError(
                    f"the variant {variant.name} is annotated with {len(variant.productions)} results, but the task "
                    f"writes {len(self.writes)} channels",
                    task=self.name,
                    hint="Annotate it with a kn.Base or kn.Delta for each channel in its order, or with one for all",
                )

    @property
    def from_sources(self) -> Variant | None:
        """The variant that recomputes a view from the channels that its query names; None if it has none."""
        return next((variant for variant in self.variants if variant.name == FROM_SOURCES), None)

    @property
    def reads(self) -> tuple[str, ...]:
        """The channels that variants read, without the task's own outputs, and those that only `from_sources` reads."""
        channels = (port.channel for variant in self.variants if variant.name != FROM_SOURCES for port in variant.ports)
        return tuple(dict.fromkeys(channel for channel in channels if channel not in self.writes))

    @property
    def sources(self) -> tuple[str, ...]:
        """The channels that `from_sources` reads; none without it."""
        return () if self.from_sources is None else tuple(port.channel for port in self.from_sources.ports)

    @property
    def migrated(self) -> tuple[str, ...]:
        """The channels that migrations read."""
        return tuple(dict.fromkeys(port.channel for variant in self.migrations for port in variant.ports))

    @property
    def relies_on(self) -> tuple[str, ...]:
        """The channels of which it requires columns."""
        return tuple(dict.fromkeys(column.channel for column in self.requires))

    @property
    def loops(self) -> tuple[str, ...]:
        """The task's own outputs of which some variant reads the change since its cursor (bulk stages: loopback)."""
        ports = (port for variant in self.variants for port in variant.ports if port.mode.advances)
        return tuple(dict.fromkeys(port.channel for port in ports if port.channel in self.writes))

    def migrations_from(self, version: int) -> tuple[Variant, ...]:
        """Return the variants that, one after the other, change the output of an earlier logic version."""
        return tuple(each for each in self.migrations if each.from_version == version)

    @property
    def fingerprint(self) -> str:
        """A text that is equal for tasks whose variants do the same to the same channels."""
        parts: Iterable[str] = (
            f"{variant.name}:{productions_to_text(variant.productions)}:{variant.fingerprint}:"
            + ",".join(f"{port.name}={port.channel}/{port.mode.value}" for port in variant.ports)
            for variant in sorted(self.variants, key=lambda variant: variant.name)
        )
        return "|".join((",".join(self.writes), *parts))


def productions_to_text(productions: tuple[Production, ...]) -> str:
    """Return productions per output as text for the catalog; a single one stands for all if they are equal.

    >>> productions_to_text((Production.BASE, Production.DELTA)), productions_to_text((Production.BASE,) * 2)
    ('base,delta', 'base')
    """
    return ",".join(production.value for production in (productions[:1] if len(set(productions)) == 1 else productions))


def productions_from_text(text: str, outputs: int) -> tuple[Production, ...]:
    """Return the productions that `productions_to_text` encoded, for the given number of outputs.

    >>> [production.value for production in productions_from_text("delta", 2)]
    ['delta', 'delta']
    """
    productions = tuple(map(Production, text.split(",")))
    return productions * outputs if len(productions) == 1 else productions
