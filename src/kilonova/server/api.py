"""The HTTP API: what the command line does, for other programs; see `kilonova.service`.

Each route says which role it needs. What fails is told as `{"error": code, "problem": …, "hint": …, fields…}`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST

from kilonova.catalog.bindings import Bound
from kilonova.errors import KilonovaError, UnreadableInput
from kilonova.model.channel import Chronicle
from kilonova.model.encoding import described
from kilonova.model.event import Event
from kilonova.model.file import FileState
from kilonova.model.firing import Firing
from kilonova.model.role import Role
from kilonova.model.run import Run
from kilonova.model.trigger import described as trigger_described
from kilonova.server.access import Access, Denied
from kilonova.server.loop import Refused, Server
from kilonova.server.metrics import exposition
from kilonova.server.webhooks_api import webhooks_api
from kilonova.service.project import Project
from kilonova.service.records import Inbox, RunRecord

_STATUSES = {"unknown": 404, "busy": 409, "lease": 409, "storage": 503, "spark": 503, "catalog": 503, "invariant": 500}
"""The HTTP status of each error's code; others are 422: what was asked cannot be."""

Limit = Annotated[int, Query(ge=1, le=10_000)]
Number = Annotated[int, Query(ge=0, le=2**31)]
RunNumber = Annotated[int, PathParameter(ge=0, le=2**31)]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShown:
    """A task.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        logic: its logic version.
        reads: the channels that it reads, and up to which point it has.
        writes: the channels that it writes.
        variants: the ways to do it.
        due: why it has something to do; None if it has not.
    """

    name: str
    workflow: str
    logic: int
    reads: dict[str, int]
    writes: list[str]
    variants: list[str]
    due: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingShown:
    """A binding.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        workflowette: the workflowette that is bound; empty if none is.
        tasks: its tasks.
        triggers: what starts it, in words.
        priority: what is higher goes first.
        paused: whether its triggers are held back.
    """

    name: str
    workflow: str
    workflowette: str
    tasks: list[str]
    triggers: list[str]
    priority: int
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerShown:
    """A server."""

    name: str
    release: str
    state: str
    started: str
    lease_until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShown:
    """A run, and what it made of which channel."""

    run: Run
    made: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that was carried out: its number, or None if there was nothing to do."""

    run: int | None


def api(server: Server, project: Project) -> FastAPI:
    """The application over a project.

    Args:
        server: does what needs Spark.
        project: the project.
    """
    settings = project.settings.serve
    access = Access(project.catalog, settings.rate)
    app = FastAPI(title="Kilonova", version="1", docs_url="/api/docs", redoc_url=None, openapi_url="/api/openapi.json")

    def needs(role: Role) -> Any:
        return [Depends(access.needs(role))]

    read, operate, admin = needs(Role.READ), needs(Role.OPERATE), needs(Role.ADMIN)

    @app.exception_handler(KilonovaError)
    def kilonova_error(_request: Request, error: KilonovaError) -> JSONResponse:
        return _told(error.told)

    @app.exception_handler(Refused)
    def refused(_request: Request, error: Refused) -> JSONResponse:
        return _told(error.told)

    @app.exception_handler(Denied)
    def denied(_request: Request, error: Denied) -> JSONResponse:
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        told = {"error": "denied", "problem": error.problem, "hint": None}
        return JSONResponse(told, error.status, headers)

    # Health

    @app.get("/health", tags=["health"])
    def health() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "alive"}

    @app.get("/ready", tags=["health"])
    def ready(response: Response) -> dict[str, str]:
        """Whether the server can do something: the catalog answers, and a worker has started."""
        project.catalog.check()
        if not server.ready:
            response.status_code = 503
            return {"status": "starting"}
        return {"status": "ready"}

    @app.get("/metrics", tags=["health"], dependencies=read)
    def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(exposition(project), media_type=CONTENT_TYPE_LATEST)

    # Channels

    @app.get("/api/v1/channels", tags=["channels"], dependencies=read)
    def channels() -> list[ChannelShown]:
        """The channels."""
        return _channels(project)

    @app.get("/api/v1/channels/{name}", tags=["channels"], dependencies=read)
    def channel(name: str) -> ChannelShown:
        """A channel."""
        return _channel(project, name)

    @app.get("/api/v1/channels/{name}/rows", tags=["channels"], dependencies=read)
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
            answer = server.errand("page", channel=name, file=file, at=at, since=since, offset=offset, limit=limit)
            point, _ = await asyncio.wrap_future(answer)
            content = await run_in_threadpool(Path(file).read_bytes)
        headers = {"Kilonova-Point": str(point)}
        if format == "arrow":
            return Response(content, media_type="application/vnd.apache.arrow.stream", headers=headers)
        table = pa.ipc.open_stream(content).read_all()
        return JSONResponse(jsonable_encoder(table.to_pylist(), custom_encoder={bytes: bytes.hex}), headers=headers)

    @app.post("/api/v1/channels/{name}/blocks", tags=["channels"], dependencies=operate)
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
            await _saved(request, file, settings.upload << 20)
            answer = server.errand("ingest", channel=name, source=str(file), format=format, replace=replace)
            return Begun(await asyncio.wrap_future(answer))

    @app.post("/api/v1/channels/{name}/references", tags=["channels"], dependencies=operate)
    async def refer(
        name: str, source: Annotated[str, Query(min_length=1)], format: str | None = None, replace: bool = False
    ) -> Begun:
        """Insert the rows of files that the server can reach into a source channel, as one block."""
        await run_in_threadpool(project.known_channel, name)
        answer = server.errand("ingest", channel=name, source=source, format=format, replace=replace)
        return Begun(await asyncio.wrap_future(answer))

    @app.get("/api/v1/channels/{name}/files", tags=["channels"], dependencies=read)
    def files(name: str, limit: Limit = 100, state: FileState | None = None) -> Inbox:
        """The files of a channel's watched directory: which are set aside, awaited and taken."""
        return project.files(name, limit, state)

    @app.post("/api/v1/channels/{name}/files/retry", tags=["channels"], dependencies=operate)
    def retry(name: str, path: str | None = None) -> dict[str, int]:
        """Let files of a watched directory that are set aside be tried again: one, or all."""
        return {"files": project.retry(name, path)}

    @app.post("/api/v1/channels/{name}/compaction", tags=["channels"], dependencies=operate)
    async def compact(name: str) -> Begun:
        """Write down the newest snapshot of a channel as a base."""
        await run_in_threadpool(project.known_channel, name)
        return Begun(await asyncio.wrap_future(server.errand("compact", channel=name)))

    @app.delete("/api/v1/channels/{name}", tags=["channels"], dependencies=admin)
    def drop(name: str) -> dict[str, list[str]]:
        """Take a channel and its data away, and the task that writes it out of service."""
        return {"tasks": list(project.drop(name))}

    @app.post("/api/v1/garbage", tags=["channels"], dependencies=operate)
    def garbage(dry_run: bool = False) -> dict[str, int]:
        """Delete the blocks that nothing needs any more."""
        done = project.collect_garbage(dry_run=dry_run)
        return {"blocks": sum(verdict.goes for verdict in done.verdicts), "deleted": done.swept}

    # Tasks and bindings

    @app.get("/api/v1/tasks", tags=["tasks"], dependencies=read)
    def tasks() -> list[TaskShown]:
        """The tasks."""
        status = project.status(0)
        return [
            TaskShown(
                name=name,
                workflow=known.workflow,
                logic=known.logic,
                reads={channel: known.cursor(channel) for channel in known.task.reads},
                writes=list(known.task.writes),
                variants=[variant.name for variant in known.task.variants],
                due=status.due.get(name),
            )
            for name, known in status.tasks.items()
        ]

    @app.get("/api/v1/views/{name}", tags=["tasks"], dependencies=read)
    def view(name: str) -> list[dict[str, Any]]:
        """How a view is kept up to date, with what it keeps for that and what its last runs took."""
        explained: list[dict[str, Any]] = jsonable_encoder(project.explain(name))
        return explained

    @app.get("/api/v1/bindings", tags=["bindings"], dependencies=read)
    def bindings() -> list[BindingShown]:
        """The bindings, and what starts them."""
        return _bindings(project)

    @app.get("/api/v1/bindings/{name}", tags=["bindings"], dependencies=read)
    def binding(name: str) -> BindingShown:
        """A binding."""
        found = project.operation(1, name).bindings[name]
        return _shown(found)

    def acting(action: Callable[[str], None], verb: str, what: str) -> None:
        def act(name: str) -> dict[str, str]:
            action(name)
            return {"binding": name, "done": verb}

        act.__doc__ = what
        act.__name__ = verb
        app.post(f"/api/v1/bindings/{{name}}/{verb}", tags=["bindings"], dependencies=operate)(act)

    acting(project.fire, "fire", "Start a binding now, as if one of its triggers had fired.")
    acting(project.pause, "pause", "Hold the triggers of a binding back.")
    acting(project.resume, "resume", "Let the triggers of a binding go again.")

    @app.get("/api/v1/firings", tags=["bindings"], dependencies=read)
    def firings(binding: str | None = None, limit: Limit = 100) -> list[Firing]:
        """The last firings, newest first."""
        return list(project.operation(limit, binding).firings)

    @app.get("/api/v1/servers", tags=["bindings"], dependencies=read)
    def servers(limit: Limit = 100) -> list[ServerShown]:
        """The servers, those that started last first."""
        found: list[ServerShown] = [
            ServerShown(
                name=item.name,
                release=item.release,
                state=item.state,
                started=item.started.isoformat(),
                lease_until=item.lease_until.isoformat(),
            )
            for item in project.operation(limit).servers
        ]
        return found

    # Runs and events

    @app.get("/api/v1/runs", tags=["runs"], dependencies=read)
    def runs(limit: Limit = 100) -> list[RunShown]:
        """The last runs, newest first, and what they made."""
        history, made = project.history(limit)
        return [
            RunShown(run=run, made=[jsonable_encoder(item) for item in made if item.run == run.number])
            for run in history
        ]

    @app.get("/api/v1/runs/{number}", tags=["runs"], dependencies=read)
    def one_run(number: RunNumber) -> RunRecord:
        """A run: how far it has come while it goes on, what it made, and what it was started for."""
        return project.one_run(number)

    @app.get("/api/v1/runs/{number}/log", tags=["runs"], dependencies=read, response_class=PlainTextResponse)
    def log(number: RunNumber) -> str:
        """What a run did and what its code said."""
        return project.log(number).text

    @app.post("/api/v1/runs", tags=["runs"], dependencies=operate)
    async def run(task: Annotated[list[str] | None, Query()] = None) -> Begun:
        """Run tasks now, and answer when they have ended: all that are due, or the named ones."""
        return Begun(await asyncio.wrap_future(server.errand("run", tasks=task)))

    @app.get("/api/v1/events", tags=["events"], dependencies=read)
    def events(since: Number = 0, limit: Limit = 1000) -> list[Event]:
        """What has happened after an event, in order."""
        return project.events(since, limit)

    @app.get("/api/v1/events/stream", tags=["events"], dependencies=read)
    async def stream(request: Request, since: Annotated[int | None, Query(ge=0, le=2**31)] = None) -> Response:
        """What happens, as server-sent events, from now on or after an event (also by the header `Last-Event-ID`)."""
        last = request.headers.get("last-event-id", "")
        begin = since if since is not None else int(last) if last.isdigit() else project.newest_event()
        return StreamingResponse(_streamed(project, begin, request.is_disconnected), media_type="text/event-stream")

    app.include_router(webhooks_api(project, needs))
    return app


