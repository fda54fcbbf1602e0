"""Commands for servers, triggers, runs, tokens and webhooks."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from typing import Annotated, Any, assert_never

import typer

from kilonova.cli import render
from kilonova.cli.options import TRY_LATER, JsonFlag, common, project, reader
from kilonova.errors import KilonovaError, SettingsError
from kilonova.model.subscription import Lineage, Subscription, Webhook
from kilonova.model.trigger import describe_trigger

commands = typer.Typer()


@commands.command()
def serve(
    workers: Annotated[int | None, typer.Option(help="Number of concurrent runs.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop once nothing is due or running.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Log JSON, one object per line.")] = False,
) -> None:
    """Run a server until interrupted: fire triggers, start due bindings, serve the page. Many can share a catalog."""
    from kilonova.scheduler.logs import log, logging_to, say
    from kilonova.scheduler.loop import Server
    from kilonova.service.project import open_project

    try:
        from kilonova.web.application import serve_http
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"the HTTP server needs {error.name}, which is not installed",
            hint="Install it with: pip install 'kilonova[server]'",
        ) from error

    mine = {"workers": workers, "host": host, "port": port}
    given = common.given | {"serve": {name: value for name, value in mine.items() if value is not None}}
    server: Server | None = None
    as_json = json or common.json
    with logging_to(sys.stdout, lambda: "" if server is None else server.name, as_json=as_json):
        try:
            server = begun = Server(common.directory, given, say, until_idle=until_idle)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: begun.stop())
            server.attend()
            with open_project(common.directory, **given) as opened, serve_http(server, opened) as address:
                say(f"the page is at {address}, the API at {address}/api/docs", None)
                server.run()
        except KilonovaError as error:
            if not as_json:
                raise
            log.error("%s", error)
            raise typer.Exit(TRY_LATER if error.code == "busy" else 1) from None


BindingName = Annotated[str, typer.Argument(help="The binding: a workflowette, or a task or view outside of any.")]


@commands.command("trigger", hidden=True)
@commands.command()
def fire(binding: BindingName) -> None:
    """Request a run of a binding from a server."""
    with project() as opened:
        firing = opened.fire(binding)
    render.out.print(f"{binding} is due, as firing {firing.number}; a server will start it.")


@commands.command()
def pause(binding: BindingName) -> None:
    """Pause the triggers of a binding."""
    with project() as opened:
        opened.pause(binding)
    render.out.print(f"The triggers of {binding} are paused until: kilonova resume {binding}")


@commands.command()
def resume(binding: BindingName) -> None:
    """Resume the triggers of a binding."""
    with project() as opened:
        opened.resume(binding)
    render.out.print(f"The triggers of {binding} are resumed.")


RunNumber = Annotated[int, typer.Argument(help="The number of the run, as in kilonova runs.")]


@commands.command()
def cancel(run: RunNumber) -> None:
    """Cancel a running run, on whatever machine it runs: nothing of it is published."""
    with project() as opened:
        opened.cancel(run)
    render.out.print(f"Run {run} is cancelled; its process stops within seconds.")


@commands.command()
def retry(run: RunNumber) -> None:
    """Request a retry of a cancelled or failed run from a server."""
    with project() as opened:
        names = [firing.binding for firing in opened.retry_run(run)]
    render.out.print(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} due; a server will start it.")


@commands.command()
def triggers(
    binding: Annotated[str | None, typer.Argument(help="A binding; all if omitted.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of firings and of servers.")] = 10,
    json: JsonFlag = False,
) -> None:
    """Show the triggers of each binding, the last firings, and the servers."""
    with reader() as opened:
        bound = opened.bindings() if binding is None else [opened.binding(binding)]
        firings = opened.firings(limit, binding)
        servers = [each.server for each in opened.servers(limit)]
    if json or common.json:
        render.as_json({"bindings": bound, "firings": firings, "servers": servers})
        return
    render.table(
        "",
        ("binding", "tasks", "started when", ""),
        [
            (
                item.binding.name,
                ", ".join(item.binding.tasks),
                "; or ".join(map(describe_trigger, item.binding.triggers)) or "started manually",
                "paused" if item.paused else "",
            )
            for item in bound
        ],
    )
    if firings:
        render.table(
            "last firings",
            ("binding", "occurrence", "time", "state", "run", "reason"),
            [
                (
                    item.binding,
                    item.occurrence,
                    f"{item.time:%Y-%m-%d %H:%M:%S}",
                    item.state.value,
                    item.run or "",
                    item.reason or "",
                )
                for item in firings
            ],
            right=("run",),
        )
    if servers and binding is None:
        render.table(
            "servers",
            ("server", "release", "state", "since"),
            [(item.name, item.release, item.state, f"{item.started:%Y-%m-%d %H:%M:%S}") for item in servers],
        )


token_app = typer.Typer(help="Tokens for the HTTP API.", no_args_is_help=True)
commands.add_typer(token_app, name="token")
TokenName = Annotated[str, typer.Argument(help="Name of the token.")]


@token_app.command("create")
def create_token(
    name: TokenName,
    role: Annotated[str, typer.Option(help="Its role: read, operate or admin.")] = "read",
) -> None:
    """Create a token and print it, once."""
    with project() as opened:
        secret = opened.operator.create_token(name, role)
    sys.stdout.write(secret + "\n")
    render.err.print("Store it now; it is not shown again.", style="dim")


@token_app.command("revoke")
def revoke_token(name: TokenName) -> None:
    """Revoke a token."""
    with project() as opened:
        opened.operator.revoke_token(name)
    render.out.print(f"The token {name} is revoked.")


@token_app.command("list")
def list_tokens(json: JsonFlag = False) -> None:
    """List the tokens."""
    with reader() as opened:
        found = opened.tokens()
    if json or common.json:
        render.as_json(found)
        return
    rows = [(item.name, item.role.value, f"{item.created:%Y-%m-%d %H:%M:%S}") for item in found]
    render.table("", ("token", "role", "created"), rows)


webhook_app = typer.Typer(help="HTTP endpoints that servers notify of events.", no_args_is_help=True)
commands.add_typer(webhook_app, name="webhook")
WebhookName = Annotated[str, typer.Argument(help="The webhook.")]


@webhook_app.command("add")
def add_webhook(
    name: WebhookName,
    url: Annotated[str, typer.Argument(help="URL to which events are sent.")],
    on: Annotated[list[str], typer.Option(help="Kind of events, such as failed or stuck; may be repeated.")],
    binding: Annotated[str | None, typer.Option(help="Only events of this binding.")] = None,
    secret_env: Annotated[
        str | None, typer.Option(help="Environment variable of the servers that holds the secret for signatures.")
    ] = None,
) -> None:
    """Add a webhook: an HTTP endpoint that servers notify of chosen events from now on."""
    with project() as opened:
        opened.operator.add_webhook(name, url, on, binding, secret_env)
    render.out.print(f"{name} is notified of events from now on; try it with: kilonova webhook test {name}")


@webhook_app.command("remove")
def remove_webhook(name: WebhookName) -> None:
    """Remove a webhook."""
    with project() as opened:
        opened.operator.remove_webhook(name)
    render.out.print(f"{name} is removed.")


@webhook_app.command("test")
def try_webhook(name: WebhookName) -> None:
    """Send a test message to a webhook, from this machine and with its environment."""
    with project() as opened:
        opened.operator.try_webhook(name)
    render.out.print(f"{name} has accepted a message.")


@webhook_app.command("list")
def list_webhooks(json: JsonFlag = False) -> None:
    """Show the webhooks and other subscriptions, and their delivery state."""
    with reader() as opened:
        found = opened.subscriptions()
    if json or common.json:
        render.as_json(
            [{"name": each.subscription.name, **_aimed(each.subscription), **asdict(each.standing)} for each in found]
        )
        return
    rows = []
    for each in found:
        aimed, standing = _aimed(each.subscription), each.standing
        failing = f"{standing.attempts} since {render.moment(standing.failing)}" if standing.attempts else ""
        kinds_shown = ", ".join(aimed["on"])
        delivered = render.moment(standing.delivered)
        rows.append(
            (each.subscription.name, aimed["url"], kinds_shown, aimed["binding"], delivered, failing, standing.problem)
        )
    render.table("", ("webhook", "url", "events", "binding", "last delivery", "failures", "last problem"), rows)


def _aimed(subscription: Subscription) -> dict[str, Any]:
    """Describe a subscription's URL, events, binding and secret."""
    match subscription:
        case Webhook(url=url, kinds=kinds, binding=binding, secret=secret):
            names = sorted(kind.value for kind in kinds)
            return {"url": url, "on": names, "binding": binding, "secret_env": secret}
        case Lineage():
            return {"url": None, "on": ["runs"], "binding": None, "secret_env": None}
        case _:
            assert_never(subscription)
