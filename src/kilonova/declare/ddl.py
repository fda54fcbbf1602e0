"""Schemas written as Spark DDL, `id string, n bigint`, without a Spark session."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kilonova.errors import DeclarationError
from kilonova.model.schema import Column, Schema

_NAMES = {
    exp.DataType.Type.TINYINT: "tinyint",
    exp.DataType.Type.SMALLINT: "smallint",
    exp.DataType.Type.INT: "int",
    exp.DataType.Type.BIGINT: "bigint",
    exp.DataType.Type.FLOAT: "float",
    exp.DataType.Type.DOUBLE: "double",
    exp.DataType.Type.BOOLEAN: "boolean",
    exp.DataType.Type.TEXT: "string",
    exp.DataType.Type.BINARY: "binary",
    exp.DataType.Type.DATE: "date",
    exp.DataType.Type.TIMESTAMP: "timestamp",
    exp.DataType.Type.TIMESTAMPTZ: "timestamp",
    exp.DataType.Type.TIMESTAMPLTZ: "timestamp",
    exp.DataType.Type.TIMESTAMPNTZ: "timestamp_ntz",
}


def parse_schema(ddl: str) -> Schema:
    """A schema from its DDL.

    Raises:
        DeclarationError: it is not DDL, or has a type that Spark's tables do not.

    >>> parse_schema("id string, tags array<string>, price decimal(10, 2)").columns[2].type
    'decimal(10,2)'
    """
    try:
        # "long", "short" and "byte" are Spark's, and the parser's dialect knows them.
        table = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", read="spark")
    except SqlglotError as error:
        raise DeclarationError(
            f"the schema {ddl!r} cannot be understood", hint='Write it as "id string, n bigint"'
        ) from error
    definitions = list(table.find_all(exp.ColumnDef, bfs=True))
    top = [item for item in definitions if isinstance(item.parent, exp.Schema)]
    if not top:
        raise DeclarationError(f"the schema {ddl!r} names no column", hint='Write it as "id string, n bigint"')
    return Schema(tuple(Column(item.name, _type(item.args.get("kind"), item.name)) for item in top))


def _type(kind: exp.Expression | None, column: str) -> str:
    if not isinstance(kind, exp.DataType):
        raise DeclarationError("the column has no type", column=column, hint='Write it as "id string"')
    match kind.this:
        case exp.DataType.Type.DECIMAL:
            sizes = [int(item.name) for item in kind.expressions] or [10]
            return f"decimal({sizes[0]},{sizes[1] if len(sizes) > 1 else 0})"
        case exp.DataType.Type.ARRAY if kind.expressions:
            return f"array<{_type(kind.expressions[0], column)}>"
        case exp.DataType.Type.MAP if len(kind.expressions) == 2:
            key, value = (_type(item, column) for item in kind.expressions)
            return f"map<{key},{value}>"
        case exp.DataType.Type.STRUCT if kind.expressions:
            fields = (f"{item.name}:{_type(item.args.get('kind'), column)}" for item in kind.expressions)
            return f"struct<{','.join(fields)}>"
        case known if known in _NAMES:
            return _NAMES[known]
        case _:
            raise DeclarationError(f"the type {kind.sql('spark').lower()} is not one of Spark's tables", column=column)
