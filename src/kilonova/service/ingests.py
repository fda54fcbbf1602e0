"""Ingests of files and DataFrames into source channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as replace_fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.catalog import channel_store, ingest_keys
from kilonova.errors import DeclarationError
from kilonova.model.idempotency import IdempotencyKey, digest_of
from kilonova.model.task import Production
from kilonova.service.reports import RunReport, run_report
from kilonova.service.resources import ProjectResources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kilonova.model.block import External
    from kilonova.model.channel import Channel
    from kilonova.warehouse.file_columns import FileSet


class Ingests:
    """Ingests of a project.

    Args:
        resources: the catalog, warehouse and settings of the project.
    """

    def __init__(self, resources: ProjectResources) -> None:
        self._resources = resources
        self._catalog = resources.catalog

    def ingest(
        self,
        channel: str,
        source: str | Path | DataFrame,
        *,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        replace: bool = False,
        in_place: bool = False,
        idempotency_key: str | None = None,
        content_digest: str | None = None,
        name: str | None = None,
    ) -> RunReport:
        """Insert a block into a source channel.

        Args:
            channel: the channel.
            source: a file, a directory, a URL, or a DataFrame.
            format: `parquet`, `csv`, `json` or any format that Spark reads; inferred from the names if None.
            options: options for Spark's reader.
            replace: whether the rows are the whole relation rather than new input.
            in_place: whether the files become the block at their present location, and are read there until a
                compaction writes their rows into the warehouse; Parquet, ORC, CSV or JSON. Kilonova never changes or
                deletes them; others must not either.
            idempotency_key: key of this ingest: a repeated ingest with the same key is not executed, and returns the
                first report, marked as repeated.
            content_digest: digest of the bytes of the files, by which a repeated ingest is recognized instead of by
                their names and sizes.
            name: the name of a temporary file, such as an upload, that is shown instead of its path.

        Raises:
            NotFound: there is no such channel.
            DeclarationError: a task writes the channel.
            SchemaMismatch: the rows do not fit the channel's schema.
            KeyViolation: keys are null or occur twice.
            CheckFailed: rows violate a check of the channel.
            InputError: a file cannot be read, or a line does not fit.
            SettingsError: an option of the reader is unknown or invalid.
            KeyReused: the idempotency key belongs to an ingest of something else.
            Conflict: the ingest of the idempotency key is running.
        """
        from kilonova.engine.ingest import IngestSource, ingest
        from kilonova.warehouse.file_readers import find_files
        from kilonova.warehouse.misfits import count_misfits, with_misfits

        production = Production.BASE if replace else Production.DELTA
        with self._catalog.reading() as tx:
            channel_store.channel_id(tx, channel)
        if isinstance(source, str | Path):
            files = find_files(str(source), format, options or {})
            asked = _request_for(files, production, in_place, content_digest)
            if name is not None:
                files = replace_fields(
                    files, origins={url: replace_fields(origin, name=name) for url, origin in files.origins.items()}
                )
            spark = self._resources.warehouse.spark
            given = IngestSource(
                rows=partial(self._rows, files, production, in_place),
                production=production,
                bytes=files.bytes,
                description=name or str(source),
                explain=lambda known, error: with_misfits(spark, files, known, production, error),
                malformed=lambda known: count_misfits(spark, files, known, production),
                hidden=None if name is None else str(source),
            )
        elif in_place:
            hint = "Name files to register in place"
            raise DeclarationError("a DataFrame cannot be registered in place", channel=channel, hint=hint)
        else:
            asked = {"production": production.value, "in_place": False}
            if idempotency_key is not None:
                asked["columns"] = self._resources.warehouse.schema_of(source).ddl
            given = IngestSource(rows=lambda _: source, production=production, bytes=None, description="a DataFrame")
        key = None if idempotency_key is None else IdempotencyKey(idempotency_key, digest_of(asked))
        if key is not None and (earlier := self._ingested(channel, key)) is not None:
            return earlier
        done = ingest(self._resources.environment(), self._resources.warehouse, channel, given, key)
        return run_report(self._catalog, done.run, malformed=done.malformed, repeated=done.repeated)

    def _rows(self, files: FileSet, production: Production, in_place: bool, channel: Channel) -> DataFrame | External:
        from kilonova.warehouse.file_readers import external_files, read

        of_files = external_files if in_place else read
        return of_files(self._resources.warehouse.spark, files, channel, production)

    def completed(
        self,
        channel: str,
        source: str | Path,
        *,
        idempotency_key: str,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        replace: bool = False,
        content_digest: str | None = None,
    ) -> RunReport | None:
        """Return the report of an ingest of files that was executed earlier, without Spark; None if there is none.

        Args:
            channel: the channel.
            source: as given to `ingest`, like the other arguments.
            idempotency_key: the key of the ingest.
            format: see `ingest`.
            options: see `ingest`.
            replace: see `ingest`.
            content_digest: see `ingest`.

        Raises:
            NotFound: there is no such channel.
            InputError: a file cannot be read.
            KeyReused: the key belongs to an ingest of something else.
            Conflict: the ingest is running.
        """
        from kilonova.warehouse.file_readers import find_files

        production = Production.BASE if replace else Production.DELTA
        asked = _request_for(find_files(str(source), format, options or {}), production, False, content_digest)
        return self._ingested(channel, IdempotencyKey(idempotency_key, digest_of(asked)))

    def _ingested(self, channel: str, key: IdempotencyKey) -> RunReport | None:
        """Return the report of the ingest of an idempotency key, without Spark; None if it has not been executed."""
        self._resources.recover_expired_runs()
        with self._catalog.reading() as tx:
            run = ingest_keys.finished(tx, channel, key)
        return None if run is None else run_report(self._catalog, run, repeated=True)


def _request_for(
    files: FileSet, production: Production, in_place: bool, content_digest: str | None
) -> dict[str, object]:
    """Return what identifies an ingest of files under an idempotency key."""
    sizes = content_digest or [(url, files.seen[url].size) for url in files.urls]
    return {
        "production": production.value,
        "in_place": in_place,
        "files": sizes,
        "format": files.format,
        "options": dict(files.options),
    }
