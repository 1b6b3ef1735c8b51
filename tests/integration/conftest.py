"""Fixtures of several tests of clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparktxn import Producer


@pytest.fixture
def producer(uri: str) -> Iterator[Producer]:
    """A transactional producer of the test's store."""
    with Producer({"bootstrap.servers": uri, "transactional.id": "writer"}) as producer:
        producer.init_transactions()
        yield producer
