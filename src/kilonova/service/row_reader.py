"""Rows of channels, whose blocks are pinned while they are read, and logs of runs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kilonova.catalog import channel_store, registry, task_graph
from kilonova.catalog import runs as records
from kilonova.catalog.database import Transaction
from kilonova.errors import BlockDamaged, BoundViolated, NotFound, StorageFailed
from kilonova.model.channel import ChannelState
from kilonova.model.read_plan import ReadPlan
from kilonova.model.run import RunState
from kilonova.query.row_order import SortKey, row_order
from kilonova.query.tree import WEIGHT
from kilonova.service.reports import RunLog, closing
from kilonova.service.resources import ProjectResources

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from kilonova.warehouse.local_pages import PageReader


class RowReader:
    """Reader of the rows of channels.

    Args:
        resources: the catalog, warehouse and settings of the project.
    """

    def __init__(self, resources: ProjectResources) -> None:
        self._resources = resources
        self._catalog = resources.catalog
        self._pages: PageReader | None = None

    def read(self, channel: str, *, at: int | None = None, since: int | None = None) -> DataFrame:
        """Return the rows of a channel, or its changes since a point as a strong delta.

        Its blocks are pinned for the lifetime of the DataFrame, or, in a session that is no Spark Connect client, of
        any DataFrame derived from it; at most until this project is closed. If it is joined as the second operand to
        a DataFrame of another source, keep references to both.

        Args:
            channel: the channel.
            at: the point; None for the newest.
            since: give what changed after this point, with a `_weight` per row.

        Raises:
            NotFound: there is no such channel or point.
        """
        reading, holder = self._pinned(channel, at, since)
        try:
            frame, anchor = self._resources.warehouse.open_apart(reading)
            weakref.finalize(anchor, self._resources.pins.give_up, holder).atexit = False
        except BaseException as error:
            self._resources.pins.release(holder)
            if isinstance(error, BlockDamaged):
                raise error.with_context(channel=channel) from None
            raise
        return frame

    def rows(
        self, channel: str, *, at: int | None = None, since: int | None = None, limit: int | None = None
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Return column names and rows of a channel, fetched; see `read`. Those of a small relation need no Spark.

        Changes are in the order of the channel's key, each removal before its addition; without a key they are in the
        order of all columns. The rows of a view with ORDER BY and LIMIT are in that order.

        Args:
            channel: the channel.
            at: the point; None for the newest.
            since: give what changed after this point, with a `_weight` per row.
            limit: the maximum number of rows.

        Raises:
            NotFound: there is no such channel or point.
        """
        from kilonova.warehouse.jobs import fetch, fetched, ordered
        from kilonova.warehouse.spark_errors import attribute_read_errors

        small = self.small_page(channel, at=at, since=since, offset=0, limit=limit)
        if small is not None:
            return tuple(small[1].column_names), fetched(small[1])
        first = self._changes_order(channel) if since is not None else self._view_order(channel)
        with self.pinned_plan(channel, at, since) as reading, attribute_read_errors(channel):
            frame = self._resources.warehouse.open(reading)
            frame = ordered(frame, first) if first or since is not None else frame
            return tuple(frame.columns), fetch(frame, limit)

    def page(
        self, channel: str, file: str, *, at: int | None = None, since: int | None = None, offset: int, limit: int
    ) -> tuple[int, str]:
        """Write a page of the rows of a channel to a file, as an Arrow stream; see `read`.

        Rows are ordered by the channel's key, then by all other columns that can be ordered, so that the pages of one
        point together are the whole relation; those of a view with ORDER BY and LIMIT first by that.

        Args:
            channel: the channel.
            file: the file.
            at: the point; None for the newest.
            since: give what changed after this point, with a `_weight` per row.
            offset: the number of rows before the page.
            limit: the maximum number of rows of the page.

        Returns:
            The point, with which to request further pages, and the file.
        """
        from kilonova.warehouse.jobs import write_page
        from kilonova.warehouse.spark_errors import attribute_read_errors

        with self._catalog.reading() as tx:
            state = channel_store.channel_state(tx, channel)
        end = state.latest_kept if at is None else at
        first = self._page_order(channel, since)
        with self.pinned_plan(channel, end, since) as reading, attribute_read_errors(channel):
            write_page(self._resources.warehouse.open(reading), file, first, offset, limit)
        return end, file

    def small_page(
        self, channel: str, *, at: int | None = None, since: int | None = None, offset: int, limit: int | None
    ) -> tuple[int, pa.Table] | None:
        """Return a page of the rows of a channel, read by this process without Spark; see `page`.

        Without a limit, it has all rows after the offset. The blocks are pinned only if they cannot be read without:
        garbage collection may have deleted them meanwhile, which is rare, and pins are written to the catalog.

        Returns:
            The point and the rows; None if the blocks are not small, or have to be read by Spark.
        """
        from kilonova.warehouse.local_read import is_small_reading

        with self._catalog.reading() as tx:
            state = channel_store.channel_state(tx, channel)
            reading = _read_plan(tx, channel, at, since)
        if self._resources.settings.sizes.local_check_max == 0 or not is_small_reading(reading):
            return None
        end = state.latest_kept if at is None else at
        pages, first = self._page_reader(), self._page_order(channel, since)
        try:
            rows = pages.page(reading, first, offset, limit)
        except (BlockDamaged, StorageFailed):
            with self.pinned_plan(channel, end, since) as pinned:
                rows = pages.page(pinned, first, offset, limit)
        return None if rows is None else (end, rows)

    def _page_reader(self) -> PageReader:
        from kilonova.warehouse.local_pages import PageReader

        if self._pages is None:
            storage = self._resources.storage()
            self._pages = PageReader(storage, checksums=self._resources.settings.verify == "checksums")
        return self._pages

    def _page_order(self, channel: str, since: int | None) -> tuple[SortKey, ...]:
        """Return the columns by which pages of a channel, or of its changes, are ordered."""
        if since is not None:
            return self._changes_order(channel)
        with self._catalog.reading() as tx:
            key = channel_store.channel(tx, channel).key
        return self._view_order(channel) or tuple(map(SortKey, key))

    def _changes_order(self, channel: str) -> tuple[SortKey, ...]:
        """Return the columns by which changes of a channel are ordered, so that those of one row are adjacent."""
        with self._catalog.reading() as tx:
            key = channel_store.channel(tx, channel).key
        return (*map(SortKey, key), SortKey(WEIGHT)) if key else ()

    def _view_order(self, channel: str) -> tuple[SortKey, ...]:
        """Return the columns by which the rows of a view with ORDER BY and LIMIT are ordered; none for others."""
        with self._catalog.reading() as tx:
            state = channel_store.channel_state(tx, channel)
            tasks = registry.tasks(tx, task_graph.writers(tx, [channel])[channel]).values()
        written = next((known.task.written for known in tasks if known.task.view == channel), "")
        schema = state.current.schema
        return row_order(written, schema.names) if written and schema is not None else ()

    def log(self, run: int | None = None) -> RunLog:
        """Return the log of a run, with the output of its code, as far as it is known by now.

        Args:
            run: its number; None for the last run.

        Raises:
            NotFound: there is no such run, or its log is no longer retained.
        """
        with self._catalog.reading() as tx:
            found = records.find_run(tx, run)
        text = self._resources.storage().log(found.number, found.started.date())
        if text is None and found.state is not RunState.RUNNING:
            hint = f"Logs are kept for {self._resources.settings.log_retention_days} days"
            raise NotFound("the run has no log", run=found.number, hint=hint)
        return RunLog(run=found, text=(text or "") + closing(found))

    def export(
        self, channel: str, target: str, format: str, *, at: int | None = None, since: int | None = None
    ) -> None:
        """Write the rows of a channel to a directory.

        Args:
            channel: the channel.
            target: a path or URL that does not exist yet.
            format: `parquet`, `csv` or `json`.
            at: the point; None for the newest.
            since: write what changed after this point, with a `_weight` per row.

        Raises:
            NotFound: there is no such channel or point.
            SettingsError: the target exists already.
            StorageFailed: the directory cannot be written.
        """
        from kilonova.warehouse.jobs import export

        with self.pinned_plan(channel, at, since) as reading:
            export(self._resources.warehouse.open(reading), target, format)

    @contextmanager
    def pinned_plan(self, channel: str, at: int | None, since: int | None) -> Iterator[ReadPlan]:
        """Yield a read plan whose blocks are pinned until the end of the `with` block."""
        reading, holder = self._pinned(channel, at, since)
        try:
            yield reading
        except BlockDamaged as error:
            raise error.with_context(channel=channel) from None
        finally:
            self._resources.pins.release(holder)

    def _pinned(self, channel: str, at: int | None, since: int | None) -> tuple[ReadPlan, str]:
        """Return a read plan whose blocks are pinned, and the holder of the pins."""
        with self._catalog.writing() as tx:
            reading = _read_plan(tx, channel, at, since)
            holder = self._resources.pins.pin(tx, [block.number for block in reading.blocks])
        self._resources.pins.hold(holder)
        return reading, holder


