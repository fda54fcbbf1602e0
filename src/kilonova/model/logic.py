"""Logic of a variant: how its outputs are computed, as a protocol.

Functions and SQL over whole ports are defined here; `kilonova.query.view_tasks` adds the changes of views. The planner
asks a logic for its refresh methods, the engine compiles it for each run and calls the result; neither distinguishes
its classes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from kilonova.model.channel import ChannelState
from kilonova.model.encoding import Encoding
from kilonova.model.read_plan import ReadPlan
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Schema


class Runtime(Protocol):
    """Executes compiled logic."""

    def sql(self, text: str, inputs: Mapping[str, Any]) -> Any:
        """Return the result of a query, with its inputs by the names that it has in braces."""

    def function(self, pickled: bytes) -> Callable[..., Any]:
        """Return a function that was stored by value."""


class Executable(Protocol):
    """Compiled logic."""

    def call(self, runtime: Runtime, inputs: Mapping[str, Any]) -> Any:
        """Return the outputs for the given inputs, by name."""


@dataclass(frozen=True, slots=True)
class InputLookup:
    """Rows of an input that are enough; see `kilonova.model.read_plan.KeyLookup`.

    Attributes:
        column: the first column of the key of its channel.
        values: ports that read changes, each with a column that has the values.
        columns: the columns to read.
    """

    column: str
    values: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InputRead:
    """Input of an executable.

    Attributes:
        port: the port that it reads.
        stored: whether it reads selected columns, state columns among them, directly from the files.
        weighed: whether weighted rows are read, which add up to the port's rows.
        lookup: which rows and columns are enough; None for all.
    """

    port: str
    stored: bool = False
    weighed: bool = False
    lookup: InputLookup | None = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """Result of a compilation.

    Attributes:
        executable: what is called.
        inputs: its inputs by name.
        encoding: the encoding of the delta that it gives; None for that of the channel, or a strong one.
        relation: the columns of the relation after it, state columns included; None if they do not change.
        trusted: whether the delta of derived logic is known to fit the relation; not if functions of users compute it.
        renamed: the names before of columns that have other names after it, by these.
        without_rows: whether the delta is known to have no rows: only the columns of the relation change.
    """

    executable: Executable
    inputs: Mapping[str, InputRead]
    encoding: Encoding | None = None
    relation: Schema | None = None
    trusted: bool = True
    renamed: Mapping[str, str] = field(default_factory=dict)
    without_rows: bool = False


class RunScale(enum.Enum):
    """RunScale of a run: everything fits into one partition, the changes can be broadcast, or neither."""

    SINGLE_PARTITION = "single partition"
    BROADCAST = "broadcast"
    SHUFFLE = "shuffle"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicInput:
    """Read plan of a port.

    Attributes:
        port: the name of the port.
        channel: its channel.
        reading: the read plan.
        changed: whether it is the change of a channel, and not an empty one.
    """

    port: str
    channel: str
    reading: ReadPlan
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Circumstances of one execution, for which a logic is compiled.

    Attributes:
        writes: the channels that the task writes.
        reads: the read plans of the variant's ports, in their order.
        states: the channels that the task reads or writes, before the run.
        method: the refresh method.
        scale: the scale of the run.
        strong: whether readers of its outputs read their changes.
        analyse: returns the columns of a query over channels, which it has in braces, given with their names.
    """

    writes: tuple[str, ...]
    reads: tuple[LogicInput, ...]
    states: Mapping[str, ChannelState]
    method: RefreshMethod
    scale: RunScale = RunScale.BROADCAST
    strong: bool = False
    analyse: Callable[[str, Collection[str]], Schema] | None = None


@dataclass(frozen=True, slots=True)
class RenamingLogic:
    """Logic that gives columns other names instead of writing their values.

    Attributes:
        logic: the logic.
        ports: the names of the ports that it reads.
    """

    logic: Logic
    ports: frozenset[str]


class Logic(Protocol):
    """Computation of the outputs of a variant.

    Logic that is *derived* follows from the task's definition, as does the variant that recomputes it. So either may
    run in place of the other; its output has the columns of its channels, each key once, and no rows without effect.
    """

    @property
    def language(self) -> str:
        """Language of the text: `sql` or `python`."""

    @property
    def text(self) -> str:
        """Definition, for display."""

    @property
    def removal(self) -> str | None:
        """Condition, in Spark SQL, of the rows of its output that it removes, if that is all it does."""

    @property
    def renaming(self) -> RenamingLogic | None:
        """Logic that does the same by giving columns other names, for an output whose changes nothing reads."""

    @property
    def reads_rows(self) -> bool:
        """Return whether it reads rows of its inputs."""

    @property
    def cost_shares(self) -> Mapping[str, float]:
        """Estimated cost of some of its channels, as a share of what recomputing takes for as many bytes."""

    @property
    def unseen(self) -> tuple[str, ...]:
        """Definitions that its fingerprint does not cover, for display in a plan."""

    @property
    def methods(self) -> tuple[RefreshMethod, ...]:
        """Refresh methods by which it applies a change to existing outputs."""

    @property
    def derived(self) -> bool:
        """Return whether it is derived; see the class."""

    @property
    def shareable(self) -> bool:
        """Return whether steps of equal logic and inputs have equal outputs, whatever their channels are called."""

    def compile(self, run: Compilation) -> Compiled | None:
        """Return what is executed in a run; None if nothing changes."""


def _unchanged(logic: Executable, run: Compilation) -> Compiled:
    return Compiled(logic, {read.port: InputRead(read.port) for read in run.reads})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql:
    """One Spark SQL query over the ports of a variant, whose names are in braces."""

    text: str
    language: ClassVar[str] = "sql"
    unseen: ClassVar[tuple[str, ...]] = ()
    methods: ClassVar[tuple[RefreshMethod, ...]] = (RefreshMethod.INCREMENTAL,)
    derived: ClassVar[bool] = False
    shareable: ClassVar[bool] = True
    removal: ClassVar[None] = None
    renaming: ClassVar[None] = None
    reads_rows: ClassVar[bool] = True
    cost_shares: ClassVar[Mapping[str, float]] = {}

    def compile(self, run: Compilation) -> Compiled:
        """Return the query, which reads every port."""
        return _unchanged(self, run)

    def call(self, runtime: Runtime, inputs: Mapping[str, Any]) -> Any:
        """Return the result of the query."""
        return runtime.sql(self.text, inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """Python function over the ports of a variant, or object of a custom encoding, stored by value with its source.

    Attributes:
        pickled: the function or object.
        source: its source code, for display.
        unseen: definitions that its fingerprint does not cover, for display in a plan; not stored in the catalog.
    """

    pickled: bytes
    source: str
    unseen: tuple[str, ...] = field(default=(), compare=False)
    language: ClassVar[str] = "python"
    methods: ClassVar[tuple[RefreshMethod, ...]] = (RefreshMethod.INCREMENTAL,)
    derived: ClassVar[bool] = False
    shareable: ClassVar[bool] = True
    removal: ClassVar[None] = None
    renaming: ClassVar[None] = None
    reads_rows: ClassVar[bool] = True
    cost_shares: ClassVar[Mapping[str, float]] = {}

    @property
    def text(self) -> str:
        """Source code."""
        return self.source

    def compile(self, run: Compilation) -> Compiled:
        """Return the function, which reads every port."""
        return _unchanged(self, run)

    def call(self, runtime: Runtime, inputs: Mapping[str, Any]) -> Any:
        """Return what the function returns."""
        return runtime.function(self.pickled)(**inputs)
