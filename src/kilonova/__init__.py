"""Kilonova keeps derived data sets up to date on Apache Spark while data and logic keep changing.

The names here are for declaring workflows (`Workflow`, the modes, the encodings) and for using a project
from Python (`open_project`). They are imported when first used, because PySpark takes a while to import and
many commands do without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilonova.declare.modes import All, Base, Changes, Delta, Inserts, New, Old
    from kilonova.declare.workflow import Workflow, custom, increment
    from kilonova.errors import KilonovaError
    from kilonova.service.project import Project, open_project

__all__ = [
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
    "custom",
    "increment",
    "open_project",
]

_HOMES = {
    "KilonovaError": "kilonova.errors",
    "Project": "kilonova.service.project",
    "Workflow": "kilonova.declare.workflow",
    "custom": "kilonova.declare.workflow",
    "increment": "kilonova.declare.workflow",
    "open_project": "kilonova.service.project",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kilonova' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "kilonova.declare.modes")), name)
    globals()[name] = value
    return value
