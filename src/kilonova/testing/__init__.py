"""Helpers for testing tasks, and the plain-Python reference that says what *correct* means.

`sandbox` gives a workflow channels of its own for the time of a test; `check_variants` checks that the variants
of a task agree, and `check_encoding` that the functions of a custom encoding obey the laws; `recomputed` makes every
derived channel of a project again from its sources.
"""

from kilonova.testing.laws import check_encoding
from kilonova.testing.recompute import Recomputed, differing, recomputed
from kilonova.testing.sandbox import Sandbox, check_variants, sandbox

__all__ = ["Recomputed", "Sandbox", "check_encoding", "check_variants", "differing", "recomputed", "sandbox"]
