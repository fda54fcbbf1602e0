"""Telling outlets of what has happened, beside the loop of a server; see `kilonova.schedule.delivering`.

Each outlet that is to be told of something is served by a thread of its own for as long as that takes, under a lease
in the catalog: an endpoint that does not answer holds up neither the loop nor other outlets, and when a server goes
silent, another one takes up after the last event that the catalog has as delivered.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from kilonova.catalog import events, outlets
from kilonova.catalog.database import Transaction
from kilonova.catalog.outlets import Installed
from kilonova.errors import Busy, CatalogAway, KilonovaError, SettingsError, Undelivered
from kilonova.model.event import Event, EventKind
from kilonova.model.outlet import Lineage, Outlet, Standing, Webhook
from kilonova.schedule.delivering import Patience, delivered, failed, first
from kilonova.service.project import Project
from kilonova.service.settings import LineageSection, warehouse_url
from kilonova.service.webhooks import message, send

_PAGE = 1000
"""How many events are looked at at once."""

_TROUBLED = 10.0
"""Seconds until it is tried again to tell outlets of something where that went wrong for no known reason."""

_RETRY = 0.5
"""Seconds until the catalog is asked again that could not be reached."""

log = logging.getLogger(__name__)

Key = tuple[str, datetime]
"""An outlet's name and when it was made: one of the same name may come later."""


