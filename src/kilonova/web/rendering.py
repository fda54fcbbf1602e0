"""Rendering of pages from templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse

from kilonova.model.block import Base
from kilonova.model.encoding import describe_encoding
from kilonova.model.event import EventKind
from kilonova.model.role import Role
from kilonova.model.schedule import duration
from kilonova.service.formatting import holding, row_count, seconds, size
from kilonova.web import formatting
from kilonova.web.graph.drawing import shorten
from kilonova.web.highlighting import changed_lines, diff_lines, highlight_code
from kilonova.web.overview_cache import channel_status, describe_channel

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content security policy of pages: they may load only from this server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """User who views a page, by the name of a token; None as long as there are no tokens."""

    name: str | None
    role: Role

    @property
    def operates(self) -> bool:
        """Return whether the user may start runs and control the project."""
        return self.role.may(Role.OPERATE)

    @property
    def administers(self) -> bool:
        """Return whether the user may change what is registered."""
        return self.role.may(Role.ADMIN)


def _templates() -> jinja2.Environment:
    """Return the environment that compiles the templates, with the functions that they use."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("kilonova.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": formatting.number,
        "size": size,
        "row_count": row_count,
        "seconds": seconds,
        "duration": duration,
        "exact": formatting.exact,
        "shortened": shorten,
        "coloured": highlight_code,
        "diff_lines": diff_lines,
        "changed_lines": changed_lines,
        "encoding": describe_encoding,
    }
    made.globals |= {
        "counted": formatting.counted,
        "holding": holding,
        "lasting": formatting.lasting,
        "condition": channel_status,
        "describe_channel": describe_channel,
        "event_kinds": ",".join(kind.value for kind in EventKind),
    }
    made.tests["base"] = lambda kind: isinstance(kind, Base)
    return made


_TEMPLATES = _templates()


@dataclass(frozen=True, slots=True)
class PageRenderer:
    """Renderer of the pages of the named project, at the current time of the catalog's clock."""

    project: str
    clock: Callable[[], datetime]

    def show(self, request: Request, template: str, *, code: int = 200, **values: Any) -> HTMLResponse:
        """Render the page of a template, with the values of its variables, under the HTTP status `code`.

        The request's state has the viewer, if signed in or if no sign-in is required.
        """
        now = self.clock()
        text = _TEMPLATES.get_template(template).render(
            project=self.project,
            viewer=getattr(request.state, "viewer", None),
            path=request.url.path,
            event=getattr(request.state, "event", 0),
            now=now,
            moment=partial(formatting.moment, now=now),
            relative=partial(formatting.relative, now=now),
            stepped=lambda start: urlencode({**request.query_params, "start": start}),
            **values,
        )
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return HTMLResponse(text, code, headers)
