"""Data that a page needs to draw channels and tasks with their current status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kilonova.catalog.read_models.overview import Overview
from kilonova.web.graph.drawing import Drawing, draw_graph
from kilonova.web.overview_cache import StatusBadge, task_status


@dataclass(frozen=True, slots=True)
class Picture:
    """Channels and tasks, their positions, and the status of the tasks."""

    shown: Overview
    drawing: Drawing
    standing: Mapping[str, StatusBadge]


def graph_picture(shown: Overview, every: Overview) -> Picture:
    """Return the picture of a part of an overview."""
    return Picture(shown, draw_graph(shown), {name: task_status(task, every) for name, task in shown.tasks.items()})
