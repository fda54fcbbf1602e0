"""Channels: what they are, their rows, and blocks that are put into them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse

from kilonova.errors import SettingsError
from kilonova.model.encoding import described
from kilonova.model.file import FileState
from kilonova.model.idempotency import refuse_unfit
from kilonova.model.policy import AfterDeltas, Never, Policy, Weigh
from kilonova.model.policy import described as policy_described
from kilonova.server.receiving import received, sent_as
from kilonova.server.routes.context import (
    ACCEPTED,
    After,
    Begun,
    Context,
    ErrandShown,
    Limit,
    Number,
    Wait,
    accepted,
    page,
)
from kilonova.server.sampling import sampled
from kilonova.server.sources import refuse_outside_reading, refuse_unlisted
from kilonova.service.reports import ChannelStatus, Inbox


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
        version: what the newest point reflects.
        reserved: how many points after it runs are writing.
        writers: the tasks that write it; none for a source.
        several_writers: whether it may have several, and ingests beside them.
    """

    name: str
    encoding: str
    columns: dict[str, str]
    point: int
    rows: int
    bytes: int
    blocks: int
    description: str
    version: str
    reserved: int
    writers: list[str]
    several_writers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchShown:
    """The newest base of a channel and what came after it.

    Attributes:
        channel: the channel.
        base: the bytes of the base.
        deltas: how many deltas are after it.
        bytes: their bytes.
        readings: how often they were merged.
        paid: what that has cost, in bytes.
        price: what compacting costs, in bytes.
        policy: when it is compacted by itself, in words.
    """

    channel: str
    base: int
    deltas: int
    bytes: int
    readings: int
    paid: float
    price: float
    policy: str


@dataclass(frozen=True, slots=True)
class Ingested:
    """An ingest that was carried out.

    Attributes:
        run: the number of its run.
        repeated: whether that was an earlier run, under the same idempotency key.
    """

    run: int
    repeated: bool


Options = Annotated[list[str] | None, Query(description="Options for Spark's reader, each as name=value.")]
Point = Annotated[int | None, Query(ge=0, lt=2**31)]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Name of this ingest: sent again with the same rows, it is not carried out again.",
    ),
]


