"""Commands on a project that need only its catalog: for servers, webhooks, triggers, runs and tokens."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from kilonova.catalog import bindings, bounds, channel_store, files, firings, runs, subscriptions, tokens
from kilonova.catalog.bounds import bound_of
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.planner_input import load_planner_input
from kilonova.declare.limits import Limit, limit_of
from kilonova.errors import DeclarationError, InvalidState, NotFound, closest_name
from kilonova.model.bound import Bound, place_of
from kilonova.model.compaction_policy import Policy
from kilonova.model.event import EventKind
from kilonova.model.firing import Firing
from kilonova.model.role import Role
from kilonova.model.run import Run, RunKind, RunState
from kilonova.model.subscription import Webhook
from kilonova.model.version import Path
from kilonova.model.watched_file import FileState, WatchedFile
from kilonova.model.workflow_path import Names, path_of, resolve_path
from kilonova.service.bound_feasibility import refuse_slow, refuse_unkeepable
from kilonova.service.bound_plan import complete_bound, path_of_bound
from kilonova.service.settings import Settings

_Checked = TypeVar("_Checked", Bound, Path)


class ProjectOperator:
    """Operator of a project: its commands are recorded in the catalog, where servers read them.

    Args:
        catalog: the catalog.
        settings: the settings of the project.
    """

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        self._catalog = catalog
        self._settings = settings

    def add_webhook(
        self, name: str, url: str, on: Iterable[str], binding: str | None = None, secret: str | None = None
    ) -> None:
        """Add a webhook, to which servers send events from now on.

        Args:
            name: the webhook's name.
            url: where events are sent.
            on: the kinds of events, such as `failed`.
            binding: a binding, to send only its events.
            secret: the variable in the servers' environment that holds the signing secret; None for unsigned messages.

        Raises:
            DeclarationError: there is already a webhook of that name, or it is invalid.
            NotFound: there is no such kind or binding.
        """
        kinds = frozenset(map(_kind, on))
        webhook = Webhook(name=name, url=url, kinds=kinds, binding=binding, secret=secret)
        with self._catalog.writing() as tx:
            subscriptions.add(tx, webhook)

    def remove_webhook(self, name: str) -> None:
        """Remove a webhook.

        Raises:
            NotFound: there is no such webhook.
        """
        with self._catalog.writing() as tx:
            subscriptions.remove(tx, name)

    def try_webhook(self, name: str) -> None:
        """Send a test message to a webhook from this process.

        Raises:
            NotFound: there is no such webhook.
            DeliveryError: it was not accepted.
        """
        from kilonova.service.webhooks import send, test_message

        catalog = self._catalog.identity()
        with self._catalog.reading() as tx:
            webhook, now = subscriptions.webhook(tx, name), tx.now
        send(webhook, test_message(catalog, now), now, os.environ, self._settings.serve.webhooks)

    def set_policy(self, channel: str, policy: Policy) -> None:
        """Set a channel's policy of automatic compaction.

        Raises:
            NotFound: there is no such channel.
        """
        with self._catalog.writing() as tx:
            channel_store.set_policy(tx, channel, policy)

    def set_bound(self, channel: str, limit: Limit, path: Names | None = None, who: str | None = None) -> None:
        """Set the limit of a bound at run time; it stays until the workflow declares another one.

        Args:
            channel: the channel.
            limit: the limit, such as `"1 day"`, or 0.
            path: of a bound on staleness, the source channel, and tasks or channels on the way if several paths lead
                from it; None for a bound on inconsistency.
            who: the user to record; None for the user of this process.

        Raises:
            DeclarationError: the limit is negative, there is no such path, rows are ingested into the channel, or no
                plan can keep the bound.
            NotFound: there is no such channel.
        """
        bound = bound_of(channel, () if path is None else path_of(path), limit_of(limit))

        def checked(tx: Transaction) -> Bound:
            channel_store.channel_id(tx, channel)
            found = complete_bound(bound, load_planner_input(tx).workflow)
            _require_keepable(tx, found)
            return found

        with self._checked(checked) as (tx, found):
            bounds.set_limit(tx, channel, path_of_bound(found), found.limit, who or getpass.getuser())

    def remove_bound(self, channel: str, path: Names | None = None, who: str | None = None) -> None:
        """Remove a bound at run time; a declared one stays removed until the workflow declares another limit.

        Args:
            channel: the channel.
            path: see `set_bound`.
            who: the user to record; None for the user of this process.

        Raises:
            NotFound: there is no such channel or bound.
            DeclarationError: there is no such path.
        """
        with self._catalog.writing() as tx:
            bounds.set_limit(tx, channel, _bounded_path(tx, channel, path), None, who or getpass.getuser())

    def reset_bound(self, channel: str, path: Names | None = None, who: str | None = None) -> timedelta:
        """Set the limit of a bound back to the one that the workflow declares, and return that.

        Args:
            channel: the channel.
            path: see `set_bound`.
            who: the user to record; None for the user of this process.

        Raises:
            NotFound: there is no such channel or bound.
            DeclarationError: there is no such path, or no plan can keep the bound.
            InvalidState: the workflow declares no such bound.
        """

        def checked(tx: Transaction) -> Path:
            place = _bounded_path(tx, channel, path)
            known = next((each for each in bounds.bounds(tx, [channel]) if each.path == place), None)
            if known is not None and known.declared is not None:
                _require_keepable(tx, bound_of(channel, place, known.declared))
            return place

        with self._checked(checked) as (tx, place):
            return bounds.reset_limit(tx, channel, place, who or getpass.getuser())

    @contextmanager
    def _checked(self, check: Callable[[Transaction], _Checked]) -> Iterator[tuple[Transaction, _Checked]]:
        """Open a writing transaction for a change of bounds that is checked before it, and again if more has changed.

        Args:
            check: checks the change, which takes seconds for many tasks, and returns what is written.
        """
        with self._catalog.reading() as tx:
            before, found = (dict(tx.stamps), bounds.bounds(tx)), check(tx)
        with self._catalog.writing() as tx:
            if (dict(tx.stamps), bounds.bounds(tx)) != before:
                found = check(tx)
            yield tx, found

    def retry_files(self, channel: str, path: str | None = None) -> int:
        """Retry quarantined files.

        Args:
            channel: the channel.
            path: the file; None for all.

        Returns:
            The number of files to retry.

        Raises:
            NotFound: there is no such channel, or the file is not quarantined.
        """
        with self._catalog.writing() as tx:
            count = files.retry_files(tx, channel, path)
            if path is not None and not count:
                raise _not_aside(files.file_record(tx, channel, path), channel, path)
            return count

    def fire(self, binding: str, who: str | None = None) -> Firing:
        """Fire a binding manually: a server starts it, as if one of its triggers had fired.

        Args:
            binding: the binding.
            who: the user to record; None for the user of this process.

        Returns:
            The firing, which is queued.

        Raises:
            NotFound: there is no such binding.
        """
        with self._catalog.writing() as tx:
            number = firings.fire_manually(tx, binding, f"manually, by {who or getpass.getuser()}")
            return firings.firing(tx, number)

    def pause(self, binding: str, who: str | None = None) -> None:
        """Pause the triggers of a binding until `resume`; input that arrives meanwhile is evaluated then.

        Args:
            binding: the binding.
            who: the user to record; None for the user of this process.

        Raises:
            NotFound: there is no such binding.
        """
        with self._catalog.writing() as tx:
            bindings.pause(tx, binding, True, who or getpass.getuser())

    def resume(self, binding: str, who: str | None = None) -> None:
        """Resume the triggers of a binding.

        Args:
            binding: the binding.
            who: the user to record; None for the user of this process.

        Raises:
            NotFound: there is no such binding.
        """
        with self._catalog.writing() as tx:
            bindings.pause(tx, binding, False, who or getpass.getuser())

    def cancel(self, run: int, who: str | None = None) -> None:
        """Cancel a running run; its process notices and stops, and nothing of it is published.

        Args:
            run: its number.
            who: the user to record; None for the user of this process.

        Raises:
            NotFound: there is no such run.
            InvalidState: it has ended.
        """
        with self._catalog.writing() as tx:
            runs.cancel(tx, run, who or getpass.getuser())

    def retry_run(self, run: int, who: str | None = None) -> tuple[Firing, ...]:
        """Retry a run that has not succeeded: a server starts its bindings again.

        Args:
            run: its number.
            who: the user to record; None for the user of this process.

        Returns:
            The firings of the bindings of its tasks, which are queued.

        Raises:
            NotFound: there is no such run.
            InvalidState: it is running or has succeeded, is no run of tasks, or its tasks no longer exist.
        """
        with self._catalog.writing() as tx:
            found = runs.find_run(tx, run)
            names = bindings.of_tasks(tx, found.tasks)
            _check_retryable(tx, found, names)
            occurrence = f"run {run} again, {who or getpass.getuser()}"
            return tuple(firings.firing(tx, firings.fire_manually(tx, name, occurrence)) for name in names)

    def create_token(self, name: str, role: str) -> str:
        """Create a token for the HTTP API.

        Args:
            name: the name of the token.
            role: its role: `read`, `operate` or `admin`.

        Returns:
            The secret, which is not stored.

        Raises:
            DeclarationError: there is already a token of that name, or there is no such role.
        """
        roles = [each.value for each in Role]
        if role not in roles:
            raise DeclarationError(f"there is no role {role}", hint=closest_name(role, roles))
        with self._catalog.writing() as tx:
            return tokens.create(tx, name, Role(role))

    def revoke_token(self, name: str) -> None:
        """Revoke a token.

        Raises:
            NotFound: there is no such token.
        """
        with self._catalog.writing() as tx:
            tokens.revoke(tx, name)


def _kind(name: str) -> EventKind:
    """Return the kind of events of a name."""
    names = [kind.value for kind in EventKind]
    if name not in names:
        raise NotFound(f"there is no event kind {name}", hint=closest_name(name, names))
    return EventKind(name)


def _require_keepable(tx: Transaction, bound: Bound) -> None:
    """Check that a plan can keep a bound beside those that apply.

    Raises:
        DeclarationError: none can.
    """
    others = (each.bound for each in bounds.bounds(tx) if each.bound is not None)
    applying = {place_of(each): each for each in (*others, bound)}
    refuse_unkeepable([bound.channel], applying.values(), load_planner_input(tx).workflow)
    refuse_slow(tx, [bound])


def _bounded_path(tx: Transaction, channel: str, path: Names | None) -> Path:
    """Return the complete path of a registered bound on staleness; an empty one for a bound on inconsistency."""
    channel_store.channel_id(tx, channel)
    given = () if path is None else path_of(path)
    if not given or any(each.path == given for each in bounds.bounds(tx, [channel])):
        return given
    return resolve_path(channel, given, load_planner_input(tx).workflow)


def _check_retryable(tx: Transaction, run: Run, names: Collection[str]) -> None:
    """Check that the state and kind of a run allow a retry."""
    match run.kind, run.state:
        case _, RunState.RUNNING:
            problem, hint = "the run is still running", f"Wait until it has ended, or: kilonova cancel {run.number}"
        case _, RunState.SUCCEEDED:
            problem, hint = "the run has succeeded", "To run it again nevertheless: kilonova fire BINDING"
        case RunKind.INGEST, _:
            watched = [each for each in runs.written_by(tx, run.number) if files.watched_directories(tx, each)]
            again = [f"kilonova scan {each} ingests its files, as servers do" for each in watched]
            problem, hint = "it was an ingest", "; ".join(again) or "Ingest the file again"
        case RunKind.COMPACTION, _:
            problem, hint = "it was a compaction", "Compact the channel again: kilonova compact CHANNEL"
        case RunKind.TASKS, _ if not names:
            problem, hint = "its tasks no longer exist", f"They were {', '.join(run.tasks)}"
        case _:
            return
    raise InvalidState(f"the run cannot be retried: {problem}", run=run.number, hint=hint)


def _not_aside(file: WatchedFile | None, channel: str, path: str) -> NotFound:
    if file is None:
        problem, hint = "there is no such file", f"kilonova files list {channel} shows which there are"
    elif file.state is FileState.INGESTED:
        problem = f"the file was ingested by run {file.run}"
        hint = f"To ingest it again nevertheless: kilonova ingest {channel} {path}"
    else:
        problem, hint = f"the file is {file.state.value}", "It is about to be ingested"
    return NotFound(problem, channel=channel, path=path, hint=hint)
