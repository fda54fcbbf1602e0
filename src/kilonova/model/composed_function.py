"""Function of a task that is composed of parts, so that a change of one of them can be told from changes of others.

A *column function* computes one column of the rows that the task's own function, the *body*, returns; a *condition*
selects some of its rows. If only column functions change, the other columns of the output are right, and if only the
condition changes, the rows that satisfy both conditions are: the output need not be recomputed (logic evolution, 2.7).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from kilonova.model.logic import Function


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedFunction(Function):
    """Function with the fingerprints of its parts.

    Attributes:
        body: the fingerprint of the body.
        columns: the columns that column functions compute, each with the fingerprint of its function, by name.
        where: the condition that the rows of the result satisfy, in Spark SQL; None if there is none.
        per_row: whether each row of the result depends on one row of the only input.
    """

    body: str
    columns: tuple[tuple[str, str], ...] = ()
    where: str | None = None
    per_row: bool = False

    @property
    def parts(self) -> str:
        """Its parts, as JSON."""
        return json.dumps({"body": self.body, "columns": self.columns, "where": self.where, "per_row": self.per_row})

    @property
    def fingerprint(self) -> str:
        """A text that is equal for functions whose parts do the same."""
        return hashlib.sha256(json.dumps([self.body, self.columns, self.where]).encode()).hexdigest()[:32]


def composed_function(pickled: bytes, source: str, parts: str) -> ComposedFunction:
    """Return a composed function from its pickled form, its source and its `parts`."""
    content = json.loads(parts)
    return ComposedFunction(
        pickled=pickled,
        source=source,
        body=content["body"],
        columns=tuple((name, digest) for name, digest in content["columns"]),
        where=content["where"],
        per_row=content["per_row"],
    )
