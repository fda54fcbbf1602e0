"""Looking at pages in a browser: whatever they complain of fails the test, and so does asking another server."""

from __future__ import annotations

import re
import shutil
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, WebError, expect

PATIENCE = 15_000
"""Milliseconds within which a page shows what it is to show, also where other tests keep the machine busy."""

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """The browser of this machine."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def landed(page: Page, address: str | re.Pattern[str]) -> None:
    """Wait until a tab has gone to an address, and all of the page is there: the address changes before that."""
    page.wait_for_url(address)
    expect(page.locator("#live")).to_have_text("live")


class Visitor:
    """Opens pages, each with cookies of its own, and hears what they complain of.

    Attributes:
        expected: what they may complain of in this test.
    """

    def __init__(self, browser: Browser) -> None:
        self.expected: list[str] = []
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._heard: list[str] = []

    def __call__(self, address: str, *, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
        """A tab in which nothing is open yet; pages are given by their path.

        Args:
            address: of the server whose pages are visited, and no other's.
            width: of the window, in pixels.
            height: of the window, in pixels.
            dark: whether the system has dark colours.
        """
        context = self._browser.new_context(
            base_url=address,
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(30_000)
        self._contexts.append(context)
        context.on("console", self._said)
        context.on("weberror", self._raised)
        context.on("request", lambda request: self._asked(address, request))
        return context.new_page()

    def unexpected(self) -> list[str]:
        """What pages have complained of, apart from what the test expects."""
        return [text for text in self._heard if not any(re.search(each, text) for each in self.expected)]

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._heard.append(f"{message.type}: {message.text} at {message.location}")

    def _raised(self, error: WebError) -> None:
        self._heard.append(f"raised: {error.error}")

    def _asked(self, address: str, request: Request) -> None:
        if urlsplit(request.url).scheme != "data" and not request.url.startswith(address + "/"):
            self._heard.append(f"asked another: {request.url}")