def _refuse_retracted(tx: Transaction, state: ChannelState, point: int) -> None:
    """Check that an older point of a channel reflects no logic version that was retracted."""
    if (found := state.version(point).reflects_any(registry.retracted(tx))) is not None:
        hint = "Read another point, or the newest one"
        raise NotFound(
            f"the point reflects the {found}, which was retracted", channel=state.channel.name, point=point, hint=hint
        )


def _require_kept(state: ChannelState, point: int) -> None:
    """Require that a point is not withheld from readers; point 0 is not given in the place of such a point.

    Raises:
        BoundViolated: it is withheld, or all points are.
    """
    if state.is_withheld(point) or (point == 0 and state.latest_kept == 0 and state.latest_distinct):
        kept = f"Read point {state.latest_kept}, or change" if state.latest_kept else "Change"
        raise BoundViolated(
            "the point violates the bound on the inconsistency of its channel, so that it cannot be read",
            channel=state.channel.name,
            point=state.latest_distinct if point == 0 else point,
            hint=f"{kept} the bound: kilonova bound inconsistency {state.channel.name} LIMIT",
        )


def _read_plan(tx: Transaction, channel: str, at: int | None, since: int | None) -> ReadPlan:
    state = channel_store.channel_state(tx, channel)
    end = state.latest_kept if at is None else channel_store.listed_point(tx, state, at)
    _require_kept(state, end)
    if state.first_retained <= end < state.latest_distinct:
        _refuse_retracted(tx, state, end)
    if since is None:
        reading: ReadPlan = state.snapshot(end)
    else:
        begin = channel_store.listed_point(tx, state, since)
        _require_kept(state, begin)
        if begin > end:
            hint = "Give an earlier point to --since"
            raise NotFound(f"the point is after point {end}", channel=channel, point=since, hint=hint)
        reading = state.changes(begin, end)
    if reading.schema is None:
        raise NotFound(
            "the channel has no schema yet, because nothing was written to it",
            channel=channel,
            hint="Run the task that writes it first",
        )
    return reading
