"""Readers of files: Parquet, ORC, CSV, JSON lines, and any other format that Spark reads.

Given a schema, Spark fills columns that a file lacks with nulls and ignores extra ones; here both are errors. Headers
and footers are checked before Spark begins; JSON's fields while it reads.
"""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
from fsspec.core import url_to_fs
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kilonova.errors import InputError, SchemaMismatch
from kilonova.model.block import Base, Block, External, FileGroup
from kilonova.model.channel import Channel
from kilonova.model.encoding import Encoding, delta_schema, optional_columns
from kilonova.model.ingest_columns import FILE, FILE_TIME, ingest_columns
from kilonova.model.reader_options import check_reader_options, rescued_column
from kilonova.model.schema import RESERVED, Schema
from kilonova.model.task import Production
from kilonova.model.watched_file import Fingerprint
from kilonova.warehouse.file_fingerprints import fingerprint_of
from kilonova.warehouse.file_origins import FileOrigin, with_origins, with_url
from kilonova.warehouse.text_lines import csv_options, escaped, read_lines

SUFFIXES = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """Files of one format.

    Attributes:
        urls: the files, sorted.
        format: a format that Spark reads.
        bytes: their total size.
        options: options for Spark's reader.
        seen: the fingerprint of each file, if known.
        origins: the origin of the rows of each file; empty if the files are not ingested.
    """

    urls: tuple[str, ...]
    format: str
    bytes: int
    options: Mapping[str, str]
    seen: Mapping[str, Fingerprint] = field(default_factory=dict)
    origins: Mapping[str, FileOrigin] = field(default_factory=dict)


def find_files(path: str, format: str | None, options: Mapping[str, str]) -> FileSet:
    """Find the files at a path: one file, or those of one format in a directory and its subdirectories.

    Args:
        path: a path or URL.
        format: a format that Spark reads; None infers it from the file names.
        options: options for Spark's reader.

    Raises:
        InputError: there are no files, or their format is unknown or not the same.
        SettingsError: there is no such option for files of the format, or its value is invalid.
    """
    try:
        fs, root = url_to_fs(path if "://" in path else str(Path(path).absolute()))
        there = fs.exists(root)
    except (ImportError, OSError, ValueError) as error:
        raise InputError(
            f"the location cannot be reached: {type(error).__name__}", path=path, hint="Check the path or URL"
        ) from error
    if not there:
        raise InputError("there is no such file or directory", path=path, hint="Check the path")
    folder = root if fs.isdir(root) else posixpath.dirname(root)
    if folder == root:
        found = fs.find(root, detail=True)
        names = {
            name: fingerprint_of(entry)
            for name, entry in found.items()
            if not any(part.startswith((".", "_")) for part in name[len(root) :].split("/") if part)
        }
    else:
        names = {root: fingerprint_of(fs.info(root))}
    if format is None:
        formats = {format_of(name) for name in names}
        if not names:
            raise InputError("the directory contains no files", path=path, hint="Put the files there first")
        if len(formats) > 1 or None in formats:
            raise InputError(
                "the format cannot be inferred from the file names",
                path=path,
                hint="Name it with --format",
            )
        (format,) = formats
    assert format is not None
    check_reader_options(options, format)
    return FileSet(
        urls=tuple(fs.unstrip_protocol(name) for name in sorted(names)),
        format=format,
        bytes=sum(seen.size for seen in names.values()),
        options=dict(options),
        seen={fs.unstrip_protocol(name): seen for name, seen in names.items()},
        origins={
            fs.unstrip_protocol(name): FileOrigin(posixpath.relpath(name, folder), names[name].modified, position)
            for position, name in enumerate(sorted(names))
        },
    )


