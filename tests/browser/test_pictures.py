"""The pictures of the documents are of every page of the console, small, and as the console is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image, ImageChops, ImageStat

from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.routes import application
from tests.browser.pictures import CHANGES, HEIGHT_MAX, PAGES, WIDTH, pictures
from tests.browser.shop import shop
from tests.world import World

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = Path(__file__).parents[2] / "docs"
IMAGES = DOCS / "images"
NAMES = sorted(f"console-{name}" for name in (*PAGES, *CHANGES))
BYTES_MAX, ALL_BYTES_MAX = 150_000, 2_500_000
NO_PAGES = re.compile(r"/(static|download|value|raw|metrics|healthz|change|changed)\b")
LIKENESS = 8.0
"""So much may pictures differ on average, of 255: another Chromium draws letters in another way."""


def test_every_page_has_a_picture_which_is_in_the_documents(world: World) -> None:
    paths = [str(getattr(route, "path", "")) for route in application(Source(world.store), None).routes]
    shown = [target.partition("?")[0] for target in PAGES.values()]
    for path in paths:
        pattern = re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path))
        assert NO_PAGES.search(path) or any(map(pattern.fullmatch, shown)), path
    assert sorted(path.stem for path in IMAGES.glob("console-*.png")) == NAMES
    text = (DOCS / "console.md").read_text()
    assert {*re.findall(r"\]\(images/(console-[\w-]+)\.png\)", text)} == {*NAMES}


def test_pictures_are_small() -> None:
    sizes = [path.stat().st_size for path in IMAGES.iterdir()]
    assert max(sizes) <= BYTES_MAX
    assert sum(sizes) <= ALL_BYTES_MAX
    for name in NAMES:
        with Image.open(IMAGES / f"{name}.png") as image:
            assert image.width == WIDTH
            assert image.height <= HEIGHT_MAX


@pytest.mark.browser
def test_pictures_are_of_the_console_as_it_is(browser: Browser) -> None:
    """Otherwise `make site` takes them anew. Two runs of the shop are the same, to the pixel."""
    taken = []
    for _ in range(2):
        with shop() as store:
            taken.append(pictures(browser, store))
    for name, image in taken[0].items():
        assert image.tobytes() == taken[1][name].tobytes(), name
        committed = Image.open(IMAGES / f"{name}.png").convert("RGB")
        assert abs(image.height - committed.height) <= 0.05 * image.height, name
        differences = ImageChops.difference(image, committed.resize(image.size))
        assert max(ImageStat.Stat(differences).mean) < LIKENESS, name


@pytest.fixture
def world():
    found = World({})
    yield found
    found.close()
