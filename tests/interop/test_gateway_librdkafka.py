"""librdkafka's own tests on a gateway: each passes but those that `gateway/listed.py` explains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.gateway.librdkafka import CannotBuildError, build, run
from tests.interop.gateway.listed import LIBRDKAFKA, LIBRDKAFKA_PASSES
from tests.interop.gateway.serving import Gateway

pytestmark = pytest.mark.interop

TEST_S = 240


@pytest.fixture(scope="module")
def tests() -> Path:
    try:
        return build()
    except CannotBuildError as error:
        pytest.skip(f"librdkafka's tests cannot be had here: {error}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("librdkafka"), partition_count=4) as started:
        yield started


@pytest.mark.parametrize("number", LIBRDKAFKA_PASSES)
def test_a_test_passes(number: str, tests: Path, served: Gateway, tmp_path: Path) -> None:
    verdict, output = run(tests, served.address, number, tmp_path, TEST_S)
    assert verdict == "PASSED", output[-3000:]
    assert served.process.poll() is None, served.errors()


@pytest.mark.parametrize("number", LIBRDKAFKA)
def test_a_test_that_is_listed_fails(number: str, tests: Path, served: Gateway, tmp_path: Path) -> None:
    verdict, output = run(tests, served.address, number, tmp_path, TEST_S)
    assert verdict != "PASSED", output[-3000:]