def format_of(name: str) -> str | None:
    """Return the format of a file by its name; None if it is unknown.

    >>> format_of("day.csv.gz")
    'csv'
    """
    return SUFFIXES.get(Path(name.removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst")).suffix.lower())


def read(
    spark: SparkSession, files: FileSet, channel: Channel, production: Production, *, positions: bool = False
) -> DataFrame:
    """Return the rows of files, with a channel's columns.

    Args:
        spark: the session.
        files: the files.
        channel: the channel that defines the columns.
        production: whether the rows are a delta in the channel's encoding or the whole relation.
        positions: whether to add the position of each row's file.

    Raises:
        SchemaMismatch: a file lacks a column, has an extra one, or has an incompatible type.
        InputError: a file cannot be read.
    """
    columns = columns_of_channel(channel, production, files.options)
    filled = ingest_columns(columns.schema)
    traced = positions or not {FILE, FILE_TIME}.isdisjoint(filled)
    if files.format in IN_PLACE:
        groups = _grouped(files, columns)
        rows = _loaded(spark, files.format, files.options, groups, columns.required, traced=traced)
    else:
        reader = spark.read.format(files.format).options(**files.options)
        rows = reader.schema(columns.schema.ddl).load(escaped(files.urls))
        rows = with_url(rows) if traced else rows
    absent = {name: F.lit(None).cast(columns.schema.type_of(name)) for name in filled if name not in rows.columns}
    rows = rows.withColumns(absent) if absent else rows
    return with_origins(spark, rows, files.origins, positions=positions) if traced else rows


TEXT = ("csv", "json")
"""File formats whose lines are read as `kilonova.warehouse.text_lines` says."""

IN_PLACE = ("parquet", "orc", *TEXT)
"""File formats that can be registered in place as a block: their columns are checked beforehand."""


def external_files(files: FileSet, channel: Channel, production: Production) -> External:
    """Return files as the content of an external block of a channel.

    Raises:
        SchemaMismatch: a file lacks a column, has an extra one, or has an incompatible type.
        InputError: a file cannot be read, or its format cannot be registered in place.
    """
    if files.format not in IN_PLACE:
        raise InputError(
            f"files of the format {files.format} cannot be read in place", hint=f"Use {', '.join(IN_PLACE)}"
        )
    groups = columns_of_files(files, channel, production)
    return External(
        format=files.format,
        options=tuple(files.options.items()),
        groups=tuple(
            FileGroup(columns=columns, files=tuple((url, files.seen[url]) for url in urls)) for columns, urls in groups
        ),
    )


def read_external(spark: SparkSession, block: Block) -> DataFrame:
    """Return the rows of a block that was registered in place, as stored in its files.

    Raises:
        InputError: a file has changed since, or no longer exists.
    """
    assert block.external is not None
    check_files_unchanged(block.external)
    options = dict(block.external.options)
    columns = _columns(block.schema, None if isinstance(block.kind, Base) else block.encoding, options)
    groups = [(group.columns, [url for url, _ in group.files]) for group in block.external.groups]
    return _loaded(spark, block.external.format, options, groups, columns.required)


def check_files_unchanged(external: External) -> None:
    """Check that files have not changed since they were registered.

    Raises:
        InputError: a file has changed, or no longer exists.
    """

    def look(file: tuple[str, Fingerprint]) -> None:
        url, seen = file
        fs, name = url_to_fs(url)
        try:
            fs.invalidate_cache()
            now = fingerprint_of(fs.info(name))
        except FileNotFoundError:
            raise InputError(
                "a file of a block that was registered in place is missing",
                path=url,
                hint="Restore it, or replace the relation with kilonova ingest --replace",
            ) from None
        except OSError as error:
            raise InputError(
                f"the file cannot be reached: {error}", path=url, hint="Check that it exists, and its permissions"
            ) from error
        if now != seen:
            raise InputError(
                "the file has changed since it was registered in place",
                path=url,
                hint="Restore the old file, or replace the relation with kilonova ingest --replace",
            )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(look, external.files))


def columns_of_files(files: FileSet, channel: Channel, production: Production) -> Groups:
    """Return files in groups that are read with the same columns.

    Args:
        files: the files.
        channel: the channel that defines the columns.
        production: whether the rows are a delta in the channel's encoding or the whole relation.

    Raises:
        SchemaMismatch: a file lacks a column, has an extra one, or has an incompatible type.
        InputError: a file cannot be read.
    """
    return _grouped(files, columns_of_channel(channel, production, files.options))


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Columns that files may have, and the names of those that they may lack; without a rescued column."""

    schema: Schema
    optional: tuple[str, ...]

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the columns that files must have."""
        return tuple(name for name in self.schema.names if name not in self.optional)


def columns_of_channel(channel: Channel, production: Production, options: Mapping[str, str]) -> FileColumns:
    """Return the columns of files for a channel.

    Args:
        channel: the channel.
        production: whether the rows are a delta in the channel's encoding or the whole relation.
        options: options for Spark's reader.

    Raises:
        SchemaMismatch: the channel has no schema yet.
    """
    if channel.schema is None:
        raise SchemaMismatch("the channel has no schema yet", channel=channel.name, hint="Declare it with its columns")
    deltas = production is Production.DELTA and channel.sequence_by is None  # else no rows can be deleted
    return _columns(channel.schema, channel.encoding if deltas else None, options)


def _columns(relation: Schema, encoding: Encoding | None, options: Mapping[str, str]) -> FileColumns:
    """Return the columns of files with deltas in an encoding, or, without one, with a relation."""
    wanted = relation if encoding is None else delta_schema(encoding, relation)
    optional = ingest_columns(relation)
    if encoding is not None:
        optional = (*optional, *optional_columns(encoding, relation))
    rescued = rescued_column(options)
    return FileColumns(wanted if rescued is None else wanted.without(rescued), optional)


Groups = Sequence[tuple[Schema, Sequence[str]]]
"""Files in groups that are read with the same columns."""


def _grouped(files: FileSet, columns: FileColumns) -> Groups:
    """Group files by the columns with which they are read."""
    match files.format:
        case "csv":
            return _csv_groups(files, columns)
        case "json":
            return [(columns.schema, files.urls)]
        case _:
            return [(_columnar(files, columns), files.urls)]


def _loaded(
    spark: SparkSession,
    format: str,
    options: Mapping[str, str],
    groups: Groups,
    required: Sequence[str],
    *,
    traced: bool = False,
) -> DataFrame:
    """Read files with known columns, and their URLs if requested; columns that some of them lack are null there."""
    frames = []
    for columns, urls in groups:
        if format in TEXT:
            rows = read_lines(spark, format, options, urls, columns, required)
        else:
            rows = spark.read.format(format).options(**options).schema(columns.ddl).load(escaped(urls))
        frames.append(with_url(rows) if traced else rows)
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _present(names: Sequence[str], columns: FileColumns, url: str) -> Schema:
    """Check a file's column names, and return the expected columns that it has."""
    wanted, optional = columns.schema, columns.optional
    by_name = {name.lower(): name for name in names}
    for column in wanted.columns:
        if column.name.lower() not in by_name and column.name not in optional:
            raise SchemaMismatch(
                f"the file lacks the column (it has: {', '.join(names)})",
                column=column.name,
                path=url,
                hint="Add it to the file, or declare the channel without it",
            )
    known = {column.name.lower() for column in wanted.columns}
    for name in names:
        if name.lower() not in known:
            raise SchemaMismatch(
                "the file has a column that the channel does not have",
                column=name,
                path=url,
                hint=f"Remove it{'' if name in RESERVED else ', or declare it'}; "
                f"the columns are: {', '.join(wanted.names)}",
            )
    return Schema(tuple(column for column in wanted.columns if column.name.lower() in by_name))


def _each(files: FileSet, look: object) -> list[object]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(look, files.urls))  # type: ignore[arg-type]


