from __future__ import annotations

import pytest

from kilonova.errors import DeclarationError
from kilonova.model.event import EventKind
from kilonova.model.subscription import Webhook

FAILED = frozenset({EventKind.FAILED})


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/x",
        "file:///etc/passwd",
        "example.com",
        "http://",
        "http:///path",
        "https://me:secret@example.com",
        "http://example.com:port/",
        "http://example.com:0/",
        "http://[::1/",
        "http://exa mple.com",
        "http://example.com\\@elsewhere.com/",
        "http://example.com/\r\nX-Header: 1",
        "",
    ],
)
def test_a_webhook_has_the_url_of_an_http_endpoint(url: str) -> None:
    with pytest.raises(DeclarationError, match="http://"):
        Webhook(name="w", url=url, kinds=FAILED)


@pytest.mark.parametrize("name", ["", "lineage", "a b", "-a", "a/b", "a\n", "ä"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match="cannot be named"):
        Webhook(name=name, url="http://example.com", kinds=FAILED)


def test_a_webhook_needs_event_kinds_and_the_name_of_its_secret() -> None:
    with pytest.raises(DeclarationError, match="at least one event kind"):
        Webhook(name="w", url="http://example.com", kinds=frozenset())
    with pytest.raises(DeclarationError, match="environment variable"):
        Webhook(name="w", url="http://example.com", kinds=FAILED, secret="whsec_abc+/=")
