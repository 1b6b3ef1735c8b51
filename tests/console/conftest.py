"""Stores that the console shows, and a console over the busy one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from sparktxn.store import Store
from tests.console.asking import Console
from tests.console.stores import fill, hostile_world
from tests.world import World


@pytest.fixture(scope="module")
def busy() -> Iterator[World]:
    with closing(World()) as world:
        fill(world)
        yield world


@pytest.fixture
def console(busy: World) -> Console:
    return Console(busy.store)


@pytest.fixture(scope="module")
def hostile() -> Iterator[World]:
    with hostile_world() as world:
        yield world


@pytest.fixture
def empty() -> Iterator[Store]:
    with closing(World({})) as world:
        yield world.store
