"""Take the pictures of the console: `python -m tests.browser.pictures docs/images`; see `make site`.

`--width` and `--dark` take others, to check by eye; those of the documents are 1,000 pixels wide and light.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from PIL import Image, ImageChops

from sparktxn.store import Store
from tests.browser.served import chromium, served
from tests.browser.shop import shop
from tests.browser.visited import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["CHANGE", "CHANGES", "PAGES", "pictures", "save"]

PAGES: Final = MappingProxyType(
    {
        "overview": "/",
        "topics": "/topics",
        "topic": "/topics/parcels",
        "topic-as-it-was": "/topics/orders?entry=60",
        "records": "/topics/orders/records",
        "records-typed": "/topics/parcels/records?count=12",
        "record": "/topics/orders/records/2/9",
        "topic-files": "/topics/orders/files",
        "transactions": "/transactions",
        "transactional-ids": "/transactions/ids",
        "transaction": "/transaction?id=refunds",
        "groups": "/groups",
        "group": "/group?id=dashboard",
        "log": "/log",
        "entry": "/log/61",
        "files": "/files",
        "maintenance": "/maintenance?run=1",
    }
)
"""The page of each picture: every page of the console."""

CHANGE: Final = "/change/alter-topic?topic=orders"
CHANGES: Final = ("change", "change-preview", "change-result")
"""The pictures of a change, one after the other: they are taken last, as the last one is of another store."""

WIDTH: Final = 1000
HEIGHT_MAX: Final = 960
_COLOURS: Final = 255


def pictures(browser: Browser, store: Store, *, width: int = WIDTH, dark: bool = False) -> dict[str, Image.Image]:
    """Return the picture of each page of a store, down to a height that a reader has patience for."""
    scheme = "dark" if dark else "light"
    options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": width, "height": 400}}
    found = {}
    with served(store) as address, opened(browser, address, **options) as (page, _):
        for name, target in PAGES.items():
            answer = page.goto(target)
            assert answer is not None
            assert answer.status == 200, target
            while page.get_by_text("not counted yet").count():  # what a page has begun to read, the next one shows
                page.wait_for_timeout(200)
                page.goto(target)
            found[name] = _taken(page)
    with served(store, allow_changes=True) as address, opened(browser, address, **options) as (page, _):
        page.goto(CHANGE)
        page.get_by_label("Settings to set").fill("retention.ms=604800000")
        found["change"] = _taken(page)
        page.get_by_role("button", name="Show what would happen").click()
        found["change-preview"] = _taken(page)
        page.get_by_role("button", name="Alter").click()
        page.get_by_text("It was done.").wait_for()
        found["change-result"] = _taken(page)
    return {f"console-{name}": image for name, image in found.items()}


def _taken(page: Page) -> Image.Image:
    image = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    return image.crop((0, 0, image.width, min(image.height, HEIGHT_MAX)))


def save(image: Image.Image, path: Path) -> None:
    """Write a picture as a small PNG, unless the file has the same one."""
    small = image.quantize(_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    if not path.exists() or _differ(Image.open(path), small):
        small.save(path, optimize=True)


def _differ(one: Image.Image, other: Image.Image) -> bool:
    return one.size != other.size or bool(ImageChops.difference(one.convert("RGB"), other.convert("RGB")).getbbox())


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with shop() as store, chromium() as browser:
        for name, image in pictures(browser, store, width=given.width, dark=given.dark).items():
            save(image, given.folder / f"{name}.png")


if __name__ == "__main__":
    main()
