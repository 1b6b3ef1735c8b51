"""Batch and stream on S3 by an `s3a://` address, and credentials that no output shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("pyspark")

from tests.servers import S3Server
from tests.spark.drivers import ROOT, numbers
from tests.spark.objects import copy_objects

pytestmark = [pytest.mark.spark, pytest.mark.moto]

BUCKET: Final = "spark-round-trip"
KEY: Final = "AKIDNOTTOBETOLD"
SECRET: Final = "correct-horse-battery-staple"


def test_a_driver_copies_a_topic_on_s3_and_tells_no_credentials(moto_server: S3Server, tmp_path: Path) -> None:
    moto_server.create_bucket(BUCKET)
    options = {"storage.key": KEY, "storage.secret": SECRET, "storage.endpoint_url": moto_server.endpoint_url}
    paths = f"{ROOT}{os.pathsep}{ROOT / 'scala-free-python-datasource'}"
    addresses = [f"s3a://{BUCKET}/store", "s3a://no-such-bucket/store"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.s3_job", *addresses, json.dumps(options), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    told = done.stdout
    assert done.returncode == 0, told[-4000:]
    assert "copied True" in told
    store = copy_objects(moto_server, BUCKET, "store", tmp_path / "copy")
    assert numbers(store, "out") == list(range(1000))

    for name in ("write", "read", "stream", "setting", "JSON"):
        assert f"{name} failed: " in told
    assert "no-such-bucket" in told
    assert "INFO" in told
    assert "== Physical Plan ==" in told
    kept = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    for secret in (KEY, SECRET):
        assert [line for text in (told, *kept) for line in text.splitlines() if secret in line] == []
