"""What all simulated histories share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.scripted import ScriptedWorld


@pytest.fixture(autouse=True)
def always_quiet(quiet: None) -> None:
    """Faults are what is wanted here: formatting a warning for each would cost more than the histories."""


@pytest.fixture
def stage() -> Iterator[ScriptedWorld]:
    """Acts of processes that a trace stops and lets go on."""
    made = ScriptedWorld()
    yield made
    made.close()
