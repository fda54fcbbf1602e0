"""Commands for what goes on by itself: servers, triggers, tokens."""

from __future__ import annotations

import signal
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from kilonova.cli import render
from kilonova.cli.application import ChannelName, JsonFlag, common, project
from kilonova.model.event import Event
from kilonova.model.trigger import described as described_trigger

commands = typer.Typer()


@commands.command()
def serve(
    workers: Annotated[int | None, typer.Option(help="How many runs it carries out at once.")] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop once nothing is due and nothing runs.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Log JSON, an object per line.")] = False,
) -> None:
    """Fire triggers and start what is due, until interrupted. Any number of servers can share a catalog."""
    from kilonova.server.listening import listening
    from kilonova.server.loop import Server

    given = common.given | ({"serve": {"workers": workers}} if workers is not None else {})

    def log(text: str, event: Event | None) -> None:
        if json or common.json:
            render.as_json_lines(("time", "event", "kind", "run", "binding", "text"), [_logged(text, event)])
            sys.stdout.flush()
        else:
            when = datetime.now(UTC) if event is None else event.time
            render.out.print(f"{when:%Y-%m-%dT%H:%M:%SZ} {text}", highlight=False, markup=False, soft_wrap=True)

    server = Server(common.directory, given, log, until_idle=until_idle)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())
    server.attend()
    with project() as opened, listening(server, opened) as address:
        log(f"the API is at {address}/api/docs", None)
        server.run()


def _logged(text: str, event: Event | None) -> tuple[object, ...]:
    if event is None:
        return datetime.now(UTC).isoformat(), None, None, None, None, text
    return event.time.isoformat(), event.number, event.kind.value, event.run, event.binding, event.text


BindingName = Annotated[str, typer.Argument(help="The binding: a workflowette, or a task or view that is in none.")]


@commands.command()
def fire(binding: BindingName) -> None:
    """Let a server start a binding now."""
    with project() as opened:
        opened.fire(binding)
    render.out.print(f"{binding} is due; a server will start it.")


@commands.command()
def pause(binding: BindingName) -> None:
    """Hold the triggers of a binding back."""
    with project() as opened:
        opened.pause(binding)
    render.out.print(f"The triggers of {binding} are held back until: kilonova resume {binding}")


@commands.command()
def resume(binding: BindingName) -> None:
    """Let the triggers of a binding go again."""
    with project() as opened:
        opened.resume(binding)
    render.out.print(f"The triggers of {binding} are let go.")


@commands.command()
def retry(
    channel: ChannelName,
    file: Annotated[str | None, typer.Argument(help="The file; all that are set aside if left out.")] = None,
) -> None:
    """Let files of a watched directory that are set aside be tried again."""
    with project() as opened:
        count = opened.retry(channel, file)
    render.out.print(
        f"{count} file{'' if count == 1 else 's'} will be tried again: by a server, or by kilonova gather."
    )


@commands.command()
def triggers(
    binding: Annotated[str | None, typer.Argument(help="A binding; all if left out.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most this many firings and servers.")] = 10,
    json: JsonFlag = False,
) -> None:
    """Show what starts each binding, what has fired lately, and the servers."""
    with project() as opened:
        found = opened.operation(limit, binding)
    bound = [item for name, item in sorted(found.bindings.items()) if binding in (None, name)]
    if json or common.json:
        render.as_json({"bindings": bound, "firings": found.firings, "servers": found.servers})
        return
    render.table(
        "",
        ("binding", "tasks", "is started when", ""),
        [
            (
                item.binding.name,
                ", ".join(item.binding.tasks),
                "; or ".join(map(described_trigger, item.binding.triggers)) or "somebody starts it",
                "paused" if item.paused else "",
            )
            for item in bound
        ],
    )
    if found.firings:
        render.table(
            "last firings",
            ("binding", "for", "at", "is", "run"),
            [
                (item.binding, item.occurrence, f"{item.time:%Y-%m-%d %H:%M:%S}", item.state.value, item.run or "")
                for item in found.firings
            ],
            right=("run",),
        )
    if found.servers and binding is None:
        render.table(
            "servers",
            ("server", "release", "is", "since"),
            [(item.name, item.release, item.state, f"{item.started:%Y-%m-%d %H:%M:%S}") for item in found.servers],
        )


token_app = typer.Typer(help="Tokens for the HTTP API.", no_args_is_help=True)
commands.add_typer(token_app, name="token")
TokenName = Annotated[str, typer.Argument(help="Whose token it is.")]


@token_app.command("create")
def create_token(
    name: TokenName,
    role: Annotated[str, typer.Option(help="What it is good for: read, operate or admin.")] = "read",
) -> None:
    """Make a token and print it, once."""
    with project() as opened:
        secret = opened.create_token(name, role)
    sys.stdout.write(secret + "\n")
    render.err.print("Keep it; it is not shown again.", style="dim")


@token_app.command("revoke")
def revoke_token(name: TokenName) -> None:
    """Make a token good for nothing."""
    with project() as opened:
        opened.revoke_token(name)
    render.out.print(f"The token {name} is good for nothing now.")


@token_app.command("list")
def list_tokens(json: JsonFlag = False) -> None:
    """Show whose tokens there are."""
    with project() as opened:
        found = opened.tokens()
    if json or common.json:
        render.as_json(found)
        return
    rows = [(item.name, item.role.value, f"{item.created:%Y-%m-%d %H:%M:%S}") for item in found]
    render.table("", ("token", "role", "made"), rows)
