"""Metrics of a catalog, counted by the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Column, func, select

from kilonova.catalog import tables
from kilonova.catalog.bound_status import BoundStatus, bound_statuses
from kilonova.catalog.database import Transaction
from kilonova.catalog.read_models.overview import snapshot_sizes
from kilonova.model.channel import PointState


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogMetrics:
    """Metrics for monitoring.

    Attributes:
        runs: number of runs by state.
        firings: number of firings by state.
        servers: number of servers by state.
        rows: the number of rows by channel, for those where it is known.
        most_rows: an upper bound of the number of rows by channel, for those that have one.
        bytes: the size of the newest readable snapshot by channel.
        stored_bytes: the size of all live blocks by channel.
        points: the newest filled point by channel.
        bounds: the status of the bounds.
    """

    runs: Mapping[str, int]
    firings: Mapping[str, int]
    servers: Mapping[str, int]
    rows: Mapping[str, int]
    most_rows: Mapping[str, int]
    bytes: Mapping[str, int]
    stored_bytes: Mapping[str, int]
    points: Mapping[str, int]
    bounds: tuple[BoundStatus, ...]


def catalog_metrics(tx: Transaction) -> CatalogMetrics:
    """Return the metrics of the catalog."""

    def by(state: Column[str]) -> dict[str, int]:
        query = select(state.label("state"), func.count().label("times")).group_by(state)
        return {row.state: row.times for row in tx.connection.execute(query)}

    block, place, channel, point = tables.block, tables.placement, tables.channel, tables.point
    live = tx.connection.execute(
        select(channel.c.name, func.sum(block.c.bytes).label("bytes"))
        .join(place, place.c.channel_id == channel.c.id)
        .join(block, block.c.id == place.c.block_id)
        .where(place.c.live)
        .group_by(channel.c.name)
    ).all()
    last = (  # by the primary key of points: one row is read per channel
        select(point.c.number)
        .where(point.c.channel_id == channel.c.id, point.c.state == PointState.FILLED.value)
        .order_by(point.c.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    newest = tx.connection.execute(select(channel.c.id, channel.c.name, last.label("number"))).all()
    names = {row.id: row.name for row in newest}
    sizes = {names[number]: size for number, size in snapshot_sizes(tx).items()}
    return CatalogMetrics(
        runs=by(tables.run.c.state),
        firings=by(tables.firing.c.state),
        servers=by(tables.server.c.state),
        rows={name: rows.exact for name, (rows, _) in sizes.items() if rows.exact is not None},
        most_rows={name: rows.most for name, (rows, _) in sizes.items() if rows.most is not None},
        bytes={name: size for name, (_, size) in sizes.items()},
        stored_bytes={row.name: int(row.bytes) for row in live},
        points={row.name: row.number for row in newest if row.number is not None},
        bounds=bound_statuses(tx),
    )
