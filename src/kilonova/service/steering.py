"""Steering a project, for which its catalog is enough: what servers, webhooks and people may do."""

from __future__ import annotations

import getpass
import os
from collections.abc import Collection, Iterable
from datetime import timedelta

from kilonova.catalog import bindings, chains, events, files, firings, ingest_keys, outlets, runs, servers, tokens
from kilonova.catalog.database import Transaction
from kilonova.errors import DeclarationError, StateError, UnknownName, closest
from kilonova.model.event import EventKind
from kilonova.model.file import File, FileState
from kilonova.model.outlet import Webhook
from kilonova.model.policy import Policy
from kilonova.model.role import Role
from kilonova.model.run import Run, RunKind, RunState
from kilonova.service.looking import Looking
from kilonova.service.settings import Settings

_KEYS_KEPT = timedelta(days=7)
"""For how long keys of ingests are kept at least."""


class Steering(Looking):
    """Says what happens from now on; servers see it in the catalog."""

    settings: Settings

    def forget(self, age: timedelta) -> None:
        """Forget events, firings that have ended, servers that have stopped and keys of ingests older than that.

        Keys of ingests are kept for a week at least.
        """
        with self.catalog.writing() as tx:
            for forget in (events.forget, firings.forget, servers.forget):
                forget(tx, tx.now - age)
            ingest_keys.forget(tx, tx.now - max(age, _KEYS_KEPT))

    def add_webhook(
        self, name: str, url: str, on: Iterable[str], binding: str | None = None, secret: str | None = None
    ) -> None:
        """Let servers tell an HTTP endpoint of what happens from now on.

        Args:
            name: the webhook's name.
            url: where events are sent.
            on: the kinds of events, such as `failed`.
            binding: a binding, to tell of its events only.
            secret: the variable in the servers' environment that holds the secret by which to sign; None not to.

        Raises:
            DeclarationError: there is a webhook of that name, or it cannot be.
            UnknownName: there is no such kind or binding.
        """
        self.catalog.check()
        kinds = frozenset(map(_kind, on))
        webhook = Webhook(name=name, url=url, kinds=kinds, binding=binding, secret=secret)
        with self.catalog.writing() as tx:
            outlets.add(tx, webhook)

    def remove_webhook(self, name: str) -> None:
        """Tell a webhook of nothing more.

        Raises:
            UnknownName: there is no such webhook.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            outlets.remove(tx, name)

    def try_webhook(self, name: str) -> None:
        """Send a message to a webhook from here.

        Raises:
            UnknownName: there is no such webhook.
            Undelivered: it was not taken.
        """
        from kilonova.service.webhooks import send, trial

        catalog = self.catalog.check()
        with self.catalog.reading() as tx:
            webhook, now = outlets.webhook(tx, name), tx.now
        send(webhook, trial(catalog, now), now, os.environ, self.settings.serve.webhooks)

    def set_policy(self, channel: str, policy: Policy) -> None:
        """Say when a channel is compacted by itself.

        Raises:
            UnknownName: there is no such channel.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            chains.set_policy(tx, channel, policy)

    def retry_files(self, channel: str, path: str | None = None) -> int:
        """Let files that are set aside be tried again.

        Args:
            channel: the channel.
            path: the file; None for all.

        Returns:
            How many.

        Raises:
            UnknownName: there is no such channel, or the file is not set aside.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            count = files.retry(tx, channel, path)
            if path is not None and not count:
                raise _not_aside(files.one(tx, channel, path), channel, path)
            return count

    def fire(self, binding: str, who: str | None = None) -> None:
        """Let a server start a binding, as if one of its triggers had fired.

        Args:
            binding: the binding.
            who: who wants it; None for the user of this process, here and below.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            firings.fire_by_hand(tx, binding, f"by hand, {who or getpass.getuser()}")

    def pause(self, binding: str, who: str | None = None) -> None:
        """Hold the triggers of a binding back until `resume`; what they wait for meanwhile they see then.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            bindings.pause(tx, binding, True, who or getpass.getuser())

    def resume(self, binding: str, who: str | None = None) -> None:
        """Let the triggers of a binding go again.

        Raises:
            UnknownName: there is no such binding.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            bindings.pause(tx, binding, False, who or getpass.getuser())

    def cancel(self, run: int, who: str | None = None) -> None:
        """End a run that goes on; its process notices and stops, and nothing of it is published.

        Raises:
            UnknownName: there is no such run.
            StateError: it has ended.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            runs.cancel(tx, run, who or getpass.getuser())

    def retry_run(self, run: int, who: str | None = None) -> tuple[str, ...]:
        """Let a server start again what a run that has not succeeded was to do.

        Returns:
            The bindings of its tasks, which are due now.

        Raises:
            UnknownName: there is no such run.
            StateError: it goes on or has succeeded, is no run of tasks, or its tasks are not there any more.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            found = runs.one(tx, run)
            names = bindings.of_tasks(tx, found.tasks)
            _refuse_retry(tx, found, names)
            for name in names:
                firings.fire_by_hand(tx, name, f"run {run} again, {who or getpass.getuser()}")
        return names

    def create_token(self, name: str, role: str) -> str:
        """Make a token for the HTTP API.

        Args:
            name: whose it is.
            role: what it is good for: `read`, `operate` or `admin`.

        Returns:
            The secret, which is kept nowhere.

        Raises:
            DeclarationError: there is a token of that name, or no such role.
        """
        self.catalog.check()
        roles = [each.value for each in Role]
        if role not in roles:
            raise DeclarationError(f"there is no role {role}", hint=closest(role, roles))
        with self.catalog.writing() as tx:
            return tokens.create(tx, name, Role(role))

    def revoke_token(self, name: str) -> None:
        """Make a token good for nothing.

        Raises:
            UnknownName: there is no such token.
        """
        self.catalog.check()
        with self.catalog.writing() as tx:
            tokens.revoke(tx, name)