_ARROW = {
    "tinyint": pa.types.is_int8,
    "smallint": lambda t: pa.types.is_int8(t) or pa.types.is_int16(t),
    "int": lambda t: pa.types.is_int8(t) or pa.types.is_int16(t) or pa.types.is_int32(t),
    "bigint": pa.types.is_integer,
    "float": pa.types.is_float32,
    "double": lambda t: pa.types.is_float32(t) or pa.types.is_float64(t),
    "boolean": pa.types.is_boolean,
    "string": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_dictionary(t),
    "binary": lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t),
    "date": pa.types.is_date32,
    "timestamp": pa.types.is_timestamp,
    "timestamp_ntz": pa.types.is_timestamp,
}
"""Parquet types that can be read as each Spark type without loss."""


def _columnar(files: FileSet, columns: FileColumns) -> Schema:
    """Return the columns of Parquet or ORC files; those that some of them lack are null there."""

    def look(url: str) -> pa.Schema:
        fs, name = url_to_fs(url)
        try:
            with fs.open(name, "rb") as file:
                return parquet.read_schema(file) if files.format == "parquet" else orc.ORCFile(file).schema
        except (OSError, pa.ArrowException) as error:
            known = "Parquet" if files.format == "parquet" else "ORC"
            raise InputError(
                f"the file is not {known}: {error}", path=url, hint="Name the format with --format, or repair the file"
            ) from error

    schemas: set[Schema] = set()
    for url, found in zip(files.urls, _each(files, look), strict=True):
        assert isinstance(found, pa.Schema)
        present = _present(found.names, columns, url)
        schemas.add(present)
        kinds = {field.name.lower(): field.type for field in found}
        for column in present.columns:
            fits = _ARROW.get(column.type)
            kind = kinds[column.name.lower()]
            if (fits is not None and not fits(kind)) or (fits is None and not _nested_fits(column.type, kind)):
                raise SchemaMismatch(
                    f"the file contains {kind}, which does not match {column.type}",
                    column=column.name,
                    path=url,
                    hint="Declare the type that it has, or ingest it without --in-place",
                )
    order = max(schemas, key=lambda schema: len(schema.columns))
    names = {column for schema in schemas for column in schema.columns}
    return Schema(
        (*order.columns, *(column for column in columns.schema.columns if column in names - {*order.columns}))
    )


