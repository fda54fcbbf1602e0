"""Routes of channels: their state, rows, ingests, compaction and exports."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BeforeValidator

from kilonova.api.allowed_sources import check_options, check_source_allowed
from kilonova.api.json_rows import json_rows
from kilonova.api.response_models import ResponseModel, attribute
from kilonova.api.routes.context import (
    ACCEPTED,
    ADMIN,
    OPERATE,
    READ,
    After,
    Context,
    CurrentProject,
    Limit,
    Number,
    OperationResponse,
    Paged,
    RunStartedResponse,
    Starting,
)
from kilonova.api.routes.row_pages import row_page
from kilonova.api.upload_formats import (
    TYPES,
    UploadFormat,
    check_not_empty,
    split_array,
    upload_format,
    upload_name,
)
from kilonova.api.uploads import receive_upload, sent_as
from kilonova.errors import KilonovaError, SettingsError
from kilonova.model.compaction_policy import CostBased, Manual, MaxDeltas, Policy, describe_policy
from kilonova.model.encoding import describe_encoding
from kilonova.model.idempotency import check_key
from kilonova.model.row_count import RowCount
from kilonova.model.watched_file import FileState
from kilonova.schedule.compaction import DeltaStack
from kilonova.service.reports import ChannelStatus, DirectoryStatus


class ChannelResponse(ResponseModel):
    """A channel.

    Attributes:
        columns: its columns and their types; empty while they are not known.
        point: the latest readable point.
        rows: number of its rows; null if it is not known.
        max_rows: an upper bound of it; null if there is none.
        block_rows: number of rows in the blocks of the latest snapshot.
        bytes: size of these blocks.
        blocks: number of these blocks.
        version: the version vector of the latest readable point.
        reserved: number of points after it that runs are writing.
        writers: the tasks that write it; none for a source.
        several_writers: whether it may have several writers, and ingests beside them.
        sequence_by: the column that tells which row of a key is newer; null if the last one ingested counts.
        retention: seconds for which points stay readable; null if they do only as long as their blocks are needed.
        on_new_column: what ingests do about a column that the channel does not have.
        rename: former names of columns that files may have, each with the present one.
        defaults: values of columns that files may lack, as text; null for null.
        added_columns: the columns that ingests have added to those that are declared.
    """

    name: str
    encoding: str
    columns: dict[str, str]
    point: int
    rows: int | None
    max_rows: int | None
    block_rows: int
    bytes: int
    blocks: int
    description: str
    version: str
    reserved: int
    writers: list[str]
    several_writers: bool
    sequence_by: str | None
    retention: float | None
    on_new_column: Literal["add", "ignore", "quarantine"]
    rename: dict[str, str]
    defaults: dict[str, str | None]
    added_columns: list[str]


class DeltaStackResponse(ResponseModel):
    """The newest base of a channel and the deltas after it.

    Attributes:
        base: size of the base in bytes.
        deltas: number of deltas after it.
        bytes: their size.
        readings: number of times they were merged.
        read_cost: cost of these merges, in bytes.
        compaction_cost: cost of compacting, in bytes.
    """

    channel: str
    base: int
    deltas: int = attribute("count")
    bytes: int = attribute("deltas")
    readings: Annotated[int, BeforeValidator(len)]
    read_cost: float
    compaction_cost: float
    policy: Annotated[str, BeforeValidator(describe_policy)]


class IngestResponse(ResponseModel):
    """A completed ingest.

    Attributes:
        run: its run.
        repeated: whether that is an earlier one with the same idempotency key.
        malformed: number of lines that did not fit, which the reader option `mode` allowed; 0 if repeated.
    """

    run: int
    repeated: bool
    malformed: int = 0


Options = Annotated[list[str] | None, Query(description="Options for Spark's reader, each as name=value.")]
Point = Annotated[int | None, Query(ge=0, lt=2**31)]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Name of this ingest: a repeated request with the same name and rows inserts nothing.",
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


router = APIRouter(tags=["channels"])


@router.get("/channels", dependencies=READ)
def channels(project: CurrentProject, paging: Paged, after: After = "") -> list[ChannelResponse]:
    """List the channels by name."""
    found = [_shown(status) for status in project.reader.channels(after, paging.more)]
    return paging.page(found, "after", lambda last: last.name)


@router.get("/channels/{name}", dependencies=READ)
def channel(project: CurrentProject, name: str) -> ChannelResponse:
    """Return a channel."""
    return _shown(project.reader.channel(name))


@router.get("/channels/{name}/rows", dependencies=READ, response_class=Response, responses=_ROWS)
async def rows(
    context: Context,
    name: str,
    at: Point = None,
    since: Point = None,
    offset: Number = 0,
    limit: Limit = 100,
    format: Literal["json", "arrow"] = "json",
) -> Response:
    """Return a page of the rows of a channel at a point, or of the changes after one.

    The header `Kilonova-Point` is the point: pass it as `at` to get further pages of the same point.
    """
    point, table = await row_page(context, name, at=at, since=since, offset=offset, limit=limit)
    headers = {"Kilonova-Point": str(point)}
    if format == "arrow":
        return Response(await run_in_threadpool(_stream, table), media_type=_ARROW, headers=headers)
    return Response(await run_in_threadpool(json_rows, table), media_type="application/json", headers=headers)


@router.post(
    "/channels/{name}/blocks",
    dependencies=OPERATE,
    responses=ACCEPTED,
    openapi_extra=sent_as(*TYPES),
)
async def upload(
    project: CurrentProject,
    start: Starting,
    request: Request,
    name: str,
    format: Annotated[UploadFormat | None, Query(description="Format, instead of that of the `Content-Type`.")] = None,
    file_name: Annotated[
        str | None, Query(alias="name", description="Name of the file, instead of that in `Content-Disposition`.")
    ] = None,
    disposition: Annotated[str | None, Header(alias="Content-Disposition", include_in_schema=False)] = None,
    option: Options = None,
    replace: bool = False,
    key: Key = None,
) -> IngestResponse | OperationResponse:
    """Insert the rows of the request's body into a source channel, as one block.

    The format is that of the `Content-Type`, or of the name of the file, or else JSON: lines, or one array.
    """
    origin = upload_name(file_name, disposition)
    format = upload_format(format, request.headers.get("Content-Type"), origin)
    options, key = _pairs(option, format), _unquoted(key)
    await run_in_threadpool(project.reader.require_channel, name)
    sent = await receive_upload(request, f"upload.{format}", project.settings.serve.max_upload_mb)
    try:
        await run_in_threadpool(check_not_empty, sent.file)
        if format == "json":
            await run_in_threadpool(split_array, sent.file)
    except KilonovaError:
        sent.discard()
        raise
    arguments: dict[str, Any] = {
        "channel": name,
        "source": str(sent.file),
        "format": format,
        "options": options,
        "replace": replace,
        "idempotency_key": key,
        "content_digest": sent.digest,
    }
    named = {"name": origin or f"upload.{format}"}
    if start.wait and key is not None:  # a repeated request is answered though no worker is free
        try:
            earlier = await run_in_threadpool(partial(project.ingests.completed, **arguments))
        except KilonovaError:
            sent.discard()
            raise
        if earlier is not None:
            sent.discard()
            return IngestResponse(run=earlier.run, repeated=True)
    return await start(IngestResponse.model_validate, "ingest", sent.discard, **arguments, **named)


@router.post("/channels/{name}/ingests", dependencies=OPERATE, responses=ACCEPTED)
async def ingest_files(
    project: CurrentProject,
    start: Starting,
    name: str,
    source: Annotated[str, Query(min_length=1, description="File, directory or URL, as seen by the server.")],
    format: str | None = None,
    option: Options = None,
    replace: bool = False,
    in_place: bool = False,
    key: Key = None,
) -> IngestResponse | OperationResponse:
    """Insert the rows of files at a location that `serve.sources` lists into a source channel, as one block.

    With `in_place` the files become the block without being copied, and must not change until a compaction.
    """
    options, key = _pairs(option, format), _unquoted(key)
    await run_in_threadpool(check_source_allowed, project.settings.serve, source, format)
    await run_in_threadpool(project.reader.require_channel, name)
    return await start(
        IngestResponse.model_validate,
        "ingest",
        channel=name,
        source=source,
        format=format,
        options=options,
        replace=replace,
        in_place=in_place,
        idempotency_key=key,
    )


@router.get("/channels/{name}/files", dependencies=READ)
def files(project: CurrentProject, name: str, limit: Limit = 100, state: FileState | None = None) -> DirectoryStatus:
    """List the files of a channel's watched directory: quarantined, settling and ingested ones."""
    return project.reader.files(name, limit, state)


