"""What all tests here share: thousands of processes, which read the same few objects."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest

from sparktxn.format.manifest import decode_manifest


@pytest.fixture(scope="module", autouse=True)
def manifests_decoded_once() -> Iterator[None]:
    """Decode equal bytes of a manifest once: that is half the time of some modules, and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparktxn.log.keep.runs.decode_manifest", lru_cache(1024)(decode_manifest))
        yield
