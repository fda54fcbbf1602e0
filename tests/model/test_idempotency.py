from __future__ import annotations

import pytest

from kilonova.errors import SettingsError
from kilonova.model.idempotency import LONGEST, IdempotencyKey, digest_of


@pytest.mark.parametrize("text", ["monday", "8e03978e-40d5-43dd-bc93-6894a57f9324", "ключ ✓", "x" * LONGEST])
def test_a_key_is_any_short_text_that_can_be_shown(text: str) -> None:
    assert IdempotencyKey(text, "").text == text


@pytest.mark.parametrize("text", ["", "a\nb", "\x00", "\x7f", "a\u2028b", "\ud800", "x" * (LONGEST + 1)])
def test_what_cannot_be_shown_or_is_too_long_is_no_key(text: str) -> None:
    with pytest.raises(SettingsError, match="printable"):
        IdempotencyKey(text, "")


def test_the_digest_distinguishes_requests() -> None:
    asked = {"files": [["a.csv", 1]], "format": "csv"}
    assert digest_of(asked) == digest_of(dict(reversed(asked.items())))
    assert (
        len({digest_of(each) for each in (asked, asked | {"format": "json"}, asked | {"files": [["a.csv", 2]]})}) == 3
    )