@router.post("/channels/{name}/files/retry", dependencies=OPERATE)
def retry(project: CurrentProject, name: str, path: str | None = None) -> dict[str, int]:
    """Retry quarantined files of a watched directory: one, or all."""
    return {"files": project.operator.retry_files(name, path)}


@router.post("/channels/{name}/compaction", dependencies=OPERATE, responses=ACCEPTED)
async def compact(
    project: CurrentProject, start: Starting, name: str, deltas: bool = False
) -> RunStartedResponse | OperationResponse:
    """Write the latest snapshot of a channel as a base, or merge small neighbouring `deltas`."""
    await run_in_threadpool(project.reader.require_channel, name)
    return await start(RunStartedResponse, "compact", channel=name, deltas=deltas)


@router.get("/compaction-policies", dependencies=READ, response_model=list[DeltaStackResponse])
def policies(project: CurrentProject) -> list[DeltaStack]:
    """List the channels with deltas to merge: costs of merging and of compacting, and compaction policies."""
    return list(project.reader.delta_stacks())


@router.put("/channels/{name}/compaction-policy", dependencies=OPERATE)
def policy(
    project: CurrentProject,
    name: str,
    rule: Literal["cost-based", "max-deltas", "manual"],
    max_amplification: Annotated[
        float, Query(gt=0, description="Maximum size of the deltas, as a multiple of the base (cost-based).")
    ] = 1.0,
    deltas: Annotated[int, Query(ge=1, lt=2**31, description="Maximum number of deltas (max-deltas).")] = 1,
) -> dict[str, str]:
    """Set the compaction policy of a channel."""
    rules: dict[str, Policy] = {
        "cost-based": CostBased(max_amplification=max_amplification),
        "max-deltas": MaxDeltas(deltas=deltas),
        "manual": Manual(),
    }
    project.operator.set_policy(name, rules[rule])
    return {"channel": name, "policy": describe_policy(rules[rule])}


