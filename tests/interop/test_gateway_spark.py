"""Spark's own connector for Kafka on a gateway: `format("kafka")`, both ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop.conftest import environment
from tests.interop.gateway.javajars import SPARK
from tests.interop.gateway.serving import Gateway
from tests.interop.kafkatools import fetch_jars
from tests.interop.peers import run

pytestmark = pytest.mark.interop


def test_a_batch_and_a_stream_are_written_and_read(tmp_path: Path) -> None:
    python = environment("delta-spark-test")
    try:
        jars = ",".join(map(str, fetch_jars(SPARK)))
    except OSError as error:
        pytest.skip(f"Spark's connector for Kafka cannot be had here: {error}")
    program = str(Path(__file__).parent / "programs" / "spark_kafka.py")
    with Gateway(tmp_path, partition_count=2) as served:
        printed = run(python, [program, served.address, jars, str(tmp_path)], PYSPARK_PYTHON=str(python))
    found = json.loads(printed.splitlines()[-1])
    assert found == {"written": list(range(100)), "streamed": list(range(100))}
