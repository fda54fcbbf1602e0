"""Watched directories: scans, and ingests of the files that are ready."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from kilonova.catalog import files
from kilonova.errors import DeclarationError
from kilonova.model.watched_file import FileState
from kilonova.service.reports import DirectoryIngestReport, RunReport, run_report
from kilonova.service.resources import ProjectResources

if TYPE_CHECKING:
    from kilonova.catalog.files import ScanResult


_SOON = timedelta(minutes=1)
"""Maximum time for which a user's command waits for files to be complete."""


class WatchedDirectories:
    """Watched directories of the channels of a project.

    Args:
        resources: the catalog, warehouse and settings of the project.
    """

    def __init__(self, resources: ProjectResources) -> None:
        self._resources = resources
        self._catalog = resources.catalog

    def scan(self, channel: str, *, early: bool = False) -> ScanResult | None:
        """Scan the watched directory of a channel, without ingesting files.

        Args:
            channel: the channel.
            early: whether to scan before the next scan is due, or while another process is scanning.

        Returns:
            The result of the scan; None if there is nothing to scan now.

        Raises:
            NotFound: there is no such channel.
        """
        from kilonova.engine.directory_scan import scan_directory

        resources = self._resources
        return scan_directory(self._catalog, resources.directory, channel, resources.lease, early=early)

    def ingest_ready(self, channel: str, *, seconds: float = float("inf")) -> tuple[RunReport, ...]:
        """Ingest the files of a watched directory that are ready, as one or more blocks.

        Args:
            channel: the channel.
            seconds: the time in seconds after which no further block is begun.

        Returns:
            The reports of the runs.

        Raises:
            NotFound: there is no such channel.
            KilonovaError: Spark, the warehouse or the directory failed; the files stay ready.
        """
        with self._catalog.reading() as tx:
            if not files.ready_files(tx, channel, 1):
                return ()
        from kilonova.engine.directory_ingest import BatchLimits, ingest_ready_files

        resources, section = self._resources, self._resources.settings.scan
        most = BatchLimits(section.max_files, section.max_bytes)
        runs = ingest_ready_files(resources.environment(), resources.warehouse, resources.directory, channel, most)
        end = time.monotonic() + seconds
        reports = []
        for run, results in runs:
            quarantined = sum(each.state is FileState.QUARANTINED for each in results.file_outcomes)
            report = run_report(self._catalog, run, quarantined=quarantined, malformed=results.malformed)
            reports.append(report)
            if time.monotonic() > end:
                break
        return tuple(reports)

    def ingest(self, channels: Iterable[str] | None = None, *, early: bool = True) -> DirectoryIngestReport:
        """Scan watched directories, and ingest the files that are ready.

        Args:
            channels: the channels; None for all that are watched.
            early: whether to scan before the next scan is due, and to wait once for files that will soon be complete.

        Returns:
            The report.

        Raises:
            NotFound: there is no such channel.
            DeclarationError: a named channel has no watched directory.
            KilonovaError: Spark or the warehouse failed; the files stay ready.
        """
        with self._catalog.reading() as tx:
            for name in channels or ():
                if not files.watched_directories(tx, name):
                    raise DeclarationError(
                        "the channel has no watched directory",
                        channel=name,
                        hint="Declare it with watch=kilonova.watched_directory(…)",
                    )
            names = tuple(channels or (each.channel for each in files.watched_directories(tx)))
        looked = {name: self.scan(name, early=early) for name in names}
        soon = self._catalog.clock() + _SOON
        waiting = {name: each.settles for name, each in looked.items() if each and each.settles and each.settles < soon}
        if early and waiting:
            time.sleep(max(0.0, (max(waiting.values()) - self._catalog.clock()).total_seconds()))
            looked |= {name: self.scan(name, early=True) for name in waiting}
        done = {name: self.ingest_ready(name) for name in names}
        quarantined = {name: sum(report.quarantined for report in reports) for name, reports in done.items()}
        found = {name: each for name, each in looked.items() if each is not None}
        return DirectoryIngestReport(
            runs=tuple(report for reports in done.values() for report in reports),
            unseen={name: each.error for name, each in found.items() if each.error is not None},
            settling=tuple(name for name, each in found.items() if each.settles is not None),
            quarantined={name: count for name, count in quarantined.items() if count},
        )
