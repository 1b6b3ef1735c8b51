"""After a failed disk: what docs/operations.md says to do ends the transaction, and each record is stored once.

Each fsync of a commit fails in turn. The process then cannot say what became of the commit, so it cannot abort, either.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sparktxn import Consumer, KafkaException, Producer, Store, TopicPartition
from sparktxn._engine.objectstore import local
from sparktxn._engine.objectstore.local import Disk

WHERE = TopicPartition("out", 0)


class FailingDisk:
    """A disk whose `failing`-th fsync from `begin` on has lost what it was to write."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch, self._fsync, self._left = patch, os.fsync, -1
        patch.setattr(os, "fsync", self._sync)
        self.start_again()

    def start_again(self) -> None:
        """Forget what only a process remembers."""
        self._left = -1
        self._patch.setattr(local, "DISK", Disk())

    def begin(self, failing: int) -> None:
        self._left = failing

    def _sync(self, descriptor: int) -> None:
        if self._left > 0:
            self._left -= 1
            if not self._left:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(descriptor)


def position(settings: dict[str, Any]) -> int:
    """From where the program goes on: the offset of its input that a transaction has committed."""
    with Consumer({**settings, "group.id": "job"}) as consumer:
        return max(0, int(consumer.committed([TopicPartition("in", 0)])[0].offset))


def write(producer: Producer, settings: dict[str, Any], first: int) -> None:
    """Write what follows from input 0 on, with the input's position, in one transaction."""
    producer.begin_transaction()
    for number in range(first, 3):
        producer.produce("out", str(number))
    with Consumer({**settings, "group.id": "job"}) as consumer:
        producer.send_offsets_to_transaction([TopicPartition("in", 0, 3)], consumer.consumer_group_metadata())


def stored(settings: dict[str, Any]) -> list[bytes | None]:
    with Store.open(settings["bootstrap.servers"]) as store:
        end = store.view(["out"]).partitions["out", 0].last_stable_offset
    with Consumer({**settings, "group.id": "reader", "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("out", 0, 0)])
        found: list[bytes | None] = []
        while consumer.position([WHERE])[0].offset < end:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value())
        return found


@pytest.mark.parametrize("failing", range(1, 6))
@pytest.mark.parametrize("flushes", [False, True])
def test_a_process_that_is_started_again_ends_the_transaction_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, flushes: bool
) -> None:
    disk = FailingDisk(monkeypatch)
    settings: dict[str, Any] = {"bootstrap.servers": str(tmp_path / "store")}
    with Store.open(settings["bootstrap.servers"], create=True) as store:
        store.create_topic("in")
        store.create_topic("out")
    producer = Producer({**settings, "transactional.id": "job"})
    producer.init_transactions(10)
    write(producer, settings, 0)
    disk.begin(failing)
    if flushes:
        producer.flush(1)
    try:
        producer.commit_transaction(1)
    except KafkaException as error:
        assert error.error.retriable()  # noqa: PT017 - not each fsync is one of the commit
        with pytest.raises(KafkaException, match=r"the outcome of commit_transaction\(\) is not known"):
            producer.abort_transaction(1)
        producer.close(1)
        disk.start_again()
        producer = Producer({**settings, "transactional.id": "job"})
        producer.init_transactions(10)
        first = position(settings)
        if first < 3:
            write(producer, settings, first)
            producer.commit_transaction(10)
    disk.start_again()
    producer.close()
    assert stored(settings) == [b"0", b"1", b"2"]
    assert position(settings) == 3
