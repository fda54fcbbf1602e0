"""Pages of the rows of a channel, read by a worker."""

from __future__ import annotations

from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from kilonova.api.operations import Operations
from kilonova.api.temporary_files import temporary_directory
from kilonova.service.queries import ProjectReader


async def row_page(
    project: ProjectReader,
    operations: Operations,
    channel: str,
    *,
    at: int | None,
    since: int | None,
    offset: int,
    limit: int,
) -> tuple[int, bytes]:
    """Return a page of the rows of a channel: see `kilonova.service.project.Project.page`.

    Args:
        project: the project.
        operations: the operations, through which a worker reads the page.
        channel: the channel.
        at: the point; None for the latest.
        since: return the changes after this point, with a `_weight` per row.
        offset: number of rows before the page.
        limit: maximum number of rows in the page.

    Returns:
        The point, and the rows as an Arrow stream.

    Raises:
        NotFound: there is no such channel.
        OperationFailed: the operation failed.
        Conflict: too many operations are waiting already.
    """
    await run_in_threadpool(project.require_channel, channel)
    with temporary_directory() as place:
        file = str(Path(place) / "page.arrow")
        point, _ = await operations.done(
            "page", channel=channel, file=file, at=at, since=since, offset=offset, limit=limit
        )
        return point, await run_in_threadpool(Path(file).read_bytes)
