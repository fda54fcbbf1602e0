"""Syntax highlighting of code."""

from __future__ import annotations

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name


def highlight_code(code: str, language: str) -> Markup:
    """Return code as highlighted HTML.

    Args:
        code: the code.
        language: `sql` or `python`.
    """
    formatter = HtmlFormatter(nowrap=True, classprefix="c-")
    return Markup(highlight(code, get_lexer_by_name(language), formatter))