def _told(told: Any) -> JSONResponse:
    return JSONResponse(dict(told), _STATUSES.get(str(told["error"]), 422 if told["error"] != "defect" else 500))


def _channels(project: Project) -> list[ChannelShown]:
    status = project.status(0)
    writers = {channel: name for name, known in status.tasks.items() for channel in known.task.writes}
    return [_described(chronicle, writers.get(name)) for name, chronicle in status.channels.items()]


def _channel(project: Project, name: str) -> ChannelShown:
    project.known_channel(name)
    return next(item for item in _channels(project) if item.name == name)


def _described(chronicle: Chronicle, writer: str | None) -> ChannelShown:
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


def _bindings(project: Project) -> list[BindingShown]:
    return [_shown(bound) for _, bound in sorted(project.operation(1).bindings.items())]


def _shown(bound: Bound) -> BindingShown:
    return BindingShown(
        name=bound.binding.name,
        workflow=bound.workflow,
        workflowette=bound.binding.workflowette,
        tasks=list(bound.binding.tasks),
        triggers=[trigger_described(trigger) for trigger in bound.binding.triggers],
        priority=bound.binding.priority,
        paused=bound.paused,
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


_LOOK = 0.2
"""Seconds between looks for events to stream."""

_ALIVE = 15.0
"""Seconds after which a stream says that it is alive."""


async def _streamed(project: Project, since: int, gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
    spoken = time.monotonic()
    while not await gone():
        for event in await run_in_threadpool(project.events, since, 1000):
            since = event.number
            body = JSONResponse(jsonable_encoder(event)).body
            yield f"id: {event.number}\nevent: {event.kind.value}\ndata: {bytes(body).decode()}\n\n"
            spoken = time.monotonic()
        if time.monotonic() - spoken > _ALIVE:
            yield ": alive\n\n"
            spoken = time.monotonic()
        await asyncio.sleep(_LOOK)
