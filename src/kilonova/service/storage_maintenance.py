"""Maintenance of stored blocks: compaction, garbage collection, verification and repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from kilonova.catalog import channel_store, events, firings, ingest_keys, registry, servers
from kilonova.catalog.database import Catalog
from kilonova.engine.compaction import compact, is_compactable, merge_deltas
from kilonova.engine.garbage import GCReport, collect_garbage
from kilonova.engine.run_recovery import delete_doomed_blocks
from kilonova.errors import CatalogFull
from kilonova.schedule.garbage import Provenance
from kilonova.schedule.repair import RepairMethod
from kilonova.service.reports import RunReport, run_report
from kilonova.service.resources import ProjectResources
from kilonova.service.runner import Runner

if TYPE_CHECKING:
    from kilonova.service.fsck import FsckReport
    from kilonova.warehouse.storage import Storage


_VERIFYING = 5.0
"""Seconds that a server spends on verifying blocks each time it collects garbage."""

_KEYS_KEPT = timedelta(days=7)
"""Minimum retention of idempotency keys of ingests."""


class StorageMaintenance:
    """Maintenance of a project's blocks, and of records that expire.

    Args:
        resources: the catalog, warehouse and settings of the project.
        runner: runs the tasks whose output is repaired.
    """

    def __init__(self, resources: ProjectResources, runner: Runner) -> None:
        self._resources = resources
        self._catalog = resources.catalog
        self._runner = runner

    def compact(self, channel: str, *, deltas: bool = False) -> RunReport | None:
        """Compact a channel: write its newest snapshot as a base.

        Args:
            channel: the channel.
            deltas: merge adjacent deltas instead: small ones of an append-only channel, as long as tasks read only
                new input and a base of the whole relation would be of no use; all upserts.

        Returns:
            The report; None if there was nothing to merge.

        Raises:
            NotFound: there is no such channel.
        """
        if deltas:
            return self._merge_deltas(channel, few=True)
        self._resources.recover_expired_runs()
        with self._catalog.reading() as tx:
            state = channel_store.channel_state(tx, channel)
            if not is_compactable(state.snapshot(state.latest_readable)):
                return None
        done = compact(self._resources.environment(), self._resources.warehouse, channel)
        return None if done is None else run_report(self._catalog, done[0])

    def _merge_deltas(self, channel: str, *, few: bool) -> RunReport | None:
        self._resources.recover_expired_runs()
        done = merge_deltas(self._resources.environment(), self._resources.warehouse, channel, few=few)
        return None if done is None else run_report(self._catalog, done[0])

    def maintain(self, channel: str | None, *, deltas: bool = False) -> RunReport | None:
        """Compact a channel and collect its garbage; without a channel, collect all garbage and verify some blocks.

        Without a channel, old events are deleted too.

        Args:
            channel: the channel; None for the maintenance of the whole project.
            deltas: merge its small adjacent deltas instead, if there are many, or its upserts.

        Returns:
            The report of the compaction; None if there was nothing to merge.

        Raises:
            NotFound: there is no such channel.
        """
        from kilonova.service.fsck import verify_some

        report = None
        if channel is not None:
            report = self._merge_deltas(channel, few=False) if deltas else self.compact(channel)
        self.collect_garbage(None if channel is None else [channel])
        if channel is None:
            self.forget(timedelta(days=self._resources.settings.history_retention_days))
            if days := self._resources.settings.serve.verify:
                verify_some(self._catalog, self._resources.storage(), timedelta(days=days), _VERIFYING)
        return report

    def forget(self, age: timedelta) -> None:
        """Delete events, ended firings, stopped servers and idempotency keys of ingests older than an age.

        Keys of ingests are kept for at least a week.
        """
        with self._catalog.writing() as tx:
            for forget in (events.forget, firings.forget, servers.forget):
                forget(tx, tx.now - age)
            ingest_keys.forget(tx, tx.now - max(age, _KEYS_KEPT))

    def collect_garbage(
        self, channels: Iterable[str] | None = None, *, dry_run: bool = False, provenance: str | None = None
    ) -> GCReport:
        """Delete the blocks that are no longer needed, and expired logs.

        If the disk of the catalog is full, files are deleted before the deletion is recorded.

        Args:
            channels: the channels to collect; None for all, and logs.
            dry_run: whether to only report what would be deleted, and what retains the rest.
            provenance: `logical`, `physical` or `all`; None for the project's setting.

        Raises:
            NotFound: there is no such channel.
            CatalogFull: the disk of the catalog is full, and nothing could be deleted there.
        """
        chosen = None if channels is None else tuple(channels)

        def collected(catalog: Catalog, *, full: bool) -> GCReport:
            return collect_garbage(
                catalog,
                self._resources.block_store(catalog),
                self._resources.listener,
                channels=chosen,
                provenance=Provenance(provenance or self._resources.settings.provenance),
                logs=None if chosen is not None else timedelta(days=self._resources.settings.log_retention_days),
                dry_run=dry_run,
                full=full,
            )

        self._resources.pins.settle()
        try:
            return collected(self._catalog, full=False)
        except CatalogFull:
            with self._full_catalog() as catalog:
                return collected(catalog, full=True)

    @contextmanager
    def _full_catalog(self) -> Iterator[Catalog]:
        """Yield the catalog in a mode in which it can be read although its disk is full."""
        try:
            self._catalog.identity()
        except CatalogFull:  # no other process has it open
            alone = Catalog(self._catalog.url, self._catalog.clock, alone=True)
            try:
                yield alone
            finally:
                alone.close()
        else:
            yield self._catalog

    def fsck(
        self,
        channels: Iterable[str] | None = None,
        *,
        checksums: bool = False,
        repair: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> FsckReport:
        """Compare the blocks in the warehouse with what was written.

        Args:
            channels: the channels to verify; None for all.
            checksums: whether contents are compared, besides names and sizes.
            repair: whether to repair all damage that needs no rows from elsewhere: derived channels are recomputed,
                blocks that are not needed are deleted, and manifests and markers are rewritten.
            progress: called with the number of blocks verified, and the number of all.

        Returns:
            The result of the verification, and the channels that were repaired.

        Raises:
            NotFound: there is no such channel.
            Conflict: another run has a task that must run again.
            StorageFailed: the warehouse cannot be read, or written.
        """
        from kilonova.service.fsck import verify

        storage = self._resources.storage()
        found = verify(self._catalog, storage, channels, checksums=checksums, progress=progress)
        return self._mended(found, storage) if repair else found

    def _mended(self, found: FsckReport, storage: Storage) -> FsckReport:
        """Repair damage as far as possible, and return the report with the channels that are repaired."""
        from kilonova.service.fsck import drop_blocks, lost_blocks, mend

        mend(self._catalog, storage, found)
        lost = lost_blocks(found.damaged)
        dropped = [each.channel for each in found.remedies if each.method is RepairMethod.DROP]
        drop_blocks(self._catalog, {channel: lost[channel] for channel in dropped})
        again = {each.channel: each.task for each in found.remedies if each.task is not None}
        if again:
            with self._catalog.writing() as tx:
                for task in set(again.values()):
                    registry.reset_cursors(tx, task)
            self._runner.run(dict.fromkeys(again.values()))
            drop_blocks(self._catalog, {channel: lost[channel] for channel in again})
        delete_doomed_blocks(self._catalog, self._resources.block_store())
        return replace(found, mended=tuple(sorted(each.channel for each in found.remedies if each.is_automatic)))
