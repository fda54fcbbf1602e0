"""Guards: conditions on rows that stop the Spark job that meets a row which violates them.

A guard's message begins with a condition of Kilonova's own, as Spark's messages begin with one of Spark's, and goes on
with its fields as JSON. Thus its error is recognized by the condition, whatever texts the rows or the query contain.
"""

from __future__ import annotations

import enum
import json
import re
from typing import Any, assert_never
from urllib.parse import unquote

from pyspark.sql import Column
from pyspark.sql import functions as F

from kilonova.errors import EncodingError, KeyViolation, KilonovaError, SchemaMismatch


class Guard(enum.Enum):
    """Condition that rows must not violate; the members of each are the fields of its error."""

    MISPLACED = "KILONOVA_ROW_IN_WRONG_BUCKET"
    LARGE = "KILONOVA_LARGER_THAN_EXPECTED"
    KEY = "KILONOVA_KEY_VIOLATION"
    SETTABLE = "KILONOVA_COLUMN_NOT_SETTABLE"
    RETRACTION = "KILONOVA_RETRACTED_TOO_OFTEN"
    DISAPPEARED = "KILONOVA_ROWS_DISAPPEARED"
    EXTRA_COLUMN = "KILONOVA_EXTRA_COLUMN"
    MISSING_COLUMN = "KILONOVA_MISSING_COLUMN"
    COLUMN_TWICE = "KILONOVA_COLUMN_TWICE"


class UnmetAssumption(Exception):
    """Rows are not as they were assumed to be, and have to be written otherwise."""


class Misplaced(UnmetAssumption):
    """Rows that were assumed to be in their buckets are not."""


class LargerThanExpected(UnmetAssumption):
    """Rows that were assumed to fit into this process's memory do not."""


def fail(guard: Guard, **fields: Column) -> Column:
    """Return an expression that raises the error of a guard, with the given fields."""
    start = F.lit(f"[{guard.value}] ")
    if not fields:
        return F.raise_error(start)
    named = F.struct(*(value.alias(name) for name, value in fields.items()))
    return F.raise_error(F.concat(start, F.to_json(named, {"ignoreNullFields": "false"})))


_MESSAGE = re.compile(r"\[(KILONOVA_[A-Z_]+)\] (\{.*\})?")


def guard_error(message: str) -> KilonovaError | UnmetAssumption | None:
    """Return the error for the message that a guard raised; None if the message is not of a guard.

    >>> guard_error('[KILONOVA_KEY_VIOLATION] {"key":{"id":null}} SQLSTATE: P0001').problem
    'a key is null or occurs twice, for example {"id":null}'
    >>> guard_error("[KILONOVA_KEY_VIOLATION of somebody else")
    """
    if (found := _MESSAGE.match(message)) is None:
        return None
    return _error(Guard(found[1]), json.loads(found[2] or "{}"))


def _error(guard: Guard, fields: dict[str, Any]) -> KilonovaError | UnmetAssumption:
    file = unquote(fields["file"]) if "file" in fields else None
    match guard:
        case Guard.MISPLACED:
            return Misplaced()
        case Guard.LARGE:
            return LargerThanExpected()
        case Guard.KEY:
            key = json.dumps(fields["key"], ensure_ascii=False, separators=(",", ":"))
            return KeyViolation(
                f"a key is null or occurs twice, for example {key}", hint="Every row needs a key of its own"
            )
        case Guard.SETTABLE:
            return EncodingError(
                "_set names a column that it cannot set",
                column=fields["column"] or "null",
                hint="Name columns of the channel but its key",
            )
        case Guard.RETRACTION:
            return EncodingError(
                "a row was retracted more often than it occurs", hint="A delta must apply to the rows before it"
            )
        case Guard.DISAPPEARED:
            return EncodingError(
                "rows disappeared, which the encoding append cannot express", hint="Read the port with CHANGES"
            )
        case Guard.EXTRA_COLUMN:
            return SchemaMismatch(
                "a line has a column that the channel does not have",
                column=fields["column"],
                path=file,
                hint="Remove it, or declare it",
            )
        case Guard.MISSING_COLUMN:
            return SchemaMismatch(
                "a line lacks the column",
                column=fields["column"],
                path=file,
                hint="Write null where there is no value",
            )
        case Guard.COLUMN_TWICE:
            return SchemaMismatch(
                "a line has the column twice, under its former name and its present one",
                column=fields["column"],
                path=file,
                hint="Remove one of them",
            )
        case _:
            assert_never(guard)
