"""Stores whose consoles are opened in Chromium, and how each page of them is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sparktxn.store import Store
from tests.browser.served import chromium, served
from tests.browser.visited import found_from
from tests.console.stores import damaged_store, fill, hostile_world, silent_store
from tests.console.test_changes import FORMS, Changing
from tests.console.test_failures import TARGETS
from tests.console.test_hostile import ERRORS
from tests.console.test_hostile import PAGES as HOSTILE_PAGES
from tests.console.test_pages import PAGES
from tests.world import World

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
STORES = (
    *("busy", "locked", "changing", "hostile", "empty", "damaged", "silent"),
    pytest.param("demo", marks=pytest.mark.spark),
)


class Site(NamedTuple):
    """A console that is served, and addresses of all kinds of its pages."""

    address: str
    pages: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def busy() -> Iterator[World]:
    with closing(World()) as world:
        fill(world)
        yield world


@pytest.fixture(scope="module", params=STORES)
def site(request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        timeout_s, token = 30.0, None
        asked: tuple[str, ...] = ("/",)
        if request.param == "busy":
            store, asked = request.getfixturevalue("busy").store, PAGES
        elif request.param == "locked":
            store, token = request.getfixturevalue("busy").store, "of-sixteen-signs"
        elif request.param == "changing":
            store, asked = stack.enter_context(closing(Changing())).store, ("/", *FORMS)
        elif request.param == "hostile":
            store, asked = stack.enter_context(hostile_world()).store, (*HOSTILE_PAGES, *ERRORS)
        elif request.param == "empty":
            store = stack.enter_context(closing(World({}))).store
        elif request.param == "damaged":
            store = stack.enter_context(damaged_store())
        elif request.param == "silent":
            objects, store = stack.enter_context(silent_store())
            stack.enter_context(objects.silence())
            timeout_s, asked = 0.2, TARGETS
        else:
            store = stack.enter_context(Store.open(_demo(tmp_path_factory.mktemp("demo"))))
        address = stack.enter_context(
            served(store, token=token, timeout_s=timeout_s, allow_changes=request.param == "changing")
        )
        yield Site(address, found_from(browser, address, asked))


def _demo(folder: Path) -> str:
    """Return the store that `make demo` leaves."""
    given = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [sys.executable, "examples/flights_demo.py", "--output", str(folder), "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, env=given, timeout=400, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"{done.stdout[-2_000:]}\n{done.stderr[-2_000:]}\n{(folder / 'driver.log').read_text()[-4_000:]}")
    return str(folder / "store")
