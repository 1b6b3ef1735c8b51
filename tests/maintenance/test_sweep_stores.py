"""The sweep on real stores and real time: S3 and Azure give an object's age in whole seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import InitProducerId
from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn.maintenance import sweep
from sparktxn.store import Store
from tests.producercommands import ProducerCommands

BUCKET = "sweeping"


@pytest.fixture(
    params=[
        "local",
        pytest.param("moto_server", marks=pytest.mark.moto),
        pytest.param("seaweed_server", marks=[pytest.mark.seaweedfs, pytest.mark.nightly]),
        pytest.param("fake_gcs_server", marks=pytest.mark.clouds),
        pytest.param("azurite_server", marks=pytest.mark.clouds),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    uri, options = str(tmp_path), {}
    if request.param != "local":
        server: Any = request.getfixturevalue(request.param)
        server.create_bucket(BUCKET)
        uri, options = server.uri(BUCKET, tmp_path.name), server.options
    with Store.open(uri, options=options, create=True) as store:
        yield store


@pytest.mark.kafka("K44", "K46")
def test_what_has_timed_out_is_aborted_and_what_has_not_is_not(store: Store) -> None:
    log = store.log
    store.create_topic("topic", 1)
    for name, timeout_ms in (("short", 500), ("long", 600_000)):
        told = log.submit([InitProducerId(log.ids.token(), name, timeout_ms)])[0]
        log.submit([ProducerCommands.of(name, told).append((1, 0), 0, transaction=1)])
    log.submit([InitProducerId(log.ids.token(), "idle")])
    time.sleep(2.1)
    report = sweep(store, {"transactional.id.expiration.ms": 1_000})
    assert [found.transactional_id for found in report.timed_out] == ["short"]
    assert 1_000 <= report.timed_out[0].timed_out_after_ms < 600_000
    assert report.expired_transactional_ids == ("idle",)
    kept = log.transaction("long")
    assert kept is not None
    assert kept.status is TransactionStatus.ONGOING
    assert log.objects.list(names.CLOCKS) == []
    assert sweep(store) == sweep(store)
