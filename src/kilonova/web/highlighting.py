"""Syntax highlighting of code, and of differences."""

from __future__ import annotations

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name


def highlight_code(code: str, language: str) -> Markup:
    """Return code in a language, `sql` or `python`, as highlighted HTML."""
    formatter = HtmlFormatter(nowrap=True, classprefix="c-")
    return Markup(highlight(code, get_lexer_by_name(language), formatter))


_KINDS = {"+": "added", "-": "removed", "@": "place"}
"""Kinds of the lines of a diff, by their first character."""


def diff_lines(diff: str) -> list[tuple[str, str]]:
    r"""Return the lines of a diff in unified format, each with its kind: `head`, `place`, `added`, `removed` or `same`.

    >>> diff_lines("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y")
    [('head', '--- a'), ('head', '+++ b'), ('place', '@@ -1 +1 @@'), ('removed', '-x'), ('added', '+y')]
    """
    return [
        ("head" if line.startswith(("--- ", "+++ ")) else _KINDS.get(line[:1], "same"), line)
        for line in diff.splitlines()
    ]


def changed_lines(diff: str) -> str:
    r"""Return how many lines a diff adds and removes.

    >>> changed_lines("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n+z")
    '+2 −1 lines'
    """
    kinds = [kind for kind, _ in diff_lines(diff)]
    return f"+{kinds.count('added')} −{kinds.count('removed')} lines"
