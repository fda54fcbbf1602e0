"""Pages of the rows of a channel, read by a worker."""

from __future__ import annotations

from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from kilonova.api.routes.context import RouteContext
from kilonova.api.temporary_files import temporary_directory


async def row_page(
    context: RouteContext, channel: str, *, at: int | None, since: int | None, offset: int, limit: int
) -> tuple[int, bytes]:
    """Return the point of a page of the rows of a channel, and the rows as an Arrow stream.

    The parameters from `at` to `limit` are those of `kilonova.service.project.Project.page`.

    Raises:
        NotFound: there is no such channel.
        OperationFailed: the operation failed.
        Conflict: too many operations are waiting already.
    """
    await run_in_threadpool(context.project.reader.require_channel, channel)
    with temporary_directory() as place:
        file = str(Path(place) / "page.arrow")
        point, _ = await context.operations.done(
            "page", channel=channel, file=file, at=at, since=since, offset=offset, limit=limit
        )
        return point, await run_in_threadpool(Path(file).read_bytes)
