"""Pages from templates: what all of them have in common."""

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
from kilonova.model.encoding import described as encoding_described
from kilonova.model.event import EventKind
from kilonova.model.role import Role
from kilonova.server.page import words
from kilonova.server.page.coloured import coloured
from kilonova.server.page.drawing import shortened
from kilonova.server.page.glances import condition, told

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
"""What a page may load, as browsers are told: what this server has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Who looks.

    Attributes:
        name: the token's name; None as long as there are no tokens.
        role: what they may do.
    """

    name: str | None
    role: Role

    @property
    def operates(self) -> bool:
        """Whether they may start and steer things."""
        return self.role.may(Role.OPERATE)


class Pages:
    """Makes pages.

    Args:
        project: the name of what they are about.
        clock: the present moment, as the catalog has it.
    """

    def __init__(self, project: str, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("kilonova.server.page"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "number": words.number,
            "size": words.size,
            "seconds": words.seconds,
            "exact": words.exact,
            "shortened": shortened,
            "coloured": coloured,
            "encoding": encoding_described,
        }
        self._templates.globals |= {
            "project": project,
            "counted": words.counted,
            "holding": words.holding,
            "lasting": words.lasting,
            "condition": condition,
            "told": told,
            "event_kinds": ",".join(kind.value for kind in EventKind),
        }
        self._templates.tests |= {
            "base": lambda kind: isinstance(kind, Base),
        }

    def show(self, request: Request, template: str, *, code: int = 200, **values: Any) -> HTMLResponse:
        """A page.

        Args:
            request: what asks for it; its state says who looks, if they have signed in or need not.
            template: the name of its template.
            code: the HTTP status.
            values: what the template shows.
        """
        now = self._clock()
        text = self._templates.get_template(template).render(
            viewer=getattr(request.state, "viewer", None),
            path=request.url.path,
            event=getattr(request.state, "event", 0),
            now=now,
            moment=partial(words.moment, now=now),
            relative=partial(words.relative, now=now),
            stepped=lambda start: urlencode({**request.query_params, "start": start}),
            **values,
        )
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return HTMLResponse(text, code, headers)
