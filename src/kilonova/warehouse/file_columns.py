"""Columns of files: which ones their headers, footers and lines name, and what becomes of them in a channel."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as parquet
from fsspec.core import url_to_fs
from pyarrow import orc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kilonova.errors import InputError, KilonovaError, SchemaMismatch
from kilonova.model.column_mapping import ColumnMapping, InputColumns, map_columns
from kilonova.model.column_rules import OnNewColumn
from kilonova.model.reader_options import rescued_column
from kilonova.model.schema import KEPT, Column, Schema
from kilonova.model.watched_file import Fingerprint
from kilonova.model.widening import is_wider
from kilonova.warehouse.blocks import schema_of
from kilonova.warehouse.file_origins import FileOrigin
from kilonova.warehouse.file_shapes import FileShape
from kilonova.warehouse.jobs import fetch
from kilonova.warehouse.text_lines import csv_options, escaped, json_lines

TEXT = ("csv", "json")
"""File formats whose lines are read as `kilonova.warehouse.text_lines` says."""

Item = TypeVar("Item")


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


Groups = Sequence[tuple[FileShape, Sequence[str]]]
"""Files in groups of one shape."""


def without_rescued(columns: InputColumns, options: Mapping[str, str]) -> InputColumns:
    """Return the columns that files may have: those of input without the rescued column, which is not in the files."""
    rescued = rescued_column(options)
    return columns if rescued is None else replace(columns, schema=columns.schema.without(rescued))


def shapes_of(spark: SparkSession, files: FileSet, columns: InputColumns) -> Groups:
    """Return files in groups of one shape.

    Args:
        spark: the session.
        files: the files.
        columns: the columns of rows to be ingested into their channel.

    Raises:
        SchemaMismatch: a file lacks a column, has an extra one, or has an incompatible type.
        InputError: a file cannot be read.
    """
    columns = without_rescued(columns, files.options)
    match files.format:
        case "csv":
            shapes = _csv_shapes(files, columns)
        case "json":
            return [(_json_shape(spark, files, columns), files.urls)]
        case _:
            shapes = _columnar_shapes(spark, files, columns)
    groups: dict[FileShape, list[str]] = {}
    for url, shape in zip(files.urls, shapes, strict=True):
        groups.setdefault(shape, []).append(url)
    return list(groups.items())


def _each(urls: Sequence[str], look: Callable[[str], Item]) -> list[Item]:
    """Call a function for each file, some of them concurrently."""

    def located(url: str) -> Item:
        try:
            return look(url)
        except KilonovaError as error:
            raise error.with_context(path=url) from error.__cause__

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(located, urls))


def _with_filled(found: Schema, mapping: ColumnMapping, columns: InputColumns) -> Schema:
    """Return the columns of a channel that files have, and those that are filled with a default."""
    return Schema((*found.columns, *(Column(n, columns.schema.type_of(n)) for n, _ in mapping.filled)))


# CSV


def _csv_shapes(files: FileSet, columns: InputColumns) -> list[FileShape]:
    """Return the shape of each CSV file by its header, or by the number of values in its first line."""
    options = csv_options(files.options)
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    has_header = options["header"].lower() == "true"
    if not has_header and not columns.defaults:
        return [FileShape.of(columns.positional)] * len(files.urls)

    def first_line(url: str) -> list[str]:
        fs, name = url_to_fs(url)
        try:
            with fs.open(name, "rt", compression="infer", encoding=options.get("encoding", "utf-8-sig")) as file:
                if len(separator) > 1:
                    return [name.strip('"') for name in file.readline().rstrip("\r\n").split(separator)]
                return next(csv.reader(file, delimiter=separator), [])
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(
                f"the file is not CSV: {error}", hint="Name the format with --format, or repair the file"
            ) from error

    def shape(url: str) -> FileShape:
        values = first_line(url)
        return _headed(values, columns) if has_header else _positional(len(values), columns)

    return _each(files.urls, shape)


def _headed(header: Sequence[str], columns: InputColumns) -> FileShape:
    mapping = map_columns(header, columns)
    known = {column.name: column for column in columns.schema.columns}
    read, found = [], []
    for place, target in enumerate(mapping.targets):
        if target is None:
            read.append(Column(f"{KEPT}ignored_{place}", "string"))
        else:
            read.append(known.get(target, Column(target, "string")))
            found.append(read[-1])
    relation = _with_filled(Schema(tuple(found)), mapping, columns)
    return FileShape(columns=Schema(tuple(read)), relation=relation, filled=mapping.filled)


def _positional(count: int, columns: InputColumns) -> FileShape:
    """Return the shape of a file without a header: the last columns may be lacking if they have defaults."""
    every = columns.positional
    present, lacking = every.names[:count], every.names[count:]
    if not present or not set(lacking) <= columns.defaults.keys():
        return FileShape.of(every)
    mapping = map_columns(present, columns)
    found = every.only(present)
    return FileShape(columns=found, relation=_with_filled(found, mapping, columns), filled=mapping.filled)


# JSON


def _json_shape(spark: SparkSession, files: FileSet, columns: InputColumns) -> FileShape:
    """Return the shape of JSON files, each of whose lines may have its own columns."""
    rules, relation = columns.rules, columns.schema
    renamed: dict[str, tuple[str, ...]] = {}
    for old, name in rules.rename:
        renamed[name] = (*renamed.get(name, (name,)), old)
    read = [*relation.columns]
    read += [Column(old, relation.type_of(name)) for old, name in rules.rename]
    if rules.on_new_column is OnNewColumn.ADD:
        written = {column.name.lower() for column in read}
        keys = json_lines(spark, files.urls, files.options).select(F.explode(F.json_object_keys("value")).alias("key"))
        new = sorted(key for (key,) in fetch(keys.distinct()) if key.lower() not in written)
        mapping = map_columns([*relation.names, *new], columns)
        more = tuple(Column(name, "string") for name in mapping.added)
        read += more
        relation = Schema((*relation.columns, *more))
    return FileShape(
        columns=Schema(tuple(read)),
        relation=relation,
        sources=tuple(renamed.items()),
        filled=tuple((name, value) for name, value in rules.defaults if value is not None),
        required=columns.required,
        ignores=rules.on_new_column is not OnNewColumn.QUARANTINE,
    )


# Parquet and ORC


def _columnar_shapes(spark: SparkSession, files: FileSet, columns: InputColumns) -> list[FileShape]:
    """Return the shape of each Parquet or ORC file by its footer."""

    def footer(url: str) -> pa.Schema:
        fs, name = url_to_fs(url)
        try:
            with fs.open(name, "rb") as file:
                return parquet.read_schema(file) if files.format == "parquet" else orc.ORCFile(file).schema
        except (OSError, pa.ArrowException) as error:
            known = "Parquet" if files.format == "parquet" else "ORC"
            raise InputError(
                f"the file is not {known}: {error}", hint="Name the format with --format, or repair the file"
            ) from error

    def shape(url: str) -> FileShape:
        found = footer(url)
        mapping = map_columns(found.names, columns)
        new: Mapping[str, str] = {}
        if mapping.added:
            own = spark.read.format(files.format).load(escaped([url])).schema
            new = {column.name: column.type for column in schema_of(own).columns}
        return _columnar(found, mapping, columns, new)

    return _each(files.urls, shape)


def _columnar(found: pa.Schema, mapping: ColumnMapping, columns: InputColumns, new: Mapping[str, str]) -> FileShape:
    pairs = zip(found, mapping.targets, strict=True)
    sources = {target: each for each, target in pairs if target is not None}
    present = [column for column in columns.schema.columns if column.name in sources]
    stored: dict[str, str] = {}
    for column in present:
        kind, fits = sources[column.name].type, _ARROW.get(column.type)
        if (fits is not None and not fits(kind)) or (fits is None and not _nested_fits(column.type, kind)):
            if is_wider(column.type, narrower := _spark_type(kind)):
                stored[column.name] = narrower
                continue
            raise SchemaMismatch(
                f"the file contains {kind}, which does not match {column.type}",
                column=column.name,
                hint="Declare the type that it has, or ingest it without --in-place",
            )
    names = {
        column.name: sources[column.name].name
        for column in present
        if sources[column.name].name.lower() != column.name.lower()
    }
    added = [Column(name, new[name]) for name in mapping.added]
    return FileShape(
        columns=Schema((*(Column(names.get(c.name, c.name), stored.get(c.name, c.type)) for c in present), *added)),
        relation=_with_filled(Schema((*present, *added)), mapping, columns),
        sources=tuple((name, (source,)) for name, source in names.items()),
        filled=mapping.filled,
    )


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


def _spark_type(kind: pa.DataType) -> str:
    """Return the type of Spark for a type of Parquet or ORC that may be narrower than a column's; else no type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    narrow = ("tinyint", "smallint", "int", "bigint", "float", "date")
    return next((name for name in narrow if _ARROW[name](kind)), "")


def _nested_fits(type_: str, kind: pa.DataType) -> bool:
    if type_.startswith("decimal"):
        precision, scale = map(int, type_[8:-1].split(","))
        return bool(pa.types.is_decimal(kind) and kind.scale == scale and kind.precision <= precision)
    if type_.startswith("array"):
        return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
    if type_.startswith("struct"):
        return bool(pa.types.is_struct(kind))
    return bool(pa.types.is_map(kind)) if type_.startswith("map") else True
