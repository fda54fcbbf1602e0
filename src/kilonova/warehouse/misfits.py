"""Lines of CSV and JSON files that do not fit their channel: where they are, how many, and which values do not fit.

They are located only after an ingest has failed, by Spark, which reads all locations and codecs: one job counts the
lines of each block of the file, another fetches the first that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kilonova.errors import InputError, KilonovaError, SchemaMismatch
from kilonova.model.channel import Channel
from kilonova.model.column_mapping import input_columns
from kilonova.model.malformed_lines import MalformedLines
from kilonova.model.reader_options import FAILFAST, mode_of
from kilonova.model.schema import Column as SchemaColumn
from kilonova.model.schema import Schema
from kilonova.model.task import Production
from kilonova.warehouse.blocks import column
from kilonova.warehouse.file_columns import TEXT, FileSet, shapes_of
from kilonova.warehouse.file_shapes import FileShape
from kilonova.warehouse.jobs import fetch
from kilonova.warehouse.spark_errors import translate_errors
from kilonova.warehouse.text_lines import (
    MALFORMED,
    csv_options,
    escaped,
    flagged_lines,
    json_keys,
    json_lines,
    json_type,
    lenient_options,
)

_LINES = 5
"""Number of lines that are described; the others are counted."""

_SHOWN = 100
"""Maximum number of characters shown of a value or a line."""

_IN_PARTITION = (1 << 33) - 1
"""Bits of Spark's `monotonically_increasing_id` that number the rows of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """One reason why a line does not fit.

    Attributes:
        line: the number of the line, or of the record where records may have several lines, from 1.
        column: the column concerned; None if it is the whole line.
        reason: what is wrong, as text.
        of_columns: whether the line has other columns than the channel, rather than values that do not fit.
    """

    line: int
    column: str | None
    reason: str
    of_columns: bool = False


def with_misfits(
    spark: SparkSession, files: FileSet, channel: Channel, production: Production, error: KilonovaError
) -> KilonovaError:
    """Return the error of an ingest of files with the lines that caused it, if they can be found, or else unchanged.

    Args:
        spark: the session.
        files: the files.
        channel: the channel into which they were ingested.
        production: whether the rows are a delta in the channel's encoding or the whole relation.
        error: the error.
    """
    if files.format not in TEXT or not isinstance(error, InputError | SchemaMismatch):
        return error
    named = [url for url in files.urls if error.path is not None and _same_file(url, error.path)]
    try:
        with translate_errors(None):
            for shape, urls in shapes_of(spark, files, input_columns(channel, production)):
                some = [url for url in urls if url in named or not named]
                if some and (found := _Search(spark, files, shape).first(some)) is not None:
                    return found
    except (KilonovaError, PySparkException):
        pass  # the error itself is more to the point than why there is no more to say about it
    return error


def count_misfits(
    spark: SparkSession, files: FileSet, channel: Channel, production: Production
) -> MalformedLines | None:
    """Count the lines of ingested files that do not fit, with one job; None if there are none, or cannot be any.

    Args:
        spark: the session.
        files: the files.
        channel: the channel into which they were ingested.
        production: whether the rows are a delta in the channel's encoding or the whole relation.

    Raises:
        KilonovaError: the files can no longer be read.
    """
    mode = mode_of(files.options)
    if files.format not in TEXT or mode == FAILFAST:
        return None
    count = 0
    for shape, urls in shapes_of(spark, files, input_columns(channel, production)):
        lines = flagged_lines(spark, files.format, files.options, urls, shape)
        every = F.max(F.length(F.to_json(F.struct("*"))))  # else Spark would not parse all columns
        ((found, _),) = fetch(lines.agg(F.count_if(F.col(MALFORMED).isNotNull()), every))
        count += found
    return MalformedLines(count=count, dropped=mode == "DROPMALFORMED") if count else None


def _same_file(url: str, other: str) -> bool:
    """Return whether two URLs are of the same file, however many slashes and escapes they have.

    >>> _same_file("file:///in/a b.csv", "file:/in/a%20b.csv")
    True
    """
    return url == other or _path(url) == _path(unquote(other))


def _path(url: str) -> str:
    scheme, _, path = url.partition(":")
    return f"{scheme}:{path.lstrip('/')}"


@dataclass(frozen=True, slots=True)
class _Search:
    """Search for the lines that do not fit, in files of one shape."""

    spark: SparkSession
    files: FileSet
    shape: FileShape

    @property
    def columns(self) -> Schema:
        """The columns that are read."""
        return self.shape.columns

    def first(self, urls: Sequence[str]) -> KilonovaError | None:
        """Return the error for the first file that has lines that do not fit; None if there is none."""
        counts = self._counts(urls)
        bad = {file for file, _, _, malformed in counts if malformed}
        if not bad:
            return None
        url = next((url for url in urls if any(_same_file(url, file) for file in bad)), urls[0])
        if len(urls) > 1:
            counts = self._counts([url])  # blocks depend on the files that are read together
        before, starts = 0, {}
        for _, start, lines, _ in sorted(counts, key=lambda each: each[1]):
            starts[start] = before
            before += lines
        rows = self._numbered([url]).where("bad").limit(_LINES)
        shown = rows.withColumn("value", F.substring("value", 1, _SHOWN + 1)).collect()
        misfits = [misfit for row in shown for misfit in self._of_line(row, starts[row.start] + row["row"] + 1)]
        return self._error(url, sum(each[3] for each in counts), misfits)

    def _counts(self, urls: Sequence[str]) -> list[tuple[str, int, int, int]]:
        """Return the file, the start, the lines and the lines that do not fit, of each block of files."""
        counted = self._numbered(urls).groupBy("file", "start").agg(F.count(F.lit(1)), F.count_if("bad"))
        return [tuple(row) for row in counted.collect()]

    def _numbered(self, urls: Sequence[str]) -> DataFrame:
        """Return the lines of files: their file, the start of their block, their row in it, and their misfits."""
        place = (
            F.col("_metadata.file_path").alias("file"),
            F.col("_metadata.file_block_start").alias("start"),
            F.monotonically_increasing_id().bitwiseAND(F.lit(_IN_PARTITION)).alias("row"),
        )
        if self.files.format == "json":
            return self._json(json_lines(self.spark, urls, self.files.options).select(*place, "value"))
        return self._csv(urls, place)

    def _json(self, lines: DataFrame) -> DataFrame:
        keys = json_keys(self.shape)
        options = lenient_options(self.files.options)

        def malformed(columns: Schema) -> Column:
            parsed = F.from_json("value", json_type(f"{columns.ddl}, {MALFORMED} string"), options)
            return parsed[MALFORMED].isNotNull()

        def text(name: str) -> Column:
            return F.from_json("value", Schema.of((name, "string")).ddl, options)[name]

        cells = [_cell(each, malformed(Schema((each,))), text(each.name)) for each in self.columns.columns]
        other = F.coalesce(keys.unknown, keys.lacking, keys.twice).isNotNull()
        blank = F.length(F.trim("value")) == 0
        return lines.select(
            "*",
            (~blank & (other | malformed(self.columns))).alias("bad"),
            keys.unknown.alias("unknown"),
            keys.lacking.alias("lacking"),
            keys.twice.alias("twice"),
            F.filter(F.array(*cells), lambda cell: cell.isNotNull()).alias("cells"),
        )

    def _csv(self, urls: Sequence[str], place: tuple[Column, ...]) -> DataFrame:
        options = lenient_options(csv_options(self.files.options))
        typed = f"{self.columns.ddl}, {MALFORMED} string"
        texts = Schema(tuple(SchemaColumn(each.name, "string") for each in self.columns.columns))
        if self.of_records:
            records = self.spark.read.format("csv").options(**options).schema(typed).load(escaped(urls))
            row = F.struct(*map(column, self.columns.names))
            every = F.length(F.to_json(row)).isNotNull()  # else Spark would not parse all columns
            text = F.when(every, F.col(MALFORMED))
            typed_row = F.struct(*map(column, self.columns.names), text.alias(MALFORMED))
            lines = records.select(*place, text.alias("value"), typed_row.alias("typed"))
            ignored = F.lit(False)
        else:
            given = {"lineSep": options["lineSep"]} if "lineSep" in options else {}
            lines = self.spark.read.options(**given).text(escaped(urls)).select(*place, "value")
            lines = lines.withColumn("typed", F.from_csv("value", typed, options))
            ignored = F.length(F.trim("value")) == 0
            if options["header"].lower() == "true":
                ignored |= (F.col("start") == 0) & (F.col("row") == 0)
            if options.get("comment"):
                ignored |= F.startswith("value", F.lit(options["comment"]))
        values = F.from_csv("value", texts.ddl, options)
        cells = [_cell(each, F.col("typed")[each.name].isNull(), values[each.name]) for each in self.columns.columns]
        return lines.select(
            "file",
            "start",
            "row",
            "value",
            (~ignored & F.col("typed")[MALFORMED].isNotNull()).alias("bad"),
            F.filter(F.array(*cells), lambda cell: cell.isNotNull()).alias("cells"),
        )

    @property
    def of_records(self) -> bool:
        """Return whether records are numbered instead of lines, as they may have several lines or are not in UTF-8."""
        options = {name.lower(): value.lower() for name, value in self.files.options.items()}
        if self.files.format == "json":
            return False
        return options.get("multiline") == "true" or options.get("encoding", "utf-8") not in ("utf-8", "utf8")

    def _of_line(self, row: Any, number: int) -> list[Misfit]:
        found = row.asDict()
        whole = repr(_shortened(row.value))
        if found.get("unknown") is not None:
            reason = "the channel has no such column"
            return [Misfit(line=number, column=row.unknown, reason=reason, of_columns=True)]
        if found.get("lacking") is not None:
            reason = "the column is missing"
            return [Misfit(line=number, column=row.lacking, reason=reason, of_columns=True)]
        if found.get("twice") is not None:
            reason = "the column is there twice, under its former name and its present one"
            return [Misfit(line=number, column=row.twice, reason=reason, of_columns=True)]
        if cells := [
            Misfit(
                line=number,
                column=cell.column,
                reason=f"{_shortened(cell.value)!r} is not of type {_shortened(cell.type)}",
            )
            for cell in row.cells
        ]:
            return cells
        if self.files.format == "json":
            return [Misfit(line=number, column=None, reason=f"this is not a JSON object: {whole}")]
        expected = "one value" if len(self.columns.columns) == 1 else f"{len(self.columns.columns)} values"
        return [Misfit(line=number, column=None, reason=f"this is not {expected}: {whole}")]

    def _error(self, url: str, lines: int, misfits: Sequence[Misfit]) -> KilonovaError:
        unit = "record" if self.of_records else "line"
        first, *others = misfits
        problem = f"{unit} {first.line}: {first.reason}"
        described = len({misfit.line for misfit in misfits})
        places = [
            f"{unit} {each.line}, {f'column {each.column}: ' if each.column else ''}{each.reason}"
            for each in others[:_LINES]
        ]
        if lines > 1:
            problem += f"; {lines - 1} more {unit}{'s do' if lines > 2 else ' does'} not fit"
        if places:
            problem += f" ({'; '.join(places)}{'; …' if lines > described or len(others) > _LINES else ''})"
        if first.of_columns:
            hint = "Write exactly the channel's columns, with null where there is no value"
            return SchemaMismatch(problem, column=first.column, path=url, hint=hint)
        hint = "Correct the file, or set the option mode to PERMISSIVE or DROPMALFORMED"
        return InputError(problem, column=first.column, path=url, hint=hint)


def _cell(of: SchemaColumn, bad: Column, value: Column) -> Column:
    """Return the description of the value of a column if it does not fit; else null."""
    found = F.struct(
        F.lit(of.name).alias("column"),
        F.lit(of.type).alias("type"),
        F.substring(value, 1, _SHOWN + 1).alias("value"),
    )
    return F.when(bad & value.isNotNull(), found)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
