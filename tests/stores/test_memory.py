"""The store in memory."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import pytest

from sparktxn._engine.objectstore import memory
from sparktxn.testing.objectstore_tests import ObjectStoreTests, Opening

_names = itertools.count()


class MemoryTruth:
    """Objects in the shelf itself."""

    def __init__(self, name: str) -> None:
        self._shelf = memory._shelves.setdefault(name, memory._Shelf())

    def read(self, name: str) -> bytes | None:
        stored = self._shelf.folders.get(name[: name.rfind("/") + 1], {}).get(name)
        return stored.data if stored else None

    def write(self, name: str, data: bytes) -> None:
        self._shelf.folders.setdefault(name[: name.rfind("/") + 1], {})[name] = memory._Stored(data, 1)


class TestMemory(ObjectStoreTests):
    race_in_threads = True

    @pytest.fixture
    def opening(self) -> Opening:
        return Opening(f"memory://conformance-{next(_names)}")

    @pytest.fixture
    def truth(self, opening: Opening) -> MemoryTruth:
        return MemoryTruth(opening.uri.removeprefix("memory://"))

    @pytest.fixture
    def eager_threads(self) -> Iterator[None]:
        """Threads that change places all the time: races that a lock must hold show within few rounds."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(interval)

    @pytest.mark.usefixtures("eager_threads")
    def test_eight_racers_have_one_winner_each_round(self, opening: Opening, truth: MemoryTruth) -> None:
        super().test_eight_racers_have_one_winner_each_round(opening, truth)

    def test_names_are_apart(self, opening: Opening) -> None:
        opening.open().put_if_absent("a/1", b"x")
        assert Opening(opening.uri + "-other").open().get("a/1") is None
