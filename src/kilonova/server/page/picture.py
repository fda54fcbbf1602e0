"""What a page needs to draw channels and tasks as they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kilonova.catalog.overview import Overview
from kilonova.server.page.drawing import Drawing, drawn
from kilonova.server.page.glances import Standing, standing


@dataclass(frozen=True, slots=True)
class Picture:
    """Channels and tasks, where each is drawn, and how the tasks stand."""

    shown: Overview
    drawing: Drawing
    standing: Mapping[str, Standing]


def pictured(shown: Overview, every: Overview) -> Picture:
    """A picture of a part of an overview."""
    return Picture(shown, drawn(shown), {name: standing(task, every) for name, task in shown.tasks.items()})
