"""Syntax highlighting of code."""

from __future__ import annotations

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name


def highlight_code(code: str, language: str) -> Markup:
    """Return code in a language, `sql` or `python`, as highlighted HTML."""
    formatter = HtmlFormatter(nowrap=True, classprefix="c-")
    return Markup(highlight(code, get_lexer_by_name(language), formatter))