def _kind(name: str) -> EventKind:
    """A kind of events by its name, in which blanks may be dashes."""
    names = [kind.value.replace(" ", "-") for kind in EventKind]
    if name.replace(" ", "-") not in names:
        raise UnknownName(f"there are no events {name}", hint=closest(name, names))
    return EventKind(name.replace("-", " "))


def _refuse_retry(tx: Transaction, run: Run, names: Collection[str]) -> None:
    """Refuse to retry a run that cannot be, because of how it stands or what it was for.

    Raises:
        StateError: it cannot.
    """
    match run.kind, run.state:
        case _, RunState.RUNNING:
            problem, hint = "the run goes on", f"Wait until it has ended, or: kilonova cancel {run.number}"
        case _, RunState.SUCCEEDED:
            problem, hint = "the run has succeeded", "To start it anew nevertheless: kilonova fire BINDING"
        case RunKind.INGEST, _:
            watched = [each for each in runs.written_by(tx, run.number) if files.watched(tx, each)]
            again = [f"kilonova gather {each} takes its files, as servers do" for each in watched]
            problem, hint = "it was an ingest", "; ".join(again) or "Ingest the file again"
        case RunKind.COMPACTION, _:
            problem, hint = "it was a compaction", "Compact the channel again: kilonova compact CHANNEL"
        case RunKind.TASKS, _ if not names:
            problem, hint = "its tasks are not there any more", f"They were {', '.join(run.tasks)}"
        case _:
            return
    raise StateError(f"the run cannot be retried: {problem}", run=run.number, hint=hint)


def _not_aside(file: File | None, channel: str, path: str) -> UnknownName:
    if file is None:
        return UnknownName(
            "there is no such file", channel=channel, path=path, hint=f"kilonova files {channel} shows which there are"
        )
    taken = file.state is FileState.TAKEN
    hint = f"To take it again nevertheless: kilonova ingest {channel} {path}" if taken else "It is going to be taken"
    where = f"was taken by run {file.run}" if taken else f"is {file.state.value}"
    return UnknownName(f"the file {where}", channel=channel, path=path, hint=hint)
