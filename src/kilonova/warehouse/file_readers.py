"""Readers of files: Parquet, ORC, CSV, JSON lines, and any other format that Spark reads.

Given a schema, Spark fills columns that a file lacks with nulls and ignores extra ones; here both are errors, unless
the channel has rules for them. Headers and footers are checked before Spark begins; JSON's fields while it reads.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from pathlib import Path

from fsspec.core import url_to_fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kilonova.errors import InputError, SchemaMismatch
from kilonova.model.block import Base, Block, External, FileGroup
from kilonova.model.channel import Channel
from kilonova.model.column_mapping import columns_of_rows, input_columns
from kilonova.model.column_rules import STRICT
from kilonova.model.ingest_columns import FILE, FILE_TIME, ingest_columns
from kilonova.model.reader_options import check_reader_options
from kilonova.model.task import Production
from kilonova.model.watched_file import Fingerprint
from kilonova.warehouse.blocks import schema_of
from kilonova.warehouse.file_columns import TEXT, FileSet, Groups, shapes_of, without_rescued
from kilonova.warehouse.file_fingerprints import fingerprint_of
from kilonova.warehouse.file_origins import FileOrigin, with_origins, with_url
from kilonova.warehouse.file_shapes import FileShape, with_relation_columns
from kilonova.warehouse.text_lines import escaped, read_lines

SUFFIXES = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


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
    """Return the rows of files, with a channel's columns, and those that its rules add to it.

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
    columns = input_columns(channel, production)
    filled = ingest_columns(columns.schema)
    traced = positions or not {FILE, FILE_TIME}.isdisjoint(filled)
    if files.format in IN_PLACE:
        rows = _loaded(spark, files.format, files.options, shapes_of(spark, files, columns), traced=traced)
    else:
        schema = without_rescued(columns, files.options).schema
        rows = spark.read.format(files.format).options(**files.options).schema(schema.ddl).load(escaped(files.urls))
        rows = with_url(rows) if traced else rows
    absent = {name: F.lit(None).cast(columns.schema.type_of(name)) for name in filled if name not in rows.columns}
    rows = rows.withColumns(absent) if absent else rows
    return with_origins(spark, rows, files.origins, positions=positions) if traced else rows


IN_PLACE = ("parquet", "orc", *TEXT)
"""File formats that can be registered in place as a block: their columns are checked beforehand."""


def external_files(spark: SparkSession, files: FileSet, channel: Channel, production: Production) -> External:
    """Return files as the content of an external block of a channel, to which its rules for columns do not apply.

    Raises:
        SchemaMismatch: a file lacks a column, has an extra one, or has an incompatible type.
        InputError: a file cannot be read, or its format cannot be registered in place.
    """
    if files.format not in IN_PLACE:
        raise InputError(
            f"files of the format {files.format} cannot be read in place", hint=f"Use {', '.join(IN_PLACE)}"
        )
    columns = replace(input_columns(channel, production), rules=STRICT)
    return External(
        format=files.format,
        options=tuple(files.options.items()),
        groups=tuple(
            FileGroup(columns=shape.columns, files=tuple((url, files.seen[url]) for url in urls))
            for shape, urls in shapes_of(spark, files, columns)
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
    encoding = None if isinstance(block.kind, Base) else block.row_encoding
    wanted = without_rescued(columns_of_rows(block.schema, encoding, STRICT), options)
    groups = [
        (FileShape.of(group.columns, wanted.required, wanted.schema.only(group.columns.names)), urls)
        for group in block.external.groups
        for urls in [[url for url, _ in group.files]]
    ]
    return _loaded(spark, block.external.format, options, groups)


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


def _loaded(
    spark: SparkSession, format: str, options: Mapping[str, str], groups: Groups, *, traced: bool = False
) -> DataFrame:
    """Read files by their shapes, with their URLs if requested; columns that some of them lack are null there."""
    frames = []
    for shape, urls in groups:
        if format in TEXT:
            rows = read_lines(spark, format, options, urls, shape)
        else:
            rows = spark.read.format(format).options(**options).schema(shape.columns.ddl).load(escaped(urls))
        rows = with_url(rows) if traced else rows
        frames.append(rows if format == "json" else with_relation_columns(rows, shape))
    return union_of_files(frames)


def union_of_files(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of files of several shapes or formats, with null in the columns that some of them lack.

    Raises:
        SchemaMismatch: a column that is new to the channel does not have the same type in all of them.
    """
    types: dict[str, str] = {}
    for column in (column for frame in frames for column in schema_of(frame.schema).columns):
        if types.setdefault(column.name.lower(), column.type) != column.type:
            raise SchemaMismatch(
                f"the new column has the types {types[column.name.lower()]} and {column.type}",
                column=column.name,
                hint="Declare it, or ingest the files one after the other",
            )
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
