"""Some rows of a channel, which a worker reads."""

from __future__ import annotations

from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from kilonova.server.errands import Errands
from kilonova.server.temporary import temporary_directory
from kilonova.service.looking import Looking


async def sampled(
    project: Looking, errands: Errands, channel: str, *, at: int | None, since: int | None, offset: int, limit: int
) -> tuple[int, bytes]:
    """A page of the rows of a channel: see `kilonova.service.project.Project.page`.

    Args:
        project: the project.
        errands: lets workers do it.
        channel: the channel.
        at: the point; None for the newest.
        since: give what changed after this point, with a `_weight` per row.
        offset: how many rows are before the page.
        limit: how many rows it has at most.

    Returns:
        The point, and the rows as an Arrow stream.

    Raises:
        UnknownName: there is no such channel.
        Refused: it could not be done.
        Busy: too many errands wait already.
    """
    await run_in_threadpool(project.known_channel, channel)
    with temporary_directory() as place:
        file = str(Path(place) / "page.arrow")
        point, _ = await errands.done(
            "page", channel=channel, file=file, at=at, since=since, offset=offset, limit=limit
        )
        return point, await run_in_threadpool(Path(file).read_bytes)
