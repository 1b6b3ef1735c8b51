"""What the tests with real packages share: environments, a broker, and engines that read tables, each made once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.interop.broker import Broker, CannotStartError
from tests.interop.engines import Engine
from tests.interop.kafkatools import Jar, fetch_jars
from tests.interop.peers import CannotInstallError, python_with
from tests.interop.sparkjars import DELTA, ICEBERG


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
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A process with pyiceberg and DuckDB."""
    with Engine(environment("engines-test"), "table_readers", tmp_path_factory.mktemp("engines")) as started:
        yield started


@pytest.fixture(scope="module")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A Spark session with Delta's jars."""
    yield from spark("delta", DELTA, tmp_path_factory.mktemp("delta-spark"))


@pytest.fixture(scope="module")
def iceberg_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A Spark session with Iceberg's jars."""
    yield from spark("iceberg", ICEBERG, tmp_path_factory.mktemp("iceberg-spark"))


def spark(name: str, jars: Sequence[Jar], folder: Path) -> Iterator[Engine]:
    python = environment(f"{name}-spark-test")
    with Engine(python, "spark_tables", folder, name, *map(str, fetch_jars(jars))) as started:
        yield started


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        started = Broker(tmp_path_factory.mktemp("kafka")).start()
    except CannotStartError as error:
        pytest.skip(f"no Kafka broker can be had here: {error}")
    yield started
    started.stop()