@router.delete("/channels/{name}", dependencies=ADMIN)
def drop(project: CurrentProject, name: str) -> dict[str, list[str]]:
    """Drop a channel with its data, and the task that writes it."""
    return {"tasks": list(project.drop(name))}


@router.post("/channels/{name}/exports", dependencies=ADMIN, responses=ACCEPTED)
async def export(
    project: CurrentProject,
    start: Starting,
    name: str,
    target: Annotated[str, Query(min_length=1, description="New directory or URL, as seen by the server.")],
    format: Literal["parquet", "csv", "json"] = "parquet",
    at: Point = None,
    since: Point = None,
) -> RunStartedResponse | OperationResponse:
    """Export the rows of a channel at a point, or the changes after one, to a location the server can reach."""
    await run_in_threadpool(project.reader.require_channel, name)
    return await start(RunStartedResponse, "export", channel=name, target=target, format=format, at=at, since=since)


def _stream(table: pa.Table) -> bytes:
    """Return rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _shown(status: ChannelStatus) -> ChannelResponse:
    state = status.state
    schema = state.schema_at(state.latest_readable)
    blocks = state.snapshot(state.latest_readable).blocks
    count = RowCount.of(blocks)
    return ChannelResponse(
        name=state.channel.name,
        encoding=describe_encoding(state.channel.encoding),
        columns={column.name: column.type for column in schema.columns} if schema else {},
        point=state.latest_readable,
        rows=count.exact,
        max_rows=count.most,
        block_rows=sum(block.statistics.rows for block in blocks),
        bytes=sum(block.statistics.bytes for block in blocks),
        blocks=len(blocks),
        description=state.channel.description,
        version=str(state.version(state.latest_readable)),
        reserved=state.latest - state.latest_readable,
        writers=list(status.writers),
        several_writers=status.state.channel.several_writers,
        sequence_by=status.state.channel.sequence_by,
        retention=status.state.channel.retention,
        on_new_column=status.state.channel.rules.on_new_column.value,
        rename=dict(status.state.channel.rules.rename),
        defaults=dict(status.state.channel.rules.defaults),
        added_columns=list(status.state.channel.added),
    )


def _unquoted(key: str | None) -> str | None:
    r"""Return an idempotency key without quotes; the draft of its standard wants it sent in quotes.

    >>> _unquoted('"8e03978e"'), _unquoted("8e03978e"), _unquoted(None)
    ('8e03978e', '8e03978e', None)
    """
    if key is None:
        return None
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    check_key(key)
    return key


def _pairs(options: list[str] | None, format: str | None) -> dict[str, str]:
    """Parse options for Spark's reader, each sent as `name=value`; they may only say how a file is read."""
    pairs = [item.partition("=") for item in options or ()]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise SettingsError(f"the option {name!r} is not of the form name=value", hint="Send option=header=true")
    given = {name: value for name, _, value in pairs}
    check_options(given, format)
    return given
