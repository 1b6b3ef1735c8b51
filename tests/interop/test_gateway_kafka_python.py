"""kafka-python's own tests on a gateway: each passes but those that `gateway/listed.py` explains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.gateway.kafkapython import CannotFetchError, fetch, run
from tests.interop.gateway.listed import KAFKA_PYTHON
from tests.interop.gateway.serving import Gateway

pytestmark = pytest.mark.interop

PASSED_MIN = 43


def test_each_test_passes_but_those_that_are_listed(tmp_path: Path) -> None:
    try:
        folder = fetch()
    except CannotFetchError as error:
        pytest.skip(f"kafka-python's tests cannot be had here: {error}")
    with Gateway(tmp_path, partition_count=4) as served:
        outcomes, output = run(folder, served.address, tmp_path / "report.xml")
    failed = {name for name, verdict in outcomes.items() if verdict in ("failure", "error")}
    assert failed == KAFKA_PYTHON.keys(), output[-5000:]
    assert sum(verdict == "passed" for verdict in outcomes.values()) >= PASSED_MIN
