"""What all simulated histories share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def always_quiet(quiet: None) -> None:
    """Faults are what is wanted here: formatting a warning for each would cost more than the histories."""
