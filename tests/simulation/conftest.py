"""What all simulated histories share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults are what is wanted here: formatting a warning for each would cost more than the histories."""
    logger = logging.getLogger("sparktxn")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)
