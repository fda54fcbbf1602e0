"""Helpers for testing tasks, and the plain-Python reference that defines *correct*.

`sandbox` gives a workflow temporary channels for a test; `check_variants` checks that the variants of a task agree, and
`check_encoding` that the functions of a custom encoding obey the laws; `recompute` recomputes every derived channel of
a project from its sources.
"""

from kilonova.testing.laws import check_encoding
from kilonova.testing.recompute import Recomputed, count_differences, recompute
from kilonova.testing.sandbox import Sandbox, check_variants, sandbox

__all__ = ["Recomputed", "Sandbox", "check_encoding", "check_variants", "count_differences", "recompute", "sandbox"]
