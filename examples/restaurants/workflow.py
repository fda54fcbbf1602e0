"""The workflow: pages that may be about places are joined with the crawl, and restaurants are extracted from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import kilonova as kn


def field_of(name: str) -> str:
    """Return the expression that extracts a field from a page."""
    return f"regexp_extract(c.content, '{name}=([^;]*);', 1)"


CONFIDENCE = f"CAST({field_of('confidence')} AS DOUBLE)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """Logic of the extraction.

    Attributes:
        threshold: the confidence above which a page is a restaurant.
        fields: the expression of each extracted field.
    """

    threshold: float = 0.5
    fields: Mapping[str, str] = field(
        default_factory=lambda: {name: field_of(name) for name in ("name", "address", "hours")}
    )

    @property
    def query(self) -> str:
        """The query of the view."""
        columns = ", ".join(f"{expression} AS {name}" for name, expression in self.fields.items())
        return (
            f"SELECT p.url, {columns}, {CONFIDENCE} AS confidence"
            f" FROM places p JOIN crawl c ON p.url = c.url WHERE {CONFIDENCE} > {self.threshold}"
        )


FIRST = Extraction()
WITH_HOURS = {**FIRST.fields, "hours": f"replace({field_of('hours')}, '-', ' to ')"}
WITH_MENUS = {**WITH_HOURS, "menu": field_of("menu")}

CHANGES: Mapping[str, Extraction] = {
    "the confidence threshold is raised": Extraction(threshold=0.8),
    "the confidence threshold is lowered": Extraction(threshold=0.3),
    "hours are extracted differently": Extraction(threshold=0.3, fields=WITH_HOURS),
    "menus are extracted as well": Extraction(threshold=0.3, fields=WITH_MENUS),
    "addresses are left out": Extraction(
        threshold=0.3, fields={name: each for name, each in WITH_MENUS.items() if name != "address"}
    ),
}
"""The changes of section 1.3, one after the other."""


def restaurants(extraction: Extraction) -> kn.Workflow:
    """Return the workflow with an extraction; the number of restaurants by street is derived from its output."""
    wf = kn.Workflow("restaurants")
    wf.channel("places", "url string", key="url")
    wf.channel("crawl", "url string, content string", key="url")
    wf.view("restaurants", extraction.query)
    wf.view("confident", "SELECT count(*) AS restaurants FROM restaurants WHERE confidence > 0.9")
    return wf