class Deliverer:
    """Tells outlets of events.

    Args:
        project: the project.
        lease: for how long a server that is silent keeps an outlet.
        holder: the name under which it serves outlets, which no other has.
        patience: how failures are tried again.

    Raises:
        SettingsError: what the settings say of OpenLineage cannot be.
    """

    def __init__(self, project: Project, lease: timedelta, holder: str, patience: Patience | None = None) -> None:
        self._project = project
        self._catalog = project.catalog
        self._lease = lease
        self._patience = patience or Patience()
        section = project.settings.lineage
        self._lineage = None if section is None else _teller(project, section)
        self._holder = holder
        self._identity = ""
        self._seen: dict[Key, int] = {}
        self._active: set[Key] = set()
        self._lock = threading.Lock()
        self._nudged = threading.Event()
        self._until: float | None = None
        self._thread = threading.Thread(target=self._run, name="outlets", daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def nudge(self) -> None:
        """Look again: something has happened."""
        self._nudged.set()

    def close(self, seconds: float) -> None:
        """Tell of what has happened so far, once, and end.

        Args:
            seconds: how long that may take; what is left then is told by others, or later.
        """
        self._until = time.monotonic() + seconds
        self.nudge()
        if self._thread.ident is not None:
            self._thread.join(seconds + 2 * _RETRY)

    def _run(self) -> None:
        while not self._late():
            self._nudged.clear()
            last = self._until is not None
            try:
                pause = self._look()
            except (Busy, CatalogAway):  # the loop tells of it
                pause = _RETRY
            except Exception:
                log.exception("outlets cannot be told of anything")
                pause = _TROUBLED
            else:
                if last and not self._busy():
                    return
            self._nudged.wait(min(pause, _RETRY) if last else pause)

    def _late(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def _busy(self) -> bool:
        with self._lock:
            return bool(self._active)

    def _look(self) -> float:
        """Serve the outlets that are to be told of something.

        Returns:
            After how many seconds to look again at the latest.
        """
        if not self._identity:
            self._identity = self._catalog.check()
            if self._lineage is not None:
                with self._catalog.writing() as tx:
                    outlets.add_lineage(tx)
        if self._busy():
            with self._catalog.writing() as tx:
                outlets.renew(tx, self._holder, self._lease)
        wakes = [self._lease / 3]
        with self._catalog.reading() as tx:
            for known in outlets.outlets(tx):
                with self._lock:
                    if (known.outlet.name, known.created) in self._active:
                        continue
                if self._sender(known.outlet) is None:
                    continue
                if self._next(tx, known, known.standing) is None and not self._far(known, known.standing):
                    continue
                held = known.lease_until if known.holder not in (None, self._holder) else None
                free = max((moment for moment in (known.standing.retry, held) if moment is not None), default=tx.now)
                if free > tx.now:
                    wakes.append(free - tx.now)
                else:
                    self._serve(known)
        return min(wakes).total_seconds()

    def _next(self, tx: Transaction, known: Installed, standing: Standing) -> Event | None:
        """The next event of which an outlet is to be told; what lies before it is not looked at again."""
        key = known.outlet.name, known.created
        while True:
            seen = max(standing.cursor, self._seen.get(key, 0))
            page = events.since(tx, seen, _PAGE)
            if (event := first(known.outlet, page)) is not None or not page:
                return event
            self._seen[key] = page[-1].number

    def _far(self, known: Installed, standing: Standing) -> bool:
        """Whether so much lies behind the cursor that it is worth writing down that nothing of it is wanted."""
        return self._seen.get((known.outlet.name, known.created), 0) - standing.cursor >= _PAGE

    def _serve(self, known: Installed) -> None:
        key = known.outlet.name, known.created
        with self._lock:
            self._active.add(key)

        def work() -> None:
            try:
                self._deliver(known)
            except KilonovaError as error:
                log.warning("%s: %s", known.outlet.name, error)
                return  # the next look is soon enough
            finally:
                with self._lock:
                    self._active.discard(key)
            self.nudge()

        threading.Thread(target=work, name=f"outlet-{known.outlet.name}", daemon=True).start()

    def _deliver(self, known: Installed) -> None:
        """Tell an outlet of one event after the other, until there is none, or one is not taken."""
        send = self._sender(known.outlet)
        assert send is not None
        with self._catalog.writing() as tx:
            standing = outlets.claim(tx, known, self._holder, self._lease)
        if standing is None:
            return
        try:
            while not self._late():
                with self._catalog.reading() as tx:
                    event = self._next(tx, known, standing)
                if event is None:
                    self._skip(known, standing)
                    return
                if standing.retry is not None and standing.retry > tx.now:
                    return
                problem = _problem(send, event)
                after = self._recorded(known, standing, event, problem)
                if after is None:
                    log.warning("%s is served by another server", known.outlet.name)
                    return
                standing = after
        finally:
            with self._catalog.writing() as tx:
                outlets.release(tx, known, self._holder)

    def _skip(self, known: Installed, standing: Standing) -> None:
        if self._far(known, standing):
            seen = self._seen[known.outlet.name, known.created]
            with self._catalog.writing() as tx:
                outlets.record(tx, known, self._holder, replace(standing, cursor=seen))

    def _recorded(self, known: Installed, standing: Standing, event: Event, problem: str | None) -> Standing | None:
        """Write down what became of an event; None if the outlet is not this server's any more."""
        name = known.outlet.name
        with self._catalog.writing() as tx:
            if problem is None:
                after = delivered(standing, event, tx.now)
                return after if outlets.record(tx, known, self._holder, after) else None
            refused = failed(standing, event, problem, self._patience, tx.now)
            if not outlets.record(tx, known, self._holder, refused.standing):
                return None
            if refused.given_up and event.kind is not EventKind.UNDELIVERED:  # or giving up would go on for ever
                said = f"{name} was not told of event {event.number} ({event.kind.value}): {problem}"
                events.tell(tx, EventKind.UNDELIVERED, run=event.run, binding=event.binding, said=said)
        log.warning("%s was not told of event %s: %s", name, event.number, problem)
        return refused.standing

    def _sender(self, outlet: Outlet) -> Callable[[Event], None] | None:
        """What tells an outlet of an event, or raises `Undelivered`; None if this server cannot."""
        match outlet:
            case Webhook():
                inside = self._project.settings.serve.webhooks
                return lambda event: send(
                    outlet, message(self._identity, event), self._catalog.clock(), os.environ, inside
                )
            case Lineage():
                return self._lineage
            case _:
                assert_never(outlet)


def _problem(send: Callable[[Event], None], event: Event) -> str | None:
    """Tell an outlet of an event: what went wrong, if something did."""
    try:
        send(event)
    except Undelivered as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _teller(project: Project, section: LineageSection) -> Callable[[Event], None]:
    try:
        from kilonova.server import lineage
    except ImportError:
        raise SettingsError(
            "there is a section lineage, but the OpenLineage client is not installed",
            hint="Install it with: pip install 'kilonova[lineage]'",
        ) from None
    client = lineage.client(section.transport)
    place = warehouse_url(project.settings, project.directory)
    warehouse = place if "://" in place else f"file://{place}"

    def tell(event: Event) -> None:
        assert event.run is not None
        told = project.told(event.run)
        for each in lineage.events(told, event, namespace=section.namespace, warehouse=warehouse):
            client.emit(each)

    return tell
