"""Gateways for tests, and connections to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.processes import Gateway, gateway, new_store
from tests.gateway.wire import Wire


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all tests of a module; each has topics of its own."""
    with gateway(new_store(tmp_path_factory.mktemp("gateway"))) as found:
        yield found


@pytest.fixture
def wire(served: Gateway) -> Iterator[Wire]:
    with Wire(served.address) as found:
        yield found
