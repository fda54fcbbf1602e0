"""The `files` commands: list and retry the files of watched directories."""

from __future__ import annotations

from typing import Annotated

import typer

from kilonova.cli import render
from kilonova.cli.options import ChannelName, JsonFlag, common, project, reader
from kilonova.model.watched_directory import describe_directory
from kilonova.model.watched_file import FileState
from kilonova.service.formatting import size

commands = typer.Typer()
files_app = typer.Typer(help="Files of watched directories.", no_args_is_help=True)
commands.add_typer(files_app, name="files")


@files_app.command("list")
def list_files(
    channel: ChannelName,
    state: Annotated[FileState | None, typer.Option(help="Only files in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of files.")] = 20,
    json: JsonFlag = False,
) -> None:
    """Show the files of a channel's watched directory: quarantined, settling and ingested ones."""
    with reader() as opened:
        found = opened.files(channel, limit, state)
    if json or common.json:
        render.as_json(found)
        return
    if found.watched is None:
        render.out.print(f"{channel} has no watched directory.")
    else:
        watched = found.watched
        render.out.print(f"{channel} ingests the files of {describe_directory(watched.directory)}.", markup=False)
        if watched.error is not None:
            render.out.print(f"The last scan failed: {watched.error}", style="red", markup=False)
    rows = [
        (
            item.path,
            item.state.value + (", changed since" if item.changed else ""),
            render.moment(item.since),
            size(item.fingerprint.size),
            item.run,
            item.error,
        )
        for item in found.files
    ]
    if rows:
        render.table("", ("file", "state", "since (UTC)", "size", "run", "error"), rows, right=("size", "run"))
    if len(rows) == limit:
        render.out.print(f"the first {limit}; --limit shows more", style="dim")


@files_app.command("retry")
def retry_files(
    channel: ChannelName,
    file: Annotated[str | None, typer.Argument(help="The file; all quarantined files if omitted.")] = None,
) -> None:
    """Retry quarantined files of a watched directory."""
    with project() as opened:
        count = opened.operator.retry_files(channel, file)
    render.out.print(f"{count} file{'' if count == 1 else 's'} will be retried by a server, or by kilonova scan.")
