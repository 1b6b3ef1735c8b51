"""Kafka's clients behind three gateways that are killed and paused: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from uuid import uuid4

import pytest

from sparktxn.store import Store
from tests.crash.gateway_workload import (
    INPUT,
    OUTPUT,
    PARTITIONS,
    Blows,
    Gateways,
    Told,
    check,
    committed_values,
    run,
)
from tests.servers import S3Server

pytestmark = [
    pytest.mark.crash,
    # aiokafka leaves connections to killed gateways behind, which warn once their event loop is closed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def behind_gateways(
    uri: str, options: dict[str, str], seed: int, blows: Blows, drain_s: float = 60.0, *, storing: Collection[int]
) -> Told:
    with Store.open(uri, options=options, create=True) as store:
        for topic in (INPUT, OUTPUT):
            store.create_topic(topic, PARTITIONS)
    gateways = Gateways(uri, options, 3, storing)

    def drained() -> bool:
        written, copied = (sum(map(len, committed_values(uri, options, topic))) for topic in (INPUT, OUTPUT))
        return copied >= written

    try:
        told = asyncio.run(run(gateways, blows, seed, drained, drain_s))
    finally:
        gateways.close()
    written, copied = (committed_values(uri, options, topic) for topic in (INPUT, OUTPUT))
    print(
        f"seed {seed}: {sum(map(len, written))} records, {len(told.stored)} acknowledged, {told.copies} copied, "
        f"{dict(told.errors)}"
    )
    assert check(told, written, copied) == []
    assert told.stored
    assert told.copies
    return told


def test_a_few_kills_and_pauses(tmp_path: Path, seed: int) -> None:
    behind_gateways(str(tmp_path / "store"), {}, seed, Blows(kills=6, pauses=2, gap_s=0.6), storing=[0])


@pytest.mark.nightly
@pytest.mark.parametrize("storing", [(), (1,), (0, 1, 2)], ids=["in memory", "mixed", "stored"])
def test_many_kills_and_pauses(tmp_path: Path, seed: int, storing: Collection[int]) -> None:
    blows = Blows(kills=340, pauses=15, gap_s=0.15)
    behind_gateways(str(tmp_path / "store"), {}, seed + len(storing), blows, 120, storing=storing)


@pytest.mark.nightly
@pytest.mark.moto
def test_many_kills_and_pauses_on_moto(moto_server: S3Server, seed: int) -> None:
    bucket = f"gateways-{uuid4().hex[:12]}"
    moto_server.create_bucket(bucket)
    uri, options = moto_server.uri(bucket, "store"), dict(moto_server.options)
    behind_gateways(uri, options, seed, Blows(kills=40, pauses=4, gap_s=0.35), 240, storing=[0])
