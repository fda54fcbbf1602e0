"""Channels: what they are, their rows, and blocks that are put into them."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse

from kilonova.errors import UnreadableInput
from kilonova.model.channel import Chronicle
from kilonova.model.encoding import described
from kilonova.server.routes.context import Begun, Context, Limit, Number
from kilonova.service.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelShown:
    """A channel.

    Attributes:
        name: its name.
        encoding: how its changes are written, in words.
        columns: its columns and their types; none while they are not known.
        point: the newest readable point.
        rows: rows in the blocks of the newest snapshot.
        bytes: their size.
        blocks: how many there are.
        description: what it holds.
        writer: the task that writes it; None for a source.
    """

    name: str
    encoding: str
    columns: dict[str, str]
    point: int
    rows: int
    bytes: int
    blocks: int
    description: str
    writer: str | None


def channel_routes(context: Context) -> APIRouter:
    """The routes of channels."""
    router = APIRouter(tags=["channels"])
    project = context.project

    @router.get("/channels", dependencies=context.read)
    def channels() -> list[ChannelShown]:
        """The channels."""
        return _channels(project)

    @router.get("/channels/{name}", dependencies=context.read)
    def channel(name: str) -> ChannelShown:
        """A channel."""
        project.known_channel(name)
        return next(item for item in _channels(project) if item.name == name)

    @router.get("/channels/{name}/rows", dependencies=context.read)
    async def rows(
        name: str,
        at: Annotated[int | None, Query(ge=0, le=2**31)] = None,
        since: Annotated[int | None, Query(ge=0, le=2**31)] = None,
        offset: Number = 0,
        limit: Limit = 100,
        format: Literal["json", "arrow"] = "json",
    ) -> Response:
        """A page of the rows of a channel at a point, or of what changed after one.

        The header `Kilonova-Point` says the point: ask for it with `at`, and further pages are of the same.
        """
        await run_in_threadpool(project.known_channel, name)
        with tempfile.TemporaryDirectory() as place:
            file = str(Path(place) / "page.arrow")
            point, _ = await context.done(
                "page", channel=name, file=file, at=at, since=since, offset=offset, limit=limit
            )
            content = await run_in_threadpool(Path(file).read_bytes)
        headers = {"Kilonova-Point": str(point)}
        if format == "arrow":
            return Response(content, media_type="application/vnd.apache.arrow.stream", headers=headers)
        table = pa.ipc.open_stream(content).read_all()
        return JSONResponse(jsonable_encoder(table.to_pylist(), custom_encoder={bytes: bytes.hex}), headers=headers)

    @router.post("/channels/{name}/blocks", dependencies=context.operate)
    async def upload(
        name: str,
        request: Request,
        format: Literal["parquet", "csv", "json"] = "json",
        replace: bool = False,
    ) -> Begun:
        """Insert the rows of the request's body into a source channel, as one block."""
        await run_in_threadpool(project.known_channel, name)
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / f"upload.{format}"
            await _saved(request, file, project.settings.serve.upload << 20)
            return Begun(await context.done("ingest", channel=name, source=str(file), format=format, replace=replace))

    @router.post("/channels/{name}/references", dependencies=context.operate)
    async def refer(
        name: str, source: Annotated[str, Query(min_length=1)], format: str | None = None, replace: bool = False
    ) -> Begun:
        """Insert the rows of files that the server can reach into a source channel, as one block."""
        await run_in_threadpool(project.known_channel, name)
        return Begun(await context.done("ingest", channel=name, source=source, format=format, replace=replace))

    @router.post("/channels/{name}/compaction", dependencies=context.operate)
    async def compact(name: str) -> Begun:
        """Write down the newest snapshot of a channel as a base."""
        await run_in_threadpool(project.known_channel, name)
        return Begun(await context.done("compact", channel=name))

    @router.delete("/channels/{name}", dependencies=context.admin)
    def drop(name: str) -> dict[str, list[str]]:
        """Take a channel and its data away, and the task that writes it out of service."""
        return {"tasks": list(project.drop(name))}

    @router.post("/garbage", dependencies=context.operate)
    def garbage(dry_run: bool = False) -> dict[str, int]:
        """Delete the blocks that nothing needs any more."""
        done = project.collect_garbage(dry_run=dry_run)
        return {"blocks": sum(verdict.goes for verdict in done.verdicts), "deleted": done.swept}

    return router


def _channels(project: Project) -> list[ChannelShown]:
    status = project.status(0)
    writers = {channel: name for name, known in status.tasks.items() for channel in known.task.writes}
    return [_shown(chronicle, writers.get(name)) for name, chronicle in status.channels.items()]


def _shown(chronicle: Chronicle, writer: str | None) -> ChannelShown:
    schema = chronicle.schema_at(chronicle.readable)
    blocks = chronicle.snapshot(chronicle.readable).blocks
    return ChannelShown(
        name=chronicle.channel.name,
        encoding=described(chronicle.channel.encoding),
        columns={column.name: column.type for column in schema.columns} if schema else {},
        point=chronicle.readable,
        rows=sum(block.statistics.rows for block in blocks),
        bytes=sum(block.statistics.bytes for block in blocks),
        blocks=len(blocks),
        description=chronicle.channel.description,
        writer=writer,
    )


async def _saved(request: Request, file: Path, most: int) -> None:
    """Write a request's body to a file.

    Raises:
        UnreadableInput: it is too large.
    """
    size = 0
    with file.open("wb") as sink:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise UnreadableInput(
                    f"the upload is larger than {most >> 20} MB",
                    hint="Put the file where the server can read it, and insert it by reference",
                )
            await run_in_threadpool(sink.write, chunk)
        os.fsync(sink.fileno())
