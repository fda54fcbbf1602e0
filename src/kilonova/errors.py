"""Exception hierarchy of Kilonova.

    KilonovaError
    ├── DeclarationError        an invalid workflow: cycles, dangling ports, two writers
    ├── SchemaMismatch          rows whose columns or types do not fit a channel
    ├── KeyViolation            null or duplicate keys where keys are declared
    ├── CheckFailed             rows that violate a check of their channel
    ├── BoundViolated           output that would violate a bound on inconsistency, or rows that do
    ├── EncodingError           a delta that its encoding cannot express or apply
    ├── QueryError              SQL that cannot be parsed, or that names something that does not exist
    ├── NotFound                a channel, task, point or run that does not exist
    ├── InputError              input files that cannot be read
    ├── KeyReused               an idempotency key that belongs to another ingest
    ├── PayloadTooLarge         an upload that exceeds the server's limit
    ├── UnsupportedMediaType    an upload in a format that is not known
    ├── TaskFailed              user code that raised or returned an invalid result
    ├── StorageFailed           the warehouse could not be written or read
    ├── BlockDamaged            a block differs from what was written
    ├── SparkUnavailable        Spark could not start, or died
    ├── CatalogError            the metadata database cannot be used in its present state
    │   └── CatalogUnavailable  it cannot be reached now
    │       └── CatalogFull     its disk is full
    ├── Conflict                another run or process holds the resource: try again later
    ├── LeaseLost               this run was taken over by another process
    ├── Cancelled               this run was cancelled
    ├── InvalidState            the request is not allowed in the run's state
    ├── DeliveryError           a subscription did not accept an event
    ├── SettingsError           kilonova.toml, the environment or a flag is wrong
    ├── BindingsFailed          several bindings failed: in `kilonova.service.reports`, with the report
    └── BrokenInvariant         a defect of Kilonova itself

Every error has a problem, a hint and its location (the fields that apply); the message is built from them only here,
in this order: "there is no such channel. Did you mean flights? [channel flihgts]". `code` is stable; `transient` is
whether a retry may succeed.
"""

from __future__ import annotations

import difflib
import re
from typing import ClassVar

FIELDS = ("binding", "channel", "task", "column", "check", "point", "run", "path")


class KilonovaError(Exception):
    """Base class of all errors that Kilonova raises deliberately.

    Args:
        problem: the problem, one sentence without a full stop.
        hint: the remedy, one sentence without a full stop; by default that of the class, if it has one.
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
    remedy: ClassVar[str | None] = None
    """Hint of errors of this class that have none of their own."""

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
        self.hint = hint or self.remedy
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
        """Fields that apply, by name."""
        named = {name: getattr(self, name) for name in FIELDS}
        return {name: value for name, value in named.items() if value is not None}

    def to_dict(self) -> dict[str, str | int | None]:
        """Return the error with its code and fields as a dictionary for serialization."""
        return {"error": self.code, "problem": self.problem, "hint": self.hint, **self.fields}

    def with_context(self, **fields: str | int) -> KilonovaError:
        """Add context while unwinding; fields that are already set are not changed.

        Args:
            fields: the values of fields, by name.
        """
        for name, value in fields.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def without_path(self, path: str, name: str) -> None:
        """Replace a path, which the user does not know, by a name, while unwinding."""
        known = re.compile(rf"(file:/*)?{re.escape(path)}")
        for field in ("problem", "hint", "path"):
            if (text := getattr(self, field)) is not None:
                setattr(self, field, known.sub(lambda _: name, text))

    def __str__(self) -> str:
        where = ", ".join(f"{name} {value}" for name, value in self.fields.items())
        text = self.problem
        if self.hint:
            text = " ".join(each if each.endswith("?") else f"{each}." for each in (self.problem, self.hint))
        return f"{text} [{where}]" if where else text


class DeclarationError(KilonovaError):
    """Invalid workflow: a cycle, a dangling port, two writers of one channel, a bad mode."""

    code = "declaration"


class SchemaMismatch(KilonovaError):
    """Rows whose columns or types do not fit the schema of a channel."""

    code = "schema"


class KeyViolation(KilonovaError):
    """Null or duplicate keys in a channel that declares a key."""

    code = "key"


class CheckFailed(KilonovaError):
    """Rows that violate a check of their channel; none of the rows was published."""

    code = "check"


class BoundViolated(KilonovaError):
    """Output that would violate a bound on inconsistency, or rows that readers are not given because they do."""

    code = "bound"


class EncodingError(KilonovaError):
    """Delta that its encoding cannot express, or that does not apply to the snapshot before it."""

    code = "encoding"


class QueryError(KilonovaError):
    """SQL that cannot be parsed, or that names something that does not exist."""

    code = "query"


class NotFound(KilonovaError):
    """Channel, task, point or run that does not exist."""

    code = "unknown"


class InputError(KilonovaError):
    """Input files that cannot be read."""

    code = "unreadable"


class KeyReused(KilonovaError):
    """Idempotency key that already belongs to another ingest."""

    code = "key-reused"


class PayloadTooLarge(KilonovaError):
    """Upload that exceeds the server's limit."""

    code = "large"


