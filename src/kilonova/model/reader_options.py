"""Options for Spark's readers of files: which ones there are for each format, and which values they have.

Spark ignores options that it does not know, and takes some values for others. Left out are those that select files,
which Kilonova does, and those that infer columns, which it does not.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping

from kilonova.errors import SettingsError, closest_name

FAILFAST = "FAILFAST"
MODES = (FAILFAST, "PERMISSIVE", "DROPMALFORMED")

_Check = tuple[str, Callable[[str], bool]]
"""What the values of an option are, as text, and whether one is valid."""


def _one_of(*values: str) -> _Check:
    return f"one of {', '.join(values)}", lambda value: value.upper() in values


def _is_encoding(value: str) -> bool:
    try:
        codecs.lookup(value)
    except LookupError:
        return False
    return True


_TEXT: _Check = ("a text", bool)
_ANY: _Check = ("a text", lambda value: True)
_FLAG: _Check = ("true or false", lambda value: value.lower() in ("true", "false"))
_LIMIT: _Check = ("a positive number, or -1 for no limit", lambda value: value == "-1" or value.strip("0").isdecimal())
_CHARACTER: _Check = ("one character, or empty", lambda value: len(value) <= 1 or value == "\\u0000")
_ENCODING: _Check = ("the name of a character encoding, such as UTF-8", _is_encoding)
_REBASE = _one_of("EXCEPTION", "CORRECTED", "LEGACY")

_LINES: Mapping[str, _Check] = {
    "mode": _one_of(*MODES),
    "columnNameOfCorruptRecord": _TEXT,
    "lineSep": _TEXT,
    "locale": _TEXT,
    "timeZone": _TEXT,
    "dateFormat": _TEXT,
    "timeFormat": _TEXT,
    "timestampFormat": _TEXT,
    "timestampNTZFormat": _TEXT,
    "enableDateTimeParsingFallback": _FLAG,
}

_OPTIONS: Mapping[str, Mapping[str, _Check]] = {
    "csv": {
        **_LINES,
        "sep": _TEXT,
        "delimiter": _TEXT,
        "encoding": _ENCODING,
        "quote": _CHARACTER,
        "escape": _CHARACTER,
        "charToEscapeQuoteEscaping": _CHARACTER,
        "comment": _CHARACTER,
        "header": _FLAG,
        "multiLine": _FLAG,
        "ignoreLeadingWhiteSpace": _FLAG,
        "ignoreTrailingWhiteSpace": _FLAG,
        "nullValue": _ANY,
        "emptyValue": _ANY,
        "nanValue": _TEXT,
        "positiveInf": _TEXT,
        "negativeInf": _TEXT,
        "maxColumns": _LIMIT,
        "maxCharsPerColumn": _LIMIT,
        "unescapedQuoteHandling": _one_of(
            "STOP_AT_CLOSING_QUOTE", "BACK_TO_DELIMITER", "STOP_AT_DELIMITER", "SKIP_VALUE", "RAISE_ERROR"
        ),
    },
    "json": {
        **_LINES,
        "allowComments": _FLAG,
        "allowUnquotedFieldNames": _FLAG,
        "allowSingleQuotes": _FLAG,
        "allowNumericLeadingZeros": _FLAG,
        "allowBackslashEscapingAnyCharacter": _FLAG,
        "allowUnquotedControlChars": _FLAG,
        "allowNonNumericNumbers": _FLAG,
    },
    "parquet": {"datetimeRebaseMode": _REBASE, "int96RebaseMode": _REBASE},
    "orc": {},
}


def check_reader_options(options: Mapping[str, str], format: str | None) -> None:
    """Check options for Spark's reader by name and value; those of formats that only Spark knows pass.

    Args:
        options: the options.
        format: the format of the files; None if it is inferred from their names, so that they may be of any format.

    Raises:
        SettingsError: there is no such option, or its value is not one that it has.

    >>> check_reader_options({"header": "false", "mode": "PERMISSIVE"}, "csv")
    >>> check_reader_options({"headers": "false"}, "csv")
    Traceback (most recent call last):
    kilonova.errors.SettingsError: files of the format csv have no reader option 'headers'. Did you mean header?
    >>> check_reader_options({"header": "no"}, None)
    Traceback (most recent call last):
    kilonova.errors.SettingsError: the reader option header must be true or false, and is 'no'. Correct it.
    """
    if format is not None and format not in _OPTIONS:
        return
    known = (
        _OPTIONS[format]
        if format is not None
        else {name: it for each in _OPTIONS.values() for name, it in each.items()}
    )
    for name, value in options.items():
        if name not in known:
            files = "files" if format is None else f"files of the format {format}"
            raise SettingsError(f"{files} have no reader option {name!r}", hint=closest_name(name, list(known)))
        values, is_valid = known[name]
        if not is_valid(value):
            raise SettingsError(
                f"the reader option {name} must be {values}, and is {value!r}",
                hint="Correct it",
            )
    if rescued_column(options) is not None and mode_of(options) != "PERMISSIVE":
        raise SettingsError(
            "the reader option columnNameOfCorruptRecord needs the mode PERMISSIVE",
            hint="Add the option mode=PERMISSIVE",
        )


def mode_of(options: Mapping[str, str]) -> str:
    """Return what is done about lines that do not fit.

    >>> mode_of({}), mode_of({"mode": "permissive"})
    ('FAILFAST', 'PERMISSIVE')
    """
    return options.get("mode", FAILFAST).upper()


def rescued_column(options: Mapping[str, str]) -> str | None:
    """Return the column that keeps the lines that do not fit; None if there is none."""
    return options.get("columnNameOfCorruptRecord")
