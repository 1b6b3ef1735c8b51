"""What the tests with real packages share: an environment with confluent-kafka, and a broker, each made once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.broker import Broker, CannotStartError
from tests.interop.peers import CannotInstallError, python_with


def environment(extra: str) -> Path:
    if extra == "compat-test" and sys.version_info >= (3, 13):
        pytest.skip("Bytewax has no build for this Python")
    try:
        return python_with(extra)
    except CannotInstallError as error:
        pytest.skip(f"the packages cannot be had here: {error}")


@pytest.fixture(scope="session")
def confluent() -> Path:
    return environment("compat-test")


@pytest.fixture(scope="session")
def quix() -> Path:
    return environment("quix-test")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        started = Broker(tmp_path_factory.mktemp("kafka")).start()
    except CannotStartError as error:
        pytest.skip(f"no Kafka broker can be had here: {error}")
    yield started
    started.stop()
