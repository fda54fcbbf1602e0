"""A schema is a tuple of named, typed columns; types are written as Spark SQL writes them.

Types are stored as text in the canonical form of Spark's `simpleString` (`bigint`, `decimal(10,2)`,
`struct<a:int>`), so that a schema can be stored, compared and passed to a reader without Spark.
(Nova, section 3.1.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kilonova.errors import DeclarationError, SchemaMismatch, closest_name
from kilonova.model.widening import is_wider

RESERVED = ("_deleted", "_weight", "_set")

KEPT = "_kept_"
"""Name prefix of state columns, which are stored with a relation to keep it up to date but are not part of it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A named column with a Spark SQL type.

    Attributes:
        name: the name, unique within its schema.
        type: the type, as Spark SQL writes it.
        since: the newest point of the channel when the column was added to it. With the name that it had then it is
            the column's identity: a column that is dropped and added again is another one. 0 for columns present from
            the beginning.
        added_as: the name with which it was added, if it has been renamed since.
    """

    name: str
    type: str
    since: int = 0
    added_as: str | None = None

    @property
    def identity(self) -> tuple[str, int]:
        """Key that tells it apart from all other columns that the channel has had, whatever they were called."""
        return self.added_as or self.name, self.since

    def renamed(self, name: str) -> Column:
        """Return the same column with another name."""
        first, _ = self.identity
        return replace(self, name=name, added_as=None if name == first else first)


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a relation, in order.

    Raises:
        DeclarationError: a name occurs twice (names are compared without case, as Spark does).

    >>> Schema.of(("id", "bigint"), ("body", "string")).ddl
    '`id` bigint, `body` string'
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for column in self.columns:
            if column.name.lower() in seen:
                raise DeclarationError(
                    "the column occurs twice",
                    column=column.name,
                    hint="Rename or remove one of them; upper and lower case are the same",
                )
            seen.add(column.name.lower())

    @classmethod
    def of(cls, *columns: tuple[str, str]) -> Schema:
        """Return a schema from (name, type) pairs."""
        return cls(tuple(Column(name, type_) for name, type_ in columns))

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        """The schema as DDL text for Spark's readers."""
        return ", ".join(f"{quoted(column.name)} {column.type}" for column in self.columns)

    def type_of(self, name: str) -> str:
        """Return the type of a column.

        Raises:
            SchemaMismatch: there is no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column.type
        raise SchemaMismatch("there is no such column", column=name, hint=closest_name(name, list(self.names)))

    def only(self, names: tuple[str, ...]) -> Schema:
        """Return the columns with these names, in the order of this schema."""
        return Schema(tuple(column for column in self.columns if column.name in names))

    def plus(self, *columns: tuple[str, str]) -> Schema:
        """Return this schema with columns added at the end."""
        return Schema((*self.columns, *(Column(name, type_) for name, type_ in columns)))

    def has_same_columns(self, other: Schema) -> bool:
        """Return whether another schema has the same columns, whatever their names, types and order."""
        return self.identities == other.identities

    @property
    def identities(self) -> frozenset[tuple[str, int]]:
        """The identities of the columns."""
        return frozenset(column.identity for column in self.columns)

    def renamed(self, names: Mapping[str, str]) -> Schema:
        """Return the same columns with new names, which are given by their present names as far as they differ."""
        return Schema(tuple(column.renamed(names.get(column.name, column.name)) for column in self.columns))

    def new_names(self, other: Schema) -> dict[str, str]:
        """Return the names that columns of this schema have in another one, by those that they have here.

        Only of columns whose name differs.

        >>> before = Schema.of(("id", "int"), ("x", "int"))
        >>> before.new_names(before.renamed({"x": "y"}))
        {'x': 'y'}
        """
        there = {column.identity: column.name for column in other.columns}
        found = ((column.name, there.get(column.identity, column.name)) for column in self.columns)
        return {here: name for here, name in found if here != name}

    def replaced_in(self, other: Schema) -> tuple[str, ...]:
        """Return the names of columns that another schema lacks, and has other columns of the same name instead."""
        there = {column.name.lower(): column.identity for column in other.columns}
        known = other.identities
        return tuple(
            column.name
            for column in self.columns
            if column.identity not in known and there.get(column.name.lower(), column.identity) != column.identity
        )

    def without(self, *names: str) -> Schema:
        """Return this schema without some columns."""
        return Schema(tuple(column for column in self.columns if column.name not in names))

    @property
    def user_columns(self) -> Schema:
        """The columns that are part of the relation."""
        return Schema(tuple(column for column in self.columns if not column.name.startswith(KEPT)))

    @property
    def state_columns(self) -> Schema:
        """The state columns, which are stored with the relation."""
        return Schema(tuple(column for column in self.columns if column.name.startswith(KEPT)))

    def validate(self, actual: Schema, *, optional: tuple[str, ...] = ()) -> None:
        """Check that rows with the schema `actual` fit this one, whatever the order of their columns.

        Args:
            actual: the columns that the rows have.
            optional: columns of this schema that the rows may lack.

        Raises:
            SchemaMismatch: a column is missing, is not part of the schema, or has a type that is not the declared one.
        """
        given = {column.name: column.type for column in actual.columns}
        for column in self.columns:
            if column.name not in given:
                if column.name in optional:
                    continue
                raise SchemaMismatch(
                    f"the column is missing (there are: {', '.join(given) or 'none'})",
                    column=column.name,
                    hint=f"Supply it with type {column.type}",
                )
            if given[column.name] != column.type:
                raise SchemaMismatch(
                    f"the column has type {given[column.name]} instead of {column.type}",
                    column=column.name,
                    hint=f"Cast it to {column.type}, or declare another type",
                )
        for name in given:
            if name not in self.names:
                raise SchemaMismatch(
                    "the column is not part of the schema",
                    column=name,
                    hint=f"Remove it, or declare it; the schema is: {self.ddl.replace('`', '')}",
                )


def identified(
    declared: Schema, known: Schema | None, newest: int, *, renamed: Mapping[str, str] | None = None
) -> Schema:
    """Return a channel's new schema with the identities of its columns.

    One that is widened, or written in another case, is the same column.

    Args:
        declared: the new columns.
        known: the columns before; None if they are not known.
        newest: the channel's newest point.
        renamed: the names before of columns that are renamed, by their new names.

    >>> before = Schema((Column("id", "int"), Column("x", "int")))
    >>> after = identified(Schema.of(("x", "string"), ("id", "int")), before, 3)
    >>> sorted(after.identities)
    [('id', 0), ('x', 3)]
    """
    before = {column.name.lower(): column for column in (known.columns if known else ())}
    former = {} if renamed is None else renamed
    moved = {name.lower() for name in former.values()}

    def found(column: Column) -> Column:
        same = column.name in former or column.name.lower() not in moved
        old = before.get(former.get(column.name, column.name).lower()) if same else None
        if old is None or not (column.type == old.type or is_wider(column.type, old.type)):
            return Column(column.name, column.type, newest)
        return replace(old.renamed(column.name), type=column.type)

    return Schema(tuple(map(found, declared.columns)))


def quoted(name: str) -> str:
    """Return a name quoted for Spark SQL, whatever characters it has.

    >>> quoted("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def check_names(schema: Schema) -> None:
    """Check that a relation does not use the names of control columns.

    Raises:
        DeclarationError: a column is called `_deleted`, `_weight`, `_set` or `_block`, or begins with `_kept_`.
    """
    for column in schema.columns:
        if column.name.lower() in RESERVED or column.name.lower().startswith(KEPT):
            raise DeclarationError(
                "the name is reserved for delta blocks", column=column.name, hint="Choose another name"
            )
    if not schema.columns:
        raise DeclarationError("a relation needs at least one column", hint="Declare a column")
