"""Spark's own reader and writer on S3, with hadoop-aws on the class path: `scan()`, `scan_stream()` and `write()`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark
import pytest

from tests.interop.kafkatools import Jar, fetch_jars
from tests.servers import S3Server
from tests.spark.drivers import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.moto]

_ACCELERATOR: Final = "analyticsaccelerator-s3"
HADOOP_AWS: Final = (
    Jar("org.apache.hadoop", "hadoop-aws", "3.5.0", "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa"),
    Jar(
        "software.amazon.awssdk",
        "bundle",
        "2.35.4",
        "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677",
    ),
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        _ACCELERATOR,
        "1.3.1",
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
    ),
)
"""The version of Hadoop that pyspark's jars have, and the AWS SDK that it names."""


def test_the_version_is_that_of_sparks_own_jars_and_of_the_page() -> None:
    version = HADOOP_AWS[0].version
    jars = Path(pyspark.__file__).parent / "jars"
    assert (jars / f"hadoop-client-api-{version}.jar").exists()
    short = ".".join(pyspark.__version__.split(".")[:2])
    page = " ".join((ROOT / "docs" / "spark.md").read_text().split())
    assert f"With pyspark {short} that is `spark.jars.packages org.apache.hadoop:hadoop-aws:{version}`" in page


def test_spark_reads_and_writes_a_store_on_s3_itself(moto_server: S3Server, tmp_path: Path) -> None:
    moto_server.create_bucket("hadoop-aws")
    jars = ",".join(map(str, fetch_jars(HADOOP_AWS)))
    options = {"storage.key": "k", "storage.secret": "s", "storage.endpoint_url": moto_server.endpoint_url}
    command = [sys.executable, "-m", "tests.interop.hadoop_aws_job", "s3://hadoop-aws/store"]
    paths = f"{ROOT}{os.pathsep}{ROOT / 'scala-free-python-datasource'}"
    done = subprocess.run(
        [*command, moto_server.endpoint_url, jars, json.dumps(options), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "files of Spark's reader ['s3a']" in done.stdout
    assert "rows 1001 the same True" in done.stdout
    assert "streamed 1001" in done.stdout