def _nested_fits(type_: str, kind: pa.DataType) -> bool:
    if type_.startswith("decimal"):
        precision, scale = map(int, type_[8:-1].split(","))
        return bool(pa.types.is_decimal(kind) and kind.scale == scale and kind.precision <= precision)
    if type_.startswith("array"):
        return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
    if type_.startswith("struct"):
        return bool(pa.types.is_struct(kind))
    return bool(pa.types.is_map(kind)) if type_.startswith("map") else True


def _csv_groups(files: FileSet, columns: FileColumns) -> Groups:
    """Group CSV files by their header."""
    options = csv_options(files.options)
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    if options["header"].lower() != "true":
        return [(columns.schema.only(columns.required), files.urls)]

    def look(url: str) -> list[str]:
        fs, name = url_to_fs(url)
        try:
            with fs.open(name, "rt", compression="infer", encoding=options.get("encoding", "utf-8-sig")) as file:
                if len(separator) > 1:
                    return [name.strip('"') for name in file.readline().rstrip("\r\n").split(separator)]
                return next(csv.reader(file, delimiter=separator), [])
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(
                f"the file is not CSV: {error}", path=url, hint="Name the format with --format, or repair the file"
            ) from error

    groups: dict[tuple[str, ...], list[str]] = {}
    for url, found in zip(files.urls, _each(files, look), strict=True):
        assert isinstance(found, list)
        _present(found, columns, url)
        groups.setdefault(tuple(found), []).append(url)
    types = {column.name.lower(): column for column in columns.schema.columns}
    return [(Schema(tuple(types[name.lower()] for name in header)), urls) for header, urls in groups.items()]