class UnsupportedMediaType(KilonovaError):
    """Upload in a format that is not known."""

    code = "media-type"


class TaskFailed(KilonovaError):
    """User code that raised, or whose result does not match its declaration."""

    code = "task"
    remedy = "The log of the run has the whole traceback; nothing was published"


class StorageFailed(KilonovaError):
    """Failure to read or write the warehouse."""

    code = "storage"
    transient = True
    remedy = "Check that the store can be reached, its permissions and its space; nothing was published"


class BlockDamaged(KilonovaError):
    """Block in the warehouse that differs from what was written: files are missing, foreign, or have changed."""

    code = "damaged"


class SparkUnavailable(KilonovaError):
    """Spark that could not start, or that died during the operation."""

    code = "spark"
    transient = True
    remedy = "Try again"


class CatalogError(KilonovaError):
    """Metadata database that cannot be used in its present state."""

    code = "catalog"
    remedy = "Check the database and its permissions; nothing was changed"


class CatalogUnavailable(CatalogError):
    """Metadata database that cannot be reached now; a retry may succeed."""

    transient = True


class CatalogFull(CatalogUnavailable):
    """Full disk of the metadata database."""


class Conflict(KilonovaError):
    """Conflict: another run or process holds the resource; a later retry may succeed."""

    code = "busy"
    transient = True
    remedy = "Try again later"


class LeaseLost(KilonovaError):
    """Lost lease: another process has taken this run over, so it must not commit."""

    code = "lease"
    remedy = "Its tasks will run again; nothing was published"


class Cancelled(KilonovaError):
    """Cancelled run; nothing of it was published."""

    code = "cancelled"
    remedy = "Nothing was published"


class InvalidState(KilonovaError):
    """Request that the state of a run does not allow: it has ended, is still running, or is of another kind."""

    code = "state"


class DeliveryError(KilonovaError):
    """Event that a subscription did not accept; a later attempt may succeed."""

    code = "delivery-failed"
    transient = True


class SettingsError(KilonovaError):
    """Invalid setting in `kilonova.toml`, the environment or a flag."""

    code = "settings"


class BrokenInvariant(KilonovaError):
    """Violated invariant: a defect of Kilonova."""

    code = "invariant"
    remedy = "This is a defect of Kilonova: please report it, with the log of the run"


def describe_defect(error: BaseException) -> dict[str, str | int | None]:
    """Return an error that is not one of Kilonova's as a dictionary, like `KilonovaError.to_dict`.

    >>> describe_defect(ValueError("no number"))["problem"]
    'an unexpected ValueError: no number'
    """
    problem = f"an unexpected {type(error).__name__}" + (f": {error}" if str(error) else "")
    return {"error": "defect", "problem": problem, "hint": BrokenInvariant.remedy}


_LISTED = 20
"""Maximum number of names that a hint lists."""


def is_transient(error: BaseException) -> bool:
    """Return whether a failed operation may succeed when retried; every retry decides by this function alone.

    >>> is_transient(Conflict("another run has this task")), is_transient(ValueError("no number"))
    (True, False)
    """
    return isinstance(error, KilonovaError) and error.transient


def closest_name(name: str, names: list[str]) -> str | None:
    """Return a hint that proposes the most similar of `names`, or lists them, or some of them if there are many.

    >>> closest_name("flihgts", ["flights", "planes"])
    'Did you mean flights?'
    >>> closest_name("x", [f"channel_{number}" for number in range(2500)])[:52]
    'There are 2500, among them: channel_0, channel_1, ch'
    """
    match = difflib.get_close_matches(name, names, n=1)
    if match:
        return f"Did you mean {match[0]}?"
    if not names:
        return "There are none yet"
    listed = ", ".join(sorted(names)[:_LISTED])
    return f"There are: {listed}" if len(names) <= _LISTED else f"There are {len(names)}, among them: {listed}"
