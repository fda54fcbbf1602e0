"""Pages of channels: the list, and each with its points and blocks, its size, its readers and its rows."""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa
from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from kilonova.api.routes.context import Before, Number
from kilonova.api.routes.row_pages import row_page
from kilonova.errors import KilonovaError, NotFound
from kilonova.model.compaction_policy import CostBased, Manual, MaxDeltas, Policy
from kilonova.model.point_ranges import describe_points
from kilonova.service.formatting import short, size
from kilonova.service.plan_descriptions import describe_rules
from kilonova.service.size_history import SizePoint
from kilonova.service.spark_operations import OperationFailed
from kilonova.web.charts import Scale, Tick, steps, times
from kilonova.web.graph.picture import graph_picture
from kilonova.web.overview_cache import neighbourhood
from kilonova.web.page import CurrentPage
from kilonova.web.timeline import timeline

_ROWS = 100
"""Number of rows of a list."""

_POINTS = 40
"""Number of points per page."""

_NAMED = 500
"""Number of points offered for reading, at most: the newest ones."""

_SAMPLE = 20
"""Number of rows of a channel per page."""

_LETTERS = 200
"""Maximum number of characters shown of a value."""


router = APIRouter()


@router.get("/channels")
def channels(page: CurrentPage, q: str = "", workflow: str = "", sort: str = "name", start: Number = 0) -> Response:
    """Show the list of channels."""
    every = page.overview()
    found = [
        each
        for each in every.channels.values()
        if q.strip().lower() in each.name.lower() and workflow in ("", each.workflow)
    ]
    if sort in _ORDERS:
        found.sort(key=_ORDERS[sort])
    readers: dict[str, int] = {}
    behind: dict[str, int] = {}
    for task in every.tasks.values():
        for each in task.reads:
            readers[each.channel] = readers.get(each.channel, 0) + 1
            behind[each.channel] = max(behind.get(each.channel, 0), each.behind)
    return page.show(
        "channels.html",
        every=every,
        found=found[start : start + _ROWS],
        count=len(found),
        start=start,
        size=_ROWS,
        sort=sort,
        q=q,
        workflow=workflow,
        workflows=sorted({each.workflow for each in every.channels.values()}),
        writers={name: [task.name for task in every.tasks.values() if name in task.writes] for name in every.channels},
        readers=readers,
        behind=behind,
    )


@router.get("/channels/{name}")
def channel(page: CurrentPage, name: str, before: Before = None) -> Response:
    """Show a channel."""
    status = page.project.reader.channel(name)
    every = page.overview()
    chain = page.project.reader.channel_history(name, before, _POINTS)
    readers = page.project.reader.readers(name)
    state = status.state
    try:
        assembly, unreadable = page.project.reader.snapshot_plan(name), None
    except NotFound as error:
        assembly, unreadable = None, error
    return page.show(
        "channel.html",
        channel=state.channel,
        glance=every.channels.get(name),
        state=state,
        writers=status.writers,
        readers=readers,
        bounds=(bounds := page.project.bounds([name])),
        schedule=page.project.bound_schedule([name]) if bounds else None,
        paths=page.project.reader.paths(name) if status.writers else (),
        chain=chain,
        before=before,
        step=_POINTS,
        policy=_chosen(page.project.reader.policy(name)),
        timeline=timeline(chain.points, readers),
        versions=page.project.reader.versions(name, before, _POINTS),
        assembly=assembly,
        unreadable=unreadable,
        readable=state.readable_points[: -_NAMED - 1 : -1],
        span=describe_points(state.readable_ranges),
        schema=state.schema_at(state.latest_readable),
        rules=describe_rules(state.channel.rules),
        schemas=page.project.reader.schemas(name),
        growth=_charts(page.project.reader.size_history(name)),
        near=graph_picture(neighbourhood(every, [name], 1), every),
        inbox=page.project.reader.files(name) if state.channel.watch is not None else None,
    )


@router.get("/channels/{name}/rows")
async def rows(page: CurrentPage, name: str, at: str = "", since: str = "", offset: Number = 0) -> Response:
    """Return a part of a page: some rows at a point, or of the changes after one."""
    await run_in_threadpool(page.project.reader.require_channel, name)
    try:
        point, table = await row_page(
            page.context, name, at=_point(at), since=_point(since), offset=offset, limit=_SAMPLE + 1
        )
    except OperationFailed as error:
        return page.show("rows.html", problem=error.content)
    except KilonovaError as error:
        return page.show("rows.html", problem=error.to_dict())
    found = [[_shown(value) for value in row.values()] for row in table.slice(0, _SAMPLE).to_pylist()]
    return page.show(
        "rows.html",
        problem=None,
        name=name,
        columns=table.column_names,
        numeric=[pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in table.schema.types],
        found=found,
        point=point,
        since=_point(since),
        offset=offset,
        more=table.num_rows > _SAMPLE,
        step=_SAMPLE,
    )


@router.get("/channels/{name}/rows/waiting")
async def waiting(page: CurrentPage, name: str) -> dict[str, int | None]:
    """Return how many runs and operations are before the rows of a channel that wait for a worker; null if none do."""
    return {"before": page.context.operations.before_first("page", name)}


_ORDERS = {
    "fresh": lambda each: (each.time is None, -(each.time.timestamp() if each.time else 0)),
    "old": lambda each: (each.time is not None, each.time.timestamp() if each.time else 0),
    "rows": lambda each: -(each.rows.most or 0),
    "size": lambda each: -each.bytes,
}


def _point(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _shown(value: object) -> str | None:
    """Return a row's value as text, shortened if it is long."""
    if value is None:
        return None
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LETTERS else text[:_LETTERS] + "…"


def _chosen(policy: Policy) -> dict[str, object]:
    """Return a compaction policy as the values of its form."""
    match policy:
        case CostBased(max_amplification=most):
            return {"rule": "cost-based", "max_amplification": most, "deltas": None}
        case MaxDeltas(deltas=deltas):
            return {"rule": "max-deltas", "max_amplification": None, "deltas": deltas}
        case Manual():
            return {"rule": "manual", "max_amplification": None, "deltas": None}
        case _:
            assert_never(policy)


def _charts(sizes: tuple[SizePoint, ...]) -> list[dict[str, object]]:
    """Return line charts of rows and bytes over time."""
    if len(sizes) < 2:
        return []
    first, last = sizes[0].time, sizes[-1].time
    place = Scale(first.timestamp(), last.timestamp(), 0, 100)
    charts: list[dict[str, object]] = []
    kinds = (
        ("Rows", [(each, each.rows) for each in sizes], short),
        ("Bytes to read for a snapshot", [(each, each.bytes) for each in sizes], size),
    )
    for title, values, words in kinds:
        known = [(each, value) for each, value in values if value is not None]
        if not known:
            continue
        marks = steps(max(value for _, value in known), whole=True)
        high = Scale(0, marks[-1], 100, 0)
        charts.append(
            {
                "title": title,
                "ticks": [Tick(high(value), words(value)) for value in marks],
                "times": times(first, last),
                "dots": [(place(each.time.timestamp()), high(value), each, words(value)) for each, value in known],
            }
        )
    return charts
