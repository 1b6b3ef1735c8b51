"""What all tests here share: thousands of processes, which read the same few objects."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest

from sparktxn._engine.format.manifest import decode_manifest
from tests.seeds import seed_of


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of this test; that of each `run` is another one."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    return seed_of(request.node.name, 1 + params.get("run", 0))


@pytest.fixture(scope="module", autouse=True)
def manifests_decoded_once() -> Iterator[None]:
    """Decode equal bytes of a manifest once: that is half the time of some modules, and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparktxn._engine.log.keep.sealedruns.decode_manifest", lru_cache(1024)(decode_manifest))
        yield
