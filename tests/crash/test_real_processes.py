"""Processes that are killed and paused at any moment, on a local disk and on servers behind a faulty proxy.

Transactional writers (fused and early-published), a read-process-write job, a viewer and a sweeper run the clients that
users run. Each notes the answers; afterwards nothing may contradict the store: see `journal_checker.py`.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from sparktxn.testing.faultproxy import FaultProxy
from tests.crash.chaos import ChaosRun, NetworkFaults, Plan, Report
from tests.crash.journal_checker import check_journals
from tests.servers import ObjectServer, S3Server

pytestmark = pytest.mark.crash

CHECKPOINTS = {"checkpoint.entries": 16, "checkpoint.seal.segments": 4}
QUICK = {"store.request.timeout.ms": 5_000}
"""Of the workers. What watches them meets no fault, and must not fail where the machine is slow."""
INLINE_BYTES = 250
"""Up to which size records are inline, so that some are and some are not."""
buckets = count()


def on_disk(folder: Path, seed: int, plan: Plan, **more: int) -> Report:
    options = CHECKPOINTS | {name.replace("_", "."): value for name, value in more.items()}
    chaos = ChaosRun(folder / "journals", str(folder / "store"), options, seed, plan)
    report = chaos.run(options)
    print(report)
    assert report.kills == plan.kills
    assert check_journals(chaos.evidence()) == []
    return report


def on_server(folder: Path, server: ObjectServer, seed: int, plan: Plan) -> Report:
    bucket = f"chaos-{os.getpid()}-{next(buckets)}"
    server.create_bucket(bucket)
    with FaultProxy(server.endpoint_url) as proxy:
        direct = {**server.options, **CHECKPOINTS}
        chaos = ChaosRun(folder / "journals", server.uri(bucket, "store"), direct, seed, plan)
        faults = NetworkFaults(proxy, seed, server.create_method)
        report = chaos.run(direct | QUICK | server.options_by(proxy.endpoint_url), faults)
    print(report)
    assert report.kills == plan.kills
    assert check_journals(chaos.evidence()) == []
    return report


@pytest.mark.kafka("K134", "K138")
def test_a_few_kills_and_pauses_on_a_local_disk(tmp_path: Path, seed: int) -> None:
    report = on_disk(tmp_path, seed, Plan(kills=9, pauses=4, writers=3, gap_max_s=0.3))
    assert report.deaths["fenced"], "a writer that was paused past its time-out was told so"
    assert report.deaths["replaced and fenced"] == 2


@pytest.mark.kafka("K138")
@pytest.mark.nightly
def test_a_few_kills_with_files_and_inline_records(tmp_path: Path, seed: int) -> None:
    on_disk(tmp_path, seed, Plan(kills=6, pauses=2, writers=2, gap_max_s=0.3), store_append_inline_bytes=INLINE_BYTES)
    carrying = [entry for entry in (tmp_path / "store" / "_log").glob("0*.json") if b'"data":' in entry.read_bytes()]
    assert carrying
    # The run draws its topics' format.
    assert [file for ending in ("arrow", "parquet") for file in (tmp_path / "store" / "topics").glob(f"*/*/*.{ending}")]


@pytest.mark.kafka("K138")
@pytest.mark.nightly
@pytest.mark.parametrize("run", range(7))
def test_many_kills_and_pauses_on_a_local_disk(tmp_path: Path, seed: int, run: int) -> None:
    on_disk(tmp_path, seed, Plan(kills=100, pauses=10, writers=4, gap_max_s=0.5))


@pytest.mark.kafka("K138")
@pytest.mark.nightly
@pytest.mark.moto
@pytest.mark.parametrize("run", range(2))
def test_many_kills_on_moto_behind_a_faulty_proxy(tmp_path: Path, moto_server: S3Server, seed: int, run: int) -> None:
    on_server(tmp_path, moto_server, seed, Plan(kills=50, pauses=4, writers=2, gap_max_s=3.0, timeout_ms=4_000))


@pytest.mark.kafka("K138")
@pytest.mark.nightly
@pytest.mark.seaweedfs
@pytest.mark.parametrize("run", range(2))
def test_many_kills_on_seaweedfs_behind_a_faulty_proxy(
    tmp_path: Path, seaweed_server: S3Server, seed: int, run: int
) -> None:
    on_server(tmp_path, seaweed_server, seed, Plan(kills=40, pauses=4, writers=2, gap_max_s=3.0, timeout_ms=4_000))


@pytest.mark.kafka("K138")
@pytest.mark.nightly
@pytest.mark.clouds
@pytest.mark.parametrize("emulator", ["fake_gcs_server", "azurite_server"])
def test_kills_on_an_emulator_of_a_cloud_behind_a_faulty_proxy(
    tmp_path: Path, request: pytest.FixtureRequest, seed: int, emulator: str
) -> None:
    server = request.getfixturevalue(emulator)
    on_server(tmp_path, server, seed, Plan(kills=20, pauses=3, writers=2, gap_max_s=3.0, timeout_ms=4_000))
