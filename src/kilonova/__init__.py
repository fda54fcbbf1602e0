"""Public API of Kilonova, which keeps derived data sets up to date on Apache Spark while data and logic change.

The names here are for declaring workflows (`Workflow`, the modes, the encodings) and for using a project
from Python (`open_project`). They are imported on first use, because PySpark is slow to import and
many commands do not need it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilonova.declare.directories import watched_directory
    from kilonova.declare.encodings import custom, increment
    from kilonova.declare.modes import All, Base, Changes, Delta, Inserts, New, Old
    from kilonova.declare.triggers import after, all_of, arrival, cron, every
    from kilonova.declare.view_queries import aggregate, distinct, join, union_all
    from kilonova.declare.workflow import Workflow
    from kilonova.declare.workflowette import Workflowette
    from kilonova.errors import KilonovaError
    from kilonova.model.version import START
    from kilonova.service.project import Project, open_project

__all__ = [
    "START",
    "All",
    "Base",
    "Changes",
    "Delta",
    "Inserts",
    "KilonovaError",
    "New",
    "Old",
    "Project",
    "Workflow",
    "Workflowette",
    "after",
    "aggregate",
    "all_of",
    "arrival",
    "cron",
    "custom",
    "distinct",
    "every",
    "increment",
    "join",
    "open_project",
    "union_all",
    "watched_directory",
]

_HOMES = {
    "KilonovaError": "kilonova.errors",
    "Project": "kilonova.service.project",
    "Workflow": "kilonova.declare.workflow",
    "Workflowette": "kilonova.declare.workflowette",
    **dict.fromkeys(("after", "all_of", "arrival", "cron", "every"), "kilonova.declare.triggers"),
    **dict.fromkeys(("aggregate", "distinct", "join", "union_all"), "kilonova.declare.view_queries"),
    "watched_directory": "kilonova.declare.directories",
    **dict.fromkeys(("custom", "increment"), "kilonova.declare.encodings"),
    "open_project": "kilonova.service.project",
    "START": "kilonova.model.version",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kilonova' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "kilonova.declare.modes")), name)
    globals()[name] = value
    return value
