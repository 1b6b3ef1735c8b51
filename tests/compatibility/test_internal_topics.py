"""The internal topics hold what docs/PROTOCOL.md says, for a store with every kind of command in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktxn import Consumer, TopicPartition
from sparktxn._engine.format.commands import Command, DeleteGroup, OffsetCommit, OffsetToCommit
from sparktxn.store import Store
from tests.compatibility.consume_all import consume_all
from tests.compatibility.independent_history import History
from tests.compatibility.independent_reader import StoreReader
from tests.compatibility.workload import GROUP, Workload, written

SETTINGS = {"store.fsync": False, "checkpoint.entries": 16, "checkpoint.seal.segments": 4}


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workload]:
    with written(str(tmp_path_factory.mktemp("store")), SETTINGS, rounds=12) as workload:
        with Store.open(workload.uri, options=SETTINGS) as store:
            forget_half(store)
        yield workload


def forget_half(store: Store) -> None:
    """Deletes every other offset of the group, in one entry with a commit of them all before and after."""
    with store.log.within(10):
        store.log.refresh()
    known = store.log.group_offsets(GROUP)
    command = DeleteGroup("forget", GROUP, tuple((k.topic_id, k.partition, k.entry) for k in known[::2]))
    again = tuple(OffsetToCommit(k.topic_id, k.partition, k.offset + 1) for k in known)
    commands: list[Command] = [OffsetCommit("a", "other", again), command, OffsetCommit("b", "other", again)]
    with store.log.within(10):
        store.log.submit(commands)


@pytest.fixture(scope="module")
def history(workload: Workload) -> History:
    reader = StoreReader(Path(workload.uri))
    history = History()
    for entry, commands in reader.entries(0, "00000000"):
        history.apply(entry["entry"], entry["timestamp_ms"], commands)
    return history


@pytest.mark.parametrize(
    ("topic", "shown"),
    [
        ("__transaction_state", "transactions"),
        ("__consumer_offsets", "offsets"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "halves"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "settled"),
        ("TRANS_CHECK_MAX_TIME_TOPIC", "discarded"),
    ],
)
def test_every_row_and_offset(workload: Workload, history: History, topic: str, shown: str) -> None:
    found: dict[int, dict[str, Any]] = {}
    with Consumer({**workload.settings, "group.id": "all", "enable.auto.commit": False}) as consumer:
        consumer.assign([TopicPartition(topic, 0, -2)])
        for message in consume_all(consumer, consumer.poll):
            value = json.loads(message.value() or "{}")
            entry = (message.offset() or 0) >> 20
            row = {"entry": entry, "timestamp_ms": message.timestamp()[1], **json.loads(message.key() or b""), **value}
            assert row["entry"] == entry
            found[message.offset() or 0] = row
    assert found == getattr(history, shown)
    assert len(found) > (20 if topic.startswith("__") else 3)


def test_the_history_has_what_is_to_be_compared(history: History) -> None:
    """What the test above compares is not there by chance."""
    states = {row.get("state") for row in history.transactions.values()}
    assert states >= {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", None}
    assert any(row.get("prepared") for row in history.transactions.values())
    assert any(row.get("fence_reason") for row in history.transactions.values())
    assert any("offset" not in row for row in history.offsets.values())
    assert {row.get("transactional_id") is None for row in history.offsets.values()} == {True, False}
    members = [row for row in history.offsets.values() if "member_id" in row]
    assert any(row.get("revoking") for row in members)
    assert any(row.get("is_away") for row in members)
    assert any("member_epoch" not in row for row in members)
