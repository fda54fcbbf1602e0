"""Ingest columns: columns of a channel that say where its rows come from, filled by ingests if a channel declares them.

- `_file string`: the name of the file within its directory; null for rows that do not come from files.
- `_file_time timestamp`: the modification time of the file; for a file of a watched directory that was corrected after
  it was quarantined, that of before, so that it keeps its place in the order of the files.
- `_ingested timestamp`: the time of the ingest.

Values that the ingested rows have themselves are kept.
"""

from __future__ import annotations

from kilonova.errors import DeclarationError
from kilonova.model.schema import Schema

FILE, FILE_TIME, INGESTED = "_file", "_file_time", "_ingested"

_TYPES = {FILE: "string", FILE_TIME: "timestamp", INGESTED: "timestamp"}


def ingest_columns(schema: Schema) -> tuple[str, ...]:
    """Return the ingest columns among the columns of a channel.

    >>> ingest_columns(Schema.of(("id", "int"), ("_file", "string")))
    ('_file',)
    """
    return tuple(name for name in schema.names if name in _TYPES)


def check_ingest_columns(schema: Schema) -> None:
    """Check that ingest columns have their types.

    Raises:
        DeclarationError: one has another type.
    """
    for name in ingest_columns(schema):
        if schema.type_of(name) != _TYPES[name]:
            raise DeclarationError(
                f"the column, which ingests fill, must have the type {_TYPES[name]}",
                column=name,
                hint="Declare it with that type, or choose another name",
            )
