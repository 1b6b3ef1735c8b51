"""franz-go's own tests on a gateway: each passes but those that `gateway/listed.py` explains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.gateway.franzgo import CannotBuildError, broker_tests, build, run
from tests.interop.gateway.listed import FRANZ_GO
from tests.interop.gateway.serving import Gateway

pytestmark = pytest.mark.interop

RECORDS = 2_000
TEST_S = 240


@pytest.fixture(scope="module")
def binary() -> Path:
    try:
        return build()
    except CannotBuildError as error:
        pytest.skip(f"franz-go's tests cannot be had here: {error}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("franz-go")) as started:
        yield started


def test_each_test_passes_but_those_that_are_listed(binary: Path, served: Gateway) -> None:
    names = broker_tests()
    assert set(names) >= FRANZ_GO.keys()
    differing = []
    for name in names:
        outcome = run(binary, served.address, name, records=RECORDS, timeout_s=TEST_S)
        print(name, outcome.verdict)
        if (outcome.verdict == "PASS") == (name in FRANZ_GO):
            differing.append(f"{name} {outcome.verdict}\n{outcome.output[-2000:]}")
    assert not differing, "\n".join(differing)
    assert served.process.poll() is None, served.errors()
