"""Pages of the rows of a channel: small relations are read by the server itself, others by a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from fastapi.concurrency import run_in_threadpool

from kilonova.api.routes.context import RouteContext
from kilonova.service.temporary_files import temporary_directory


async def row_page(
    context: RouteContext, channel: str, *, at: int | None, since: int | None, offset: int, limit: int
) -> tuple[int, pa.Table]:
    """Return the point of a page of the rows of a channel, and the rows.

    The parameters from `at` to `limit` are those of `kilonova.service.row_reader.RowReader.page`.

    Raises:
        NotFound: there is no such channel or point.
        BlockDamaged: a block is not as it was written.
        StorageFailed: a block cannot be read.
        OperationFailed: the operation failed.
        Conflict: too many operations are waiting already.
    """
    asked: dict[str, Any] = {"at": at, "since": since, "offset": offset, "limit": limit}
    read = context.project.row_reader.small_page
    small = await run_in_threadpool(lambda: read(channel, **asked))
    if small is not None:
        return small
    with temporary_directory() as place:
        file = Path(place) / "page.arrow"
        point, _ = await context.operations.done("page", channel=channel, file=str(file), **asked)
        content = await run_in_threadpool(file.read_bytes)
        return point, pa.ipc.open_stream(content).read_all()
