"""Function of a task that is composed of parts, so that a change of one of them can be told from changes of others.

A *column function* computes one column of the rows that the task's own function, the *body*, returns. If only column
functions change, the other columns of the output are right, and it need not be recomputed (logic evolution, 2.7).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from kilonova.model.logic import Function


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedFunction(Function):
    """Function with the fingerprints of its parts.

    Attributes:
        body: the fingerprint of the body.
        columns: the columns that column functions compute, each with the fingerprint of its function, by name.
    """

    body: str
    columns: tuple[tuple[str, str], ...]

    @property
    def parts(self) -> str:
        """The fingerprints of its parts, as JSON."""
        return json.dumps({"body": self.body, "columns": self.columns})


def composed_function(pickled: bytes, source: str, parts: str) -> ComposedFunction:
    """Return a composed function from its pickled form, its source and its `parts`."""
    content = json.loads(parts)
    columns = tuple((name, digest) for name, digest in content["columns"])
    return ComposedFunction(pickled=pickled, source=source, body=content["body"], columns=columns)
