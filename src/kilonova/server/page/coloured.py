"""Code in colours."""

from __future__ import annotations

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name


def coloured(code: str, language: str) -> Markup:
    """Code as a page shows it.

    Args:
        code: the code.
        language: `sql` or `python`.
    """
    formatter = HtmlFormatter(nowrap=True, classprefix="c-")
    return Markup(highlight(code, get_lexer_by_name(language), formatter))
