"""Source location of SQL statements in files, for error messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, TokenError

from kilonova.errors import DeclarationError, KilonovaError, QueryError

_RELATIVE = re.compile(r"[.,]? Line: \d+, Col: \d+.*$")
"""Position within the statement, in the format of the parser's messages."""


@dataclass(frozen=True, slots=True)
class Source:
    """SQL statement with its location.

    Attributes:
        path: the file.
        text: the statement.
        line: the line of the file at which the text begins, from 1.
    """

    path: str
    text: str
    line: int

    def located(self, error: KilonovaError) -> KilonovaError:
        """Return an error with the file, and with the line and column of the name it refers to, where known."""
        error = error.with_context(path=self.path)
        name = error.column or error.channel
        if isinstance(error, QueryError) and name is not None:
            problem = _RELATIVE.sub("", error.problem)
            place = self._place_of(name)
            error.problem = f"{place}: {problem}" if place is not None else problem
        return error

    def statement(self) -> tuple[exp.Expr, Source]:
        """Parse the single statement, and return it with its text up to a terminating semicolon.

        Raises:
            QueryError: it cannot be parsed.
            DeclarationError: there is none, or there are several.
        """
        try:
            parsed = sqlglot.parse(self.text, dialect="spark")
            tokens = sqlglot.tokenize(self.text, dialect="spark")
        except ParseError as error:
            first = error.errors[0] if error.errors else {}
            begin = self._place(first["line"], first["col"] - len(first["highlight"]) + 1) if first.get("line") else ""
            near = f" near {first['highlight']!r}" if first.get("highlight") else ""
            what = first.get("description") or str(error)
            raise QueryError(
                f"{begin}{': ' if begin else ''}the statement cannot be parsed: {what}{near}",
                path=self.path,
                hint="Correct the statement",
            ) from None
        except TokenError as error:
            raise QueryError(
                f"the statement cannot be parsed: {error}", path=self.path, hint="Correct the statement"
            ) from None
        found = [item for item in parsed if item is not None and not isinstance(item, exp.Semicolon)]
        if not found:
            raise DeclarationError(
                "the file contains no statement",
                path=self.path,
                hint="Write a SELECT, or remove it",
            )
        ends = [number for number, token in enumerate(tokens) if token.token_type is TokenType.SEMICOLON]
        if len(found) > 1:
            second = next(tokens[end + 1] for end in ends if tokens[end + 1].token_type is not TokenType.SEMICOLON)
            raise DeclarationError(
                f"{self._place(second.line, second.col - len(second.text) + 1)}: a second statement begins",
                path=self.path,
                hint="Write one statement per file",
            )
        return found[0], Source(self.path, self.text[: tokens[ends[0]].start] if ends else self.text, self.line)

    def _place_of(self, name: str) -> str | None:
        try:
            tokens = sqlglot.tokenize(self.text, dialect="spark")
        except TokenError:
            return None
        for token in tokens:
            if token.text.lower() == name.lower():
                return self._place(token.line, token.col - (token.end - token.start))
        return None

    def _place(self, line: int, column: int) -> str:
        return f"line {self.line + line - 1}, column {column}"
