"""The one exception tree of Kilonova.

::

    KilonovaError
    ├── DeclarationError        a workflow that cannot be: cycles, dangling ports, two writers
    ├── SchemaMismatch          rows whose columns or types do not fit a channel
    ├── KeyViolation            null or duplicate keys where keys are declared
    ├── CheckFailed             rows that violate a check of their channel
    ├── EncodingError           a delta that its encoding cannot express or apply
    ├── QueryError              SQL that cannot be understood, or that names what is not there
    ├── UnknownName             a channel, task, point or run that is not there
    ├── UnreadableInput         files that cannot be read
    ├── KeyReused               an idempotency key that stands for another ingest
    ├── TooLarge                an upload of more than the server takes
    ├── TaskFailed              user code that raised or returned the wrong thing
    ├── StorageFailed           the warehouse could not be written or read
    ├── BlockDamaged            a block is not as it was written
    ├── SparkUnavailable        Spark could not start, or died
    ├── CatalogError            the metadata database cannot be used as it is
    │   └── CatalogAway         it cannot be reached now
    │       └── CatalogFull     its disk is full
    ├── Busy                    somebody else is at it: try again later
    ├── LeaseLost               this run was taken over by another process
    ├── Cancelled               somebody has cancelled this run
    ├── StateError              what is asked does not go with how a run stands
    ├── Undelivered             an outlet did not take an event
    ├── SettingsError           kilonova.toml, the environment or a flag is wrong
    ├── BindingsFailed          several bindings failed: in `kilonova.service.reports`, with the report
    └── BrokenInvariant         a defect of Kilonova itself

Every error says what is wrong, where (the fields that apply) and what to do about it; the text is put
together here and nowhere else. `code` is stable, `transient` says whether trying again may help.
"""

from __future__ import annotations

import difflib
from typing import ClassVar

FIELDS = ("binding", "channel", "task", "column", "check", "point", "run", "path")


class KilonovaError(Exception):
    """The root of all errors that Kilonova raises on purpose.

    Args:
        problem: what is wrong, one sentence without a full stop.
        hint: what to do about it, one sentence without a full stop.
        binding: the binding concerned.
        channel: the channel concerned.
        task: the task concerned.
        column: the column concerned.
        check: the check concerned.
        point: the point concerned.
        run: the run concerned.
        path: the file or URL concerned.
    """

    code: ClassVar[str] = "error"
    transient: ClassVar[bool] = False

    def __init__(
        self,
        problem: str,
        *,
        hint: str | None = None,
        binding: str | None = None,
        channel: str | None = None,
        task: str | None = None,
        column: str | None = None,
        check: str | None = None,
        point: int | None = None,
        run: int | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.binding = binding
        self.channel = channel
        self.task = task
        self.column = column
        self.check = check
        self.point = point
        self.run = run
        self.path = path

    @property
    def fields(self) -> dict[str, str | int]:
        """The fields that apply, by name."""
        named = {name: getattr(self, name) for name in FIELDS}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def told(self) -> dict[str, str | int | None]:
        """The error with its code and fields, for machines."""
        return {"error": self.code, "problem": self.problem, "hint": self.hint, **self.fields}

    def within(self, **fields: str | int) -> KilonovaError:
        """Add context while unwinding; fields that are already set stay as they are."""
        for name, value in fields.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __str__(self) -> str:
        where = ", ".join(f"{name} {value}" for name, value in self.fields.items())
        text = f"{where}: {self.problem}" if where else self.problem
        if not self.hint:
            return text
        return f"{text}. {self.hint}" + ("" if self.hint.endswith("?") else ".")


class DeclarationError(KilonovaError):
    """A workflow that cannot be: a cycle, a dangling port, two writers of one channel, a bad mode."""

    code = "declaration"


class SchemaMismatch(KilonovaError):
    """Rows whose columns or types do not fit the schema of a channel."""

    code = "schema"


class KeyViolation(KilonovaError):
    """Null or duplicate keys in a channel that declares a key."""

    code = "key"


class CheckFailed(KilonovaError):
    """Rows that violate a check of their channel; none of them was published."""

    code = "check"


class EncodingError(KilonovaError):
    """A delta that its encoding cannot express, or that does not apply to the snapshot before it."""

    code = "encoding"


class QueryError(KilonovaError):
    """SQL that cannot be understood, or that names what is not there."""

    code = "query"


class UnknownName(KilonovaError):
    """A channel, task, point or run that is not there."""

    code = "unknown"


class UnreadableInput(KilonovaError):
    """Files that cannot be read."""

    code = "unreadable"


class KeyReused(KilonovaError):
    """An idempotency key that stands for another ingest already."""

    code = "key-reused"


class TooLarge(KilonovaError):
    """An upload of more than the server takes."""

    code = "large"


class TaskFailed(KilonovaError):
    """User code that raised, or that returned something other than what it declares."""

    code = "task"


class StorageFailed(KilonovaError):
    """The warehouse could not be read or written."""

    code = "storage"
    transient = True


class BlockDamaged(KilonovaError):
    """A block in the warehouse is not as it was written: files are missing, foreign, or have changed."""

    code = "damaged"


class SparkUnavailable(KilonovaError):
    """Spark could not start, or died on the way."""

    code = "spark"
    transient = True


class CatalogError(KilonovaError):
    """The metadata database cannot be used as it is."""

    code = "catalog"


class CatalogAway(CatalogError):
    """The metadata database cannot be reached; it may be again."""

    transient = True


class CatalogFull(CatalogAway):
    """The disk of the metadata database is full."""


class Busy(KilonovaError):
    """Somebody else is at it; trying again later may help."""

    code = "busy"
    transient = True


class LeaseLost(KilonovaError):
    """This run was taken over by another process, so it must not commit."""

    code = "lease"


class Cancelled(KilonovaError):
    """Somebody has cancelled this run; nothing of it was published."""

    code = "cancelled"


class StateError(KilonovaError):
    """What is asked does not go with how a run stands: it has ended, it goes on, or it is not of that kind."""

    code = "state"


class Undelivered(KilonovaError):
    """An outlet did not take an event; it may later."""

    code = "undelivered"
    transient = True


class SettingsError(KilonovaError):
    """`kilonova.toml`, the environment or a flag is wrong."""

    code = "settings"


class BrokenInvariant(KilonovaError):
    """Something that must always hold does not: a defect of Kilonova."""

    code = "invariant"


_LISTED = 20
"""How many names a hint lists."""


def may_pass(error: BaseException) -> bool:
    """Whether what failed may succeed when it is tried again: the one place that decides so, for whoever tries.

    >>> may_pass(Busy("another run has this task")), may_pass(ValueError("no number"))
    (True, False)
    """
    return isinstance(error, KilonovaError) and error.transient


def closest(name: str, names: list[str]) -> str | None:
    """A hint that proposes the most similar of `names`, or lists them, or some of them where there are many.

    >>> closest("flihgts", ["flights", "planes"])
    'Did you mean flights?'
    >>> closest("x", [f"channel_{number}" for number in range(2500)])[:52]
    'There are 2500, among them: channel_0, channel_1, ch'
    """
    match = difflib.get_close_matches(name, names, n=1)
    if match:
        return f"Did you mean {match[0]}?"
    if not names:
        return "There are none yet"
    listed = ", ".join(sorted(names)[:_LISTED])
    return f"There are: {listed}" if len(names) <= _LISTED else f"There are {len(names)}, among them: {listed}"
