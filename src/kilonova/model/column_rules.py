"""Column rules: how a channel takes rows whose columns are not its own (logic evolution, section 3.1.2).

Files arrive in several shapes: older ones lack a column, or have its former name; newer ones have another one. By the
rules of its channel, an ingest reads a column that was renamed as the present one, fills a column that is lacking with
its default, and adds, ignores or refuses a column that the channel does not have. Names of columns are compared without
case, except in JSON.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from kilonova.errors import DeclarationError, closest_name
from kilonova.model.encoding import Append, Changes, Columns, Custom, Encoding, Upsert, name_of
from kilonova.model.schema import KEPT, RESERVED, Schema


class OnNewColumn(enum.Enum):
    """Treatment of a column that the channel does not have: it is added to the channel, ignored, or refused."""

    ADD = "add"
    IGNORE = "ignore"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRules:
    """Column rules of a channel.

    Attributes:
        on_new_column: what is done about a column that the channel does not have.
        rename: former names of columns, each with the present one.
        defaults: values of columns that input may lack, as text that casts to their types; None for null.
    """

    on_new_column: OnNewColumn = OnNewColumn.QUARANTINE
    rename: tuple[tuple[str, str], ...] = ()
    defaults: tuple[tuple[str, str | None], ...] = ()

    def check(self, schema: Schema | None, encoding: Encoding, *, several_writers: bool) -> None:
        """Check that the rules fit the columns and the encoding of their channel.

        Raises:
            DeclarationError: a rule names a column that does not exist, a former name is that of a column, or the
                encoding cannot have such rules.
        """
        if self == STRICT:
            return
        if schema is None:
            raise DeclarationError("rules for columns require declared columns", hint="Declare the columns")
        if isinstance(encoding, Custom) and encoding.delta is not None:
            raise DeclarationError(
                "rules for columns are not supported where deltas have columns of their own", hint="Leave them out"
            )
        if self.on_new_column is OnNewColumn.ADD and (
            several_writers or not isinstance(encoding, Append | Upsert | Changes)
        ):
            raise DeclarationError(
                'on_new_column="add" requires the encoding append, upsert or changes, and a channel that only ingests '
                "write",
                hint='Write on_new_column="ignore" or "quarantine"',
            )
        if self.defaults and isinstance(encoding, Columns):
            raise DeclarationError(
                f"defaults are not supported by the encoding {name_of(encoding)}, whose deltas may lack columns",
                hint="Leave them out",
            )
        columns = {name.lower() for name in schema.names}
        former: set[str] = set()
        for old, new in self.rename:
            _check_column(new, schema)
            if old.lower() in columns:
                raise DeclarationError(
                    "the former name of a column is that of a column that there is",
                    column=old,
                    hint="Rename only what files no longer have, or do not have yet",
                )
            if not old or old.lower() in RESERVED or old.lower().startswith(KEPT) or old.lower() in former:
                raise DeclarationError(f"{old!r} cannot be the former name of a column", column=new, hint="Correct it")
            former.add(old.lower())
        for name, _ in self.defaults:
            _check_column(name, schema)


STRICT = ColumnRules()
"""Rules of a channel that declares none: its rows have its columns."""


def _check_column(name: str, schema: Schema) -> None:
    if name not in schema.names:
        raise DeclarationError(
            "a rule names a column that is not in the schema", column=name, hint=closest_name(name, list(schema.names))
        )


def rules_of(
    on_new_column: str, rename: Mapping[str, str], defaults: Mapping[str, object], schema: Schema | None
) -> ColumnRules:
    """Return the column rules that a declaration gives.

    Args:
        on_new_column: `add`, `ignore` or `quarantine`.
        rename: former names of columns, each with the present one.
        defaults: values of columns that input may lack.
        schema: the declared columns.

    Raises:
        DeclarationError: `on_new_column` is none of the three, or a default is not a value of its column's type.
    """
    try:
        action = OnNewColumn(on_new_column)
    except ValueError:
        raise DeclarationError(
            f"on_new_column is {on_new_column!r}", hint="Write one of " + ", ".join(each.value for each in OnNewColumn)
        ) from None
    texts = []
    for name, value in sorted(defaults.items()):
        if schema is not None:
            _check_column(name, schema)
        texts.append((name, None if value is None or schema is None else _text(name, value, schema.type_of(name))))
    return ColumnRules(on_new_column=action, rename=tuple(sorted(rename.items())), defaults=tuple(texts))


def _text(column: str, value: object, kind: str) -> str:
    """Return a default as text that casts to the type of its column."""
    parse = _decimal(kind) if kind.startswith("decimal") else _PARSERS.get(kind)
    if parse is None:
        raise DeclarationError(
            f"a default of the type {kind} can only be null", column=column, hint="Write None, or leave it out"
        )
    try:
        return parse(value)
    except (TypeError, ValueError, InvalidOperation):
        raise DeclarationError(
            f"the default {value!r} is not a value of the type {kind}", column=column, hint="Correct it"
        ) from None


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _boolean(value: object) -> str:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError
    return text


def _integer(bits: int) -> Callable[[object], str]:
    def text(value: object) -> str:
        number = int(value) if isinstance(value, str) else value
        if not isinstance(number, int) or isinstance(number, bool) or not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError
        return str(number)

    return text


def _float(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    number = float(value)
    return "NaN" if math.isnan(number) else str(number).replace("inf", "Infinity")


def _decimal(kind: str) -> Callable[[object], str]:
    precision, scale = (int(each) for each in re.findall(r"\d+", kind))

    def text(value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
            raise TypeError
        number = Decimal(value)
        if not number.is_finite() or abs(number) >= Decimal(10) ** (precision - scale):
            raise ValueError
        whole = number.scaleb(scale)
        if whole != whole.to_integral_value():
            raise ValueError
        return f"{number:f}"

    return text


def _date(value: object) -> str:
    found = date.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(found, date) or isinstance(found, datetime):
        raise TypeError
    return found.isoformat()


def _moment(value: object) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(found, datetime):
        raise TypeError
    return found


def _timestamp(value: object) -> str:
    found = _moment(value)
    return found.isoformat() if found.tzinfo is None else found.astimezone(UTC).isoformat()


def _timestamp_ntz(value: object) -> str:
    found = _moment(value)
    if found.tzinfo is not None:
        raise ValueError
    return found.isoformat()


_PARSERS: Mapping[str, Callable[[object], str]] = {
    "string": _string,
    "boolean": _boolean,
    "tinyint": _integer(8),
    "smallint": _integer(16),
    "int": _integer(32),
    "bigint": _integer(64),
    "float": _float,
    "double": _float,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}
