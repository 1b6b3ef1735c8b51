from __future__ import annotations

import pytest

from tests.purelog import PureLog


@pytest.fixture
def log() -> PureLog:
    """A state with topic 1 of two partitions."""
    log = PureLog()
    log.create_topic("topic", 2)
    return log
