"""Parser for schemas and tables in Spark DDL, `id string, n bigint`, without a Spark session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kilonova.errors import DeclarationError
from kilonova.model.required_columns import RequiredColumn
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
    exp.DataType.Type.VARCHAR: "string",
    exp.DataType.Type.CHAR: "string",
    exp.DataType.Type.BINARY: "binary",
    exp.DataType.Type.DATE: "date",
    exp.DataType.Type.TIMESTAMP: "timestamp",
    exp.DataType.Type.TIMESTAMPTZ: "timestamp",
    exp.DataType.Type.TIMESTAMPLTZ: "timestamp",
    exp.DataType.Type.TIMESTAMPNTZ: "timestamp_ntz",
}


def parse_schema(ddl: str) -> Schema:
    """Parse a schema from DDL; `varchar(n)` and `char(n)` are strings of any length, as in Spark's casts.

    Raises:
        DeclarationError: it is not DDL, or has a type that Spark tables do not support.

    >>> parse_schema("id string, tags array<string>, price decimal(10, 2)").columns[2].type
    'decimal(10,2)'
    >>> parse_schema("name varchar(10)").columns[0].type
    'string'
    """
    try:
        # "long", "short" and "byte" are Spark types that the parser's dialect knows.
        table = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", read="spark")
    except SqlglotError as error:
        raise DeclarationError(
            f"the schema {ddl!r} cannot be parsed", hint='Write it as "id string, n bigint"'
        ) from error
    definitions = list(table.find_all(exp.ColumnDef, bfs=True))
    top = [item for item in definitions if isinstance(item.parent, exp.Schema)]
    if not top:
        raise DeclarationError(f"the schema {ddl!r} has no columns", hint='Write it as "id string, n bigint"')
    return _schema(top)


def parse_requirements(requires: Mapping[str, str]) -> tuple[RequiredColumn, ...]:
    """Return the columns required of channels, given by channel as DDL.

    Raises:
        DeclarationError: columns are not DDL.

    >>> parse_requirements({"orders": "id bigint"})
    (RequiredColumn(channel='orders', name='id', type='bigint'),)
    """
    found = ((channel, column) for channel, ddl in requires.items() for column in parse_schema(ddl).columns)
    return tuple(RequiredColumn(channel, column.name, column.type) for channel, column in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDdl:
    """Contents of a CREATE TABLE statement.

    Attributes:
        name: the table's name.
        schema: its columns.
        key: its primary key, empty if it has none.
        filled: the columns outside the key that are NOT NULL.
    """

    name: str
    schema: Schema
    key: tuple[str, ...]
    filled: tuple[str, ...]


def table_of(statement: exp.Create) -> TableDdl:
    """Return a table from its CREATE TABLE: columns, NOT NULL and a primary key; comments are ignored.

    Raises:
        DeclarationError: it has any other clause, or a type that Spark tables do not support.

    >>> table = table_of(sqlglot.parse_one("CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b))", read="spark"))
    >>> table.name, table.key
    ('t', ('a', 'b'))
    """
    body = statement.this
    if statement.kind != "TABLE" or not isinstance(body, exp.Schema) or statement.expression is not None:
        raise DeclarationError("the table is declared without columns", hint=_WRITE)
    if body.this.args.get("db") is not None:
        raise DeclarationError(
            f"the table has a qualified name, {body.this.sql('spark')}",
            hint="Leave out the name of the schema",
        )
    for extra in statement.args["properties"].expressions if statement.args.get("properties") else ():
        raise DeclarationError(f"{extra.sql('spark')} is not supported in the declaration of a table", hint=_WRITE)
    keys: list[tuple[str, ...]] = []
    filled: list[str] = []
    columns = [item for item in body.expressions if isinstance(item, exp.ColumnDef)]
    for column in columns:
        for constraint in column.args.get("constraints") or ():
            match constraint.kind:
                case exp.PrimaryKeyColumnConstraint():
                    keys.append((column.name,))
                case exp.NotNullColumnConstraint() as kind if not kind.args.get("allow_null"):
                    filled.append(column.name)
                case exp.CommentColumnConstraint() | exp.NotNullColumnConstraint():
                    pass
                case other:
                    raise DeclarationError(
                        f"{other.sql('spark')} is not supported here",
                        column=column.name,
                        hint=_WRITE,
                    )
    for item in body.expressions:
        named = item.expressions[0] if isinstance(item, exp.Constraint) and len(item.expressions) == 1 else item
        if isinstance(named, exp.PrimaryKey):
            keys.append(tuple(part.name for part in named.expressions))
        elif not isinstance(named, exp.ColumnDef):
            raise DeclarationError(f"{item.sql('spark')} is not supported here", hint=_WRITE)
    if len(keys) > 1:
        raise DeclarationError(
            "the table has two primary keys", hint="Write PRIMARY KEY (a, b) for a key of two columns"
        )
    key = keys[0] if keys else ()
    return TableDdl(
        name=body.this.name,
        schema=_schema(columns),
        key=key,
        filled=tuple(name for name in filled if name not in key),
    )


_WRITE = "Write CREATE TABLE name (id BIGINT, note STRING, PRIMARY KEY (id)), and checks above it"


def _schema(definitions: Iterable[exp.ColumnDef]) -> Schema:
    return Schema(tuple(Column(item.name, _type(item.args.get("kind"), item.name)) for item in definitions))


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
            raise DeclarationError(
                f"the type {kind.sql('spark').lower()} is not a type of Spark tables",
                column=column,
                hint="Use a type of Spark SQL, such as bigint, string or decimal(10, 2)",
            )
