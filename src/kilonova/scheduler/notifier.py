"""Notifier: delivers events to subscriptions, in threads beside a server's loop; see `kilonova.schedule.delivery`.

Each subscription with pending events is served by a thread of its own until they are delivered, under a lease in the
catalog: an endpoint that does not answer delays neither the loop nor other subscriptions, and when a server's
heartbeats cease, another server continues after the last event that the catalog records as delivered.
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

from kilonova.catalog import events, subscriptions
from kilonova.catalog.database import Transaction
from kilonova.catalog.subscriptions import RegisteredSubscription
from kilonova.errors import CatalogUnavailable, Conflict, DeliveryError, KilonovaError, SettingsError
from kilonova.model.event import Event, EventKind
from kilonova.model.subscription import DeliveryState, Lineage, Subscription, Webhook, wants
from kilonova.schedule.delivery import DeliveryRetries, after_delivery, after_failure
from kilonova.service.project import Project
from kilonova.service.settings import LineageSection, warehouse_url
from kilonova.service.webhooks import message, send

_PAGE = 1000
"""Number of events that are read at once."""

_TROUBLED = 10.0
"""Seconds until delivery is retried after an unexpected error."""

_RETRY = 0.5
"""Seconds until an unreachable catalog is retried."""

log = logging.getLogger(__name__)


class Notifier:
    """Delivers events to subscriptions.

    Args:
        project: the project.
        lease: for how long a server without heartbeats keeps a subscription.
        holder: the unique name under which it holds the leases of subscriptions.
        patience: the retry policy of failed deliveries.

    Raises:
        SettingsError: the OpenLineage settings are invalid.
    """

    def __init__(
        self, project: Project, lease: timedelta, holder: str, patience: DeliveryRetries | None = None
    ) -> None:
        self._project = project
        self._catalog = project.catalog
        self._lease = lease
        self._patience = patience or DeliveryRetries()
        section = project.settings.lineage
        self._lineage = None if section is None else _teller(project, section)
        self._holder = holder
        self._identity = ""
        self._seen: dict[tuple[str, datetime], int] = {}
        self._active: set[tuple[str, datetime]] = set()
        self._lock = threading.Lock()
        self._nudged = threading.Event()
        self._until: float | None = None
        self._thread = threading.Thread(target=self._run, name="outlets", daemon=True)

    def start(self) -> None:
        """Start the notifier, in a thread of its own."""
        self._thread.start()

    def nudge(self) -> None:
        """Wake the notifier: there are new events."""
        self._nudged.set()

    def close(self, seconds: float) -> None:
        """Deliver the events so far, trying each once, and stop.

        Args:
            seconds: how long that may take; the events left then are delivered by other servers, or later.
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
            except (Conflict, CatalogUnavailable):  # the loop logs it
                pause = _RETRY
            except Exception:
                log.exception("subscriptions cannot be notified")
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
        """Serve the subscriptions that have pending events; return the seconds until the next check at the latest."""
        if not self._identity:
            self._identity = self._catalog.identity()
            if self._lineage is not None:
                with self._catalog.writing() as tx:
                    subscriptions.add_lineage(tx)
        if self._busy():
            with self._catalog.writing() as tx:
                subscriptions.renew(tx, self._holder, self._lease)
        wakes = [self._lease / 3]
        with self._catalog.reading() as tx:
            for known in subscriptions.subscriptions(tx):
                with self._lock:
                    if known.key in self._active:
                        continue
                if self._sender(known.subscription) is None:
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

    def _next(self, tx: Transaction, known: RegisteredSubscription, standing: DeliveryState) -> Event | None:
        """Return the next event to deliver to a subscription; earlier events are not read again."""
        while True:
            seen = max(standing.cursor, self._seen.get(known.key, 0))
            page = events.since(tx, seen, _PAGE)
            event = next((event for event in page if wants(known.subscription, event)), None)
            if event is not None or not page:
                return event
            self._seen[known.key] = page[-1].number

    def _far(self, known: RegisteredSubscription, standing: DeliveryState) -> bool:
        """Return whether so many unwanted events follow the cursor that it is worth recording that they are skipped."""
        return self._seen.get(known.key, 0) - standing.cursor >= _PAGE

    def _serve(self, known: RegisteredSubscription) -> None:
        with self._lock:
            self._active.add(known.key)

        def work() -> None:
            try:
                self._deliver(known)
            except KilonovaError as error:
                log.warning("%s: %s", known.subscription.name, error)
                return  # the next check is soon enough
            finally:
                with self._lock:
                    self._active.discard(known.key)
            self.nudge()

        threading.Thread(target=work, name=f"outlet-{known.subscription.name}", daemon=True).start()

    def _deliver(self, known: RegisteredSubscription) -> None:
        """Deliver events to a subscription one after the other, until there are none or a delivery fails."""
        send = self._sender(known.subscription)
        assert send is not None
        with self._catalog.writing() as tx:
            standing = subscriptions.claim(tx, known, self._holder, self._lease)
        if standing is None:
            return
        try:
            while not self._late():
                with self._catalog.reading() as tx:
                    event = self._next(tx, known, standing)
                if event is None:
                    if self._far(known, standing):
                        with self._catalog.writing() as tx:
                            skipped = replace(standing, cursor=self._seen[known.key])
                            subscriptions.record(tx, known, self._holder, skipped)
                    return
                if standing.retry is not None and standing.retry > tx.now:
                    return
                problem = _problem(send, event)
                after = self._recorded(known, standing, event, problem)
                if after is None:
                    log.warning("%s is served by another server", known.subscription.name)
                    return
                standing = after
        finally:
            with self._catalog.writing() as tx:
                subscriptions.release(tx, known, self._holder)

    def _recorded(
        self, known: RegisteredSubscription, standing: DeliveryState, event: Event, problem: str | None
    ) -> DeliveryState | None:
        """Record the outcome of a delivery; return None if this server no longer holds the subscription."""
        name = known.subscription.name
        with self._catalog.writing() as tx:
            if problem is None:
                after = after_delivery(standing, event, tx.now)
                return after if subscriptions.record(tx, known, self._holder, after) else None
            after, abandoned = after_failure(standing, event, problem, self._patience, tx.now)
            if not subscriptions.record(tx, known, self._holder, after):
                return None
            if abandoned and event.kind is not EventKind.DELIVERY_FAILED:  # or giving up would repeat endlessly
                text = f"{name} was not notified of event {event.number} ({event.kind.value}): {problem}"
                events.record(tx, EventKind.DELIVERY_FAILED, run=event.run, binding=event.binding, text=text)
        log.warning("%s was not notified of event %s: %s", name, event.number, problem)
        return after

    def _sender(self, subscription: Subscription) -> Callable[[Event], None] | None:
        """Return a function that delivers an event or raises `DeliveryError`; None if this server cannot deliver."""
        match subscription:
            case Webhook():
                inside = self._project.settings.serve.webhooks
                return lambda event: send(
                    subscription, message(self._identity, event), self._catalog.clock(), os.environ, inside
                )
            case Lineage():
                return self._lineage
            case _:
                assert_never(subscription)


def _problem(send: Callable[[Event], None], event: Event) -> str | None:
    """Deliver an event; return the problem, or None if there was none."""
    try:
        send(event)
    except DeliveryError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _teller(project: Project, section: LineageSection) -> Callable[[Event], None]:
    try:
        from kilonova.scheduler import openlineage
    except ImportError:
        raise SettingsError(
            "the section lineage is set, but the OpenLineage client is not installed",
            hint="Install it with: pip install 'kilonova[lineage]'",
        ) from None
    client = openlineage.client(section.transport)
    place = warehouse_url(project.settings, project.directory)
    warehouse = place if "://" in place else f"file://{place}"

    def tell(event: Event) -> None:
        assert event.run is not None
        lineage = project.reader.run_lineage(event.run)
        for each in openlineage.events(lineage, event, namespace=section.namespace, warehouse=warehouse):
            client.emit(each)

    return tell