_ARROW = "application/vnd.apache.arrow.stream"
_ROWS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The rows.",
        "headers": {"Kilonova-Point": {"description": "The point.", "schema": {"type": "integer"}}},
        "content": {
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
            _ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def channel_routes(context: Context) -> APIRouter:
    """The routes of channels."""
    router = APIRouter(tags=["channels"])
    project = context.project

    async def ingested(
        request: Request, response: Response, wait: bool, then: Callable[[], None] = lambda: None, **arguments: Any
    ) -> Ingested | ErrandShown:
        if wait:
            return Ingested(**await context.errands.done("ingest", then, client=request, **arguments))
        return accepted(response, context.errands.ask("ingest", then, **arguments))

    @router.get("/channels", dependencies=context.read)
    def channels(request: Request, response: Response, after: After = "", limit: Limit = 100) -> list[ChannelShown]:
        """The channels by name."""
        found = [_shown(status) for status in project.channels(after, limit + 1)]
        return page(request, response, found, limit, "after", lambda last: last.name)

    @router.get("/channels/{name}", dependencies=context.read)
    def channel(name: str) -> ChannelShown:
        """A channel."""
        return _shown(project.channel(name))

    @router.get("/channels/{name}/rows", dependencies=context.read, response_class=Response, responses=_ROWS)
    async def rows(
        name: str,
        at: Point = None,
        since: Point = None,
        offset: Number = 0,
        limit: Limit = 100,
        format: Literal["json", "arrow"] = "json",
    ) -> Response:
        """A page of the rows of a channel at a point, or of what changed after one.

        The header `Kilonova-Point` says the point: ask for it with `at`, and further pages are of the same.
        """
        point, content = await sampled(project, context.errands, name, at=at, since=since, offset=offset, limit=limit)
        headers = {"Kilonova-Point": str(point)}
        if format == "arrow":
            return Response(content, media_type=_ARROW, headers=headers)
        table = pa.ipc.open_stream(content).read_all()
        return JSONResponse(jsonable_encoder(table.to_pylist(), custom_encoder={bytes: bytes.hex}), headers=headers)

    @router.post(
        "/channels/{name}/blocks",
        dependencies=context.operate,
        responses=ACCEPTED,
        openapi_extra=sent_as("application/x-ndjson", "text/csv", "application/vnd.apache.parquet"),
    )
    async def upload(
        name: str,
        request: Request,
        response: Response,
        format: Literal["parquet", "csv", "json"] = "json",
        option: Options = None,
        replace: bool = False,
        wait: Wait = True,
        key: Key = None,
    ) -> Ingested | ErrandShown:
        """Insert the rows of the request's body into a source channel, as one block."""
        options, key = _pairs(option), _unquoted(key)
        await run_in_threadpool(project.known_channel, name)
        sent = await received(request, f"upload.{format}", project.settings.serve.upload)
        return await ingested(
            request,
            response,
            wait,
            sent.discard,
            channel=name,
            source=str(sent.file),
            format=format,
            options=options,
            replace=replace,
            idempotency_key=key,
            content_digest=sent.digest,
        )

    @router.post("/channels/{name}/references", dependencies=context.operate, responses=ACCEPTED)
    async def refer(
        name: str,
        request: Request,
        response: Response,
        source: Annotated[str, Query(min_length=1, description="A file, a directory or a URL, as the server sees it.")],
        format: str | None = None,
        option: Options = None,
        replace: bool = False,
        in_place: bool = False,
        wait: Wait = True,
        key: Key = None,
    ) -> Ingested | ErrandShown:
        """Insert the rows of files at a place that `serve.sources` lists into a source channel, as one block.

        With `in_place` the files become the block where they lie, and must stay as they are until a compaction.
        """
        options, key = _pairs(option), _unquoted(key)
        await run_in_threadpool(refuse_unlisted, project.settings.serve, source, format)
        await run_in_threadpool(project.known_channel, name)
        return await ingested(
            request,
            response,
            wait,
            channel=name,
            source=source,
            format=format,
            options=options,
            replace=replace,
            in_place=in_place,
            idempotency_key=key,
        )

    @router.get("/channels/{name}/files", dependencies=context.read)
    def files(name: str, limit: Limit = 100, state: FileState | None = None) -> Inbox:
        """The files of a channel's watched directory: which are set aside, awaited and taken."""
        return project.files(name, limit, state)

    @router.post("/channels/{name}/files/retry", dependencies=context.operate)
    def retry(name: str, path: str | None = None) -> dict[str, int]:
        """Let files of a watched directory that are set aside be tried again: one, or all."""
        return {"files": project.retry_files(name, path)}

    @router.post("/channels/{name}/compaction", dependencies=context.operate, responses=ACCEPTED)
    async def compact(
        name: str, request: Request, response: Response, wait: Wait = True, deltas: bool = False
    ) -> Begun | ErrandShown:
        """Write down the newest snapshot of a channel as a base, or put small neighbouring `deltas` together."""
        await run_in_threadpool(project.known_channel, name)
        return await context.begun(request, response, wait, "compact", channel=name, deltas=deltas)

    @router.get("/policies", dependencies=context.read)
    def policies() -> list[StretchShown]:
        """The channels with deltas to merge: what that has cost, what compacting costs, and when it is done."""
        return [
            StretchShown(
                channel=each.channel,
                base=each.base,
                deltas=each.count,
                bytes=each.deltas,
                readings=len(each.readings),
                paid=each.paid,
                price=each.price,
                policy=policy_described(each.policy),
            )
            for each in project.stretches()
        ]

    @router.put("/channels/{name}/policy", dependencies=context.operate)
    def policy(
        name: str,
        rule: Literal["weigh", "after", "never"],
        waste: Annotated[float, Query(gt=0, description="How many times its base the deltas may take (weigh).")] = 1.0,
        deltas: Annotated[int, Query(ge=1, lt=2**31, description="After how many deltas (after).")] = 1,
    ) -> dict[str, str]:
        """Say when a channel is compacted by itself."""
        rules: dict[str, Policy] = {"weigh": Weigh(waste=waste), "after": AfterDeltas(deltas=deltas), "never": Never()}
        project.set_policy(name, rules[rule])
        return {"channel": name, "policy": policy_described(rules[rule])}

    @router.delete("/channels/{name}", dependencies=context.admin)
    def drop(name: str) -> dict[str, list[str]]:
        """Take a channel and its data away, and the task that writes it out of service."""
        return {"tasks": list(project.drop(name))}

    @router.post("/channels/{name}/exports", dependencies=context.admin, responses=ACCEPTED)
    async def export(
        name: str,
        request: Request,
        response: Response,
        target: Annotated[str, Query(min_length=1, description="A new directory or URL, as the server sees it.")],
        format: Literal["parquet", "csv", "json"] = "parquet",
        at: Point = None,
        since: Point = None,
        wait: Wait = True,
    ) -> Begun | ErrandShown:
        """Write the rows of a channel at a point, or what changed after one, to where the server can reach."""
        await run_in_threadpool(project.known_channel, name)
        return await context.begun(
            request, response, wait, "export", channel=name, target=target, format=format, at=at, since=since
        )

    return router


def _shown(status: ChannelStatus) -> ChannelShown:
    chronicle = status.chronicle
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
        version=str(chronicle.version(chronicle.readable)),
        reserved=chronicle.newest - chronicle.readable,
        writers=list(status.writers),
        several_writers=status.chronicle.channel.several_writers,
    )


def _unquoted(key: str | None) -> str | None:
    r"""An idempotency key as it was sent: as it is, or in quotes, as the draft of its standard wants it.

    >>> _unquoted('"8e03978e"'), _unquoted("8e03978e"), _unquoted(None)
    ('8e03978e', '8e03978e', None)

    Raises:
        SettingsError: it cannot be one.
    """
    if key is None:
        return None
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    refuse_unfit(key)
    return key


def _pairs(options: list[str] | None) -> dict[str, str]:
    """Options for Spark's reader, each sent as `name=value`.

    Raises:
        SettingsError: one is not, or says something else than how a file is read.
    """
    pairs = [item.partition("=") for item in options or ()]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise SettingsError(f"the option {name!r} is not of the form name=value", hint="Send option=header=true")
    given = {name: value for name, _, value in pairs}
    refuse_outside_reading(given)
    return given
