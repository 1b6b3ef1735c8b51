"""Opening the pages of a console as a person would, and what was noticed meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

__all__ = ["Noticed", "found_from", "opened"]

_FILES: Final = re.compile(r"/(download|value|raw)(\?|$)")


class Noticed:
    """What a page does that none of this console should do."""

    def __init__(self, page: Page, address: str) -> None:
        self.events: list[str] = []
        page.on("dialog", self._opened)
        page.on("pageerror", lambda error: self.events.append(f"error: {error}"))
        page.on("console", lambda message: self._noted(message.text))
        page.on("request", lambda request: self._requested(request.url, address))

    def _opened(self, dialog: Dialog) -> None:
        self.events.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _noted(self, text: str) -> None:
        # Chromium's own words on a page that says that something has failed, and its advice on a form.
        if not text.startswith(
            ("Failed to load resource: the server responded with a status of", "[DOM] Password forms")
        ):
            self.events.append(f"console: {text}")

    def _requested(self, url: str, address: str) -> None:
        if not url.startswith(f"{address}/"):
            self.events.append(f"request: {url}")


@contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[tuple[Page, Noticed]]:
    """Open a tab of a browser that knows nothing yet."""
    context = browser.new_context(base_url=address, **options)
    page = context.new_page()
    yield page, Noticed(page, address)
    context.close()


def found_from(browser: Browser, address: str, asked: Iterable[str]) -> list[str]:
    """Return the addresses of pages, and one of each other kind that links lead to; none that loads itself anew."""
    found = [target for target in dict.fromkeys(asked) if "follow=1" not in target]
    kinds = {*map(_kind, found)}
    with opened(browser, address) as (page, _):
        for target in found:
            page.goto(f"{address}{target}")  # alone, a target that begins with two slashes would name a host
            hrefs = page.eval_on_selector_all("a[href]", "links => links.map(link => link.getAttribute('href'))")
            for href in hrefs:
                assert not href.startswith("//"), f"{target} leads to another host: {href}"
                if href.startswith("/") and not _FILES.search(href) and _kind(href) not in kinds:
                    kinds.add(_kind(href))
                    found.append(href)
    return [f"{address}{target}" for target in found]


def _kind(target: str) -> str:
    """Return what addresses have in common that differ in names and numbers only."""
    parts = urlsplit(target)
    path = re.sub(r"\d+", "0", re.sub(r"^/topics/[^/]+", "/topics/_", parts.path))
    return f"{path}?{sorted(re.findall(r'(?:^|&)([^=]+)=', parts.query))}"
